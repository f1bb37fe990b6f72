"""Rows as a SQLite file holds them: sqlite.org/fileformat2.html, section 2.1."""

from __future__ import annotations

import sqlite3
import struct
from typing import Any, NamedTuple

_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # bytes by serial type
_CONSTANTS = {0: None, 8: 0, 9: 1}
_FLOAT, _FLOAT_BYTES = 7, 8
_FIRST_LONG = 12  # from here on even types are bytes, odd ones text
_VARINT_MAX = 9
_MORE = 0x80
Values = list[Any]


class BadText(bytes):
    """Text that is not UTF-8."""


class Unreadable(Exception):
    """A page or row that makes no sense."""


class Column(NamedTuple):
    """A column as a CREATE TABLE states it."""

    name: str
    key: int  # its position in the primary key, from 1; 0: it is not in it
    default: str | None
    is_rowid: bool


def columns_of(sql: str | None) -> list[Column]:
    """The columns of a table in the order in which its rows hold them; none, if the text of the
    table is damaged too."""
    try:
        with sqlite3.connect(":memory:") as scratch:
            scratch.execute(sql or "")
            name = scratch.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
            rows = scratch.execute(f"PRAGMA table_info({name[0]})").fetchall() if name else []
    except sqlite3.Error:
        return []
    keys = sum(row[5] > 0 for row in rows)
    columns = [
        Column(row[1], row[5], row[4], keys == 1 and row[5] == 1 and row[2].upper() == "INTEGER")
        for row in rows
    ]
    if "WITHOUT ROWID" in (sql or "").upper():
        return sorted(columns, key=lambda column: column.key or len(columns) + 1)
    return columns


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
