"""Clears a ledger file and its log of what was removed from the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from agents_ledger.store.concurrency.locks import WriteQueue

WAIT_MS = 5000  # for reads that began before something was removed


def scrub(connect: Callable[[], Any], queue: WriteQueue) -> bool:
    """Write the file anew without its free pages, and empty the log. False: somebody still reads
    what the log holds. `queue` is one of its own: this waits for its turn as a process would."""
    try:
        with queue, closing(connect()) as connection:
            # The new content goes through a file: memory may not have room for it.
            connection.execute("PRAGMA temp_store=DEFAULT")
            connection.execute(f"PRAGMA busy_timeout={WAIT_MS}")
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy
    finally:
        queue.close()
