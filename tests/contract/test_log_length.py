"""The length of SQLite's write-ahead log while others read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.store.sqlite.log import LogLimits

LIMITS = LogLimits(due_bytes=128 << 10, long_bytes=256 << 10, wait_ms=2_000, wait_every_seconds=0)
TEXT = "x" * 50_000
TURNS = 200


@contextmanager
def overlapping_reads(address: str) -> Iterator[None]:
    """Short reads of another handle, of which one is under way at any moment."""
    done = threading.Event()
    reader = SqliteDatabase(address, read_only=True)

    def read(tx: Transaction) -> None:
        tx.run("counts")
        time.sleep(0.003)

    def read_on() -> None:
        while not done.is_set():
            reader.read(read)

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    done.set()
    for thread in threads:
        thread.join()
    reader.close()


def test_short_reads_that_overlap_do_not_make_the_log_grow_for_ever(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    database = SqliteDatabase(address, log_limits=LIMITS)
    longest = 0
    with Ledger(Core(database)) as ledger:
        ledger.record("main", "q", "r")
        with overlapping_reads(address):
            for _ in range(TURNS):
                ledger.record("main", TEXT, "r")
                longest = max(longest, database.log.size())
        assert ledger.audit() == ()
    assert longest < TURNS * len(TEXT) / 4


def test_the_log_is_short_again_once_a_long_read_has_ended(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    database = SqliteDatabase(address, log_limits=LIMITS._replace(wait_ms=1))
    began, may_end = threading.Event(), threading.Event()

    def read(tx: Transaction) -> None:
        tx.run("counts")
        began.set()
        may_end.wait()

    with Ledger(Core(database)) as ledger:
        ledger.record("main", "q", "r")
        reader = threading.Thread(target=database.read, args=(read,))
        reader.start()
        began.wait()
        for _ in range(20):
            ledger.record("main", TEXT, "r")
        assert database.log.size() > 20 * len(TEXT)
        may_end.set()
        reader.join()

        for _ in range(2):  # the first moves the log into the file, the second begins it anew
            ledger.record("main", "q", "r")
        assert database.log.size() <= LIMITS.due_bytes
        assert ledger.audit() == ()
