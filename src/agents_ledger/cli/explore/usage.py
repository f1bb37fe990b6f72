"""usage and tools: what was spent, and on what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import Span, note
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.usage import Spent, UsageBy, UsageLine, UsageReport
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import local_zone, moment
from agents_ledger.model.text.periods import UNDATED, Period

BYS: tuple[UsageBy, ...] = ("day", "week", "month", "session", "model", "project")
SESSIONS = 20
PERCENT = 100


def _times(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --since and --until."""
    since = click.option("--since", metavar="WHEN", help="From then: 2026-03-01, yesterday, 7d.")
    until = click.option("--until", metavar="WHEN", help="Up to then.")
    return since(until(function))


@command
@click.option(
    "--by", type=click.Choice(BYS), default="day", show_default=True, help="What a line is of."
)
@_times
@click.option("--project", metavar="FOLDER", help="Only turns that worked there.")
@click.option("--model", metavar="NAME", help="Only turns of this model.")
@click.option("--utc", is_flag=True, help="Days by UTC, not by this machine's clock.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many lines.")
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
    """Show turns, tokens and costs by day, week, month, session, model or project."""
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
    _remark(report)


def _print(run: Invocation, report: UsageReport) -> None:
    heads = [report.by.upper(), "TURNS", "INPUT", "CACHED", "OUTPUT", "TOKENS", "COST", "MODELS"]
    rows = [_row(_name(line, report), line.spent, _models(line)) for line in report.lines]
    if len(rows) > 1 or report.left_out or report.by == "session":
        rows.append(_row("total", report.total, ""))
    if report.by == "model":  # said already
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
    return ", ".join(dict.fromkeys(one.model or "(none)" for one in line.models))


def cost(spent: Spent) -> str:
    """$1.23; with a + where some of it has no price; 'no price' where nothing has."""
    if spent.cost_microdollars is None:
        return "no price" if spent.unpriced_turns else ""
    return humanize.money(spent.cost_microdollars) + ("+" if spent.unpriced_turns else "")


def _remark(report: UsageReport) -> None:
    if report.left_out:
        note((f"{humanize.count(report.left_out, 'line')} left out; --limit N shows more.", "dim"))
    if report.unpriced:
        note(("no price for ", "dim"), ", ".join(report.unpriced))
    if report.total.untold:
        note((f"no tokens told by {humanize.count(report.total.untold, 'turn')}", "dim"))
    if report.total.cost_microdollars is not None:
        note((f"Costs by the list prices of {report.priced_on}, in US dollars.", "dim"))


@command
@_times
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many tools.")
def tools(run: Invocation, *, since: str | None, until: str | None, limit: int | None) -> None:
    """Show how often each tool was used, how often it failed, and how long it took."""
    with run.reading() as ledger:
        found = ledger.tools(
            since=moment(since, now_ms()) if since else None,
            until=moment(until, now_ms()) if until else None,
            limit=limit,
        )
    if run.as_json:
        run.out.json(tools=found)
        return
    if not found:
        note("No tool call matches.")
        return
    now = now_ms()
    heads = ["TOOL", "CALLS", "FAILED", "REJECTED", "HALF IN", "95% IN", "LONGEST", "LAST USED"]
    rows: list[Sequence[Span]] = [
        [
            (tool.tool_name, "tool"),
            f"{tool.calls:,}",
            (_share(tool.failed, tool.calls), "bad" if tool.failed else ""),
            _share(tool.rejected + tool.cancelled, tool.calls),
            _took(tool.p50_ms),
            _took(tool.p95_ms),
            _took(tool.longest_ms),
            (humanize.age(tool.last_used_at, now), "dim"),
        ]
        for tool in found
    ]
    run.out.table(heads, rows, right=heads[1:-1])


def _share(part: int, whole: int) -> str:
    """12 (3%), or nothing."""
    return f"{part:,} ({PERCENT * part / whole:.0f}%)" if part else ""


def _took(milliseconds: int | None) -> str:
    return "" if milliseconds is None else humanize.duration(milliseconds)
