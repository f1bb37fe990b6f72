"""How the cost of each verb grows, from 10 turns to 100,000 with a million messages."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from agents_ledger import Ledger, Message
from agents_ledger.ledger.sessions import heads as sessions
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from benchmarks import workload
from benchmarks.measure import (
    Curve,
    Goal,
    Line,
    Side,
    Took,
    interleaved,
    middle,
    slower,
    timed,
)

SIZES = (10, 100, 1_000, 10_000, 100_000)
MESSAGES = 10  # of a turn: the largest ledger has a million
FORK_EVERY = 10
AT_ONCE = 2_000  # turns in one transaction
ROUNDS = 9
FLAT = 1.2


def _work(number: int) -> Callable[[Transaction], object]:
    steps = [Message("assistant", f"step {step} of {number}") for step in range(MESSAGES - 2)]
    prepared = recording.recording(
        "main", f"question {number}", f"answer {number}", {"steps": steps}
    )
    return partial(recording.record, prepared=prepared)


def _works(first: int, last: int) -> Iterator[Callable[[Transaction], object]]:
    for number in range(first, last):
        yield _work(number)
        if number % FORK_EVERY == 0:
            yield partial(sessions.fork, target="main", label=f"fork-{number}")


def grown(folder: Path) -> dict[int, Path]:
    """A ledger of every size: one thread, and a session that stands on every tenth turn."""
    growing = folder / "growing.db"
    paths = {size: folder / f"grown-{size}.db" for size in SIZES}
    have = 0
    for size, path in paths.items():
        if path.exists():
            continue
        with Ledger.open(str(growing)) as ledger:
            for start in range(have, size, AT_ONCE):
                works = list(_works(start, min(size, start + AT_ONCE)))
                workload.fill(ledger, works, AT_ONCE)
                ledger._core.index(least=1)  # or the first to append would do it
        have = size
        shutil.copyfile(growing, path)
    return paths


class Grown:
    """What is measured of one ledger."""

    def __init__(self, path: Path, size: int) -> None:
        self._path = str(path)
        self._size = size
        self.ledger = Ledger.open(self._path)
        self.ledger.recover()
        moves = self.ledger.history("main", limit=1_000_000)
        self._times = random.Random(1).choices([move.changed_at for move in moves], k=20)

    def append(self) -> Took:
        """Twenty turns; then back to where it was."""
        head = self.ledger.head("main")
        turns = workload.turns(20)

        def work() -> None:
            for turn in turns:
                turn.record(self.ledger, "main")

        took = timed(work, len(turns))
        self.ledger.move("main", head or "")
        return took

    def _several(self, work: Callable[[], object], times: int) -> Took:
        def repeated() -> None:
            for _ in range(times):
                work()

        return timed(repeated, times)

    def fork(self) -> Took:
        return self._several(lambda: self.ledger.fork("main"), 10)

    def last_20(self) -> Took:
        """Each time by a handle that has read none of them yet."""
        took = []
        for _ in range(10):
            with Ledger.open(self._path, read_only=True) as ledger:
                ledger.head("main")
                took.append(timed(partial(ledger.thread, "main", last=20), 1))
        return Took(middle([each.wall for each in took]), middle([each.cpu for each in took]))

    def context(self) -> Took:
        return self._several(lambda: self.ledger.context("main", "and now?", 8_000), 1)

    def search(self) -> Took:
        """A word that one turn has; what was appended meanwhile waits no more."""
        self.ledger._core.index(least=1)
        return self._several(lambda: self.ledger.search(f"{self._size - 1}"), 3)

    def search_both(self) -> Took:
        """A word that every turn has, with one that one turn has."""
        return self._several(lambda: self.ledger.search(f"question {self._size - 1}"), 3)

    def head_at(self) -> Took:
        def ask() -> None:
            for at in self._times:
                assert self.ledger.head("main", at=at)

        return timed(ask, len(self._times))

    def sessions(self) -> Took:
        return self._several(self.ledger.sessions, 5)

    def audit(self) -> Took:
        """For each turn."""
        return timed(self.ledger.audit, self._size)

    def recover(self) -> Took:
        return self._several(self.ledger.recover, 20)

    def open(self) -> Took:
        return self._several(lambda: Ledger.open(self._path, read_only=True).close(), 5)


class Verb(NamedTuple):
    """What is measured of each ledger, from the size on at which there is as much to do."""

    name: str
    measure: Callable[[Grown], Took]
    least: int = SIZES[0]
    flat: bool = False  # it must not grow
    rounds: int = ROUNDS


VERBS = (
    Verb("append", Grown.append, flat=True),
    Verb("fork", Grown.fork, flat=True),
    Verb("last 20 turns", Grown.last_20, least=100, flat=True),
    Verb("context within 8,000 tokens", Grown.context, least=1_000, flat=True),
    Verb("head at a time", Grown.head_at),
    Verb("search for a rare word", Grown.search),
    Verb("search for a common word with a rare one", Grown.search_both),
    Verb("latest 100 sessions", Grown.sessions, least=1_000, flat=True),
    Verb("audit, per turn", Grown.audit, least=1_000, rounds=1),
    Verb("recover", Grown.recover, flat=True),
    Verb("open", Grown.open, flat=True),
)


def growth(folder: Path) -> Iterator[Line | Curve]:
    """Every verb at every size, the sizes in turns."""
    ledgers = {size: Grown(path, size) for size, path in grown(folder).items()}
    for verb in VERBS:
        sides: dict[str, Side] = {
            str(size): partial(verb.measure, each) for size, each in ledgers.items()
        }
        if verb.rounds > 1:
            interleaved(sides, 1)  # what only the first one has to do
        found = interleaved(sides, verb.rounds)
        goal = Goal("<=", FLAT) if verb.flat else None
        title = f"{verb.name} at {SIZES[-1]:,} turns / {verb.least:,}"
        yield slower(title, found[str(SIZES[-1])], found[str(verb.least)], "cpu", goal)
        points = ((float(size), middle([took.cpu for took in found[str(size)]])) for size in SIZES)
        yield Curve(verb.name, tuple(point for point in points if point[0] >= verb.least))
    for each in ledgers.values():
        each.ledger.close()
