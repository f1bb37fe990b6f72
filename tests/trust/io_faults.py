"""I/O errors and a full disk at the n-th call: each is told, nothing acknowledged is lost by it.

io_worker.py runs the cases. Here each ledger they leave is opened with the standard library's
SQLite, and looked at.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from agents_ledger import Ledger, LedgerError
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.trust.picture import Picture, as_fact, look
from tests.trust.recorder import FILE

CASES_PER_WORKER = 100


def run(options: Options) -> Outcome:
    """Run and judge `count` cases."""
    outcome = Outcome()
    rng = Random(options.seed)
    while outcome.done < options.count:
        count = min(CASES_PER_WORKER, options.count - outcome.done)
        with harness.workplace() as folder:
            seed = rng.randrange(1 << 40)
            harness.python("io_worker", folder, seed, count, options.plant)
            for number in range(count):
                _judge(folder / f"case-{number}", options, outcome)
    return outcome


def _judge(place: Path, options: Options, outcome: Outcome) -> None:
    said = json.loads((place / "said.json").read_text(encoding="utf-8"))
    outcome.done += 1
    for name, times in (said["errors"] or {"cases without an error": 1}).items():
        outcome.notes[name] = outcome.notes.get(name, 0) + times
    wrong = said["found"]
    if not wrong:
        before = place.with_name("before")
        shutil.copytree(place, before)
        try:
            with Ledger.open(str(place / FILE), create=False) as ledger:
                wrong = look(ledger, Picture(ledger), as_fact(said["facts"]))
        except LedgerError as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            harness.keep(options, before, f"io-{options.seed}-{outcome.done}")
        shutil.rmtree(before)
    if wrong:
        outcome.found(f"seed {options.seed}, case {said['case']}: {wrong}")


if __name__ == "__main__":
    harness.main(run)
