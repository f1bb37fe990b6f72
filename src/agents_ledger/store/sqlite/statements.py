"""Named statements on a connection of SQLite, and whether what they read can be escaped."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import Any, TypeVar

from msgspec import StructMeta

from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.model.reports.search import PART_WEIGHTS
from agents_ledger.store import queries
from agents_ledger.store.checks.row_types import RowTypes, of_kind, of_statement
from agents_ledger.store.database import Engine, Row, Work
from agents_ledger.store.sealed_cache import SealedCache
from agents_ledger.store.sqlite.errors import DRIVER_ERRORS, translate
from agents_ledger.store.text import escape_row, has_escapes, unescape_row, unescape_rows

T = TypeVar("T")

STREAM_ROWS = 1000
# Rows that are checked before they become values. More at once would only take more memory.
CHECKED_ROWS = 200
# The user_version of a file until the first text is stored escaped; 0 says nothing. Reads of a
# plain file skip the search for escapes, which is a fifth of their work.
PLAIN = 1

# The index columns project, model, tool, file and state narrow a search and do not rank it.
FACET_WEIGHTS = (0.0,) * 5
WORDS = {
    "serial_key": "INTEGER PRIMARY KEY",
    "log_key": "INTEGER PRIMARY KEY",
    "bytes": "BLOB",
    "floats": "BLOB",
    "vector_bytes": "v.vector",
    "vector_length": "length(v.vector) / 4",
    "clustered": "WITHOUT ROWID",
    # SQLite has one writer at a time, so a transaction that writes needs no row locks.
    **dict.fromkeys(("lock_sessions", "lock_live", "lock_idle", "lock_waiting"), ""),
    **dict.fromkeys(
        ("lock_projection", "lock_summaries", "lock_tokens", "lock_evidence"), "SELECT 1"
    ),
    "await_again": "DO NOTHING",
    "position": "instr",
    "ids": "(SELECT value FROM json_each(:ids))",
    "projects": "(SELECT value FROM json_each(:projects))",
    "server_now": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "part_weights": ", ".join(map(str, (*PART_WEIGHTS.values(), *FACET_WEIGHTS))),
    **queries.pieces("search.sqlite.sql"),
}

# For these the driver searches, at length and in vain, for an adapter: here is one.
sqlite3.register_adapter(type(None), dict[None, None]().get)
sqlite3.register_adapter(bytes, bytes)


def is_plain(execute: Callable[[str], Any]) -> bool:
    """Whether no text of this ledger is stored escaped: then reads need not look for escapes."""
    version: int = execute("PRAGMA user_version").fetchone()[0]
    return version == PLAIN


class PreparedStatements(dict[str, queries.Positional]):
    """Statements by name, each made ready when it is first run: a command takes few of them."""

    def __missing__(self, name: str) -> queries.Positional:
        self[name] = statement = queries.positional(queries.one(name, WORDS))
        return statement


_PREPARED = PreparedStatements()
_ROW_TYPES: dict[str, RowTypes] = {}  # by the name of the statement


def _types_of(name: str, cursor: Any) -> RowTypes:
    types = _ROW_TYPES.get(name)
    if types is None:
        columns = [column[0] for column in cursor.description]
        types = _ROW_TYPES[name] = of_statement(name, columns)
    return types


class Statements:
    engine: Engine = "sqlite"
    cache: SealedCache | None = None

    def __init__(self, connection: Any, limits: LedgerLimits = LIMITS) -> None:
        self.connection = connection
        self.limits = limits
        # One for all statements: whatever an interrupted one left unread ends with the next. A
        # cursor of its own, held by a traceback, would keep the connection on an old snapshot.
        cursor = connection.cursor()
        self._execute = cursor.execute
        self._executemany = cursor.executemany
        self._statements = _PREPARED

    def _ran(self, name: str, values: dict[str, object]) -> Any:
        sql, row_of, _ = self._statements[name]
        row = row_of(values)
        stored = escape_row(row)
        if stored is not row:
            self._note_escapes()
        return self._execute(sql, stored)

    def _note_escapes(self) -> None:
        """From now on reads must look for them."""
        if is_plain(self._execute):
            self._execute("PRAGMA user_version=0")

    def run(self, name: str, /, **values: object) -> list[Row]:
        rows: list[Row] = self._ran(name, values).fetchall()
        return unescape_rows(rows) if rows else rows

    def read_as(self, name: str, kind: Callable[..., T], /, **values: object) -> list[T]:
        return list(starmap(kind, map(unescape_row, self._ran(name, values))))

    def attempt(self, read: Callable[[], T], /) -> T:
        try:
            return read()
        except DRIVER_ERRORS as error:
            raise translate(error, "the ledger") from error

    def change(self, name: str, /, **values: object) -> int:
        return int(self._ran(name, values).rowcount)

    def run_many(self, name: str, things: Sequence[object], /) -> int:
        if not things:
            return 0
        sql, _, attributes = self._statements[name]
        values = [attributes(thing) for thing in things]
        rows = [escape_row(row) for row in values]
        if rows != values:
            self._note_escapes()
        return int(self._executemany(sql, rows).rowcount)

    def execute(self, sql: str, values: Sequence[object] = (), /) -> list[Row]:
        rows: list[Row] = self._execute(sql, values).fetchall()
        return rows

    def defer_references(self) -> None:
        # Every statement is compiled anew afterwards: not to be called for nothing.
        self._execute("PRAGMA defer_foreign_keys=ON")

    def execute_many(self, sql: str, rows: Sequence[Row], /) -> None:
        if has_escapes(rows):
            self._note_escapes()
        self._executemany(sql, rows)

    def columns(self, table: str, /) -> list[str]:
        rows = self.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return [name for (name,) in rows]

    def kept(self, read: Work[T], /) -> T:
        return read(self)

    def nearest(self, *_: object) -> None:
        return None

    index_nearest = nearest

    def stream(self, sql: str, /) -> Iterator[list[Row]]:
        # Not the shared cursor: the caller runs other statements between the batches, which would
        # end it.
        cursor = self.connection.cursor()
        try:
            reading = cursor.execute(sql)
            while rows := reading.fetchmany(STREAM_ROWS):
                yield rows
        finally:
            cursor.close()


class ReadStatements(Statements):
    """The same on a connection that only reads. What it reads is checked: callers rely on it."""

    def __init__(self, connection: Any, cache: SealedCache, limits: LedgerLimits = LIMITS) -> None:
        super().__init__(connection, limits)
        self.cache = cache
        self.plain = False  # nothing it reads is escaped
        self._kept: dict[Work[Any], tuple[int, Any]] = {}

    def begin(self) -> None:
        self._execute("BEGIN")
        self.plain = is_plain(self._execute)

    def end(self) -> None:
        """End the snapshot, if there is one."""
        if self.connection.in_transaction:
            self._execute("ROLLBACK")

    def run(self, name: str, /, **values: object) -> list[Row]:
        cursor = self._ran(name, values)
        rows: list[Row] = cursor.fetchall()
        if not rows:
            return rows
        _types_of(name, cursor).check(rows)
        return rows if self.plain else unescape_rows(rows)

    def read_as(self, name: str, kind: Callable[..., T], /, **values: object) -> list[T]:
        cursor = self._ran(name, values)
        types = of_kind(kind) if isinstance(kind, StructMeta) else _types_of(name, cursor)
        things: list[T] = []
        while rows := cursor.fetchmany(CHECKED_ROWS):
            types.check(rows)
            things += starmap(kind, rows if self.plain else map(unescape_row, rows))
        return things

    def _note_escapes(self) -> None:
        """What is asked for is not stored."""

    def kept(self, read: Work[T], /) -> T:
        # Changes only when another connection commits, and this connection never writes: an
        # unchanged number means that nothing this value was computed from has changed.
        version: int = self._execute("PRAGMA data_version").fetchone()[0]
        cached = self._kept.get(read)
        if cached is None or cached[0] != version:
            self._kept[read] = cached = (version, read(self))
        value: T = cached[1]
        return value
