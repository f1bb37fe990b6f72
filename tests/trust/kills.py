"""kill -9: what a process was told is stored, whenever it is killed; recovery fails its live turns.

Two processes write to one ledger. Each writes what it was told into a pipe. One is killed, and
recovery must leave the other's live turns alone; then the other is killed too. The page cache
survives a kill, so this says nothing about power cuts.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.store.sqlite.log import LogLimits
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.trust.picture import Fact, Picture, as_fact, look

KILLS_PER_LEDGER = 20
WAL_BYTES = 256 << 10
PATIENCE_SECONDS = 20


class Victim:
    """A process that writes until it is killed, and what it was told."""

    def __init__(self, address: str, seed: int, plant: str) -> None:
        self.facts: list[Fact] = []
        self._rest = b""
        self._pipe, to_us = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._pipe)
            _write_for_ever(address, seed, plant, to_us)
        os.close(to_us)

    def listen(self, seconds: float) -> bool:
        """Take in what it says, waiting for it at most so long. False: it has ended."""
        if not select.select([self._pipe], [], [], max(0, seconds))[0]:
            return True
        said = os.read(self._pipe, 1 << 20)
        *lines, self._rest = (self._rest + said).split(b"\n")
        for line in lines:
            self.facts += as_fact(json.loads(line))
        return bool(said)

    def listen_until(self, facts: int, seconds: float) -> None:
        """Wait until it was told so much, or for so long."""
        end = time.monotonic() + seconds
        while len(self.facts) < facts and time.monotonic() < end:
            if not self.listen(end - time.monotonic()):
                return

    def kill(self) -> str | None:
        """End it and take in its last words. What is returned is why it had ended by itself."""
        os.kill(self.pid, signal.SIGKILL)
        while self.listen(PATIENCE_SECONDS):
            pass
        os.close(self._pipe)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return None
        return f"the writer ended by itself with {os.waitstatus_to_exitcode(status)}"

    def begun(self) -> set[str]:
        """The live turns it knows to have begun."""
        return {fact[1] for fact in self.facts if fact[0] == "begun"}


def _write_for_ever(address: str, seed: int, plant: str, pipe: int) -> None:
    from tests.trust.workload import Workload

    def tell(facts: tuple[Fact, ...]) -> None:
        line = memoryview(json.dumps(facts).encode() + b"\n")
        while line:
            line = line[os.write(pipe, line) :]

    def acknowledge(action: Callable[[], Any], *facts: Fact) -> Any:
        if plant == "early acknowledgement":
            tell(facts)
        result = action()
        if plant != "early acknowledgement":
            tell(facts)
        return result

    try:
        database = SqliteDatabase(address, log_limits=LogLimits(WAL_BYTES, 2 * WAL_BYTES))
        workload = Workload(Ledger(Core(database)), Random(seed), acknowledge, f"p{seed}")
        while True:
            workload.step()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def run(options: Options) -> Outcome:
    """Kill `count` processes."""
    outcome = Outcome()
    rng = Random(options.seed)
    while outcome.done < options.count:
        with harness.workplace(on_disk=rng.random() < 0.3) as folder:
            facts: list[Fact] = []
            while outcome.done < options.count and len(facts) < 40 * KILLS_PER_LEDGER:
                wrong = _two_kills(folder / "ledger.db", rng, options.plant, facts)
                outcome.done += 2
                if wrong:
                    outcome.found(f"seed {options.seed}, kill {outcome.done}: {wrong}")
                    harness.keep(options, folder, f"kill-{options.seed}-{outcome.done}")
                    break
    return outcome


def _two_kills(file: Path, rng: Random, plant: str, facts: list[Fact]) -> str | None:
    first, second = (Victim(str(file), rng.randrange(1 << 40), plant) for _ in range(2))
    _let_live(first, rng)
    ended = first.kill()
    failed: set[str] = set()
    if rng.random() < 0.5:
        second.listen_until(20, PATIENCE_SECONDS)
        with Ledger.open(str(file)) as ledger:
            failed = set(ledger.recover())
    _let_live(second, rng)
    ended = second.kill() or ended
    facts += first.facts + second.facts
    if ended:
        return ended
    if wronged := failed & second.begun():
        return f"recovery failed turns of a living writer: {sorted(wronged)}"
    if not file.exists():
        return "told of facts, but there is no ledger" if facts else None
    with Ledger.open(str(file)) as ledger:
        return look(ledger, Picture(ledger), facts)


def _let_live(victim: Victim, rng: Random) -> None:
    """For some acknowledgements, or some milliseconds: then also while it is just opening."""
    if rng.random() < 0.2:
        victim.listen_until(1 << 30, rng.random() * 0.04)
    else:
        victim.listen_until(rng.randrange(1, 60), PATIENCE_SECONDS)
        time.sleep(rng.random() * 0.002)


if __name__ == "__main__":
    harness.main(run)
