"""Runs a workload on a disk that writes everything down; for power_cuts.py.

`python -m tests.trust.recorder LOG FOLDER SEED PLANT`, in a process of its own.
"""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.store.sqlite.log import LogLimits
from tests.trust.picture import Fact
from tests.trust.workload import Workload

FILE = "ledger.db"
STEPS = 90
WAL_BYTES = (64 << 10, 256 << 10, 1 << 20)  # checkpoints come often

Log = list[tuple[Any, ...]]
"""The disk's journal, and within it ("ready",) when the ledger is open, ("ack", facts) when a call
has returned."""


def record(folder: Path, seed: int, plant: str) -> Log:
    """Run a workload in `folder`, which may hold a ledger already."""
    from tests.trust.faulty_sqlite import Disk, install

    disk = Disk()
    if plant == "synchronous=NORMAL":
        disk.synchronous = "NORMAL"
    log: Log = []
    disk.journal = log
    rng = Random(seed)
    wal_bytes = rng.choice(WAL_BYTES)
    log_limits = LogLimits(wal_bytes, 2 * wal_bytes)
    install(disk, folder)

    def acknowledge(action: Callable[[], Any], *facts: Fact) -> Any:
        if plant == "early acknowledgement":
            log.append(("ack", facts))
        result = action()
        if plant != "early acknowledgement":
            log.append(("ack", facts))
        return result

    threads = rng.choice((1, 1, 3))
    for opening in range(rng.choice((1, 1, 2))):
        db = SqliteDatabase(str(folder / FILE), connect=disk.connect, log_limits=log_limits)
        with Ledger(Core(db)) as ledger:
            log.append(("ready",))
            writers = [
                Workload(ledger, Random(rng.random()), acknowledge, f"{seed}-{opening}-{number}")
                for number in range(threads)
            ]
            run(writers, STEPS // threads)
    return log


def run(writers: list[Workload], steps: int) -> None:
    """Let several workloads go on at once, a thread each."""
    failures: list[BaseException] = []

    def go_on(writer: Workload) -> None:
        try:
            for _ in range(steps):
                writer.step()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go_on, args=(writer,)) for writer in writers[1:]]
    for thread in threads:
        thread.start()
    go_on(writers[0])
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


if __name__ == "__main__":
    log_file, folder, seed, plant = sys.argv[1:]
    log = record(Path(folder), int(seed), plant)
    Path(log_file).write_bytes(pickle.dumps(log))
