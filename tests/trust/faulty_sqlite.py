"""A disk that remembers and fails, for SQLite: apsw with a VFS of ours, looking like sqlite3.

Only for a process of its own: two SQLite libraries on one file in one process lose rows.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

Op = tuple[Any, ...]
"""One thing that happened on the disk: ("create", file), ("write", file, offset, bytes),
("truncate", file, size), ("sync", file), ("delete", file, folder synced too), ("folder synced",),
("commit", hash of the database it leaves). Whoever uses the journal adds what else happened."""

VFS_NAME = "faulty"


class Fault(Struct):
    """The n-th call of some kinds fails: once, or from then on."""

    kinds: tuple[str, ...]  # of: open, read, write, sync, truncate, delete, lockfile
    at: int
    full: bool = False  # no room left, instead of an I/O error
    sticky: bool = False
    calls: int = 0
    hits: int = 0
    counts: dict[str, int] = {}  # calls by kind

    def strikes(self, kind: str) -> bool:
        """Count a call; whether it fails."""
        if kind not in self.kinds:
            return False
        self.calls += 1
        self.counts[kind] = self.counts.get(kind, 0) + 1
        struck = self.calls == self.at or (self.sticky and self.calls > self.at > 0)
        self.hits += struck
        return struck


class Disk:
    """Where the calls of one process to its files are written down, and where they fail."""

    def __init__(self) -> None:
        self.journal: list[Op] | None = None
        self.fault: Fault | None = None
        self.commits_lie = False  # planted: a commit that fails is said to have gone well
        self.synchronous = "FULL"

    def note(self, *op: Any) -> None:
        """Write down what happened."""
        if self.journal is not None:
            self.journal.append(op)

    def check(self, kind: str) -> None:
        """Fail, if it is time to."""
        if self.fault is not None and self.fault.strikes(kind):
            raise _error(kind, full=self.fault.full)

    def fails_quietly(self, kind: str, name: str | None) -> bool:
        """check(), but of a log SQLite only tidies up, and does not care whether that works.

        apsw would raise the error all the same, so such a call is to be left out instead.
        """
        if name is None or not name.endswith("-wal"):
            self.check(kind)
            return False
        return self.fault is not None and self.fault.strikes(kind)

    def connect(self, address: str, **options: Any) -> FaultyConnection:
        """In the place of sqlite3.connect."""
        return FaultyConnection(self, address, **options)


_CODES = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}


def _error(kind: str, *, full: bool) -> Exception:
    if kind == "lockfile":
        code = errno.ENOSPC if full else errno.EIO
        return OSError(code, os.strerror(code))
    code = apsw.SQLITE_FULL if full and kind == "write" else _CODES[kind]
    error: Any = apsw.exception_for(code)
    error.args = (f"planned: {kind} failed",)
    error.extendedresult = code
    raised: Exception = error
    return raised


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        full = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._name = os.path.basename(full) if full else None
        fresh = self._name is not None and not os.path.exists(full)
        disk.check("open")
        super().__init__("", name, flags)
        self._read_only = bool(flags[1] & apsw.SQLITE_OPEN_READONLY)
        if fresh:
            disk.note("create", self._name)

    def xLock(self, level: int) -> None:  # noqa: N802
        # SQLite shrugs when a reader cannot lock for tidying up; apsw would raise anything else.
        if self._read_only and level > apsw.SQLITE_LOCK_SHARED:
            raise apsw.BusyError
        super().xLock(level)

    def _happens(self, kind: str, *what: Any) -> None:
        self._disk.check(kind)
        if self._name is not None:
            self._disk.note(kind, self._name, *what)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._happens("write", offset, bytes(data))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        if self._disk.fails_quietly("truncate", self._name):
            return
        self._disk.note("truncate", self._name, size)
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._happens("sync")
        super().xSync(flags)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.check("read")
        return super().xRead(amount, offset)


class _Vfs(apsw.VFS):
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        super().__init__(VFS_NAME, "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        if self._disk.fails_quietly("delete", filename):
            return
        self._disk.note("delete", os.path.basename(filename), bool(syncdir))
        super().xDelete(filename, syncdir)


class _Rows:
    """A cursor with all its rows at hand."""

    def __init__(self, rows: list[tuple[Any, ...]], description: Any, rowcount: int = -1) -> None:
        self._rows = rows
        self.rowcount = rowcount
        self._next = 0
        self.description = description

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self.fetchmany(len(self._rows))

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(iter(self.fetchmany(1)), None)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        found = self._rows[self._next : self._next + size]
        self._next += len(found)
        return found


class _Cursor:
    """Rows are read at once, so that nothing is left open."""

    def __init__(self, connection: FaultyConnection) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany

    def close(self) -> None:
        """Nothing to close."""


class FaultyConnection:
    """An apsw connection that answers and fails as one of sqlite3 does."""

    def __init__(self, disk: Disk, address: str, **options: Any) -> None:
        self._disk = disk
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        self._apsw = self._translated(
            lambda: apsw.Connection(
                address, flags, vfs=VFS_NAME, statementcachesize=options["cached_statements"]
            )
        )
        self._apsw.set_busy_timeout(int(options["timeout"] * 1000))

    def cursor(self) -> _Cursor:
        """A cursor of its own."""
        return _Cursor(self)

    @staticmethod
    def _translated(action: Callable[[], Any]) -> Any:
        try:
            return action()
        except apsw.Error as error:
            raise as_sqlite3(error) from error

    def execute(self, sql: str, values: Any = ()) -> _Rows:
        if sql == "PRAGMA synchronous=FULL":
            sql = f"PRAGMA synchronous={self._disk.synchronous}"
        description: list[Any] = []

        def look(cursor: apsw.Cursor, *_: Any) -> bool:
            description.extend(cursor.get_description())
            return True

        def run() -> list[tuple[Any, ...]]:
            cursor = self._apsw.cursor()
            cursor.exec_trace = look
            return list(cursor.execute(sql, values).fetchall())

        commits = sql == "COMMIT"
        before = self.total_changes
        try:
            rows = self._translated(run)
        except sqlite3.Error:
            if not (commits and self._disk.commits_lie):
                raise
            rows = []
        if commits and self._disk.journal is not None:
            state = hashlib.sha256(self._apsw.serialize("main")).hexdigest()
            self._disk.note("commit", state)
        return _Rows(rows, description or None, self.total_changes - before)

    def executemany(self, sql: str, rows: Sequence[Any]) -> _Rows:
        self._translated(lambda: self._apsw.executemany(sql, rows).fetchall())
        return _Rows([], None)

    @property
    def in_transaction(self) -> bool:
        return bool(self._apsw.in_transaction)

    @property
    def total_changes(self) -> int:
        return int(self._apsw.total_changes())

    def set_authorizer(self, authorizer: Any) -> None:
        self._apsw.set_authorizer(authorizer)

    def close(self) -> None:
        """sqlite3 does not tell what fails here."""
        with contextlib.suppress(apsw.Error):
            self._apsw.close()


def as_sqlite3(error: apsw.Error) -> sqlite3.Error:
    """The same error as sqlite3 raises it."""
    kind: type[sqlite3.Error] = sqlite3.OperationalError
    if isinstance(error, apsw.ConstraintError):
        kind = sqlite3.IntegrityError
    elif isinstance(error, (apsw.CorruptError, apsw.NotADBError)):
        kind = sqlite3.DatabaseError
    translated = kind(str(error))
    code = getattr(error, "extendedresult", 0) or getattr(error, "result", 0)
    names = (apsw.mapping_extended_result_codes, apsw.mapping_result_codes)
    name = next((str(known[code]) for known in names if code in known), "SQLITE_ERROR")
    translated.sqlite_errorcode = int(code)
    translated.sqlite_errorname = name
    return translated


_vfs: _Vfs | None = None  # apsw forgets a VFS that nobody holds


def install(disk: Disk, folder: Path) -> None:
    """Let `disk` see all that happens in `folder`: through SQLite, and by Python's own calls."""
    global _vfs  # noqa: PLW0603
    _vfs = _Vfs(disk)
    sys.unraisablehook = lambda _: None  # what fails within a callback fails on purpose
    _watch_lock_files(disk, str(folder) + os.sep)
    _watch_folder(disk, str(folder) + os.sep)


def _watch_lock_files(disk: Disk, inside: str) -> None:
    os_open, pwrite = os.open, os.pwrite

    def checked_open(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        fresh = flags & os.O_CREAT and str(path).startswith(inside) and not os.path.exists(path)
        if fresh:
            disk.check("lockfile")
        fd = os_open(path, flags, mode, **options)
        if fresh:
            disk.note("create", os.path.basename(path))
        return fd

    def checked_pwrite(fd: int, data: Any, offset: int) -> int:
        disk.check("lockfile")
        return pwrite(fd, data, offset)

    os.open, os.pwrite = checked_open, checked_pwrite


def _watch_folder(disk: Disk, inside: str) -> None:
    fsync = os.fsync

    def seen_fsync(fd: Any) -> None:
        fsync(fd)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            disk.note("folder synced")

    def removed(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.remove" and str(arguments[0]).startswith(inside):
            disk.note("delete", os.path.basename(arguments[0]), False)

    os.fsync = seen_fsync
    sys.addaudithook(removed)
