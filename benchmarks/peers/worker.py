"""One store in a process of its own: python -m benchmarks.peers.worker NAME FOLDER EXCHANGES ...

Each line of input is an order, each line of output what it took. Neither this file nor the stores
of peers import the ledger: they run in the peers' environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.port import Exchange, Store

STORES = {
    "agents-ledger": "ledger_store:LedgerStore",
    "agents-ledger, a live turn": "ledger_store:Live",
    "agents-ledger, a live turn in 5 commits": "ledger_store:InFive",
    "agents-ledger, LedgerSession": "ledger_store:ForRunner",
    "agents-ledger, nothing remembered": "ledger_store:Forgetful",
    "agents-ledger, by hand": "ledger_store:ByHand",
    "openai-agents SQLiteSession": "openai_store:Plain",
    "openai-agents SQLiteSession, one add_items()": "openai_store:AtOnce",
    "openai-agents AdvancedSQLiteSession": "openai_store:Advanced",
    "openai-agents SQLAlchemySession": "openai_store:Server",
    "openai-agents SQLAlchemySession, one add_items()": "openai_store:ServerAtOnce",
    "langgraph SqliteSaver": "langgraph_store:Saver",
    "langgraph SqliteSaver, DeltaChannel": "langgraph_store:Delta",
    "langgraph PostgresSaver": "langgraph_store:Server",
    "google-adk SqliteSessionService": "adk_store:File",
    "google-adk DatabaseSessionService": "adk_store:Database",
    "llm log_to_db": "llm_store:Log",
}
PIECES = 8  # of an exchange: question, three calls with a result each, answer


class Worker:
    """Obeys orders, and says how long each took."""

    def __init__(self, store: Store, folder: Path, exchanges: list[Exchange]) -> None:
        self._store = store
        self._folder = folder
        self._exchanges = exchanges
        self._lengths: dict[str, int] = {}

    def _next(self, session: str) -> Exchange:
        number = self._lengths.get(session, 0)
        self._lengths[session] = number + 1
        return self._exchanges[number % len(self._exchanges)]

    async def grow(self, session: str, to: int, budget: float) -> dict[str, Any]:
        """Append until so many are there, or the time is over."""
        start = time.perf_counter()
        have = self._lengths.get(session, 0)
        many = [self._exchanges[n % len(self._exchanges)] for n in range(have, to)]
        with contextlib.suppress(NotImplementedError):
            await self._store.seed(session, many)
            self._lengths[session] = to
        while self._lengths.get(session, 0) < to and time.perf_counter() - start < budget:
            await self._store.append(session, self._next(session))
        return {"length": self._lengths[session], "seconds": time.perf_counter() - start}

    async def append(self, session: str, count: int, budget: float) -> dict[str, Any]:
        """So many, or fewer if the time is over."""
        first = self._lengths[session]
        start = time.perf_counter()

        async def work() -> None:
            for _ in range(count):
                await self._store.append(session, self._next(session))
                if time.perf_counter() - start > budget:
                    break

        took = await _timed(work, 1)
        done = self._lengths[session] - first
        return {**took, "wall": took["wall"] / done, "cpu": took["cpu"] / done}

    async def crowd(self, sessions: int, each: int) -> dict[str, Any]:
        """So many sessions at once, each appending one after the other."""
        names = [f"crowd-{number}" for number in range(sessions)]
        for name in names:
            if name not in self._lengths:
                await self._store.append(name, self._next(name))

        async def one(name: str) -> None:
            for _ in range(each):
                await self._store.append(name, self._next(name))

        async def work() -> None:
            await asyncio.gather(*(one(name) for name in names))

        return await _timed(work, sessions * each)

    async def last(self, session: str, count: int, times: int) -> dict[str, Any]:
        """As an agent does: each time there is one more exchange, whose append is not counted."""

        async def work() -> None:
            pieces = await self._store.last(session, count)
            assert pieces >= min(count, self._lengths[session]) * PIECES - 1, pieces

        start, wall, cpu = time.perf_counter(), 0.0, 0.0
        for _ in range(times):
            await self._store.append(session, self._next(session))
            took = await _timed(work, times)
            wall, cpu = wall + took["wall"], cpu + took["cpu"]
        return {"wall": wall, "cpu": cpu, "seconds": time.perf_counter() - start}

    async def whole(self, session: str, times: int) -> dict[str, Any]:
        async def work() -> None:
            for _ in range(times):
                pieces = await self._store.whole(session)
                assert pieces >= self._lengths[session] * PIECES - 1, pieces

        return await _timed(work, times)

    async def context(self, session: str, times: int) -> dict[str, Any]:
        async def work() -> None:
            for _ in range(times):
                messages = await self._store.context(session)
                assert messages >= self._lengths[session] * PIECES - 1, messages

        return await _timed(work, times)

    async def fork(self, session: str, times: int) -> dict[str, Any]:
        async def work() -> None:
            for _ in range(times):
                await self._store.fork(session)

        return await _timed(work, times)

    async def size(self) -> dict[str, Any]:
        """Bytes on disk, with every log moved into its file."""
        total = 0
        for path in self._folder.glob("*.db"):
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            total += path.stat().st_size
        return {"bytes": total}

    async def use_wal(self) -> dict[str, Any]:
        """The ledger's own durability: a write-ahead log, synchronised at every commit."""
        for path in self._folder.glob("*.db"):
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        return {}


async def _timed(work: Callable[[], Awaitable[None]], operations: int) -> dict[str, Any]:
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    took = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": took[0] / operations, "cpu": took[1] / operations, "seconds": took[0]}


async def main(name: str, folder: Path, exchanges: Path, address: str) -> None:
    """Read orders until there are no more."""
    module, _, kind = STORES[name].partition(":")
    store: Store = getattr(importlib.import_module(f"benchmarks.peers.{module}"), kind)(
        folder, address
    )
    plain = json.loads(exchanges.read_text(encoding="utf-8"))
    worker = Worker(store, folder, [Exchange.of(each) for each in plain])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is no answer
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        try:
            said = await getattr(worker, order.pop("do"))(**order)
        except NotImplementedError:
            said = {"missing": True}
        except Exception as error:
            said = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(said) + "\n")
        answers.flush()
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
