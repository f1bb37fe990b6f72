"""Usage over time or by model, project and session; tools and their calls."""

from __future__ import annotations

from typing import NamedTuple, cast, get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.usage import UsageBy, UsageLine, UsageReport
from agents_ledger.model.text.periods import UNDATED
from agents_ledger.web.pages import charts
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

DAY_MS = 86_400_000
ROWS_MAX = 100
TOOLS_MAX = 400
PER_PAGE = 50
BARS_MAX = 120
DIGITS_MAX = 15
PERIODS = ("day", "week", "month", "block")


class UsageSelection(NamedTuple):
    """The turns that are counted."""

    days: int = 0  # 0: all
    project: str = ""
    model: str = ""


@get("/usage", sync_to_thread=True)
def usage_page(
    request: WebRequest,
    site: ThisSite,
    *,
    by: FromQuery[str] = "day",
    days: FromQuery[int] = 0,
    project: FromQuery[str] = "",
    model: FromQuery[str] = "",
    before: FromQuery[str] = "",
) -> Response[str]:
    """Turns, tokens and cost. Periods are newest first; the next page comes `before` the last."""
    if by not in get_args(UsageBy):
        raise Refused(f"unknown grouping {by!r}", f"Group by {', '.join(get_args(UsageBy))}.")
    grouping = cast(UsageBy, by)
    filters = UsageSelection(max(0, days), project, model)
    report = _report(site, grouping, filters)
    lines = report.lines
    if grouping in PERIODS:
        lines = tuple(line for line in lines[::-1] if not before or (line.key or "") < before)
    return site.page(
        "usage.html",
        request,
        title="Usage",
        report=report,
        lines=lines[:ROWS_MAX],
        older=lines[ROWS_MAX - 1].key if len(lines) > ROWS_MAX else None,
        by=by,
        groupings=get_args(UsageBy),
        periods=PERIODS,
        filters=filters._asdict() | {"days": filters.days or ""},
        bars=_bars(grouping, lines) if grouping in PERIODS else (),
        undated=UNDATED,
        heat=site.heat_map(),
    )


def _report(site: Site, by: UsageBy, filters: UsageSelection) -> UsageReport:
    """The report; without a filter it may be a minute old."""
    # Counted from the latest turn, so that an old ledger is not empty.
    latest = site.pages.latest_turn_at() or 0

    def compute() -> UsageReport:
        return site.ledger.usage(
            by,
            since=latest - filters.days * DAY_MS if filters.days else None,
            project=filters.project or None,
            model=filters.model or None,
            limit=None if by in PERIODS else PER_PAGE,
        )

    if any(filters):
        return compute()
    return site.background.get(f"usage by {by}", compute) or compute()


def _bars(by: UsageBy, lines: tuple[UsageLine, ...]) -> tuple[charts.Bar, ...]:
    """A bar for each period, oldest first."""
    values = [(line.key or "", line.spent.total_tokens) for line in lines[BARS_MAX - 1 :: -1]]
    values = [(key, tokens) for key, tokens in values if key > UNDATED]
    return charts.bars(charts.every_day(values, BARS_MAX) if by == "day" else values)


@get("/tools", sync_to_thread=True)
def tools_page(request: WebRequest, site: ThisSite) -> Response[str]:
    return site.page("tools.html", request, title="Tools", tools=site.ledger.tools(limit=TOOLS_MAX))


@get("/tools/{name:str}", sync_to_thread=True)
def tool_page(
    request: WebRequest, site: ThisSite, name: FromPath[str], before: FromQuery[str] = ""
) -> Response[str]:
    tool_name = decode_part(name)
    calls = site.pages.tool_examples(tool_name, limit=PER_PAGE + 1, before=_before(before))
    if not calls and not before:
        raise NotFound(f"tool {tool_name!r} was never called", "The page Tools lists all tools.")
    older = calls[PER_PAGE - 1] if len(calls) > PER_PAGE else None
    usage = next((tool for tool in site.ledger.tools() if tool.tool_name == tool_name), None)
    return site.page(
        "tool.html",
        request,
        title=tool_name,
        tool_name=tool_name,
        usage=usage,
        calls=calls[:PER_PAGE],
        older=f"{older.sequence}:{older.turn_id}" if older else None,
    )


def _before(cursor: str) -> tuple[str, int] | None:
    sequence, _, turn_id = cursor.partition(":")
    if not sequence.isdecimal() or len(sequence) > DIGITS_MAX:
        return None
    return turn_id, int(sequence)


ROUTES = (usage_page, tools_page, tool_page)
