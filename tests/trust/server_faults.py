"""PostgreSQL under faults: backends end, the server restarts, and eight writers lose nothing.

A server of its own is restarted and its backends are terminated and killed while eight threads on
two handles write. A call that fails is made again, as its error says. The page cache survives all
this: it says nothing about power cuts.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg
from msgspec import Struct, field

from agents_ledger import Ledger, OutcomeUnknown, StoreUnavailable
from agents_ledger.model.ids import new_id
from tests.raw import Raw
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.trust.picture import Fact, Picture, digest
from tests.trust.server import OwnServer, own_server, with_schema
from tests.trust.workload import Workload

WRITERS = 8
HANDLES = 2
SHARED = "shared"
EVENTS = ("terminate", "immediate", "terminate all", "kill", "fast", "immediate")
LAZY = "synchronous_commit=off"  # planted: acknowledgements before the commit is on disk
ACKS_BETWEEN = 80
EVENTS_PER_LEDGER = 12
PATIENCE_SECONDS = 90


class Crew(Struct):
    """What the writers share."""

    stop: threading.Event = field(default_factory=threading.Event)
    findings: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)
    shared_turns: set[str] = field(default_factory=set)
    writers: list[Writer] = field(default_factory=list)

    def acks(self) -> int:
        """How many facts all writers were told."""
        return sum(len(writer.facts) for writer in self.writers)

    def facts(self) -> list[Fact]:
        """All of them."""
        return [fact for writer in self.writers for fact in writer.facts]


class Writer(threading.Thread):
    """One of the eight."""

    def __init__(self, crew: Crew, ledger: Ledger, number: int, seed: float) -> None:
        super().__init__(daemon=True)
        self.crew = crew
        self.ledger = ledger
        self.rng = Random(seed)
        self.facts: list[Fact] = []
        self.workload = Workload(ledger, self.rng, self.perform, f"w{number}", big=False)

    def run(self) -> None:
        try:
            while not self.crew.stop.is_set():
                if self.rng.random() < 0.3:
                    self.record_shared()
                else:
                    self.workload.step()
        except Exception as error:
            self.crew.findings.append(f"a writer was told {type(error).__name__}: {error}")

    def record_shared(self) -> None:
        """All write to this session, whatever its head is."""
        id = new_id()
        steps = [("message", "user", id), ("message", "assistant", "yes")]
        self.crew.shared_turns.add(id)
        self.perform(
            lambda: self.ledger.record(SHARED, id, "yes", id=id),
            ("turn", id, digest(steps, "completed", None, None, None)),
        )

    def perform(self, action: Callable[[], Any], *facts: Fact) -> Any:
        """Make a call until it is done, and see whether its errors tell the truth."""
        end = time.monotonic() + PATIENCE_SECONDS
        may_be_stored = False
        while time.monotonic() < end:
            try:
                result = action()
            except StoreUnavailable as error:
                name = type(error).__name__
                self.crew.errors[name] = self.crew.errors.get(name, 0) + 1
                may_be_stored |= isinstance(error, OutcomeUnknown)
                if facts[0][0] == "turn" and may_be_stored:
                    continue  # with the same id: stored once
                if self._stored(facts):
                    if not may_be_stored:
                        self.crew.findings.append(f"stored, though told {name}: {error}")
                    result = None
                else:
                    continue
            self.facts += facts
            return result
        raise TimeoutError("a call did not get through")

    def _stored(self, facts: tuple[Fact, ...]) -> bool:
        while True:
            try:
                return Picture(self.ledger).missing(facts) is None
            except StoreUnavailable:
                time.sleep(0.05)


def strike(server: OwnServer, event: str, rng: Random) -> None:
    """Let one event happen."""
    if event in ("fast", "immediate"):
        server.restart(event)
    elif event == "kill":
        server.kill(rng)
    else:
        backends = server.backends()
        server.terminate(backends if event == "terminate all" else [rng.choice(backends)])


def run(options: Options) -> Outcome:
    """Let `count` events strike."""
    logging.getLogger("psycopg.pool").setLevel(
        logging.CRITICAL
    )  # it tells of every lost connection
    outcome = Outcome()
    rng = Random(options.seed)
    with own_server() as server:
        while outcome.done < options.count and not outcome.findings:
            count = min(EVENTS_PER_LEDGER, options.count - outcome.done)
            address = with_schema(server.address, f"ledger_{outcome.done}")
            crew = Crew()
            Ledger.open(address).close()
            if options.plant == LAZY:
                server.set("synchronous_commit = off", "wal_writer_delay = '10s'")
                server.set("wal_writer_flush_after = '1GB'")
            outcome.done += _strike(server, address, crew, rng, count)
            crew.findings += [] if crew.findings else judge_recovery(crew, address)
            for finding in crew.findings:
                outcome.found(f"seed {options.seed}: {finding}")
            for name, times in (*crew.errors.items(), ("facts", crew.acks())):
                outcome.notes[name] = outcome.notes.get(name, 0) + times
    return outcome


def _strike(server: OwnServer, address: str, crew: Crew, rng: Random, count: int) -> int:
    """Let events strike while a crew writes; how many did."""
    struck = 0
    with contextlib.ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(address)) for _ in range(HANDLES)]
        crew.writers = [
            Writer(crew, ledgers[number % HANDLES], number, rng.random())
            for number in range(WRITERS)
        ]
        for writer in crew.writers:
            writer.start()
        offset = rng.randrange(len(EVENTS))
        while struck < count and _go_on(crew):
            with contextlib.suppress(psycopg.OperationalError):  # the last event is not over
                strike(server, EVENTS[(offset + struck) % len(EVENTS)], rng)
            struck += 1
        _go_on(crew)
        crew.stop.set()
        for writer in crew.writers:
            writer.join(PATIENCE_SECONDS)
        crew.findings += [] if crew.findings else judge(crew, ledgers[0])
    return struck


def _go_on(crew: Crew) -> bool:
    """Wait until more was acknowledged. False: something is wrong."""
    wanted, end = crew.acks() + ACKS_BETWEEN, time.monotonic() + PATIENCE_SECONDS
    while crew.acks() < wanted and not crew.findings:
        if time.monotonic() > end:
            crew.findings.append("the writers did not go on")
        time.sleep(0.02)
    return not crew.findings


def judge(crew: Crew, ledger: Ledger) -> list[str]:
    """What is wrong while the handles are open."""
    if any(writer.is_alive() for writer in crew.writers):
        return ["a writer hangs"]
    picture = Picture(ledger)
    if missing := picture.missing(crew.facts()):
        return [f"lost: {missing}"]
    thread = picture.ancestry(picture.sessions[SHARED][0])
    if sorted(thread) != sorted(crew.shared_turns):
        return [f"the shared session has {len(thread)} turns of {len(crew.shared_turns)}"]
    if broken := ledger.audit():
        return [f"audit: {broken[0]}"]
    if failed := ledger.recover():
        return [f"recovery failed turns of a living writer: {failed}"]
    return []


def judge_recovery(crew: Crew, address: str) -> list[str]:
    """When the handles are closed and their leases over, what they left live is failed."""
    with Raw(address) as raw:
        raw.execute("UPDATE writers SET seen_at = 0")
    with Ledger.open(address) as ledger:
        live = Picture(ledger).live
        failed = set(ledger.recover())
        if failed != live:
            return [f"recover failed {sorted(failed)}, live were {sorted(live)}"]
        if missing := Picture(ledger).missing(crew.facts()):
            return [f"lost in recovery: {missing}"]
        if broken := ledger.audit():
            return [f"audit after recovery: {broken[0]}"]
    return []


if __name__ == "__main__":
    harness.main(run)
