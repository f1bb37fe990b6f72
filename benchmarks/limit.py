"""Where a lone writer's time goes: making it durable, SQLite, Python."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite.engine import SqliteDatabase
from benchmarks import workload
from benchmarks.measure import Line, Took, duration, interleaved, middle, spread, timed
from benchmarks.writers import EACH, Work

ROUNDS = 9


class _Hasty(sqlite3.Connection):
    """Never waits for the disk."""

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        if sql == "PRAGMA synchronous=FULL":
            sql = "PRAGMA synchronous=OFF"
        return super().execute(sql, values)


def limit(folder: Path) -> Iterator[Line]:
    """The whole; without waiting for the disk; and only the statements of that."""
    with workload.unindexed():
        yield from _limit(Work(folder))


def _limit(work: Work) -> Iterator[Line]:

    def recording(factory: type[sqlite3.Connection]) -> Took:
        connect = partial(sqlite3.connect, factory=factory)
        database = SqliteDatabase(str(work.fresh("limit")), connect=connect)
        with Ledger(Core(database)) as ledger:
            ledger.recover()

            def write() -> None:
                for session, turn in work.pairs * EACH:
                    turn.record(ledger, session)

            return timed(write, work.count)

    def statements() -> Took:
        connection = workload.connect(work.fresh("limit"))
        connection.execute("PRAGMA synchronous=OFF")
        turns = [turn.statements for turn in work.recorded]
        try:
            return timed(partial(workload.commit_each, connection, turns), work.count)
        finally:
            connection.close()

    found = interleaved(
        {
            "whole": partial(recording, sqlite3.Connection),
            "hasty": partial(recording, _Hasty),
            "statements": statements,
        },
        ROUNDS,
    )
    walls = {name: [took.wall for took in each] for name, each in found.items()}
    parts = {
        "waiting for the disk": _less(walls["whole"], walls["hasty"]),
        "SQLite and its driver": walls["statements"],
        "Python: ids, hash, checks, rows, locks": _less(walls["hasty"], walls["statements"]),
    }
    whole = middle(walls["whole"])
    for name, times in parts.items():
        shares = [time / all_ for time, all_ in zip(times, walls["whole"], strict=True)]
        yield Line(
            f"share of a lone writer's turn: {name}",
            duration(max(0.0, middle(times))),
            duration(whole),
            middle(shares),
            rounds=ROUNDS,
            spread=spread(shares),
        )


def _less(more: list[float], less: list[float]) -> list[float]:
    return [a - b for a, b in zip(more, less, strict=True)]
