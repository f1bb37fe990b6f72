"""A busy importer keeps nobody waiting: a second process writes within a second, always.

Importers commit batches of 50 ms back to back; this process records a turn now and then and times
it. A wait counts when the importers went on committing meanwhile: a machine that stands still
starves nobody.
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger import Ledger, Locked
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.trust import harness, plants
from tests.trust.harness import Options, Outcome

BATCH_SECONDS = 0.05
WAIT_MAX_SECONDS = 1.0
ROUND_SECONDS = 2.5


def import_for_ever(file: str, plant: str, batches: Any, stop: Any) -> None:
    """What an importer does: long transactions without a pause."""
    plants.plant(plant)
    with Ledger.open(file) as ledger:
        while not stop.is_set():
            ledger._core.db.write(_batch)
            with batches.get_lock():
                batches.value += 1


def _batch(tx: Transaction) -> None:
    end = time.monotonic() + BATCH_SECONDS
    for number in range(20):
        recording.record(tx, recording.recording(f"import-{number}", "q" * 300, "a" * 500, {}))
    time.sleep(max(0, end - time.monotonic()))


def one_round(file: Path, importers: int, plant: str, rng: Random) -> tuple[float, int, int]:
    """The longest wait, how many batches were committed during it, and the turns recorded."""
    context = multiprocessing.get_context("fork")
    batches, stop = context.Value("q", 0), context.Event()
    processes = [
        context.Process(target=import_for_ever, args=(str(file), plant, batches, stop), daemon=True)
        for _ in range(importers)
    ]
    for process in processes:
        process.start()
    while batches.value == 0:
        time.sleep(0.01)
    longest, meanwhile, turns = 0.0, 0, 0
    end = time.monotonic() + ROUND_SECONDS
    with Ledger(Core(SqliteDatabase(str(file), wait_seconds=3))) as ledger:
        while time.monotonic() < end:
            time.sleep(rng.random() * 0.1)
            before, start = batches.value, time.monotonic()
            with suppress(Locked):  # it gave up waiting
                ledger.record("me", "Hello?", "Yes.")
            waited = time.monotonic() - start
            turns += 1
            if waited > longest:
                longest, meanwhile = waited, batches.value - before
    stop.set()
    for process in processes:
        process.join()
    return longest, meanwhile, turns


def run(options: Options) -> Outcome:
    """`count` rounds, with one to three importers."""
    outcome = Outcome()
    rng = Random(options.seed)
    plants.plant(options.plant)
    for number in range(options.count):
        importers = 2 + (options.seed + number) % 2
        with harness.workplace() as folder:
            waited, meanwhile, turns = one_round(
                folder / "ledger.db", importers, options.plant, rng
            )
        # In the queue stand the other importers, and the one whose turn it is.
        if waited > WAIT_MAX_SECONDS and meanwhile > importers + 1:
            outcome.found(
                f"seed {options.seed}: waited {waited:.1f} s for {importers} importers,"
                f" which committed {meanwhile} batches meanwhile"
            )
        outcome.done += 1
        outcome.notes["longest wait, ms"] = max(
            outcome.notes.get("longest wait, ms", 0), round(waited * 1000)
        )
        outcome.notes["turns"] = outcome.notes.get("turns", 0) + turns
    return outcome


if __name__ == "__main__":
    harness.main(run)
