"""Days, weeks and months of the calendar, and five-hour blocks, by the clock of a place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from typing import Literal

Zone = tzinfo
Period = Literal["day", "week", "month"]

# Turns that a source does not date sort before all others.
UNDATED = "1971"
HOUR_MS = 3_600_000
# Claude subscriptions are limited per five hours, from the hour of the first prompt.
BLOCK_HOURS = 5
DAY_MS = 24 * HOUR_MS
# A day within the calendar's ends, so that every place's clock has it.
FIRST_MS = -62_135_510_400_000  # 0001-01-02
LAST_MS = 253_402_128_000_000  # 9999-12-30


def period_of(at_ms: int, period: Period, zone: Zone | None = None) -> str:
    """The day, week or month a time falls in, in UTC unless said: 2026-11-15, 2026-W46, 2026-11.

    A time that no calendar has falls in the first or the last day of it.
    """
    local = datetime.fromtimestamp(min(max(at_ms, FIRST_MS), LAST_MS) / 1000, zone or UTC)
    if period == "week":
        year, week, _ = local.isocalendar()
        return f"{year:04}-W{week:02}"
    date = local.date().isoformat()
    return date if period == "day" else date.rpartition("-")[0]


def block_starts(hours: Iterable[int]) -> dict[int, int]:
    """The first hour of the five-hour block of each hour; a block begins with its first hour."""
    starts: dict[int, int] = {}
    start = None
    for hour in sorted(hours):
        if start is None or hour >= start + BLOCK_HOURS:
            start = hour
        starts[hour] = start
    return starts


def hour_of(hour: int, zone: Zone | None = None) -> str:
    """The beginning of an hour since 1970, as in 2026-11-15 14:00; in UTC unless said."""
    at_ms = min(max(hour * HOUR_MS, FIRST_MS), LAST_MS)
    return f"{datetime.fromtimestamp(at_ms / 1000, zone or UTC):%Y-%m-%d %H:%M}"
