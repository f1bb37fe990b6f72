"""Writers of one source tree on a PostgreSQL ledger: python -m benchmarks.server_writers ADDRESS

A process of its own, so that the sources of another commit can be measured: PYTHONPATH names the
tree. Each line of input is an order, each line of output what it took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from agents_ledger import AsyncLedger, Ledger
from benchmarks import workload
from benchmarks.workload import Turn

TURNS = 64  # different ones, that are recorded in turns


class Worker:
    """Obeys orders, and says how long each took."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._turns = workload.turns(TURNS)

    def _sessions(self, count: int) -> list[tuple[str, Turn]]:
        return [(f"{self._name}-{n}", self._turns[n % TURNS]) for n in range(count)]

    def fill(self, sessions: int) -> dict[str, Any]:
        """A session for each writer, with one turn."""
        with Ledger.open(self._address) as ledger:
            for session, turn in self._sessions(sessions):
                turn.record(ledger, session)
        return {}

    def lone(self, sessions: int, each: int) -> dict[str, Any]:
        """One thread, one session after the other."""
        with Ledger.open(self._address) as ledger:
            ledger.recover()
            pairs = self._sessions(sessions)
            for session, turn in pairs[:2]:  # the first write of a process does more
                turn.record(ledger, session)

            def write() -> None:
                for _ in range(each):
                    for session, turn in pairs:
                        turn.record(ledger, session)

            return _timed(write, sessions * each)

    def live(self, sessions: int, each: int) -> dict[str, Any]:
        """One thread: an exchange in eight commits, as it happens."""
        with Ledger.open(self._address) as ledger:
            ledger.recover()
            pairs = self._sessions(sessions)

            def exchange(session: str, said: Turn) -> None:
                details = {k: v for k, v in workload.DETAILS.items() if k != "usage"}
                with ledger.turn(session, said.query, **details) as turn:
                    for step in said.steps:
                        with turn.tool_call(step.tool_name, step.params_json) as call:
                            call.complete(step.result_json)
                    turn.respond(said.response, usage=workload.DETAILS["usage"])

            exchange(*pairs[0])

            def write() -> None:
                for _ in range(each):
                    for pair in pairs:
                        exchange(*pair)

            return _timed(write, sessions * each)

    def threads(self, sessions: int, each: int) -> dict[str, Any]:
        """As many threads as sessions."""
        with Ledger.open(self._address) as ledger:
            ledger.recover()

            def write(session: str, turn: Turn) -> None:
                for _ in range(each):
                    turn.record(ledger, session)

            pairs = self._sessions(sessions)
            write(*pairs[0])
            threads = [threading.Thread(target=write, args=pair) for pair in pairs]

            def run() -> None:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()

            return _timed(run, sessions * each)

    def tasks(self, sessions: int, each: int) -> dict[str, Any]:
        """As many tasks of asyncio as sessions."""

        async def main() -> dict[str, Any]:
            async with AsyncLedger.open(self._address) as ledger:
                await ledger.recover()

                async def write(session: str, turn: Turn) -> None:
                    for _ in range(each):
                        await turn.record(ledger, session)

                pairs = self._sessions(sessions)
                await write(*pairs[0])
                wall, cpu = time.perf_counter(), time.process_time()
                await asyncio.gather(*(write(*pair) for pair in pairs))
                return _took(wall, cpu, sessions * each)

        return asyncio.run(main())


def _timed(work: Callable[[], object], operations: int) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return _took(wall, cpu, operations)


def _took(wall: float, cpu: float, operations: int) -> dict[str, Any]:
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": wall / operations, "cpu": cpu / operations, "seconds": wall}


def main(arguments: Sequence[str]) -> None:
    """Read orders until there are no more."""
    address, name, index = arguments
    worker = Worker(address, name)
    with nullcontext() if index == "indexed" else workload.unindexed():
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(getattr(worker, order.pop("do"))(**order)), flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main(sys.argv[1:])
