"""The geometry of charts; templates draw them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple

from agents_ledger.model.text.periods import UNDATED

WEEKS = 53
WEEKS_MIN = 5
LEVELS = 4
DAYS = 7
MONTH_COLUMNS = 3
BAR_WIDTH_MAX = 8.0  # percent of the chart
BARS_MAX = 120
GRID_LINES = 4
PERIOD_TICKS = 5
DAY_BARS = 30
DAY_BAR_MIN = 4.0  # percent
TREEMAP_ASPECT = 5.0
COLOURS = 8

BarLength = Literal["day", "week", "month"]


class HeatMapDay(NamedTuple):
    """A day of the heat map."""

    day: str
    column: int
    row: int
    level: int  # 0 (no turns) to 4
    turns: int


class HeatMap(NamedTuple):
    """The weeks with turns, at most a year."""

    days: tuple[HeatMapDay, ...]
    weeks: int
    months: tuple[tuple[int, str], ...]  # column and name
    first: str
    last: str


def heat_map(turns: Mapping[str, int], weeks: int = WEEKS) -> HeatMap | None:
    """The weeks from the first day with turns to the last; None if there are no turns."""
    active = {day: count for day, count in turns.items() if count and day > UNDATED}
    if not active:
        return None
    last = date.fromisoformat(max(active))
    earliest = date.fromisoformat(min(active))
    monday = last - timedelta(days=last.weekday())
    needed = (monday - earliest).days // DAYS + 2 if earliest < monday else 1
    weeks = min(weeks, max(WEEKS_MIN, needed))
    first = monday - timedelta(days=DAYS * (weeks - 1))
    most = max(active.values())
    days, months = [], []
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        count = active.get(day.isoformat(), 0)
        column, row = divmod(number, DAYS)
        days.append(HeatMapDay(day.isoformat(), column, row, _level(count, most), count))
        if day.day == 1 or number == 0:
            months.append((column, day.strftime("%b")))
    if len(months) > 1 and months[1][0] < MONTH_COLUMNS:
        months.pop(0)  # the two names would overlap
    return HeatMap(tuple(days), weeks, tuple(months), first.isoformat(), last.isoformat())


def _level(count: int, most: int) -> int:
    """1 to 4, each with twice the turns of the level below: one busy day does not hide others."""
    if not count:
        return 0
    level = LEVELS
    while level > 1 and count * 2 <= most:
        count *= 2
        level -= 1
    return level


class DayBar(NamedTuple):
    """A day of a small chart without axes; `x` and `height` in percent."""

    day: str
    x: float
    height: float
    text: str


def day_bars(
    values: Mapping[str, int], last: date, describe: Callable[[int], str], count: int = DAY_BARS
) -> tuple[DayBar, ...]:
    """The `count` days that end with `last`; every day with a value can be seen."""
    days = [(last - timedelta(days=at)).isoformat() for at in range(count - 1, -1, -1)]
    most = max((values.get(day, 0) for day in days), default=0) or 1
    return tuple(
        DayBar(
            day,
            round(100 * at / count, 3),
            round(max(DAY_BAR_MIN, 100 * values[day] / most), 2) if values.get(day) else 0.0,
            f"{day}: {describe(values.get(day, 0))}",
        )
        for at, day in enumerate(days)
    )


class Tile(NamedTuple):
    """A rectangle of a treemap; places and sizes in percent."""

    key: str
    value: int
    x: float
    y: float
    width: float
    height: float
    colour: int


def treemap(values: Sequence[tuple[str, int]], aspect: float = TREEMAP_ASPECT) -> tuple[Tile, ...]:
    """Rectangles whose areas are the values, largest first, as square as they can be in a place
    `aspect` times as wide as high (the squarified layout of Bruls, Huizing and van Wijk)."""
    rest = sorted(((key, value) for key, value in values if value > 0), key=lambda kv: -kv[1])
    total = sum(value for _, value in rest)
    x, y, width, height = 0.0, 0.0, aspect, 1.0
    tiles: list[Tile] = []
    while rest:
        side = min(width, height)
        areas = [value / total * aspect for _, value in rest]
        row = 1
        while row < len(rest) and _worst(areas[: row + 1], side) <= _worst(areas[:row], side):
            row += 1
        depth = sum(areas[:row]) / side
        offset = 0.0
        for (key, value), area in zip(rest[:row], areas, strict=False):
            length = area / depth
            box = (
                (x, y + offset, depth, length) if side == height else (x + offset, y, length, depth)
            )
            offset += length
            tiles.append(_tile(key, value, box, aspect, len(tiles)))
        if side == height:
            x, width = x + depth, width - depth
        else:
            y, height = y + depth, height - depth
        rest = rest[row:]
    return tuple(tiles)


def _worst(areas: Sequence[float], side: float) -> float:
    """The least square rectangle of a row: its longer side over its shorter one."""
    depth = sum(areas) / side
    return max(max(area / depth / depth, depth / (area / depth)) for area in areas)


def _tile(
    key: str, value: int, box: tuple[float, float, float, float], aspect: float, at: int
) -> Tile:
    x, y, width, height = box
    return Tile(
        key,
        value,
        round(100 * x / aspect, 3),
        round(100 * y, 3),
        round(100 * width / aspect, 3),
        round(100 * height, 3),
        min(at, COLOURS - 1),
    )


class Tick(NamedTuple):
    """A mark of an axis, with its place in percent."""

    at: float
    text: str


class BarPart(NamedTuple):
    """A coloured part of a bar; places and sizes in percent of the chart."""

    key: str
    y: float
    height: float
    value: int
    colour: int


class StackedBar(NamedTuple):
    """The bar of a period, bottom part first."""

    key: str
    x: float
    width: float
    value: int
    parts: tuple[BarPart, ...]


class BarChart(NamedTuple):
    """Stacked bars with the marks of both axes."""

    bars: tuple[StackedBar, ...]
    values: tuple[Tick, ...]
    periods: tuple[Tick, ...]


def stacked_bars(
    periods: Sequence[str],
    values: Mapping[str, Mapping[str, int]],
    colours: Mapping[str, int],
    describe: Callable[[int], str],
) -> BarChart:
    """A bar for each period, evenly spaced over the whole width; parts are stacked in the order of
    the colours. `describe` writes the values of the axis."""
    totals = {period: sum(values.get(period, {}).values()) for period in periods}
    top = _round_up(max(totals.values(), default=0))
    step = 100 / max(1, len(periods))
    width = min(step * 0.8, BAR_WIDTH_MAX)
    bars = []
    for at, period in enumerate(periods):
        x = at * step + (step - width) / 2
        parts = _stack(values.get(period, {}), colours, top)
        bars.append(StackedBar(period, round(x, 3), round(width, 3), totals[period], parts))
    marks = [top * part // GRID_LINES for part in range(GRID_LINES + 1)]
    ticks = tuple(Tick(round(100 - 100 * mark / top, 2), describe(mark)) for mark in marks)
    return BarChart(tuple(bars), ticks, _period_ticks(periods, step))


def _stack(values: Mapping[str, int], colours: Mapping[str, int], top: int) -> tuple[BarPart, ...]:
    parts, below = [], 0
    for key in sorted((key for key in values if values[key]), key=lambda key: colours[key]):
        below += values[key]
        y = round(100 - 100 * below / top, 3)
        parts.append(BarPart(key, y, round(100 * values[key] / top, 3), values[key], colours[key]))
    return tuple(parts)


def _round_up(value: int) -> int:
    """The next value that the lines of the grid divide into round figures."""
    power = 1
    while True:
        for step in (4, 8, 20):
            if step * power >= value:
                return step * power
        power *= 10


def _period_ticks(periods: Sequence[str], step: float) -> tuple[Tick, ...]:
    """At most `PERIOD_TICKS` periods, evenly spread."""
    every = -(-len(periods) // PERIOD_TICKS) or 1
    return tuple(
        Tick(round((at + 0.5) * step, 3), period_name(period))
        for at, period in enumerate(periods)
        if at % every == 0
    )


def period_name(period: str) -> str:
    """A day as 3 Aug, a week by its Monday, a month as Aug 2026."""
    if len(period) == len("2026-08"):
        return f"{date.fromisoformat(period + '-01'):%b %Y}"
    day = first_day(period)
    return f"{day.day} {day:%b}"


def first_day(period: str) -> date:
    """The first day of a day, week or month."""
    if "W" in period:
        year, _, week = period.partition("-W")
        return date.fromisocalendar(int(year), int(week), 1)
    return date.fromisoformat(period if len(period) > len("2026-08") else period + "-01")


def period_days(period: str) -> tuple[str, str]:
    """The first and the last day of a day, week or month."""
    first = last = first_day(period)
    if "W" in period:
        last = first + timedelta(days=DAYS - 1)
    elif len(period) == len("2026-08"):
        last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    return first.isoformat(), last.isoformat()


def bar_length(first: date, last: date) -> BarLength:
    """How long the bars are of a chart from a day to a day."""
    days = (last - first).days + 1
    return "day" if days <= BARS_MAX else "week" if days <= BARS_MAX * DAYS else "month"


def every_period(first: date, last: date, by: BarLength) -> list[str]:
    """The days, weeks or months from a day to a day."""
    days = (first + timedelta(days=at) for at in range((last - first).days + 1))
    return list(dict.fromkeys(_period(day, by) for day in days))


def _period(day: date, by: BarLength) -> str:
    if by == "day":
        return day.isoformat()
    if by == "month":
        return f"{day:%Y-%m}"
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02}"
