"""Reads the rows of a SQLite table in order, and recovers what is readable of a damaged one."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator, Sequence
from typing import Any

from agents_ledger.importers.parsing.large_values import LargeValue, large_row, quoted
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Table

SQLITE_LENGTH_MAX = 1_000_000_000  # its default limit of a value
FIRST_ROWID, LAST_ROWID = -(1 << 63), (1 << 63) - 1
INTACT_STREAK = 16  # intact rows after which all rows are read by one statement again
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG)


class TableScan:
    """The rows of a table in the order they were written; damaged ones are skipped and counted."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        table: Table,
        columns: Sequence[str],
        limits: ImportLimits = LIMITS,
    ) -> None:
        self.damages = 0
        self.first_damage = ""
        self.has_rowid = _has_rowid(connection, table.name)
        self._connection = connection
        self._table = table
        self._columns = columns
        self._part_bytes = limits.part_bytes
        _limit_values(connection, limits.text_bytes if self.has_rowid else SQLITE_LENGTH_MAX)

    def rows(self, after: int | None = None) -> Iterator[tuple[Any, ...]]:
        """Each row with its rowid first; only those after a rowid, if one is given."""
        start = FIRST_ROWID if after is None else after + 1
        while start <= LAST_ROWID:
            try:
                for row in self._select(self._columns, start, LAST_ROWID):
                    yield row
                    start = max(start, row[0] + 1)
                break
            except sqlite3.DatabaseError as error:
                if not self.has_rowid:
                    self._note_damage(error)
                    return
                raise_unless_damage(error)
            start = yield from self._rows_one_by_one(start)

    def _rows_one_by_one(self, rowid: int) -> Generator[tuple[Any, ...], None, int]:
        """Past the damage, until enough rows are intact; returns the rowid to continue from. One
        statement for all would lose the row before a damaged one as well."""
        intact = 0
        while intact < INTACT_STREAK:
            try:
                rowid = self._next_rowid(rowid)
                if rowid > LAST_ROWID:
                    break
                yield from self._row(rowid)
                intact, rowid = intact + 1, rowid + 1
            except sqlite3.DatabaseError as error:
                self._note_damage(error)
                intact, rowid = 0, self._first_readable_after(rowid)
        return rowid

    def _row(self, rowid: int) -> Iterator[tuple[Any, ...]]:
        """One row; values that are too long are not read yet."""
        try:
            yield from self._select(self._columns, rowid, rowid)
        except sqlite3.DataError:
            if _key_condition(self._table)[0]:  # fails if even the key cannot be read
                list(self._select(self._table.key, rowid, rowid))
            yield large_row(
                self._connection,
                self._table.name,
                self._columns,
                rowid=rowid,
                part_bytes=self._part_bytes,
            )

    def _note_damage(self, error: sqlite3.DatabaseError) -> None:
        raise_unless_damage(error)
        self.damages += 1
        self.first_damage = self.first_damage or str(error)

    def _select(self, columns: Sequence[str], first: int, last: int) -> Iterator[tuple[Any, ...]]:
        conditions, values = [], []
        if self.has_rowid:
            conditions, values = ["rowid BETWEEN ? AND ?"], [first, last]
        key_condition, keys = _key_condition(self._table)
        if key_condition:
            conditions.append(f"({key_condition})")
        where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
        selected = ", ".join(map(quoted, columns))
        order = "rowid" if self.has_rowid else ", ".join(map(quoted, self._table.key))
        yield from self._connection.execute(
            f"SELECT {'rowid' if self.has_rowid else '0'}, {selected} "
            f"FROM {quoted(self._table.name)} {where}ORDER BY {order}",
            (*values, *keys),
        )

    def _next_rowid(self, rowid: int) -> int:
        """The first rowid from this one on; LAST_ROWID + 1 if there is none."""
        if rowid > LAST_ROWID:
            return rowid
        name = quoted(self._table.name)
        query = f"SELECT rowid FROM {name} WHERE rowid >= ? ORDER BY rowid LIMIT 1"
        row = self._connection.execute(query, (rowid,)).fetchone()
        if row and row[0] < rowid:
            error = sqlite3.DatabaseError("its rows are out of order")
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
        return row[0] if row else LAST_ROWID + 1

    def _first_readable_after(self, rowid: int) -> int:
        """The smallest rowid from which the search for the next one succeeds again: doubles the
        step until it does, then bisects."""
        rowid = -1 if rowid == FIRST_ROWID else rowid
        low, step = rowid, 1
        while not self._can_search_from(rowid + step):
            low, step = rowid + step, step * 2
        high = min(rowid + step, LAST_ROWID + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._can_search_from(middle) else (middle, high)
        return high

    def _can_search_from(self, rowid: int) -> bool:
        try:
            self._next_rowid(rowid)
        except sqlite3.DatabaseError as error:
            raise_unless_damage(error)
            return False
        return True


def select(
    connection: sqlite3.Connection,
    table: Table,
    columns: Sequence[str],
    limits: ImportLimits = LIMITS,
) -> Iterator[tuple[Any, ...]]:
    """Columns of those rows of a table that may be read; nothing if it does not have them."""
    if is_table(connection, table.name) and set(columns) <= set(columns_of(connection, table.name)):
        for _, *values in TableScan(connection, table, columns, limits).rows():
            yield tuple(
                value.content(limits.record_bytes) if isinstance(value, LargeValue) else value
                for value in values
            )


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an error will come again: not a failing disk, nor another writer."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in DAMAGE


def raise_unless_damage(error: sqlite3.DatabaseError) -> None:
    if not is_damage(error):
        raise error


def is_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether there is an ordinary table of this name: neither a view nor a virtual table."""
    row = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
    ).fetchone()
    return bool(row) and str(row[0]).upper().startswith("CREATE TABLE")


def columns_of(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    description = connection.execute(f"SELECT * FROM {quoted(name)} LIMIT 0").description
    return tuple(column[0] for column in description)


def _has_rowid(connection: sqlite3.Connection, name: str) -> bool:
    try:
        connection.execute(f"SELECT rowid FROM {quoted(name)} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True


def _limit_values(connection: sqlite3.Connection, size: int) -> None:
    """Let SQLite refuse longer values instead of returning them whole. Blob access to UTF-16 text
    would return bytes that are not UTF-8, so such databases are not limited."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding == "UTF-8":
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, size)


def _key_condition(table: Table) -> tuple[str, list[str]]:
    """The condition that a key is one of those named. The plus keeps the scan in rowid order."""
    key = f"+{quoted(table.key[0])}"
    alternatives = [f"{key} = ?" for _ in table.keys]
    values = list(table.keys)
    for prefix in table.prefixes:
        alternatives.append(f"({key} >= ? AND {key} < ?)")
        values += [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
    return " OR ".join(alternatives), values
