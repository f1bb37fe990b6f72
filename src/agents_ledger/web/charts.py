"""Numbers as pictures: where each bar and each day stands. Pure; templates draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

WEEKS = 53
LEVELS = 4
DAYS = 7


class Day(NamedTuple):
    """A day of the heat map."""

    day: str
    column: int
    row: int
    level: int  # 0: nothing
    turns: int


class HeatMap(NamedTuple):
    """A year that ends where the data does."""

    days: tuple[Day, ...]
    months: tuple[tuple[int, str], ...]  # column and name
    first: str
    last: str


def heat_map(turns: Mapping[str, int], weeks: int = WEEKS) -> HeatMap | None:
    """The weeks up to the last day there is something of; None if there is nothing."""
    known = {day: count for day, count in turns.items() if count and day > "1971"}
    if not known:
        return None
    last = date.fromisoformat(max(known))
    first = last - timedelta(days=last.weekday() + DAYS * (weeks - 1))
    most = max(known.values())
    days, months = [], []
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        count = known.get(day.isoformat(), 0)
        column, row = divmod(number, DAYS)
        days.append(Day(day.isoformat(), column, row, _level(count, most), count))
        if day.day == 1:
            months.append((column, day.strftime("%b")))
    return HeatMap(tuple(days), tuple(months), first.isoformat(), last.isoformat())


def _level(count: int, most: int) -> int:
    """1 to 4: each step is twice the one before, so that one busy day does not dim all others."""
    if not count:
        return 0
    level = LEVELS
    while level > 1 and count * 2 <= most:
        count *= 2
        level -= 1
    return level


class Bar(NamedTuple):
    """A bar of a chart, in its own units of 100 by 100."""

    key: str
    x: float
    width: float
    height: float
    value: int


def bars(values: Sequence[tuple[str, int]]) -> tuple[Bar, ...]:
    """One bar for each value, the highest as high as the chart."""
    most = max((value for _, value in values), default=0)
    if not most:
        return ()
    step = 100 / len(values)
    return tuple(
        Bar(key, round(at * step, 3), round(step * 0.8, 3), round(100 * value / most, 2), value)
        for at, (key, value) in enumerate(values)
    )
