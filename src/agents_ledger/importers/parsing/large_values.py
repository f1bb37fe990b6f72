"""Cells of databases too long to be held: they stay where they are, and are read in parts."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from msgspec import msgpack

from agents_ledger.importers.port.source import RECORD_MAX
from agents_ledger.model.imports.records import BAD_TEXT, Parted, part

PART_BYTES = 4 << 20


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

    def told(self) -> msgpack.Ext | bytes:
        """What it says, for a look that keeps nothing; only that it is there, if it is longer than
        any record that is read."""
        if self.parted.size > RECORD_MAX:
            return self.parted.value()
        data = BytesIO()  # unlike a list of parts to be joined it holds them once
        data.writelines(_some(self.connection, self.table, self.column, self.rowid))
        said = data.getvalue()
        return msgpack.Ext(BAD_TEXT, said) if self.parted.is_text else said


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
    return LongCell(
        connection, table, column, rowid, Parted(kind == "text", size, parts, said.digest())
    )


def _some(connection: sqlite3.Connection, table: str, column: str, rowid: int) -> Iterator[bytes]:
    with connection.blobopen(table, column, rowid, readonly=True) as blob:
        while some := blob.read(PART_BYTES):
            yield some


def quoted(name: str) -> str:
    """The name of a table or a column in a statement."""
    return '"' + name.replace('"', '""') + '"'
