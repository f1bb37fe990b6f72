"""Locks on files beside the ledger, which the kernel holds for as long as their process lives."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from agents_ledger.model.errors import Locked, ReadOnly, StoreUnavailable

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> None:
        # Windows locks are mandatory: a byte beyond the text leaves that readable for others.
        os.lseek(fd, 1 << 30, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 1 << 30, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


Inodes = tuple[int, int]  # of a ledger file and its log

_all: weakref.WeakSet[FileLock] = weakref.WeakSet()

# A lock file is written to, and anybody who may write into the folder can put a link there.
# O_NONBLOCK: a FIFO of that name must not hang us before its type is checked.
_READ_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
_OPEN_FLAGS = _READ_FLAGS | os.O_RDWR | os.O_CREAT  # O_RDONLY is 0
# Windows reports a held lock as EACCES or EDEADLK.
_HELD_ERRORS = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)
_LINK_ERRORS = (errno.ELOOP, getattr(errno, "EMLINK", errno.ELOOP))  # EMLINK: FreeBSD


class FileLock:
    """One lock file beside a ledger. The lock is its first holder's until released, closed or dead.

    The file must be a regular one that belongs to this user, to root or to the ledger's owner.
    """

    def __init__(
        self,
        path: Path,
        ledger: Path | None = None,
        try_lock: Callable[[int], None] = _try_lock,
    ) -> None:
        self.path = path
        self._ledger = ledger
        self._try_lock = try_lock
        self._fd: int | None = None
        self._signed: Inodes | None = None
        _all.add(self)

    def _open(self) -> int:
        if self._fd is None:
            try:
                fd = os.open(self.path, _OPEN_FLAGS, 0o600)
            except OSError as error:
                if error.errno in _LINK_ERRORS and self.path.is_symlink():
                    raise self._unsafe("is a symbolic link") from error
                message = f"cannot create the lock file {self.path}: {error.strerror}"
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise ReadOnly(message) from error
                raise StoreUnavailable(
                    message, "Check the ledger's folder and its disk."
                ) from error
            try:
                self._check_file(os.fstat(fd))
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return self._fd

    def _check_file(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise self._unsafe("is not a regular file")
        if sys.platform == "win32" or status.st_uid in (os.geteuid(), 0):
            return
        with contextlib.suppress(OSError):
            if self._ledger is not None and os.stat(self._ledger).st_uid == status.st_uid:
                return
        raise self._unsafe(f"belongs to another user (uid {status.st_uid})")

    def _unsafe(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the lock file {self.path} {reason}",
            "Find out who put it there, remove it, and keep the ledger in a folder that only its"
            " owner can write to.",
        )

    def try_acquire(self) -> bool:
        """Take the lock if it is free. A lock file that was deleted meanwhile does not count."""
        while True:
            fd = self._open()
            try:
                self._try_lock(fd)
            except OSError as error:
                # Any other error, such as ENOLCK, would be waited on in vain and reported as a held
                # lock.
                if error.errno in _HELD_ERRORS:
                    return False
                raise StoreUnavailable(
                    f"cannot lock {self.path}: {error.strerror}",
                    "Keep the ledger on a file system with file locks, such as a local disk.",
                ) from error
            try:
                # Somebody may have deleted the file between open and lock: a lock on it excludes
                # nobody.
                current = os.stat(self.path)
            except FileNotFoundError:
                current = None
            if current is not None and os.path.samestat(current, os.fstat(fd)):
                return True
            self.close()

    def acquire(self, deadline: float, pause: float) -> None:
        """Take the lock, waiting for it until `deadline` (monotonic seconds)."""
        while not self.try_acquire():
            if time.monotonic() > deadline:
                holder = f" (process {pid})" if (pid := self.signed_by()) else ""
                raise Locked(f"{self.path} is held by another process{holder}")
            time.sleep(pause)

    def sign(self, inodes: Inodes | None = None) -> None:
        """Write who holds the lock into it, for people who wonder, and which files it guards."""
        if not hasattr(os, "pwrite"):
            return
        text = b"%-20d" % os.getpid()
        if inodes is not None:
            text += b"%-20d %-20d\n" % inodes
        with contextlib.suppress(OSError):  # a full disk is no reason not to hold it
            fd = self._open()
            # A hard link may lead to a file that somebody needs: it is locked, but not written to.
            if os.fstat(fd).st_nlink != 1:
                return
            before = self.signed_inodes() if inodes != self._signed else None
            os.pwrite(fd, text, 0)
            self._signed = inodes
            if before is not None and inodes is not None and before[0] != inodes[0]:
                # Inodes are reused: an old pair must not come back after a power cut.
                os.fsync(fd)

    def signed_by(self) -> int | None:
        """The process that last signed the lock."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._signature()[:20])
        return None

    def signed_inodes(self) -> Inodes | None:
        """The inodes of the ledger and its log that the last writer had open."""
        with contextlib.suppress(OSError, ValueError):
            file, log = self._signature()[20:].split()
            return int(file), int(log)
        return None

    def _signature(self) -> bytes:
        fd = os.open(self.path, _READ_FLAGS)
        try:
            return os.read(fd, 20 + 42)
        finally:
            os.close(fd)

    def is_held(self) -> bool:
        try:
            return not self.try_acquire()
        finally:
            self.close()

    def release(self) -> None:
        if self._fd is not None:
            _unlock(self._fd)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _close_in_child() -> None:
    # A child process holds its parent's locks as long as it has their descriptors.
    for lock in list(_all):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


_open_here: Counter[Path] = Counter()  # ledger files that SQLite has open in this process


def note_open(ledger: Path) -> None:
    _open_here[ledger] += 1


def note_closed(ledger: Path) -> None:
    _open_here[ledger] -= 1


def is_open_here(path: Path) -> bool:
    """Whether SQLite has this very file open in this process."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    for ledger in +_open_here:
        for own in (ledger, f"{ledger}-wal", f"{ledger}-shm"):
            with contextlib.suppress(OSError):
                if os.path.samestat(status, os.stat(own)):
                    return True
    return False


class WriteQueue:
    """One writer at a time over all processes, first come, first served.

    Whoever waits for `.lock` holds `.next`, so a busy writer cannot barge in again before it. The
    database's own lock stays the guarantee; this is the queue in front of it.
    """

    def __init__(self, ledger: Path, timeout: float) -> None:
        self._timeout = timeout
        self._ledger = ledger
        # Of the ledger and its log, as the writer opened them.
        self.inodes: Inodes | None = None
        self._next = FileLock(ledger.with_name(ledger.name + ".next"), ledger)
        self._lock = FileLock(ledger.with_name(ledger.name + ".lock"), ledger)

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        self._next.acquire(deadline, pause=0.002)
        try:
            self._lock.acquire(deadline, pause=0.001)
        finally:
            self._next.release()
        self._lock.sign(self.inodes)

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        # Only if the wait for `.lock` was interrupted; otherwise it is released already.
        self._next.release()

    def holder(self) -> int | None:
        """The process whose turn it is now, if any."""
        probe = FileLock(self._lock.path, self._ledger)
        if not probe.path.exists() or not probe.is_held():
            return None
        return probe.signed_by()

    def signed_inodes(self) -> Inodes | None:
        return self._lock.signed_inodes()

    def close(self) -> None:
        self._next.close()
        self._lock.close()
