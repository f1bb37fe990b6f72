"""usage and tools: tokens, costs and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import Span, note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.usage import Spent, UsageBy, UsageLine, UsageReport
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import local_zone, moment
from agents_ledger.model.text.periods import UNDATED, Period

GROUPINGS: tuple[UsageBy, ...] = get_args(UsageBy)
SESSIONS = 20
PERCENT = 100


def _time_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --since and --until."""
    since = click.option("--since", metavar="WHEN", help="Start time: 2026-03-01, yesterday, 7d.")
    until = click.option("--until", metavar="WHEN", help="End time.")
    return since(until(function))


@command
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="day",
    show_default=True,
    help="Grouping of the rows.",
)
@_time_options
@click.option("--project", metavar="FOLDER", help="Turns in this project folder.")
@click.option("--model", metavar="NAME", help="Turns of this model.")
@click.option("--utc", is_flag=True, help="Use UTC days instead of local days.")
@limit_option(None, "rows; 20 with --by session")
def usage(
    run: Invocation,
    *,
    by: UsageBy,
    since: str | None,
    until: str | None,
    project: str | None,
    model: str | None,
    utc: bool,
    limit: int | None,
) -> None:
    """Report turns, tokens and costs by day, week, month, session, model or project."""
    if limit is None and by == "session":
        limit = SESSIONS
    with run.reading() as ledger:
        report = ledger.usage(
            by,
            since=moment(since, now_ms()) if since else None,
            until=moment(until, now_ms()) if until else None,
            project=project,
            model=model,
            zone=None if utc else local_zone(),
            limit=limit,
        )
    if run.as_json:
        run.out.json(**to_builtins(report))
        return
    if not report.total.turns:
        note("No turn matches.")
        return
    _print(run, report)
    _print_remarks(report)


def _print(run: Invocation, report: UsageReport) -> None:
    heads = [report.by.upper(), "TURNS", "INPUT", "CACHED", "OUTPUT", "TOKENS", "COST", "MODELS"]
    rows = [_row(_name(line, report), line.spent, _models(line)) for line in report.lines]
    if len(rows) > 1 or report.left_out or report.by == "session":
        rows.append(_row("total", report.total, ""))
    if report.by == "model":  # the first column has it
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    run.out.table(heads, rows, right=heads[1:7])


def _name(line: UsageLine, report: UsageReport) -> str:
    if report.by in get_args(Period) and (line.key or "") < UNDATED:
        return "undated"
    return line.key or "(none)"


def _row(key: str, spent: Spent, models: str) -> list[Span]:
    return [
        (key, "title" if key == "total" else "label"),
        f"{spent.turns:,}",
        humanize.tokens(spent.fresh_input_tokens),
        humanize.tokens(spent.cached_input_tokens + spent.cache_write_tokens),
        humanize.tokens(spent.paid_output_tokens),
        humanize.tokens(spent.total_tokens),
        cost(spent),
        (models, "dim"),
    ]


def _models(line: UsageLine) -> str:
    return ", ".join(dict.fromkeys(usage.model or "(none)" for usage in line.models))


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
    if report.total.untold:
        note((f"{humanize.count(report.total.untold, 'turn')} without token counts", "dim"))
    if report.total.cost_microdollars is not None:
        note((f"Estimated costs in US dollars, by the list prices of {report.priced_on}.", "dim"))


@command
@_time_options
@limit_option(None, "tools")
def tools(run: Invocation, *, since: str | None, until: str | None, limit: int | None) -> None:
    """Report how often each tool was called, how often it failed, and how long it took."""
    with run.reading() as ledger:
        tools = ledger.tools(
            since=moment(since, now_ms()) if since else None,
            until=moment(until, now_ms()) if until else None,
            limit=limit,
        )
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
    run.out.table(heads, rows, right=heads[1:-1])


def _share(part: int, whole: int) -> str:
    """12 (3%), or an empty text for 0."""
    return f"{part:,} ({PERCENT * part / whole:.0f}%)" if part else ""


def _duration(milliseconds: int | None) -> str:
    return "" if milliseconds is None else humanize.duration(milliseconds)
