"""How far databases of other programs were read: what is remembered beside their kept rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.port.source import Table
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import SourceFile


class State(NamedTuple):
    """How a database and its log look: another one may hold other rows."""

    size: int
    mtime_ns: int


class Mark(Struct):
    """How far a table was read: its last rows then, by rowid."""

    rowid: int = 0
    keys: dict[int, str] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)  # of small tables, by row


class Cursor(Struct):
    """How far a database was read, which rows of it, and what was left out, by hashes."""

    marks: dict[str, Mark] = field(default_factory=dict)  # by table
    wanted: str = ""
    excluding: list[str] = field(default_factory=list)  # folders
    met: list[str] = field(default_factory=list)  # those of them that left something out
    left: list[str] = field(default_factory=list)


_CURSOR = msgspec.json.Decoder(Cursor)


def cursor_of(file: SourceFile) -> Cursor:
    """How far a database was read; not at all, where that is not known."""
    if file.cursor_json is None or file.size < 0:
        return Cursor()
    try:
        return _CURSOR.decode(file.cursor_json)
    except msgspec.DecodeError:
        return Cursor()


def hashed(name: str) -> str:
    """Nothing of what is left out is kept, its name neither."""
    return digest(name.encode(errors="surrogatepass")).hex()[:16]


def wanted_of(tables: Sequence[Table]) -> str:
    """Which rows are read: a later version of a reader may want more of them."""
    return hashed(repr([(table.name, table.key, table.keys, table.prefixes) for table in tables]))
