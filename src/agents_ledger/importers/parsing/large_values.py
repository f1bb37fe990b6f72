"""Values of databases that are too long to hold in memory: they are read in parts."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

from msgspec import msgpack

from agents_ledger.model.imports.records import BAD_TEXT, Parted, part


class LargeValue(NamedTuple):
    connection: sqlite3.Connection
    table: str
    column: str
    rowid: int
    part_bytes: int
    summary: Parted  # what the archived row says of it

    @classmethod
    def of(
        cls, connection: sqlite3.Connection, table: str, column: str, *, rowid: int, part_bytes: int
    ) -> LargeValue:
        """The value is read once, so that damage is noticed with the row."""
        # A blob handle does not say whether its value is text.
        query = f"SELECT typeof({quoted(column)}) FROM {quoted(table)} WHERE rowid = ?"
        (type_name,) = connection.execute(query, (rowid,)).fetchone()
        value = cls(connection, table, column, rowid, part_bytes, Parted(False, 0, 0, b""))
        size, parts, hashed = 0, 0, hashlib.blake2b(digest_size=16)
        for data in value._read_parts():
            size, parts = size + len(data), parts + 1
            hashed.update(data)
        return value._replace(summary=Parted(type_name == "text", size, parts, hashed.digest()))

    def frames(self) -> Iterator[bytes]:
        return map(part, self._read_parts())

    def content(self, size_max: int) -> msgpack.Ext | bytes:
        """The whole value, for a look that archives nothing; only its summary if it is longer than
        any record that is parsed."""
        if self.summary.size > size_max:
            return self.summary.value()
        buffer = BytesIO()  # joining a list of parts would hold them twice
        buffer.writelines(self._read_parts())
        data = buffer.getvalue()
        return msgpack.Ext(BAD_TEXT, data) if self.summary.is_text else data

    def _read_parts(self) -> Iterator[bytes]:
        with self.connection.blobopen(self.table, self.column, self.rowid, readonly=True) as blob:
            while data := blob.read(self.part_bytes):
                yield data


def large_row(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    *,
    rowid: int,
    part_bytes: int,
) -> tuple[Any, ...]:
    """A row of which SQLite refused to return a value, its rowid first."""

    def value(column: str) -> Any:
        query = f"SELECT {quoted(column)} FROM {quoted(table)} WHERE rowid = ?"
        try:
            return connection.execute(query, (rowid,)).fetchone()[0]
        except sqlite3.DataError:
            return LargeValue.of(connection, table, column, rowid=rowid, part_bytes=part_bytes)

    return rowid, *map(value, columns)


def quoted(name: str) -> str:
    """A table or column name as SQL."""
    return '"' + name.replace('"', '""') + '"'
