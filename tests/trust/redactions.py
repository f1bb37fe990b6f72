"""Random redactions while others write, killed at any moment: nothing else goes, nothing is left.

    python -m tests.trust.redactions --count 1000

Each round redacts some of the values that a writer recorded, in a process that is killed after a
random time. What the next process finds half done it finishes.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from agents_ledger import Ledger, NotFound
from agents_ledger.model.reports.redaction import Selection

AT_ONCE = 4  # values of a round
LONGEST_S = 3.0


def value(number: int) -> str:
    """A value that is in no other text."""
    return f"vk{random.Random(number).getrandbits(80):020x}kv"


def redact(address: str, numbers: list[int]) -> None:
    """Redact these values, one after the other."""
    with Ledger.open(address) as ledger:
        for number in numbers:
            try:
                ledger.redactions.redact(Selection(text=value(number)), reason="soak", actor="soak")
            except NotFound:  # it was done before the process was killed
                continue


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


def soak(folder: Path, count: int, seed: int) -> list[str]:
    """Redact this many values; what is wrong in the end."""
    address, chance = str(folder / "ledger.db"), random.Random(seed)
    environment = {**os.environ, "AGENTS_LEDGER_REDACTION_KEY": str(folder / "keys" / "key")}
    Ledger.open(address).close()
    writer = Writer(address)
    gone: set[int] = set()
    while len(gone) < count:
        last = writer.recorded - 1
        numbers = [n for n in chance.sample(range(last), min(last, AT_ONCE))] if last > 0 else []
        numbers = [n for n in numbers if n not in gone][: count - len(gone)]
        if not numbers:
            continue
        words = [sys.executable, "-m", "tests.trust.redactions", "--redact", address]
        child = subprocess.Popen([*words, *map(str, numbers)], env=environment)
        try:
            child.wait(chance.uniform(0.2, LONGEST_S))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        gone.update(numbers)
    recorded = writer.stop()
    subprocess.run(
        [sys.executable, "-m", "tests.trust.redactions", "--redact", address, *map(str, gone)],
        env=environment,
        check=True,
    )
    return wrong(address, recorded, gone)


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
    data = b"".join(path.read_bytes() for path in Path(address).parent.glob("ledger.db*"))
    findings += [f"value {number} is left" for number in gone if value(number).encode() in data]
    return findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redact", nargs="+", metavar="ADDRESS NUMBER")
    options = parser.parse_args()
    if options.redact:
        redact(options.redact[0], [int(number) for number in options.redact[1:]])
        return
    with tempfile.TemporaryDirectory() as folder:
        findings = soak(Path(folder), options.count, options.seed)
    print(f"{options.count} redactions, {len(findings)} findings", *findings, sep="\n")
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
