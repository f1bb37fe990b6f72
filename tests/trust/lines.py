"""kill -9 of brokers: what was queued is answered once, or failed with its turn, and never twice.

Processes put messages in the lines of a few sessions, others answer them; all are killed. What the
engine was really asked is written to a file beside the ledger. The last broker is left to finish.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger import Ask, AsyncLedger, Ledger, Message, Queue, QueueLimits, Request
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.run import TurnRun
from agents_ledger.ledger.core import Core
from agents_ledger.model.agents.engine import EngineEvent
from tests.contract.test_recovery import LEASE_MS, database
from tests.trust import harness
from tests.trust.ground import drop
from tests.trust.harness import Options, Outcome
from tests.trust.server import some_server, with_schema

SESSIONS = 4
KILLS_PER_LEDGER = 12
PATIENCE_SECONDS = 120
LIMITS = QueueLimits(cap=1 << 20, debounce_ms=3)
TWICE = "asked before it is begun"


class Heard(EchoEngine):
    """Writes down what it is asked, before it answers."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.told_before = False  # a planted bug writes it down

    def hear(self, text: str) -> None:
        """One that it was asked."""
        os.write(self._log, f"{text}\n".encode())

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        if not self.told_before:
            self.hear(getattr(request.items[-1], "text", ""))
        await asyncio.sleep(0.001)
        async for event in super().run(request):
            yield event


def fork(work: Callable[[], None]) -> int:
    """A process of its own; nothing of ours may be open."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid


def put(address: str, seed: int, pipe: int) -> None:
    """Put messages in lines until killed, and tell of each that is queued."""
    rng, number = Random(seed), 0
    with Ledger(Core(database(address))) as ledger:
        queue = Queue(ledger)
        while True:
            number += 1
            id = f"{seed:x}-{number:06}"
            queue.enqueue(
                f"s{rng.randrange(SESSIONS)}",
                Ask((Message("user", id, "human"),)),
                mode=rng.choice(("followup", "followup", "collect")),
                limits=LIMITS,
                id=id,
            )
            os.write(pipe, f"{id}\n".encode())
            time.sleep(rng.random() * 0.01)


def answer(address: str, log: Path, plant: str, *, until_idle: bool) -> None:
    """Answer all lines."""

    async def work() -> None:
        engine = Heard(log)
        if plant == TWICE:
            _ask_before_begin(engine)
        opening = AsyncLedger(lambda: Core(database(address)))
        async with (
            opening as ledger,
            Broker(ledger, engine=engine, poll_seconds=0.05, recover_seconds=0.05) as broker,
        ):
            await broker.work(until_idle=until_idle)

    asyncio.run(work())


def _ask_before_begin(engine: Heard) -> None:
    """Plant: the engine is asked as soon as something is claimed."""
    plain = TurnRun._begin

    async def begin(self: Any) -> Any:
        texts = [m.content for e in self.claim.entries if e.ask for m in e.ask.messages]
        engine.hear(texts[-1])
        await asyncio.sleep(0.01)
        return await plain(self)

    engine.told_before = True
    TurnRun._begin = begin  # type: ignore[method-assign]


class Place:
    """A ledger, what was said to be queued, and what the engine was asked."""

    def __init__(self, address: str, folder: Path, rng: Random, plant: str) -> None:
        self.address, self.rng, self.plant = address, rng, plant
        self.log = folder / "asked"
        self.queued: list[str] = []

    def round(self) -> int:
        """Let some processes live for a moment and kill them; how many."""
        reading, writing = os.pipe()
        seed = self.rng.randrange(1 << 40)
        pids = [fork(lambda: put(self.address, seed, writing))]
        pids += [
            fork(lambda: answer(self.address, self.log, self.plant, until_idle=False))
            for _ in range(2)
        ]
        os.close(writing)
        self.rng.shuffle(pids)
        time.sleep(0.3 + self.rng.random() * 0.5)  # they have to open the ledger first
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            time.sleep(self.rng.random() * 0.1)
        with os.fdopen(reading) as told:
            self.queued += told.read().split()
        return len(pids)

    def finish(self) -> str | None:
        """Let a broker answer what is left; what is wrong then."""
        time.sleep(LEASE_MS / 1000)
        pid = fork(lambda: answer(self.address, self.log, self.plant, until_idle=True))
        end = time.monotonic() + PATIENCE_SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"nobody answered within {PATIENCE_SECONDS} s"
            time.sleep(0.02)
        with closing(Ledger(Core(database(self.address)))) as ledger:
            return self._wrong(ledger)

    def _wrong(self, ledger: Ledger) -> str | None:
        entries = {entry.id: entry for entry in _entries(Queue(ledger))}
        if lost := set(self.queued) - set(entries):
            return f"said to be queued, and not there: {sorted(lost)[:5]}"
        if left := [e.id for e in entries.values() if e.status not in ("done", "failed")]:
            return f"neither answered nor failed: {left[:5]}"
        asked = Counter(self.log.read_text().split())
        if again := [text for text, times in asked.items() if times > 1]:
            return f"the engine was asked twice: {again[:5]}"
        begun: Counter[str] = Counter()
        for (metadata,) in ledger.query("SELECT metadata_json FROM messages WHERE role = 'user'")[
            1
        ]:
            begun[json.loads(metadata)["queue"]["entry_id"]] += 1
        if wrong := {id for id in entries if begun[id] != 1}:
            return f"not in one turn: {[(id, begun[id]) for id in sorted(wrong)[:5]]}"
        for label in {entry.session_label for entry in entries.values()}:
            ids = [m.content for turn in ledger.thread(label).turns for m in turn.query]
            line = [e.id for e in entries.values() if e.session_label == label]
            if ids != [id for id in line if entries[id].status == "done"]:
                return f"the thread of {label} is not its line: {ids[:10]} {line[:10]}"
        return next((f"the audit says {finding}" for finding in ledger.audit()), None)


def _entries(queue: Queue) -> list[Any]:
    found: list[Any] = []
    while page := queue.entries(
        everything=True, limit=1000, after=found[-1].position if found else 0
    ):
        found += page
    return found


def run(options: Options) -> Outcome:
    """Kill `count` processes."""
    outcome = Outcome()
    rng = Random(options.seed)
    with ExitStack() as stack:
        server = stack.enter_context(some_server(options)) if options.engine != "sqlite" else ""
        while outcome.done < options.count:
            with harness.workplace() as folder:
                schema = f"lines_{rng.randrange(1 << 60):x}"
                address = with_schema(server, schema) if server else str(folder / "ledger.db")
                with Ledger(Core(database(address))):
                    pass  # made before anybody races to make it
                place = Place(address, folder, rng, options.plant)
                killed = 0
                while killed < KILLS_PER_LEDGER:
                    killed += place.round()
                outcome.done += killed
                wrong = place.finish()
                if server:
                    drop(address)
                outcome.notes["queued"] = outcome.notes.get("queued", 0) + len(place.queued)
                if wrong:
                    outcome.found(f"seed {options.seed}, after {outcome.done} kills: {wrong}")
                    harness.keep(options, folder, f"lines-{options.seed}-{outcome.done}")
    return outcome


if __name__ == "__main__":
    harness.main(run)
