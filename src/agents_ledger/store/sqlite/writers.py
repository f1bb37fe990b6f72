"""Writers of live turns: each holds the lock on a file of its own for as long as it lives."""

from __future__ import annotations

import glob
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.ids import new_id
from agents_ledger.store.concurrency.locks import FileLock
from agents_ledger.store.files import sync_folder

# Each is an open descriptor meanwhile, and a process may have few of these.
REMOVED_AT_ONCE = 256
# Another process that checks whether we live holds our lock for an instant.
PROBE_SECONDS = 5.0


class SqliteWriter:
    """A writer lives while it holds the lock on its file, whatever becomes of its pid."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self.id = new_id()
        self._lock = writer_lock(ledger, self.id)
        self._lock.acquire(time.monotonic() + PROBE_SECONDS, pause=0.001)
        # After a power cut the file must still be there, so that others find its lock free and us
        # dead.
        sync_folder(ledger.parent)

    def forget(self, writer_id: str) -> None:
        writer_lock(self._ledger, writer_id).path.unlink(missing_ok=True)

    def close(self) -> None:
        """Without the file nobody could tell that turns left live are dead: recovery removes it."""
        self._lock.close()


def writer_lock(ledger: Path, writer_id: str) -> FileLock:
    """The lock by which a writer is known to live."""
    return FileLock(ledger.with_name(f"{ledger.name}.writer-{writer_id}"), ledger)


def remove_dead_writers(ledger: Path, writers: Callable[[], set[str]]) -> None:
    """Remove files of dead writers that the ledger does not know: they died before they wrote.

    `writers` reads the ids the ledger knows. It is asked after the locks are taken: a writer whose
    lock is free writes no more, so that it cannot appear there later.
    """
    prefix = f"{ledger.name}.writer-"
    with ExitStack() as taken:
        dead: dict[str, FileLock] = {}
        for path in ledger.parent.glob(f"{glob.escape(prefix)}*"):
            lock = writer_lock(ledger, path.name.removeprefix(prefix))
            taken.callback(lock.close)
            with suppress(StoreUnavailable):  # not ours to judge
                if lock.try_acquire():
                    dead[path.name.removeprefix(prefix)] = lock
                else:
                    lock.close()
            if len(dead) >= REMOVED_AT_ONCE:
                break
        living = writers() if dead else set()
        for writer_id, lock in dead.items():
            if writer_id not in living:
                with suppress(OSError):  # it is tried again by the next handle
                    lock.path.unlink(missing_ok=True)
