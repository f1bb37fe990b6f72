"""Days, weeks and months of the calendar, by the clock of a place."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Literal

Zone = tzinfo
Period = Literal["day", "week", "month"]

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def period_of(at_ms: int, period: Period, zone: Zone | None = None) -> str:
    """The day, week or month a time falls in, in UTC unless said: 2026-11-15, 2026-W46, 2026-11."""
    local = datetime.fromtimestamp(at_ms / 1000, zone or UTC)
    if period == "week":
        year, week, _ = local.isocalendar()
        return f"{year:04}-W{week:02}"
    date = local.date().isoformat()
    return date if period == "day" else date.rpartition("-")[0]
