"""Rows of a database as archived records, each framed by its length.

A changed row is another record; the last one of a key is current, and none is deleted. A value that
is too long for memory is stored in parts before its row, which contains only a summary of it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from itertools import filterfalse, starmap
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import msgpack

T = TypeVar("T", bound=Hashable)
LARGE = 1 << 20  # bytes of a record of which memory must not hold two copies
BAD_TEXT = 1  # the code of a text that is not UTF-8, or would take much more memory as text
IN_PARTS = 2  # the code of a value that is stored in parts before its row
_PART = b"\x94\xa0"  # begins a part, which is encoded as a row of a table without a name
_SUMMARY = struct.Struct(">?QI16s")
PARTED = bytes([0xC7, _SUMMARY.size, IN_PARTS])  # the first bytes of a value stored in parts
_LENGTH = struct.Struct(">I")
_PEEK = msgpack.Decoder(tuple[str, tuple[str, ...], tuple[str, ...], list[msgspec.Raw]])
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError, IndexError)


class Parted(NamedTuple):
    """What a row states about a value that is stored in parts before it."""

    is_text: bool
    size: int
    parts: int
    print: bytes  # its digest

    @classmethod
    def of(cls, value: Any) -> Parted | None:
        """The summary in a row's value; None: the value is stored in the row itself."""
        if isinstance(value, msgpack.Ext) and value.code == IN_PARTS:
            return cls(*_SUMMARY.unpack(value.data))
        return None

    def value(self) -> msgpack.Ext:
        """The summary as a value of the row."""
        return msgpack.Ext(IN_PARTS, _SUMMARY.pack(*self))


class RowRecord(NamedTuple):
    """An original row. A text that is not UTF-8 is a msgpack.Ext with its bytes."""

    table: str
    key: tuple[str, ...]  # the columns that identify it
    columns: tuple[str, ...]
    values: tuple[Any, ...]

    @property
    def identity(self) -> bytes:
        """A digest that all versions of a row share."""
        return digest(msgpack.encode([self.table, [*map(self.named.get, self.key)]]))

    @property
    def named(self) -> dict[str, Any]:
        """Its values by column."""
        return dict(zip(self.columns, self.values, strict=False))

    @property
    def parted(self) -> list[Parted]:
        """Its values that are stored in parts before it."""
        return [parted for value in self.values if (parted := Parted.of(value)) is not None]


class Peeked(NamedTuple):
    """A record of which only the table and the key were parsed."""

    offset: int
    table: str
    key: Any  # the first column of its key
    data: bytes  # with its frame


class Framed(NamedTuple):
    """A record and its position. `row` is None if it cannot be parsed."""

    offset: int
    length: int  # with its frame
    data: bytes
    row: RowRecord | None


def raw(value: Any) -> bytes:
    """The bytes of a value that should be text."""
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, msgpack.Ext):
        return bytes(value.data) if value.code == BAD_TEXT else b""
    return value if isinstance(value, bytes) else b""


def digest(data: bytes) -> bytes:
    """The digest of a value or a row."""
    return hashlib.blake2b(data, digest_size=16).digest()


def frame(row: RowRecord) -> bytes:
    """The bytes to archive."""
    data = msgpack.encode([row.table, row.key, row.columns, row.values])
    return _LENGTH.pack(len(data)) + data


def part(data: bytes) -> bytes:
    """The bytes to archive of a part of a long value."""
    return frame(RowRecord("", (), (), (data,)))


def unframe(data: bytes) -> RowRecord | None:
    """The row of a frame; None if it cannot be parsed."""
    try:
        table, key, columns, values = msgpack.decode(memoryview(data)[_LENGTH.size :])
        return RowRecord(_once(str(table)), _once(tuple(key)), _once(tuple(columns)), tuple(values))
    except _BROKEN:
        return None


@lru_cache(maxsize=256)
def _once(named: T) -> T:
    return named


def records(blocks: Iterable[bytes]) -> Iterator[Framed]:
    """Every record in a stream of archived bytes, except a truncated last one."""
    rows = filterfalse(_is_part, _frames(blocks))
    return starmap(_framed, rows)  # iterators: no record is held


def parted(blocks: Iterable[bytes]) -> Iterator[tuple[Framed, list[tuple[int, int]]]]:
    """Every record, with offset and length of the parts before it. An interrupted import may have
    left more parts than belong to the row: the last ones are the row's."""
    parts: list[tuple[int, int]] = []
    for frame in _frames(blocks):
        offset, data = frame
        if _is_part(frame):
            parts.append((offset, len(data)))
        else:
            yield _framed(offset, data), parts
            parts = []


def _is_part(frame: tuple[int, bytes]) -> bool:
    return frame[1].startswith(_PART, _LENGTH.size)


def _framed(offset: int, data: bytes) -> Framed:
    return Framed(offset, len(data), data, unframe(data))


def peek(blocks: Iterable[bytes]) -> Iterator[Peeked]:
    """Every readable row, parsed only up to its table and key."""
    for offset, data in _frames(blocks):
        try:
            table, key, columns, values = _PEEK.decode(memoryview(data)[_LENGTH.size :])
            at = columns.index(key[0])
            yield Peeked(offset, table, msgpack.decode(values[at]), data)
        except _BROKEN:
            continue


def _frames(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    buffer = bytearray()
    start = 0  # the offset of the buffer's first byte
    for block in blocks:
        buffer += block
        at = 0
        while len(buffer) - at >= _LENGTH.size:
            size = _LENGTH.size + _LENGTH.unpack_from(buffer, at)[0]
            if len(buffer) - at < size:
                break
            offset, at = start + at, at + size
            if size < LARGE:
                yield offset, bytes(buffer[at - size : at])
            else:
                yield offset, _cut(buffer, at - size, at)
                start, at = start + at, 0
        del buffer[:at]
        start += at


def _cut(buffer: bytearray, first: int, end: int) -> bytes:
    """Remove the bytes up to `end` from a buffer; those from `first` on."""
    with memoryview(buffer) as view:
        data = bytes(view[first:end])
    del buffer[:end]
    return data
