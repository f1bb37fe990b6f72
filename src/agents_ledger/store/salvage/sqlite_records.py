"""Rows as a SQLite file holds them: sqlite.org/fileformat2.html, section 2.1."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from typing import Any, NamedTuple

_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type
_CONSTANTS = {0: None, 8: 0, 9: 1}
_FLOAT, _FLOAT_BYTES = 7, 8
_FIRST_LONG = 12  # from here on even types are bytes, odd ones text
_VARINT_MAX = 9
_MORE = 0x80
# SQLite stores the text of every table with this beginning. The text comes from a damaged file, and
# any other statement, such as VACUUM INTO, could write a file.
_CREATE_TABLE = "CREATE TABLE "
_TABLE_INFO = """
    SELECT i.* FROM sqlite_master t, pragma_table_info(t.name) i WHERE t.rowid = 1 ORDER BY i.cid
"""
_CREATING = (sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_READ)
Values = list[Any]


class BadText(bytes):
    """Text that is not UTF-8."""


class Unreadable(Exception):
    """A page or row that makes no sense."""


class SalvagedColumn(NamedTuple):
    name: str
    key: int  # its position in the primary key, from 1; 0: it is not in it
    default: str | None
    is_rowid: bool


def columns_of(sql: str | None) -> list[SalvagedColumn]:
    """The columns of a table in the order in which its rows hold them; none, if the text of the
    table is damaged too."""
    text = sql or ""
    if not text.startswith(_CREATE_TABLE):
        return []
    try:
        with closing(sqlite3.connect(":memory:")) as scratch:
            # The text may say anything: it may create a table, and nothing else.
            scratch.set_authorizer(_authorize)
            scratch.execute(text)
            scratch.set_authorizer(None)
            rows = scratch.execute(_TABLE_INFO).fetchall()
    except (sqlite3.Error, sqlite3.Warning):
        # Until Python 3.12 a second statement is a Warning.
        return []
    keys = sum(row[5] > 0 for row in rows)
    columns = [
        SalvagedColumn(
            row[1], row[5], row[4], keys == 1 and row[5] == 1 and row[2].upper() == "INTEGER"
        )
        for row in rows
    ]
    # Rows of such a table begin with the columns of the key (fileformat2.html, section 2.4).
    if "WITHOUT ROWID" in text.upper():
        return sorted(columns, key=lambda column: column.key or len(columns) + 1)
    return columns


def _authorize(action: int, name: str | None, *_: str | None) -> int:
    """Allow what creating a table and the indexes of its keys needs, in an empty database."""
    # CREATE TABLE ... AS SELECT would insert into its own table, and a recursive one never ends.
    if action in (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE):
        return sqlite3.SQLITE_OK if name == "sqlite_master" else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _CREATING else sqlite3.SQLITE_DENY


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for position in range(at, at + _VARINT_MAX - 1):
        byte = data[position]
        value = value << 7 | byte & ~_MORE
        if byte < _MORE:
            return value, position + 1
    return value << 8 | data[at + _VARINT_MAX - 1], at + _VARINT_MAX


def record(payload: bytes) -> Values:
    """The values of a row, if their lengths add up."""
    length, at = varint(payload, 0)
    if length > len(payload):
        raise Unreadable("a row shorter than its header")
    values: Values = []
    body = length
    while at < length:
        kind, at = varint(payload, at)
        end = body + _size(kind)
        if end > len(payload):
            raise Unreadable("a row longer than it says")
        values.append(_value(kind, payload[body:end]))
        body = end
    if body != len(payload) or at != length:
        raise Unreadable("a row shorter than it says")
    return values


def _size(kind: int) -> int:
    if kind >= _FIRST_LONG:
        return (kind - _FIRST_LONG) // 2
    if kind == _FLOAT:
        return _FLOAT_BYTES
    if kind not in _INTEGERS and kind not in _CONSTANTS:
        raise Unreadable(f"a value of the unknown type {kind}")
    return _INTEGERS.get(kind, 0)


def _value(kind: int, raw: bytes) -> Any:
    if kind in _INTEGERS:
        return int.from_bytes(raw, "big", signed=True)
    if kind < _FIRST_LONG:
        return struct.unpack(">d", raw)[0] if kind == _FLOAT else _CONSTANTS[kind]
    if kind % 2 == 0:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return BadText(raw)
