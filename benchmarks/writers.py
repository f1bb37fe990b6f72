"""One writer, and 64 at once, against hand-written SQL that stores the same rows.

On both sides turns wait for the word index; what that costs is in searching.py.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from agents_ledger import AsyncLedger, Ledger
from benchmarks import workload
from benchmarks.measure import Goal, Line, Took, Watch, interleaved, rate, timed
from benchmarks.workload import Statement, Turn

WRITERS = 64
EACH = 10  # turns of a writer in a round: together they stay below the size of a checkpoint
FRAME = 4096 + 24  # a page in the write-ahead log
ALONE = 2  # of a writer that commits alone, which takes long


class Work:
    """64 sessions with a turn each, and the turns that 64 writers add to them."""

    def __init__(self, folder: Path) -> None:
        self.sessions = [f"agent-{number}" for number in range(WRITERS)]
        self.turns = workload.turns(WRITERS)
        self.pairs = list(zip(self.sessions, self.turns, strict=True))
        self.template = folder / "writers.db"
        if not self.template.exists():
            with Ledger.open(str(self.template)) as ledger:
                for session, turn in self.pairs:
                    turn.record(ledger, session)
        captured = self.fresh("captured")
        self.recorded = workload.capture(captured, self.pairs * EACH)
        self.count = len(self.recorded)
        self.rows = workload.by_table(self.recorded)
        connection = workload.connect(check := self.fresh("check"))
        workload.commit_at_once(connection, self.rows)
        connection.close()
        assert workload.same_rows(captured, check), "the reference must store the same rows"

    def fresh(self, name: str) -> Path:
        """A new copy of the ledger to which the turns are added."""
        return workload.copy_of(self.template, f"{name}.db")


class Ours:
    """The ledger's own ways to write."""

    def __init__(self, work: Work, fresh: Callable[[str], str]) -> None:
        self._work = work
        self._fresh = fresh

    def lone(self) -> Took:
        """One thread."""
        with Ledger.open(self._fresh("lone")) as ledger:
            ledger.recover()

            def write() -> None:
                for session, turn in self._work.pairs * EACH:
                    turn.record(ledger, session)

            return timed(write, self._work.count)

    def threads(self) -> Took:
        """64 threads."""
        with Ledger.open(self._fresh("threads")) as ledger:
            ledger.recover()

            def write(session: str, turn: Turn) -> None:
                for _ in range(EACH):
                    turn.record(ledger, session)

            works = [partial(write, *pair) for pair in self._work.pairs]
            return at_once(works, self._work.count)

    def tasks(self) -> Took:
        """64 asyncio tasks."""

        async def main() -> Took:
            async with AsyncLedger.open(self._fresh("tasks")) as ledger:
                await ledger.recover()

                async def write(session: str, turn: Turn) -> None:
                    for _ in range(EACH):
                        await turn.record(ledger, session)

                with Watch(self._work.count) as watch:
                    await asyncio.gather(*(write(*pair) for pair in self._work.pairs))
                return watch.took

        return asyncio.run(main())


class ByHand:
    """The same rows without a ledger."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def _commit(self, transactions: Sequence[Sequence[Statement]]) -> Took:
        connection = workload.connect(self._work.fresh("by-hand"))
        try:
            return timed(partial(workload.commit_each, connection, transactions), self._work.count)
        finally:
            connection.close()

    def direct(self) -> Took:
        """A transaction per turn, with the ledger's own statements."""
        return self._commit([turn.statements for turn in self._work.recorded])

    def turn_by_turn(self) -> Took:
        """One transaction for all; each turn's rows after the other's."""
        return self._commit([[each for turn in self._work.recorded for each in turn.writes]])

    def by_table(self) -> Took:
        """One transaction for all; all rows of a kind in one executemany."""
        return self._commit([self._work.rows])

    def each_alone(self) -> Took:
        """64 threads with a connection each, a transaction per turn."""
        path = self._work.fresh("alone")
        connections = {session: workload.connect(path) for session in self._work.sessions}
        mine: dict[str, list[list[Statement]]] = {name: [] for name in self._work.sessions}
        for turn in self._work.recorded[: WRITERS * ALONE]:
            mine[turn.session].append(turn.statements)
        works = [partial(workload.commit_each, connections[name], mine[name]) for name in mine]
        took = at_once(works, WRITERS * ALONE)
        for connection in connections.values():
            connection.close()
        return took


def _pages(work: Work) -> float:
    """How many pages a turn that is committed alone puts into SQLite's write-ahead log."""
    path = work.fresh("pages")
    with Ledger.open(str(path)) as ledger:
        for session, turn in work.pairs:
            turn.record(ledger, session)
        return os.stat(f"{path}-wal").st_size / FRAME / len(work.pairs)


def at_once(works: Sequence[Callable[[], None]], operations: int) -> Took:
    """Each in a thread of its own, begun together."""
    begin = threading.Event()

    def wait_and(work: Callable[[], None]) -> None:
        begin.wait()
        work()

    threads = [threading.Thread(target=wait_and, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    with Watch(operations) as watch:
        begin.set()
        for thread in threads:
            thread.join()
    return watch.took


def writers(folder: Path) -> Iterator[Line]:
    """A lone writer, 64 threads and 64 tasks, against the same rows by hand."""
    with workload.unindexed():
        yield from _writers(Work(folder))


def _writers(work: Work) -> Iterator[Line]:
    ours, hand = Ours(work, lambda name: str(work.fresh(name))), ByHand(work)
    found = interleaved(
        {
            "lone": ours.lone,
            "direct": hand.direct,
            "tasks": ours.tasks,
            "bulk": hand.turn_by_turn,
            "threads": ours.threads,
            "by table": hand.by_table,
            "alone": hand.each_alone,
        },
        rounds=9,
    )
    for name, writer, reference, least in (
        ("lone writer / direct commits", "lone", "direct", 0.9),
        ("64 asyncio writers / one bulk transaction", "tasks", "bulk", 0.5),
        ("64 threads / one bulk transaction", "threads", "bulk", 0.45),
        ("64 asyncio writers / each committing alone", "tasks", "alone", 7),
        ("64 threads / each committing alone", "threads", "alone", 7),
    ):
        yield rate(name, found[writer], found[reference], "wall", Goal(">=", least))
        yield rate(name, found[writer], found[reference], "cpu", None)
    for name, writer in (("64 asyncio writers", "tasks"), ("64 threads", "threads")):
        yield rate(f"{name} / bulk, by table", found[writer], found["by table"], "wall", None)
    yield Line("pages written per turn, lone writer", f"{_pages(work):.1f}")
