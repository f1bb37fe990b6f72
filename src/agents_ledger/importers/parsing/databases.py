"""Opens SQLite databases of other programs: a consistent snapshot with their log, never a write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

from msgspec import msgpack

from agents_ledger.importers.parsing import files
from agents_ledger.importers.parsing.db_cursor import DatabaseState
from agents_ledger.importers.parsing.table_scan import is_table
from agents_ledger.importers.parsing.text_size import exceeds
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Table
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.imports.records import BAD_TEXT

MAGIC = b"SQLite format 3\0"
SIDECARS = ("-wal", "-shm", "-journal")
BUSY_SECONDS = 10
COPY_ATTEMPTS = 3
PRAGMAS = {
    "query_only": 1,
    # Views and triggers of a foreign database must not run functions.
    "trusted_schema": 0,
    "cell_size_check": 1,
    # Else a truncated database is refused as a whole; nothing is written.
    "writable_schema": 1,
}
UNREADABLE = (LedgerError, OSError, sqlite3.Error)  # what opening or reading one may raise
WAL_VERSION_OFFSET = 18  # the header byte that is 2 in WAL mode


def state(path: Path) -> DatabaseState:
    """Size and time of a database with its log. An empty log does not count."""
    statuses = [path.stat()]
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        statuses.append(log.stat())
    return DatabaseState(
        sum(status.st_size for status in statuses), max(status.st_mtime_ns for status in statuses)
    )


@contextmanager
def snapshot(path: Path, limits: ImportLimits = LIMITS) -> Iterator[sqlite3.Connection]:
    """A connection that sees the database as it is at one moment, log included, whoever writes to
    it meanwhile. No file next to it is created or changed."""
    if _is_closed(path):
        before = state(path)
        # Only where nobody has it open: `immutable` would miss the log of a live database.
        with closing(_open(path, "mode=ro&immutable=1", limits)) as connection:
            yield connection
        if state(path) != before:
            raise sqlite3.OperationalError("it was written to while it was read; import it again")
        return
    try:
        connection = _open_shared(path, limits)
    except sqlite3.OperationalError:  # no index of its log, or a hot journal
        import tempfile

        with tempfile.TemporaryDirectory(prefix="agents-ledger-") as folder:
            copy = _copy(path, Path(folder))
            with closing(_open(copy, "mode=rw", limits)) as connection:
                yield connection
        return
    with closing(connection):
        yield connection


def schema(path: Path) -> bytes:
    """The CREATE TABLE statements of a database, without those only in its log; empty if it cannot
    be read. It may be any program's: nothing is copied, and nothing waits for a lock."""
    with suppress(sqlite3.Error), closing(_open(path, "mode=ro&immutable=1")) as connection:
        query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND sql IS NOT NULL"
        return "\n".join(str(sql) for (sql,) in connection.execute(query)).encode(errors="replace")
    return b""


def has_any(path: Path, tables: Sequence[Table]) -> bool:
    """Whether a database has one of these tables, perhaps only in its log. True if it cannot be
    read: its import will report why."""

    def has(connection: sqlite3.Connection) -> bool:
        return any(is_table(connection, table.name) for table in tables)

    try:
        with closing(_open(path, "mode=ro&immutable=1")) as connection:
            if has(connection):
                return True
        with snapshot(path) as connection:
            return has(connection)
    except UNREADABLE:
        return True


def _is_closed(path: Path) -> bool:
    """Whether a database in WAL mode is open nowhere: opening it would create the log."""
    log, index = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    with files.open_regular(path) as file:
        is_wal = file.read(WAL_VERSION_OFFSET + 1)[WAL_VERSION_OFFSET:] == b"\x02"
    return is_wal and not index.exists() and not (log.exists() and log.stat().st_size)


def _open_shared(path: Path, limits: ImportLimits) -> sqlite3.Connection:
    """Without a read mark in the index of its log, unless that index is still empty."""
    try:
        # A read mark would change the index of a log that belongs to the other program.
        return _open(path, "mode=ro&readonly_shm=1", limits)
    except sqlite3.OperationalError:
        if not path.with_name(path.name + "-shm").exists():
            raise
        return _open(path, "mode=ro", limits)


def _open(path: Path, mode: str, limits: ImportLimits = LIMITS) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.text_factory = partial(_decode_text, limits.text_bytes)
        for name, value in PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}")
        # A deferred transaction has no snapshot before its first read.
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the snapshot
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _copy(path: Path, folder: Path) -> Path:
    """A copy made while the database did not change, if possible."""
    import shutil

    for _ in range(COPY_ATTEMPTS):
        before = state(path)
        for name in (path.name, path.name + "-wal", path.name + "-journal"):
            if (path.parent / name).exists():
                shutil.copyfile(path.parent / name, folder / name)
        if state(path) == before:
            break
    return folder / path.name


def _decode_text(text_bytes: int, data: bytes) -> object:
    try:
        return msgpack.Ext(BAD_TEXT, data) if exceeds(data, text_bytes) else data.decode()
    except UnicodeDecodeError:
        return msgpack.Ext(BAD_TEXT, data)
