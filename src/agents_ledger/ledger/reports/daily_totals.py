"""Stored totals of past days, so that a year's usage is known without reading its turns.

Triggers drop the totals of a day when one of its turns changes. Days without totals are read turn
by turn, so the results do not depend on totals being stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from agents_ledger.model.ids import now_ms
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.model.text.periods import DAY_MS
from agents_ledger.store.database import Database, Row, Transaction

# Days further back are read turn by turn.
DAYS_MAX = 5000


class SummedDay(NamedTuple):
    """A day since 1970, and how many turns began on it."""

    day: int
    turns: int


def summarise(db: Database) -> int:
    """Store the totals of past days that have none; returns how many."""
    today = now_ms() // DAY_MS
    missing = db.read(lambda tx: _missing(tx, today - 1))
    for days in _batches(missing, db.limits):
        db.write(partial(_sum_up, days=days))
    return len(missing)


def _batches(missing: Sequence[SummedDay], limits: LedgerLimits) -> Iterator[list[SummedDay]]:
    """Days for one transaction: several with few turns, or a single one with many."""
    batch: list[SummedDay] = []
    turns = 0
    for day in missing:
        turns += day.turns
        if batch and (turns > limits.total_turns or len(batch) == limits.total_days):
            yield batch
            batch, turns = [], day.turns
        batch.append(day)
    if batch:
        yield batch


def _missing(tx: Transaction, before: int) -> list[SummedDay]:
    """The days without totals since the first turn, except yesterday, which may still get turns."""
    [(first_at,)] = tx.run("first_turn_at")
    if first_at is None:
        return []
    first = max(first_at // DAY_MS, before - DAYS_MAX)
    summed = {row[0] for row in tx.run("summed_days", first=first, after=before)}
    days = [day for day in range(first, before) if day not in summed]
    if not days:
        return []
    within = {"since": days[0] * DAY_MS, "until": (days[-1] + 1) * DAY_MS}
    turns: dict[int, int] = dict(tx.run("turns_by_day", **within))
    return [SummedDay(day, turns.get(day, 0)) for day in days]


def _sum_up(tx: Transaction, days: Sequence[SummedDay]) -> None:
    """Store the totals of these days, except those that another process has stored meanwhile."""
    # On a server another process may sum up the same days at the same time.
    tx.run("lock_summaries")
    first, last = days[0].day, days[-1].day
    within = {"since": first * DAY_MS, "until": (last + 1) * DAY_MS}
    tx.run("forget_usage_sums", first=first, last=last)
    tx.run("forget_tool_sums", first=first, last=last)
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
    """The intervals without stored totals."""
    first, after = _whole_days(since, until)
    start = since
    for (day,) in tx.run("summed_days", first=first, after=after):
        if start < day * DAY_MS:
            yield start, day * DAY_MS
        start = (day + 1) * DAY_MS
    if start < until:
        yield start, until
