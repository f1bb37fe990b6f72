"""What depth costs: appends, forks, and the rows that say where a turn stands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agents_ledger import Ledger, Session
from agents_ledger.ledger.sessions import heads
from agents_ledger.store.database import Transaction
from benchmarks import workload
from benchmarks.measure import Goal, Line, Side, Took, interleaved, slower, timed
from benchmarks.workload import Turn

DEPTHS = (10, 1_000, 100_000)
APPENDS = 150


def deep(folder: Path, depth: int) -> Path:
    """A ledger with one thread of that depth, kept for the other parts of this run."""
    path = folder / f"depth-{depth}.db"
    if not path.exists():
        with Ledger.open(str(path)) as ledger:
            workload.fill(ledger, [turn.work("main") for turn in workload.small_turns(depth)])
    return path


def append(folder: Path) -> Iterator[Line]:
    """Recording the same turns on threads of different depths; what waits for the word index is
    left waiting, or the deep ledger would be measured catching up."""
    with workload.unindexed():
        yield from _append(folder)


def _append(folder: Path) -> Iterator[Line]:
    ledgers = {depth: Ledger.open(str(deep(folder, depth))) for depth in DEPTHS}
    turns = workload.turns(APPENDS)

    def side(ledger: Ledger) -> Side:
        def work() -> None:
            for turn in turns:
                turn.record(ledger, "main")

        # Back to where it was: every round starts at the same depth.
        def round_() -> Took:
            head = ledger.head("main")
            took = timed(work, len(turns))
            ledger.move("main", head or "")
            return took

        return round_

    found = interleaved({str(d): side(ledger) for d, ledger in ledgers.items()}, rounds=9)
    for depth in DEPTHS[1:]:
        name, goal = f"append at depth {depth:,} / 10", Goal("<=", 1.2)
        yield slower(name, found[str(depth)], found["10"], "cpu", goal)
        yield slower(name, found[str(depth)], found["10"], "wall", None)
    for ledger in ledgers.values():
        ledger.close()


def fork(folder: Path) -> Iterator[Line]:
    """A fork's rows and time at any depth."""
    with workload.unindexed():
        yield from _fork(folder)


def _fork(folder: Path) -> Iterator[Line]:
    times: dict[str, Side] = {}
    ledgers = {depth: Ledger.open(str(deep(folder, depth))) for depth in (DEPTHS[0], DEPTHS[-1])}
    for depth, ledger in ledgers.items():
        ledger.recover()
        connection: sqlite3.Connection = ledger._core.db._connection  # type: ignore[attr-defined]
        before = connection.total_changes
        ledger.fork("main")
        rows = connection.total_changes - before
        yield Line(f"fork at depth {depth:,}, rows", str(rows), ratio=rows, goal=Goal("<=", 3))

        def forks(ledger: Ledger = ledger) -> None:
            for _ in range(100):
                ledger.fork("main")

        times[str(depth)] = partial(timed, forks, 100)
    found = interleaved(times, rounds=7)
    yield slower("fork at depth 100,000 / 10", found["100000"], found["10"], "cpu", None)
    for ledger in ledgers.values():
        ledger.close()


# What says where a turn stands, and what it costs to look threads up otherwise.
STANDING = ("places", "sqlite_autoindex_places_1", "segments", "idx_segments_parent")
LOOKUPS = (*STANDING, "idx_places_key")


def ancestry(folder: Path) -> Iterator[Line]:
    """The pages of `places` (metrics of the thread included) and `segments`, per turn."""
    forked = folder / "forked.db"
    if not forked.exists():
        with Ledger.open(str(forked)) as ledger:
            _fork_every(ledger, 100, workload.small_turns(20_000))
    for name, path in (("linear", deep(folder, DEPTHS[-1])), ("fork every 100", forked)):
        connection = sqlite3.connect(path)
        count = connection.execute("SELECT count(*) FROM turns").fetchone()[0]
        for what, names, goal in (
            ("ancestry", STANDING, Goal("<=", 160)),
            ("with the specification's indexes of threads", LOOKUPS, None),
        ):
            marks = ", ".join("?" for _ in names)
            size = connection.execute(
                f"SELECT sum(pgsize) FROM dbstat WHERE name IN ({marks})", names
            ).fetchone()[0]
            each = size / count
            yield Line(f"{what}, {name}, bytes per turn", f"{each:.0f}", ratio=each, goal=goal)
        connection.close()


def _fork_every(ledger: Ledger, run: int, turns: list[Turn]) -> None:
    """One path, which leaves its segment every `run` turns: a sibling took the place before."""
    works: list[Callable[[Transaction], object]] = []
    for number, turn in enumerate(turns):
        session = f"s{number // run}"
        if number and number % run == 0:
            works.append(partial(leave, from_=f"s{number // run - 1}", to=session))
        works.append(turn.work(session))
    workload.fill(ledger, works)


def leave(tx: Transaction, from_: str, to: str) -> Session:
    """A session that stands where another stood before its last turn."""
    return heads.fork(tx, from_, label=to, before=True)
