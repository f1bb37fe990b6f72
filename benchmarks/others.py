"""Figures that have no goal: reported, so that a change in them is noticed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agents_ledger import Ledger, Session
from agents_ledger.ledger.sessions import heads
from benchmarks import depth, reading, workload
from benchmarks.measure import Line, alone, interleaved, timed

SESSIONS = 10_000


def _several(name: str, work: Callable[[], object], times: int, per: int = 1) -> Line:
    def repeated() -> None:
        for _ in range(times):
            work()

    return alone(name, interleaved({name: partial(timed, repeated, times * per)}, rounds=7)[name])


def others(folder: Path) -> Iterator[Line]:
    """Head at a time, a page of sessions, the audit, opening, recovery."""
    yield from _moves(depth.deep(folder, depth.DEPTHS[-1]))
    yield from _sessions(folder / "sessions.db")
    path = str(reading.long_thread(folder))
    yield _several("open and close a ledger", lambda: Ledger.open(path).close(), 10)
    with Ledger.open(path) as ledger:
        yield _several("recover with nothing to do", ledger.recover, 50)
        yield _several("audit of 10,000 turns, per turn", ledger.audit, 1, reading.LONG)


def _moves(path: Path) -> Iterator[Line]:
    with Ledger.open(str(path), read_only=True) as ledger:
        times = [move.changed_at for move in ledger.history("main", limit=1_000_000)]
        wanted = random.Random(1).sample(times, 50)

        def ask() -> None:
            for at in wanted:
                assert ledger.head("main", at=at)

        yield _several(f"head at a time, of {len(times):,} moves", ask, 2, len(wanted))


def _sessions(path: Path) -> Iterator[Line]:
    with Ledger.open(str(path)) as ledger:
        workload.fill(
            ledger,
            [partial(heads.create, session=Session(f"session-{n}")) for n in range(SESSIONS)],
        )
        yield _several(f"latest 100 of {SESSIONS:,} sessions", ledger.sessions, 5)
