"""Many writers, few sessions, every verb: whatever comes first, all rules hold in the end.

Threads on two handles fork, move, merge, rename and write the same sessions. Most of what they ask
is refused, because somebody was faster; what is done must leave a sound ledger.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any

from agents_ledger import Compaction, Conflict, Ledger, NotFound, Refused
from agents_ledger.model.ids import new_id
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.trust.picture import Fact, Picture, digest
from tests.trust.server import some_server, with_schema

HANDLES = 2
WRITERS = 6
STEPS = 60
KEYS = "abcdef"
PATIENCE_SECONDS = 120


class Brawler(threading.Thread):
    """One writer, who knows nothing of the others."""

    def __init__(self, ledger: Ledger, seed: float) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.rng = Random(seed)
        self.facts: list[Fact] = []
        self.error: Exception | None = None
        self.done = 0
        self.verbs: list[Callable[[str], Any]] = [
            self.record,
            self.record,
            self.record_on_seen,
            self.live,
            self.live,
            self.compact,
            lambda key: ledger.fork(self.key(), label=key),
            lambda key: ledger.move(key, self.key_head()),
            ledger.undo,
            ledger.clear,
            lambda key: ledger.alias(key, self.key()),
            lambda key: ledger.merge(key, self.key()),
            lambda key: ledger.archive(key, self.rng.choice(("active", "active", "archived"))),
            lambda key: ledger.annotate(key, title="t"),
        ]

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                try:
                    self.rng.choice(self.verbs)(self.key())
                    self.done += 1
                except (Conflict, Refused, NotFound):
                    pass
        except Exception as error:
            self.error = error

    def key(self) -> str:
        return self.rng.choice(KEYS)

    def key_head(self) -> str:
        head = self.ledger.head(self.key())
        if head is None:
            raise NotFound("empty")
        return head

    def _turn_fact(self, id: str, kind: str = "turn") -> Fact:
        steps = [("message", "user", id), ("message", "assistant", "yes")]
        return (kind, id, digest(steps, "completed", None, None, None))

    def record(self, key: str) -> None:
        id = new_id()
        self.ledger.record(key, id, "yes", id=id)
        self.facts.append(self._turn_fact(id))

    def record_on_seen(self, key: str) -> None:
        id, head = new_id(), self.ledger.head(key)
        self.ledger.record(key, id, "yes", id=id, parent=head)
        self.facts.append(self._turn_fact(id))

    def live(self, key: str) -> None:
        id = new_id()
        turn = self.ledger.turn(key, id, id=id)
        turn.stream("y")
        time.sleep(self.rng.random() * 0.003)
        try:
            turn.respond("yes")
        finally:  # HeadMoved: stored all the same
            self.facts.append(self._turn_fact(id, "sealed"))

    def compact(self, key: str) -> None:
        thread = self.ledger.ancestry(key)
        if thread:
            through = self.rng.choice(thread)
            self.ledger.record(key, compaction=Compaction("short", through))


def one_round(address: str, seed: float) -> tuple[list[str], int]:
    """What is wrong after a brawl, and how much was done in it."""
    rng = Random(seed)
    with ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger.open(address)) for _ in range(HANDLES)]
        brawlers = [Brawler(ledgers[n % HANDLES], rng.random()) for n in range(WRITERS)]
        for brawler in brawlers:
            brawler.start()
        for brawler in brawlers:
            brawler.join(PATIENCE_SECONDS)
        done = sum(brawler.done for brawler in brawlers)
        if any(brawler.is_alive() for brawler in brawlers):
            return ["a writer hangs"], done
        errors = [brawler.error for brawler in brawlers if brawler.error is not None]
        if errors:
            return [f"a writer was told {type(errors[0]).__name__}: {errors[0]}"], done
        picture = Picture(ledgers[0])
        missing = picture.missing([fact for brawler in brawlers for fact in brawler.facts])
        if missing:
            return [f"lost: {missing}"], done
        return [f"audit: {broken}" for broken in ledgers[0].audit()[:3]], done


def run(options: Options) -> Outcome:
    """`count` brawls, each on a new ledger."""
    outcome = Outcome()
    rng = Random(options.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(harness.workplace())
        server = ""
        if options.engine == "postgres":
            server = stack.enter_context(some_server(options))
        for number in range(options.count):
            name = f"brawl_{new_id().lower()}"
            address = with_schema(server, name) if server else str(folder / f"{name}.db")
            findings, done = one_round(address, rng.random())
            for finding in findings:
                outcome.found(f"seed {options.seed}, round {number}: {finding}")
            outcome.done += 1
            outcome.notes["verbs done"] = outcome.notes.get("verbs done", 0) + done
    return outcome


if __name__ == "__main__":
    harness.main(run)
