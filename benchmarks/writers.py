"""One writer, and 64 at once, against hand-written SQL that stores the same rows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from agents_ledger import AsyncLedger, Ledger
from benchmarks import workload
from benchmarks.measure import Goal, Line, Took, Watch, interleaved, rate, timed
from benchmarks.workload import Turn

WRITERS = 64
EACH = 10  # turns of a writer in a round; together they stay below the size of a checkpoint
ALONE = 3


class Writers:
    """64 sessions with a turn each, and the turns that 64 writers add to them."""

    def __init__(self, folder: Path) -> None:
        self.sessions = [f"agent-{number}" for number in range(WRITERS)]
        self.turns = workload.turns(WRITERS)
        self.template = folder / "writers.db"
        self.template.unlink(missing_ok=True)
        with Ledger.open(str(self.template)) as ledger:
            for session, turn in zip(self.sessions, self.turns, strict=True):
                turn.record(ledger, session)
        work = list(zip(self.sessions, self.turns, strict=True)) * EACH
        captured = self.fresh("captured")
        self.recorded = workload.capture(captured, work)
        self.statements = [turn.statements for turn in self.recorded]
        self.rows = workload.by_table(self.recorded)
        self.count = len(self.recorded)
        connection = workload.connect(check := self.fresh("check"))
        workload.commit_at_once(connection, self.rows)
        connection.close()
        assert workload.same_rows(captured, check), "the reference must store the same rows"

    def fresh(self, name: str) -> Path:
        return workload.copy_of(self.template, f"{name}.db")

    # -- by hand

    def bulk(self) -> Took:
        """One transaction, one executemany per kind of row."""
        connection = workload.connect(self.fresh("bulk"))
        try:
            return timed(lambda: workload.commit_at_once(connection, self.rows), self.count)
        finally:
            connection.close()

    def turn_by_turn(self) -> Took:
        """One transaction, each turn's statements after the other's."""
        connection = workload.connect(self.fresh("turn-by-turn"))
        statements = [each for turn in self.recorded for each in turn.writes]
        try:
            return timed(lambda: workload.commit_at_once(connection, statements), self.count)
        finally:
            connection.close()

    def direct(self) -> Took:
        """One thread, a commit per turn, the same statements."""
        connection = workload.connect(self.fresh("direct"))
        try:
            return timed(lambda: workload.commit_each(connection, self.statements), self.count)
        finally:
            connection.close()

    def each_alone(self) -> Took:
        """64 threads with a connection each, a commit per turn."""
        path = self.fresh("alone")
        connections = {session: workload.connect(path) for session in self.sessions}
        mine: dict[str, list[list[workload.Statement]]] = {name: [] for name in self.sessions}
        for turn in self.recorded[: WRITERS * ALONE]:
            mine[turn.session].append(turn.statements)
        works = [
            partial(workload.commit_each, connections[name], mine[name]) for name in self.sessions
        ]
        took = _at_once(works, WRITERS * ALONE)
        for connection in connections.values():
            connection.close()
        return took

    # -- the ledger

    def lone(self) -> Took:
        with Ledger.open(str(self.fresh("lone"))) as ledger:
            ledger.recover()

            def work() -> None:
                for _ in range(EACH):
                    for session, turn in zip(self.sessions, self.turns, strict=True):
                        turn.record(ledger, session)

            return timed(work, self.count)

    def threads(self) -> Took:
        with Ledger.open(str(self.fresh("threads"))) as ledger:
            ledger.recover()

            def write(session: str, turn: Turn) -> None:
                for _ in range(EACH):
                    turn.record(ledger, session)

            pairs = zip(self.sessions, self.turns, strict=True)
            works = [partial(write, session, turn) for session, turn in pairs]
            return _at_once(works, self.count)

    def tasks(self) -> Took:
        async def main() -> Took:
            async with AsyncLedger.open(str(self.fresh("tasks"))) as ledger:
                await ledger.recover()

                async def write(session: str, turn: Turn) -> None:
                    for _ in range(EACH):
                        await turn.record(ledger, session)

                pairs = zip(self.sessions, self.turns, strict=True)
                with Watch(self.count) as watch:
                    await asyncio.gather(*(write(session, turn) for session, turn in pairs))
                return watch.took

        return asyncio.run(main())


def _at_once(works: Sequence[Callable[[], None]], operations: int) -> Took:
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
    side = Writers(folder)
    found = interleaved(
        {
            "lone": side.lone,
            "direct": side.direct,
            "bulk": side.bulk,
            "turn by turn": side.turn_by_turn,
            "tasks": side.tasks,
            "threads": side.threads,
            "alone": side.each_alone,
        },
        rounds=9,
    )
    for name, ours, reference, least in (
        ("lone writer / direct commits", "lone", "direct", 0.9),
        ("64 asyncio writers / one bulk transaction", "tasks", "bulk", 0.5),
        ("64 threads / one bulk transaction", "threads", "bulk", 0.45),
        ("64 asyncio writers / each committing alone", "tasks", "alone", 7),
        ("64 threads / each committing alone", "threads", "alone", 7),
    ):
        yield rate(name, found[ours], found[reference], "wall", Goal(">=", least))
        yield rate(name, found[ours], found[reference], "cpu", None)
    for name in ("tasks", "threads"):
        yield rate(
            f"64 {name} / bulk, turn by turn", found[name], found["turn by turn"], "wall", None
        )
