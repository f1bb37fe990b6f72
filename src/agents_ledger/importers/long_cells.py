"""Cells of other programs' databases that are too long to be held: read some of it at a time."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from agents_ledger.model.records import Parted, part

PART_BYTES = 4 << 20
LENGTH = sqlite3.SQLITE_LIMIT_LENGTH
LONGEST = 1_000_000_000  # as databases have it


class LongCell(NamedTuple):
    """A cell that stays where it is."""

    connection: sqlite3.Connection
    table: str
    column: str
    rowid: int
    parted: Parted

    def parts(self) -> Iterator[bytes]:
        """The frames to keep."""
        return map(part, _some(self.connection, self.table, self.column, self.rowid))


def limit(connection: sqlite3.Connection, most: int) -> None:
    """Let the database refuse longer cells instead of giving them whole. Of a text in UTF-16 it
    would give bytes that are no UTF-8."""
    (encoding,) = connection.execute("PRAGMA encoding").fetchone()
    if encoding == "UTF-8":
        connection.setlimit(LENGTH, most)


def long_row(
    connection: sqlite3.Connection, table: str, columns: Sequence[str], rowid: int
) -> tuple[Any, ...]:
    """A row with a cell that was refused, its rowid first."""
    return rowid, *(_cell(connection, table, column, rowid) for column in columns)


def _cell(connection: sqlite3.Connection, table: str, column: str, rowid: int) -> Any:
    named, place = quoted(column), f"FROM {quoted(table)} WHERE rowid = ?"
    try:
        return connection.execute(f"SELECT {named} {place}", (rowid,)).fetchone()[0]
    except sqlite3.DataError:
        pass
    (kind,) = connection.execute(f"SELECT typeof({named}) {place}", (rowid,)).fetchone()
    size, parts, said = 0, 0, hashlib.blake2b(digest_size=16)
    for some in _some(connection, table, column, rowid):
        size, parts = size + len(some), parts + 1
        said.update(some)
    found = Parted(kind == "text", size, parts, said.digest())
    return LongCell(connection, table, column, rowid, found)


def _some(connection: sqlite3.Connection, table: str, column: str, rowid: int) -> Iterator[bytes]:
    with connection.blobopen(table, column, rowid, readonly=True) as blob:
        while some := blob.read(PART_BYTES):
            yield some


def quoted(name: str) -> str:
    """A name in a statement."""
    return '"' + name.replace('"', '""') + '"'
