"""The geometry of charts; templates draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from agents_ledger.model.text.periods import UNDATED

WEEKS = 53
WEEKS_MIN = 5
LEVELS = 4
DAYS = 7
MONTH_COLUMNS = 3
BARS_MIN = 30  # fewer bars are as wide as these


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


class Bar(NamedTuple):
    """A bar of a chart that is 100 units wide and high."""

    key: str
    x: float
    width: float
    height: float
    value: int


def bars(values: Sequence[tuple[str, int]]) -> tuple[Bar, ...]:
    """A bar for each value; the highest fills the chart."""
    most = max((value for _, value in values), default=0)
    if not most:
        return ()
    step = 100 / max(BARS_MIN, len(values))
    return tuple(
        Bar(key, round(at * step, 3), round(step * 0.8, 3), round(100 * value / most, 2), value)
        for at, (key, value) in enumerate(values)
    )


def every_day(values: Sequence[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """The last `most` days up to the last one with a value; days without one are 0."""
    active = {day: value for day, value in values if day > UNDATED}
    if not active:
        return []
    last = date.fromisoformat(max(active))
    length = min(most, (last - date.fromisoformat(min(active))).days + 1)
    days = [(last - timedelta(days=ago)).isoformat() for ago in reversed(range(length))]
    return [(day, active.get(day, 0)) for day in days]
