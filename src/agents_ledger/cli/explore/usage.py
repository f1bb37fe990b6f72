"""usage and tools: tokens, costs and tool calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import get_args

import click
from msgspec import to_builtins

from agents_ledger.cli.command import (
    Invocation,
    command,
    limit_option,
    project_folder,
    since_option,
    until_option,
)
from agents_ledger.cli.terminal import Span, fit, note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.usage import (
    CSV_COLUMNS,
    NOT_RECORDED,
    Spent,
    UsageBy,
    UsageLine,
    UsageReport,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import local_zone
from agents_ledger.model.text.periods import UNDATED, Period

GROUPINGS: tuple[UsageBy, ...] = get_args(UsageBy)
SESSIONS = 20
PERCENT = 100
MODELS_MAX = 40  # columns of a terminal
FIGURES = ("TURNS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "TOKENS", "COST")


@command
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="day",
    show_default=True,
    help="Grouping of the rows; a block is five hours from the first turn on.",
)
@since_option("Turns")
@until_option("Turns")
@click.option("--project", metavar="FOLDER", help="Turns in this project, or words of its path.")
@click.option("--model", metavar="NAME", help="Turns of this model, or words of its name.")
@click.option("--utc", is_flag=True, help="Use UTC days instead of local days.")
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@limit_option(None, "rows; 20 with --by session")
def usage(
    run: Invocation,
    *,
    by: UsageBy,
    since: int | None,
    until: int | None,
    project: str | None,
    model: str | None,
    utc: bool,
    as_csv: bool,
    limit: int | None,
) -> None:
    """Report turns, tokens and costs.

    Rows are days, weeks, months, five-hour blocks, models, agents, projects or sessions.
    """
    if as_csv and run.as_json:
        raise click.UsageError("--csv and --json cannot be combined")
    if limit is None and by == "session" and not as_csv:
        limit = SESSIONS
    with run.reading() as ledger:
        report = ledger.usage(
            by,
            since=since,
            until=until,
            project=project_folder(project),
            model=model,
            zone=None if utc else local_zone(),
            limit=limit,
        )
    if run.as_json:
        run.out.json(**to_builtins(report))
    elif as_csv:
        run.out.csv((report.by, *CSV_COLUMNS, "models"), _csv_rows(report))
    elif not report.total.turns:
        note("No turn matches.")
    else:
        _print(run, report)
        _print_remarks(report)


def _csv_rows(report: UsageReport) -> Iterator[list[object]]:
    for line in report.lines:
        values = [getattr(line.spent, name) for name in CSV_COLUMNS]
        yield [_name(line, report), *values, _models(line)]


def _print(run: Invocation, report: UsageReport) -> None:
    models_max = MODELS_MAX if run.out.is_terminal else sys.maxsize
    rows = [
        [*_row(_name(line, report), line.spent), (fit(_models(line), models_max), "dim")]
        for line in report.lines
    ]
    if len(rows) > 1 or report.left_out or report.by == "session":
        rows.append([*_row("total", report.total), ""])
    heads = [report.by.upper(), *FIGURES, "MODELS"]
    if report.by == "model":  # the first column has it
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    omitted = [name for name in ("MODELS", "CACHE WRITE", "CACHE READ") if name in heads]
    run.out.table(heads, rows, right=FIGURES, flexible=heads[0], optional=omitted)


def _name(line: UsageLine, report: UsageReport) -> str:
    is_period = report.by == "block" or report.by in get_args(Period)
    if is_period and (line.key or "") < UNDATED:
        return "undated"
    return line.key or NOT_RECORDED


def _row(key: str, spent: Spent) -> list[Span]:
    return [
        (key, "title" if key == "total" else "label"),
        f"{spent.turns:,}",
        humanize.tokens(spent.fresh_input_tokens),
        humanize.tokens(spent.cached_input_tokens),
        humanize.tokens(spent.cache_write_tokens),
        humanize.tokens(spent.paid_output_tokens),
        humanize.tokens(spent.total_tokens),
        cost(spent),
    ]


def _models(line: UsageLine) -> str:
    return ", ".join(dict.fromkeys(usage.model or NOT_RECORDED for usage in line.models))


def cost(spent: Spent) -> str:
    """$1.23; with a + if some turns have no price; 'no price' if none has one."""
    if spent.cost_microdollars is None:
        return "no price" if spent.unpriced_turns else ""
    return humanize.money(spent.cost_microdollars) + ("+" if spent.unpriced_turns else "")


def _print_remarks(report: UsageReport) -> None:
    if report.left_out:
        note((f"{humanize.count(report.left_out, 'more row')} (--limit)", "dim"))
    if report.unpriced:
        note(("no price for ", "dim"), ", ".join(report.unpriced))
    if unreported := report.total.turns_without_tokens:
        note((f"{humanize.count(unreported, 'turn')} without token counts", "dim"))
    if report.total.cost_microdollars is not None:
        note((f"Estimated costs in US dollars, by the list prices of {report.priced_on}.", "dim"))


@command
@since_option("Calls of turns")
@until_option("Calls of turns")
@limit_option(None, "tools")
def tools(run: Invocation, *, since: int | None, until: int | None, limit: int | None) -> None:
    """Report how often each tool was called, how often it failed, and how long it took."""
    with run.reading() as ledger:
        tools = ledger.tools(since=since, until=until, limit=limit)
    if run.as_json:
        run.out.json(tools=tools)
        return
    if not tools:
        note("No tool call matches.")
        return
    now = now_ms()
    heads = ["TOOL", "CALLS", "FAILED", "REJECTED", "P50", "P95", "LONGEST", "LAST USED"]
    rows: list[Sequence[Span]] = [
        [
            (tool.tool_name, "tool"),
            f"{tool.calls:,}",
            (_share(tool.failed, tool.calls), "bad" if tool.failed else ""),
            _share(tool.rejected + tool.cancelled, tool.calls),
            _duration(tool.p50_ms),
            _duration(tool.p95_ms),
            _duration(tool.longest_ms),
            (humanize.age(tool.last_used_at, now), "dim"),
        ]
        for tool in tools
    ]
    omitted = ("REJECTED", "LAST USED", "P50")
    run.out.table(heads, rows, right=heads[1:-1], flexible="TOOL", optional=omitted)


def _share(part: int, whole: int) -> str:
    """12 (3%), or an empty text for 0."""
    return f"{part:,} ({PERCENT * part / whole:.0f}%)" if part else ""


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else humanize.duration(milliseconds)
