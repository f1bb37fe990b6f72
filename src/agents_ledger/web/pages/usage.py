"""Usage over time or by model, project and session; tools and their calls."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple, cast, get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.ledger.reports.tool_calls import TURNS_SCANNED
from agents_ledger.ledger.reports.usage import add_up
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports import prices
from agents_ledger.model.reports.pages import CallCursor
from agents_ledger.model.reports.usage import (
    CSV_COLUMNS,
    NOT_RECORDED,
    Spent,
    UsageBy,
    UsageLine,
    UsageReport,
    UsageSplit,
)
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import local_zone
from agents_ledger.model.text.periods import UNDATED, period_of
from agents_ledger.render.summaries import fit_line
from agents_ledger.web.pages import charts
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

ROWS_MAX = 100
TOOLS_MAX = 400
PER_PAGE = 50
DIGITS_MAX = 15
TILES_MAX = 24
NAME_MAX = 80
PERIODS = ("day", "week", "month", "block")
# In the order of the page, with their names.
GROUPINGS = {
    "project": "Project", "model": "Model", "agent": "Agent", "session": "Session",
    "day": "Day", "week": "Week", "month": "Month", "block": "Five hours",
}  # fmt: skip
DEFAULT_PERIOD = "30d"
YEAR_DAYS = 366


class UsageSelection(NamedTuple):
    """The turns that are counted; days begin at midnight of this machine's zone."""

    first: date | None
    last: date | None
    project: str = ""
    model: str = ""
    agent: str = ""

    def filters(self) -> dict[str, Any]:
        first, last = self.first, self.last
        return {
            "since": _midnight(first) if first else None,
            "until": _midnight(last + timedelta(days=1)) if last else None,
            "project": self.project or None,
            "model": self.model or None,
            "agent": self.agent or None,
            "zone": local_zone(),
        }

    def before(self) -> UsageSelection | None:
        """The period of the same length before this one."""
        if self.first is None or self.last is None:
            return None
        days = self.last - self.first + timedelta(days=1)
        return self._replace(first=self.first - days, last=self.last - days)


def _midnight(day: date) -> int:
    return int(datetime.combine(day, time(), local_zone()).timestamp() * 1000)


Presets = dict[str, tuple[str, date | None, date | None]]


def presets(today: date, latest: date | None) -> Presets:
    """The name, first and last day of each period, counted from today."""
    month = today.replace(day=1)
    before = month - timedelta(days=1)
    periods: Presets = {
        "today": ("Today", today, today),
        "yesterday": ("Yesterday", today - timedelta(days=1), today - timedelta(days=1)),
        "7d": ("Last 7 days", today - timedelta(days=6), today),
        "30d": ("Last 30 days", today - timedelta(days=29), today),
        "month": ("This month", month, today),
        "last-month": ("Last month", before.replace(day=1), before),
        "all": ("All", None, None),
    }
    if latest:
        periods["active"] = ("Last active week", latest - timedelta(days=6), latest)
    return periods


class Preset(NamedTuple):
    """A period to choose, with what was spent in it if that is known without reading turns."""

    key: str
    name: str
    spent: Spent | None


@get("/usage", sync_to_thread=True)
def usage_page(
    request: WebRequest,
    site: ThisSite,
    *,
    by: FromQuery[str] = "project",
    period: FromQuery[str] = "",
    first: FromQuery[str] = "",
    last: FromQuery[str] = "",
    metric: FromQuery[str] = "cost",
    split: FromQuery[str] = "model",
    project: FromQuery[str] = "",
    model: FromQuery[str] = "",
    agent: FromQuery[str] = "",
    before: FromQuery[str] = "",
) -> Response[str]:
    """Turns, tokens and cost. Periods are newest first; the next page comes `before` the last."""
    grouping = _grouping(by)
    if split not in get_args(UsageSplit):
        raise Refused(f"unknown split {split!r}", f"Split by {', '.join(get_args(UsageSplit))}.")
    parts_of = cast(UsageSplit, split)
    name, period, whole, periods = _selection(site, period, first, last)
    selection = whole._replace(project=project, model=model, agent=agent)
    days = _report(site, "day", selection, parts_of)
    extent = _extent(days, selection)
    charted = charts.bar_length(*extent) if extent else "day"
    bars = days if charted == "day" else _report(site, charted, selection, parts_of)
    read: dict[str, UsageReport] = {"day": days, charted: bars}
    report = read.get(by) or _report(site, grouping, selection, parts_of)
    shown = "tokens" if days.total.cost_microdollars is None else metric
    legend = _legend(bars.lines, shown)
    lines = _table(report, grouping, shown, before)
    previous = selection.before()
    return site.page(
        "usage.html",
        request,
        title="Usage",
        total=days.total,
        unpriced=days.unpriced,
        priced_on=days.priced_on,
        previous=site.ledger.usage(**previous.filters()).total if previous else None,
        peak=max(_dated(days), key=lambda line: _value(line.spent, shown), default=None),
        active_days=sum(1 for _ in _dated(days)),
        lines=lines[:ROWS_MAX],
        left_out=report.left_out,
        line_names=_line_names(site, lines[:ROWS_MAX], grouping),
        most=max((_value(line.spent, shown) for line in lines), default=0),
        tiles=_tiles(lines, grouping, shown),
        older=lines[ROWS_MAX - 1].key if len(lines) > ROWS_MAX else None,
        by=by,
        groupings=GROUPINGS,
        periods=PERIODS,
        presets=_presets(site, periods, has_filters=any((project, model, agent))),
        name=name,
        metric=shown,
        choices=site.choices(),
        filters={
            "period": period, "first": first, "last": last, "metric": metric, "split": split,
            "project": project, "model": model, "agent": agent,
        },
        charted=charted,
        uncharted=_turns_outside(days, extent),
        extent=extent,
        chart=_chart(bars, charted, extent, shown, legend),
        legend=legend,
        undated=UNDATED,
    )  # fmt: skip


def _dated(report: UsageReport) -> Iterator[UsageLine]:
    """The lines of the days with tokens; of a report without any, of the days with turns."""
    for line in report.lines:
        if (line.key or "") > UNDATED and (
            line.spent.total_tokens or not report.total.total_tokens
        ):
            yield line


def _extent(days: UsageReport, selection: UsageSelection) -> tuple[date, date] | None:
    """The first and last day of a chart: the selected ones; of many, those with use."""
    keys = [line.key or "" for line in _dated(days)]
    if not keys:
        return None
    used = date.fromisoformat(keys[0]), date.fromisoformat(keys[-1])
    first, last = selection.first or used[0], selection.last or used[1]
    return (first, last) if (last - first).days < YEAR_DAYS else used


def _turns_outside(days: UsageReport, extent: tuple[date, date] | None) -> int:
    """The number of turns whose days the chart does not have: they have no tokens, or no time."""
    if extent is None:
        return 0
    first, last = map(str, extent)
    return sum(line.spent.turns for line in days.lines if not first <= (line.key or "") <= last)


def _table(report: UsageReport, by: UsageBy, metric: str, before: str) -> tuple[UsageLine, ...]:
    """Periods newest first, others by their value."""
    if by in PERIODS:
        return tuple(line for line in report.lines[::-1] if not before or (line.key or "") < before)
    return tuple(sorted(report.lines, key=lambda line: -_value(line.spent, metric)))


def _line_names(site: Site, lines: Sequence[UsageLine], by: UsageBy) -> dict[str | None, str]:
    """What the lines are called on the page, by key."""
    keys = [line.key for line in lines if line.key]
    names: dict[str | None, str] = dict.fromkeys((None, ""), "not recorded")
    short = _short_paths(keys) if by == "project" else {}
    names.update((key, fit_line(short.get(key, key), NAME_MAX)) for key in keys)
    if by == "session":
        sessions = site.pages.session_names(keys)
        names.update((key, fit_line(named.name, NAME_MAX)) for key, named in sessions.items())
    return names


def _short_paths(paths: Sequence[str]) -> dict[str, str]:
    """The last folder of each path, with those above it where two would be called the same."""
    parts = {path: [part for part in re.split(r"[/\\]", path) if part] for path in paths}
    names: dict[str, str] = {}
    for length in range(1, max(map(len, parts.values()), default=0) + 1):
        rest = [path for path in paths if path not in names]
        tails = {path: "/".join(parts[path][-length:]) for path in rest}
        count = Counter(tails.values())
        names |= {path: tail for path, tail in tails.items() if tail and count[tail] == 1}
    return names


def _tiles(lines: Sequence[UsageLine], by: UsageBy, metric: str) -> tuple[charts.Tile, ...]:
    """A treemap of the groups, if there is something to compare."""
    if by in PERIODS:
        return ()
    tiles = charts.treemap(
        [(line.key or "", _value(line.spent, metric)) for line in lines[:TILES_MAX]]
    )
    return tiles if len(tiles) > 1 else ()


def _presets(site: Site, periods: Presets, *, has_filters: bool) -> list[Preset]:
    days = () if has_filters else _report(site, "day", UsageSelection(None, None), "model").lines

    def spent(first: date | None, last: date | None) -> Spent | None:
        start, end = str(first or ""), str(last or "9999")
        return add_up(day.spent for day in days if start <= (day.key or "") <= end)

    return [
        Preset(key, name, None if has_filters else spent(first, last))
        for key, (name, first, last) in periods.items()
    ]


@get("/usage.csv", sync_to_thread=True)
def usage_csv(
    site: ThisSite,
    *,
    by: FromQuery[str] = "day",
    period: FromQuery[str] = "all",
    first: FromQuery[str] = "",
    last: FromQuery[str] = "",
    project: FromQuery[str] = "",
    model: FromQuery[str] = "",
    agent: FromQuery[str] = "",
) -> Response[str]:
    """The rows of the usage page, all of them, as comma-separated values."""
    selection = _selection(site, period, first, last)[2]._replace(
        project=project, model=model, agent=agent
    )
    report = site.ledger.usage(_grouping(by), **selection.filters())
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow((by, *CSV_COLUMNS))
    for line in report.lines:
        key = line.key or ""
        # A name that begins like a formula would be run by a spreadsheet.
        safe = f"'{key}" if key[:1] in ("=", "+", "-", "@", "\t", "\r") else key
        writer.writerow((safe, *(getattr(line.spent, name) for name in CSV_COLUMNS)))
    return Response(
        text.getvalue(),
        media_type="text/csv",
        headers={"Content-Disposition": f'attachment; filename="usage-by-{by}.csv"'},
    )


def _grouping(by: str) -> UsageBy:
    if by not in get_args(UsageBy):
        raise Refused(f"unknown grouping {by!r}", f"Group by {', '.join(get_args(UsageBy))}.")
    return cast(UsageBy, by)


def _selection(
    site: Site, period: str, first: str, last: str
) -> tuple[str, str, UsageSelection, Presets]:
    """The name, key and days of a period, and all periods."""
    today = _day(site.now())
    latest = _latest_day(site)
    periods = presets(today, latest)
    if first or last:
        return "Chosen days", "", UsageSelection(_date(first), _date(last)), periods
    if not period:  # the last month, or the latest week if nothing has been used since
        is_recent = latest is not None and latest > today - timedelta(days=30)
        period = DEFAULT_PERIOD if is_recent or latest is None else "active"
    name, start, end = periods.get(period, periods["all"])
    return name, period, UsageSelection(start, end), periods


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError as error:
        raise Refused(f"{text!r} is not a date", "Write it like 2026-11-01.") from error


def _day(at_ms: int) -> date:
    return date.fromisoformat(period_of(at_ms, "day", local_zone()))


def _latest_day(site: Site) -> date | None:
    """The last day with tokens; of a ledger without any, the last day with turns."""
    latest = site.pages.latest_turn_at()
    days = _report(site, "day", UsageSelection(None, None), "model").lines
    used = [line.key for line in days if line.key and line.spent.total_tokens]
    return _date(used[-1]) if used and used[-1] > UNDATED else _day(latest) if latest else None


def _report(site: Site, by: UsageBy, selection: UsageSelection, split: UsageSplit) -> UsageReport:
    """The report; without a filter it may be a minute old."""

    def compute() -> UsageReport:
        return site.ledger.usage(
            by,
            **selection.filters(),
            split=None if by in ("block", "session") else split,
            limit=None if by in PERIODS else PER_PAGE,
        )

    if any(selection):
        return compute()
    return site.background.get(f"usage by {by} and {split}", compute) or compute()


def _value(spent: Spent, metric: str) -> int:
    return spent.total_tokens if metric == "tokens" else spent.cost_microdollars or 0


def _legend(lines: Iterable[UsageLine], metric: str) -> dict[str, int]:
    """The colours of the parts: those with the highest values have one of their own."""
    totals: Counter[str] = Counter()
    for line in lines:
        for part in line.parts:
            totals[part.key or NOT_RECORDED] += _value(part.spent, metric)
    used = [key for key, value in totals.most_common() if value]
    return {key: min(at, charts.COLOURS - 1) for at, key in enumerate(used)}


def _chart(
    report: UsageReport,
    by: charts.BarLength,
    extent: tuple[date, date] | None,
    metric: str,
    legend: Mapping[str, int],
) -> charts.BarChart | None:
    """A bar for each period, oldest first, those without turns included."""
    if extent is None:
        return None
    values = {
        line.key or "": {
            part.key or NOT_RECORDED: _value(part.spent, metric) for part in line.parts
        }
        for line in report.lines
    }
    describe = humanize.tokens if metric == "tokens" else humanize.round_money
    return charts.stacked_bars(charts.every_period(*extent, by), values, legend, describe)


@get("/prices", sync_to_thread=True)
def prices_page(request: WebRequest, site: ThisSite) -> Response[str]:
    """What each model costs."""
    return site.page(
        "prices.html",
        request,
        title="Prices",
        prices=prices.all_prices(),
        priced_on=prices.as_of(),
    )


@get("/tools", sync_to_thread=True)
def tools_page(request: WebRequest, site: ThisSite) -> Response[str]:
    return site.page("tools.html", request, title="Tools", tools=site.ledger.tools(limit=TOOLS_MAX))


@get("/tools/{name:str}", sync_to_thread=True)
def tool_page(
    request: WebRequest,
    site: ThisSite,
    *,
    name: FromPath[str],
    before: FromQuery[str] = "",
    failed: FromQuery[bool] = False,
) -> Response[str]:
    tool_name = decode_part(name)
    page = site.pages.tool_examples(
        tool_name, failed=failed, limit=PER_PAGE, before=_before(before)
    )
    if not page.calls and not before and not failed:
        raise NotFound(f"tool {tool_name!r} was never called", "The page Tools lists all tools.")
    usage = next((tool for tool in site.ledger.tools() if tool.tool_name == tool_name), None)
    return site.page(
        "tool.html",
        request,
        title=tool_name,
        tool_name=tool_name,
        usage=usage,
        failed=failed,
        scanned=TURNS_SCANNED,
        calls=page.calls,
        headlines=page.headlines,
        older=":".join(map(str, page.next)) if page.next else None,
    )


def _before(cursor: str) -> CallCursor | None:
    """The cursor of an address: time, turn, sequence. Ids of turns may have colons."""
    started_at, _, rest = cursor.partition(":")
    turn_id, _, sequence = rest.rpartition(":")
    if not all(
        number.isdecimal() and len(number) <= DIGITS_MAX for number in (started_at, sequence)
    ):
        return None
    return CallCursor(int(started_at), turn_id, int(sequence))


ROUTES = (usage_page, usage_csv, prices_page, tools_page, tool_page)
