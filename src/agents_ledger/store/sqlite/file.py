"""Notices when the ledger file or its log was replaced after it was opened.

SQLite goes on with a file that was deleted or replaced, and knows a write-ahead log by its name
alone: beside a file that was put in the ledger's place, the log of the old one overwrites pages of
the new one. So a handle compares inodes at each transaction, a writer leaves the inodes in the lock
file, and whoever opens the ledger compares these with what is there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents_ledger.model.errors import OutcomeUnknown, StoreUnavailable
from agents_ledger.store.concurrency.locks import Inodes, is_open_here

if sys.platform != "win32":
    import fcntl

Identity = tuple[int, int]  # device and inode

# Every connection to a database with a write-ahead log holds a shared lock on this byte of its -shm
# file (SQLite's file format, "WAL-index": the dead-man switch).
_DEAD_MAN_SWITCH = 128
_DELETED_CHECKS = 3  # a deleted file stays away; one that is just being made does not
_DELETED_CHECK_SECONDS = 0.01
_RESTART = (
    "Stop every program that uses the ledger before you replace its file. To go back to a backup,"
    " move the ledger and its -wal file away and run `agents-ledger restore`."
)


def _identity(path: str) -> Identity | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(
            f"cannot find out whether {path} is still there: {error.strerror}",
            "Check the ledger's folder and its disk.",
        ) from error
    return status.st_dev, status.st_ino


class OpenFile:
    """The ledger file of one handle, and its log."""

    def __init__(self, path: Path) -> None:
        # A str, not a Path: this is looked up at each transaction, and building Path objects took
        # most of the 10 microseconds of a check.
        self._path = str(path)
        self._log = f"{path}-wal"
        self._opened: dict[str, Identity] = {}

    def connect(self, connect: Callable[[], Any]) -> Any:
        """A new connection to the file that this handle opened first."""
        # Taken before SQLite opens the file and compared afterwards: a file replaced between the
        # two is noticed whichever of them SQLite has opened.
        before = self._opened.get(self._path) or _identity(self._path)
        connection = connect()  # opens the file, and reads nothing yet
        try:
            if before is not None:
                self._opened[self._path] = before
            self.check()
        except BaseException:
            connection.close()
            raise
        return connection

    def note_log(self) -> None:
        """Call when a connection that writes has opened the log."""
        identity = _identity(self._log)
        if identity is not None:
            self._opened[self._log] = identity

    def inodes(self) -> Inodes | None:
        file, log = self._opened.get(self._path), self._opened.get(self._log)
        return (file[1], log[1]) if file and log else None

    def is_current(self) -> bool:
        try:
            self.check()
        except StoreUnavailable:
            return False
        return True

    def check(self) -> None:
        """Refuse to go on with a file that nobody will find again."""
        for path in self._opened:
            self._check(path)

    def check_readable(self) -> None:
        """The same before a read, which needs less: only a writer can be misled by the log."""
        self._check(self._path)

    def _check(self, path: str) -> None:
        now = _identity(path)
        if now != self._opened[path]:
            event = "deleted or moved" if now is None else "replaced by another file"
            raise StoreUnavailable(f"{path} was {event} while it was open", _RESTART)

    def check_committed(self) -> None:
        """The same after a commit, which is in a file that may be gone."""
        if not self.is_current():
            raise OutcomeUnknown(f"{self._path} was deleted or replaced during the commit")


def check_leftovers(path: Path, recorded: Inodes | None) -> None:
    """Refuse to open a ledger file beside the log of another file, before SQLite reads it."""
    log, shared = Path(f"{path}-wal"), Path(f"{path}-shm")
    file_now, log_now = _identity(str(path)), _identity(str(log))
    log_bytes = os.stat(log).st_size if log_now else 0
    if file_now is None and log_bytes:
        raise StoreUnavailable(
            f"{path} is gone, but its log {log} is there and may hold turns",
            f"Put the file back where it was, or remove {log} to start a new ledger.",
        )
    for missing in (path, log):
        if _was_deleted(missing, shared):
            raise StoreUnavailable(
                f"{missing} was deleted, but a program still has it open",
                "Stop every program that uses the ledger, then try again.",
            )
    if file_now is None or log_now is None or not log_bytes or recorded is None:
        return
    file_recorded, log_recorded = recorded
    # The log is the one the last writer had, the file is not: somebody put another file in its
    # place.
    if log_now[1] == log_recorded and file_now[1] != file_recorded:
        raise StoreUnavailable(
            f"{path} was replaced while a program had it open: the log {log} belongs to the file"
            " that was there before, and would damage this one",
            f"Stop every program that uses the ledger. To keep {path.name} as it is now, remove"
            f" {log.name} and {shared.name}; turns that only the log holds are lost.",
        )


def _was_deleted(path: Path, shared: Path) -> bool:
    """Whether a file is missing while a program uses its shared memory, and not merely because that
    program opens or closes the ledger just now."""
    for _ in range(_DELETED_CHECKS):
        # SQLite creates the log before the shared memory and removes it afterwards: whoever uses
        # the same shared memory before and after a look at the log has the log open.
        before = _identity(str(shared))
        if before is None or path.exists() or not _is_in_use(shared):
            return False
        if path.exists() or _identity(str(shared)) != before:
            return False
        time.sleep(_DELETED_CHECK_SECONDS)
    return True


def _is_in_use(shared: Path) -> bool:
    # A file that SQLite has open here must not be opened again: closing it would drop SQLite's
    # locks.
    if is_open_here(shared):
        return True
    if sys.platform == "win32":  # no file is deleted there while it is open
        return False
    try:
        fd = os.open(shared, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # lockf, not flock: SQLite's locks are POSIX record locks, and the two kinds do not see each
        # other.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _DEAD_MAN_SWITCH)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
