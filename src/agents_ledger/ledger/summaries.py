"""Sums of days that are over: what a year used is then told without reading a year of turns.

Whatever changes a turn takes its day's sums out of use, by a trigger. Days without sums are read
turn by turn, so nothing depends on anyone having summed up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agents_ledger.model.ids import now_ms
from agents_ledger.model.periods import DAY_MS
from agents_ledger.store.database import Database, Row, Transaction

AT_ONCE = 10  # days in one transaction: others wait for it
EMPTY_AT_ONCE = 1000
DAYS_MAX = 5000  # further back, days are read turn by turn


class Day(NamedTuple):
    """A day since 1970, and how many turns began on it."""

    day: int
    turns: int


def summarise(db: Database) -> int:
    """Sum up the days that are over and have no sums; how many."""
    today = now_ms() // DAY_MS
    missing = db.read(lambda tx: _missing(tx, today - 1))
    for days, at_once in (
        ([day for day in missing if not day.turns], EMPTY_AT_ONCE),
        ([day for day in missing if day.turns], AT_ONCE),
    ):
        for at in range(0, len(days), at_once):
            db.write(partial(_sum_up, days=days[at : at + at_once]))
    return len(missing)


def _missing(tx: Transaction, before: int) -> list[Day]:
    """The days without sums, from the first turn on. Yesterday's may still be on their way."""
    [(first_at,)] = tx.run("first_turn_at")
    if first_at is None:
        return []
    first = max(first_at // DAY_MS, before - DAYS_MAX)
    known = {row[0] for row in tx.run("summed_days", first=first, after=before)}
    days = [day for day in range(first, before) if day not in known]
    if not days:
        return []
    turns = _turns(tx, days[0], days[-1])
    return [Day(day, turns.get(day, 0)) for day in days]


def _turns(tx: Transaction, first: int, last: int) -> dict[int, int]:
    rows = tx.run("turns_by_day", since=first * DAY_MS, until=(last + 1) * DAY_MS)
    return {row[0]: row[1] for row in rows}


def _sum_up(tx: Transaction, days: Sequence[Day]) -> None:
    tx.run("lock_summaries")
    first, last = days[0].day, days[-1].day
    tx.run("forget_usage_sums", first=first, last=last)
    tx.run("forget_tool_sums", first=first, last=last)
    # Meanwhile others may have summed one up, and one that was empty may be so no longer.
    known = {row[0] for row in tx.run("summed_days", first=first, after=last + 1)}
    turns = _turns(tx, first, last)
    for day, _ in days:
        if day in turns and day not in known:
            within = {"day": day, "since": day * DAY_MS, "until": (day + 1) * DAY_MS}
            tx.run("sum_usage", **within)
            tx.run("sum_tools", **within)
    tx.run_many("insert_summary_day", days)


def usage(tx: Transaction, since: int, until: int) -> Iterator[Row]:
    """Hour, model, provider and project with their sums, of turns that began between two times."""
    first, after = _whole_days(since, until)
    for row in tx.run("summed_usage", first=first, after=after):
        yield (row[0], row[1] or None, row[2] or None, row[3] or None, *row[4:])
    for start, end in _gaps(tx, since, until):
        yield from tx.run("usage_hours", since=start, until=end)


def tools(tx: Transaction, since: int, until: int) -> Iterator[Row]:
    """Tool, status and step with their sums, of turns that began between two times."""
    first, after = _whole_days(since, until)
    yield from tx.run("summed_tools", first=first, after=after)
    for start, end in _gaps(tx, since, until):
        yield from tx.run("tool_days", since=start, until=end)


def _whole_days(since: int, until: int) -> tuple[int, int]:
    return -(-since // DAY_MS), until // DAY_MS


def _gaps(tx: Transaction, since: int, until: int) -> Iterator[tuple[int, int]]:
    """The times between two that have no sums."""
    first, after = _whole_days(since, until)
    start = since
    for (day,) in tx.run("summed_days", first=first, after=after):
        if start < day * DAY_MS:
            yield start, day * DAY_MS
        start = (day + 1) * DAY_MS
    if start < until:
        yield start, until
