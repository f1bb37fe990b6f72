"""Random redactions while others write, killed at any moment: nothing else goes, nothing is left.

Each round redacts some of the values that a writer recorded, in a process that is killed after a
random time. What the next process finds half done it finishes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random

from agents_ledger import Ledger, NotFound
from agents_ledger.model.reports.redaction import Selection
from tests.raw import Raw
from tests.trust import harness
from tests.trust.ground import drop
from tests.trust.harness import Options, Outcome
from tests.trust.server import some_server, with_schema

AT_ONCE = 4  # values of a round
LONGEST_S = 1.2
BEGUN, ENDED = "begun", "ended"
KILLED = "rounds killed"
KILLED_IN_ONE = "of these, in the middle of a redaction"


def value(number: int) -> str:
    """A value that is in no other text."""
    return f"vk{Random(number).getrandbits(80):020x}kv"


def redact(address: str, numbers: list[int]) -> None:
    """Redact these values, one after the other, and print when each begins and ends."""
    with Ledger.open(address) as ledger:
        for number in numbers:
            try:
                print(BEGUN, flush=True)
                ledger.redactions.redact(Selection(text=value(number)), reason="soak", actor="soak")
            except NotFound:  # it was done before the process was killed
                pass
            print(ENDED, flush=True)


class Writer:
    """Records turns, each with a value, until it is stopped."""

    def __init__(self, address: str) -> None:
        self.recorded = 0
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Ledger.open(self._address) as ledger:
            while not self._stop.wait(0.01):
                text = value(self.recorded)
                ledger.record(f"s{self.recorded % 3}", f"use {text}", f"used {text}")
                self.recorded += 1

    def stop(self) -> int:
        """The number of turns that were acknowledged."""
        self._stop.set()
        self._thread.join()
        return self.recorded


class Place:
    """A ledger, and the values that were redacted in it."""

    def __init__(self, address: str, folder: Path, rng: Random, outcome: Outcome) -> None:
        self.address, self.rng, self.outcome = address, rng, outcome
        self.gone: set[int] = set()
        key = str(folder / "keys" / "key")
        self._environment = {**os.environ, "AGENTS_LEDGER_REDACTION_KEY": key}
        with Ledger.open(address):
            pass  # made before anybody races to make it

    def _redacting(self, numbers: list[int]) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "tests.trust.redactions", "--redact", self.address]
        return subprocess.Popen(
            [*words, *map(str, numbers)],
            env=self._environment,
            cwd=harness.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def round(self, numbers: list[int]) -> None:
        """Redact values in a process that may be killed."""
        with self._redacting(numbers) as process:
            try:
                process.wait(self.rng.uniform(0.2, LONGEST_S))
            except subprocess.TimeoutExpired:
                process.kill()
                assert process.stdout is not None
                said = process.stdout.read().split()
                notes = {KILLED: 1.0, KILLED_IN_ONE: float(said[-1:] == [BEGUN])}
                harness.add_notes(self.outcome.notes, notes)
        self.gone.update(numbers)

    def finish(self) -> None:
        """Redact what the killed processes left."""
        with self._redacting(sorted(self.gone)) as process:
            process.communicate()
        if process.returncode:
            self.outcome.found(f"the last process ended with {process.returncode}")

    def redact_while_written(self, count: int) -> int:
        """Redact this many values; how many turns were recorded meanwhile."""
        writer = Writer(self.address)
        try:
            while len(self.gone) < count:
                last = writer.recorded - 1
                if last <= 0:
                    continue
                numbers = self.rng.sample(range(last), min(last, AT_ONCE))
                numbers = [n for n in numbers if n not in self.gone][: count - len(self.gone)]
                if numbers:
                    self.round(numbers)
        finally:
            recorded = writer.stop()
        return recorded


def wrong(address: str, recorded: int, gone: set[int]) -> list[str]:
    """What was lost, and what is left."""
    findings: list[str] = []
    with Ledger.open(address) as ledger:
        if not ledger.redactions.finish():
            findings.append("free pages were not cleared")
        kept = repr(ledger.query("SELECT content FROM messages")[1])
        findings += [
            f"turn {number} lost its value"
            for number in range(recorded)
            if number not in gone and kept.count(value(number)) != 2
        ]
        findings += [f"rule {finding.rule} is broken" for finding in ledger.audit()]
        findings += [f"evidence: {finding}" for finding in ledger.verify().findings]
    if address.startswith("postgres"):
        with Raw(address) as raw:
            left = [number for number in gone if raw.tables_with(value(number))]
    else:
        data = b"".join(path.read_bytes() for path in Path(address).parent.glob("ledger.db*"))
        left = [number for number in gone if value(number).encode() in data]
    return findings + [f"value {number} is left" for number in left]


def run(options: Options) -> Outcome:
    """Redact `count` values."""
    outcome, rng = Outcome(), Random(options.seed)
    with ExitStack() as stack:
        folder = stack.enter_context(harness.workplace())
        address = str(folder / "ledger.db")
        if options.engine != "sqlite":
            server = stack.enter_context(some_server(options))
            address = with_schema(server, f"redactions_{rng.randrange(1 << 60):x}")
            stack.callback(drop, address)
        place = Place(address, folder, rng, outcome)
        recorded = place.redact_while_written(options.count)
        place.finish()
        for finding in wrong(address, recorded, place.gone):
            outcome.found(f"seed {options.seed}: {finding}")
        outcome.done = len(place.gone)
        if outcome.findings:
            harness.keep(options, folder, f"redactions-{options.seed}")
    return outcome


if __name__ == "__main__":
    if sys.argv[1:2] == ["--redact"]:
        redact(sys.argv[2], [int(number) for number in sys.argv[3:]])
    else:
        harness.main(run)
