"""How far a database of another program was archived: stored next to its rows, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.port.source import Table
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import SourceFile

# Compared with the database before its rowids are trusted: the newest rows may be deleted again.
LAST_ROWS = 8


class DatabaseState(NamedTuple):
    """Size and time of a database with its log: unless they change, no row has changed."""

    size: int
    mtime_ns: int


class TableCursor(Struct):
    rowid: int = 0  # the largest
    last_rows: dict[int, str] = field(default_factory=dict, name="keys")  # identities by rowid
    digests: dict[str, str] = field(default_factory=dict, name="said")  # of small tables, by row

    def advance(self, rowid: int, identity: str) -> None:
        self.rowid = max(self.rowid, rowid)
        self.last_rows[rowid] = identity
        if len(self.last_rows) > LAST_ROWS:
            del self.last_rows[min(self.last_rows)]


class DatabaseCursor(Struct):
    """How far a database was archived, which rows of it, and what was excluded, by hashes."""

    # The names in JSON are those of the first version: cursors are stored in every ledger.
    tables: dict[str, TableCursor] = field(default_factory=dict, name="marks")
    selection: str = field(default="", name="wanted")
    excluded_folders: list[str] = field(default_factory=list, name="excluding")
    matched_folders: list[str] = field(default_factory=list, name="met")
    excluded_sessions: list[str] = field(default_factory=list, name="left")


_DECODER = msgspec.json.Decoder(DatabaseCursor)


def cursor_of(file: SourceFile) -> DatabaseCursor:
    """The cursor of an archived database; an empty one if it has none."""
    if file.cursor_json is None or file.size < 0:
        return DatabaseCursor()
    try:
        return _DECODER.decode(file.cursor_json)
    except msgspec.DecodeError:
        return DatabaseCursor()


def hashed(name: str) -> str:
    """Nothing of what is excluded is stored, not even its name."""
    return digest(name.encode(errors="surrogatepass")).hex()[:16]


def selection_of(tables: Sequence[Table]) -> str:
    """Identifies which rows are archived: a later version of a source may need more of them."""
    return hashed(repr([(table.name, table.key, table.keys, table.prefixes) for table in tables]))
