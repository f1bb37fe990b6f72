"""Archives the rows of other programs' databases.

Only the tables and keys that a source names are read. New and changed rows are appended to those
archived before; a row that was deleted stays archived.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.db_cursor import (
    DatabaseCursor,
    TableCursor,
    cursor_of,
    hashed,
    selection_of,
)
from agents_ledger.importers.parsing.large_values import LargeValue, quoted
from agents_ledger.importers.parsing.table_scan import (
    TableScan,
    columns_of,
    is_damage,
    is_table,
    raise_unless_damage,
    select,
)
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import RowFilter, SelectRows, Table
from agents_ledger.ledger.projection.source_records import Cleaned, Looks, Sources, Span
from agents_ledger.model.errors import Refused
from agents_ledger.model.imports.records import RowRecord, digest, frame, records
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.text import humanize

BATCH_BYTES = 8 << 20
WITHOUT_PROJECT = "kept though folders are excluded: nothing says the project"
UNCERTAIN = "left out as folders are excluded: what says the project is too long to look through"

MakeRowFilter = Callable[[SelectRows], RowFilter | None]


class RowExclusion(NamedTuple):
    folders: tuple[str, ...]
    make_filter: MakeRowFilter | None
    # Those of the folders that excluded something, so far.
    matched: set[str]


NO_EXCLUSION = RowExclusion((), None, set())


class ArchivedRows(NamedTuple):
    file: SourceFile
    rows: int
    faults: tuple[str, ...]
    is_whole: bool  # False: some rows could not be read this time


def is_unchanged(
    file: SourceFile, path: Path, tables: Sequence[Table], exclusion: RowExclusion = NO_EXCLUSION
) -> bool:
    """Whether a database looks as when it was archived, and the same rows of it are wanted. Folders
    that excluded nothing need not be excluded any more."""
    if file.kind != "rows" or (file.size, file.mtime_ns) != databases.state(path):
        return False
    cursor, folders = cursor_of(file), set(map(hashed, exclusion.folders))
    is_same = set(cursor.matched_folders) <= folders <= set(cursor.excluded_folders)
    return is_same and cursor.selection == selection_of(tables)


def excluded_sessions(file: SourceFile, exclusion: RowExclusion) -> tuple[int, set[str]]:
    """How many sessions were excluded from a database, and by which folders."""
    cursor = cursor_of(file)
    matched = {folder for folder in exclusion.folders if hashed(folder) in cursor.matched_folders}
    return len(cursor.excluded_sessions), matched


def archive_rows(
    sources: Sources,
    file: SourceFile,
    path: Path,
    tables: Sequence[Table],
    *,
    exclusion: RowExclusion = NO_EXCLUSION,
    limits: ImportLimits = LIMITS,
) -> ArchivedRows:
    """Append the rows of a database that are new or changed."""
    files.open_regular(path).close()  # not a link, a pipe or a device
    state = databases.state(path)
    new_rows = _NewRows(sources, file, tables, exclusion.make_filter, limits)
    batch, size, number = [], 0, 0
    overwritten: list[Span] = []
    # Until all is archived the old cursor stays: after an interruption no row is missed.
    cursor_before = file.cursor_json
    try:
        with databases.snapshot(path, limits) as connection:
            for data, spans in new_rows.frames(connection):
                overwritten += [Span(size + span.start, span.length) for span in spans]
                batch.append(data)
                size, number = size + len(data), number + 1
                if size >= BATCH_BYTES:
                    # The size stays -1 until all is archived: after an interruption the next import
                    # compares all rows again.
                    file = sources.append(
                        file,
                        b"".join(batch),
                        size=-1,
                        mtime_ns=0,
                        cursor=cursor_before,
                        overwritten=overwritten,
                    )
                    batch, overwritten, size = [], [], 0
    except sqlite3.Error as error:
        raise Refused(f"cannot be read as a database: {error}") from error
    looks: Looks = {"size": -1, "mtime_ns": 0, "cursor": cursor_before}
    if new_rows.is_whole:
        cursor = DatabaseCursor(
            new_rows.cursors,
            selection_of(tables),
            sorted(map(hashed, exclusion.folders)),
            sorted(map(hashed, exclusion.matched)),
            sorted(new_rows.excluded),
        )
        encoded = msgspec.json.encode(cursor).decode()
        looks = {"size": state.size, "mtime_ns": state.mtime_ns, "cursor": encoded}
    looks["overwritten"] = overwritten
    file = sources.append(file, b"".join(batch), **looks)
    return ArchivedRows(file, number, tuple(new_rows.faults), new_rows.is_whole)


class _ScannedRow(NamedTuple):
    row: RowRecord
    is_new: bool  # False: it must be compared with what is archived
    large_values: Sequence[LargeValue]


class _NewRows:
    """Finds new and changed rows: after the rowid archived last, or by comparing every row."""

    def __init__(
        self,
        sources: Sources,
        file: SourceFile,
        tables: Sequence[Table],
        make_filter: MakeRowFilter | None,
        limits: ImportLimits,
    ) -> None:
        cursor = cursor_of(file)
        self.cursors = cursor.tables if cursor.selection == selection_of(tables) else {}
        self.excluded: set[str] = set()  # hashes of sessions
        self.faults: list[str] = []
        self.is_whole = True
        self._sources = sources
        self._file = file
        self._tables = tables
        self._limits = limits
        self._make_filter = make_filter
        self._excluded_before = set(cursor.excluded_sessions)
        self._archived: dict[bytes, bytes] | None = None

    def frames(self, connection: sqlite3.Connection) -> Iterator[Cleaned]:
        """The frames of new and changed rows, in the order they were written."""
        row_filter = self._row_filter(connection)
        for scanned in self._scan_tables(connection):
            row = row_filter(scanned.row) if row_filter is not None else scanned.row
            if row is None:
                continue
            cleaned = self._framed(row)
            # Read only when it is needed: a table that grows has no rows to compare.
            if scanned.is_new or self._digests().get(row.identity) != digest(cleaned.data):
                for value in scanned.large_values:
                    yield from (Cleaned(data, ()) for data in value.frames())
                yield cleaned
        if row_filter is not None:
            self._report(row_filter.without_project, WITHOUT_PROJECT)
            self._report(row_filter.uncertain, UNCERTAIN)

    def _framed(self, row: RowRecord) -> Cleaned:
        return self._sources.cleaned(self._file, frame(row))

    def _report(self, sessions: set[str] | frozenset[str], what: str) -> None:
        if sessions:
            self.faults.append(f"{humanize.count(len(sessions), 'session')} {what}")

    def _row_filter(self, connection: sqlite3.Connection) -> RowFilter | None:
        """Where something was excluded and is no longer, all rows are compared."""
        row_filter = None
        if self._make_filter is not None:
            row_filter = self._make_filter(partial(select, connection, limits=self._limits))
        if row_filter is not None:
            self.excluded = {hashed(name) for name in row_filter.excluded}
        # A cursor is past the rows of sessions that were excluded before.
        if not self._excluded_before <= self.excluded:
            self.cursors = {}
        return row_filter

    def _scan_tables(self, connection: sqlite3.Connection) -> Iterator[_ScannedRow]:
        for table in self._tables:
            try:
                if is_table(connection, table.name):
                    yield from self._scan_table(connection, table)
            except sqlite3.DatabaseError as error:
                self.faults.append(f"table {table.name} cannot be read to its end: {error}")
                self.is_whole = self.is_whole and is_damage(error)

    def _scan_table(self, connection: sqlite3.Connection, table: Table) -> Iterator[_ScannedRow]:
        columns = columns_of(connection, table.name)
        if not set(table.key) <= set(columns):
            self.faults.append(f"table {table.name} has no column {', '.join(table.key)}")
            return
        table = table if table.key else table._replace(key=columns)
        scan = TableScan(connection, table, columns, self._limits)
        before = self.cursors.get(table.name, TableCursor())
        continues = table.grows and scan.has_rowid and _rowids_hold(connection, table, before)
        cursor = TableCursor(before.rowid, dict(before.last_rows)) if continues else TableCursor()
        for rowid, *values in scan.rows(before.rowid if continues else None):
            large = [value for value in values if isinstance(value, LargeValue)]
            row = RowRecord(table.name, table.key, columns, _archived_values(values, large))
            identity = row.identity.hex()
            if scan.has_rowid:
                cursor.advance(rowid, identity)
            if not table.is_small:
                yield _ScannedRow(row, continues, large)
                continue
            cursor.digests[identity] = digest(self._framed(row).data).hex()
            if before.digests.get(identity) != cursor.digests[identity]:
                yield _ScannedRow(row, bool(before.digests), large)
        self._finish(table, cursor, scan)

    def _finish(self, table: Table, cursor: TableCursor, scan: TableScan) -> None:
        self.cursors[table.name] = cursor
        if scan.damages:
            del self.cursors[table.name]  # should it be repaired, all rows are compared
            places = f"damaged in {humanize.count(scan.damages, 'place')}, the rest is read"
            what = places if scan.has_rowid else "damaged, and read only as far as that"
            self.faults.append(f"table {table.name} is {what}: {scan.first_damage}")

    def _digests(self) -> dict[bytes, bytes]:
        """The digest of the version last archived of every row."""
        if self._archived is None:
            self._archived = {
                framed.row.identity: digest(framed.data)
                for framed in records(self._sources.stream(self._file.id))
                if framed.row is not None
            }
        return self._archived


def _archived_values(values: Sequence[Any], large: Sequence[LargeValue]) -> tuple[Any, ...]:
    if not large:
        return tuple(values)
    return tuple(v.summary.value() if isinstance(v, LargeValue) else v for v in values)


def _rowids_hold(connection: sqlite3.Connection, table: Table, cursor: TableCursor) -> bool:
    """Whether rowids still mean what they did: a vacuum, or deleting the last rows, changes that.
    In a damaged table they may not."""
    try:
        return cursor.rowid > 0 and _last_rows_are_unchanged(connection, table, cursor)
    except sqlite3.DatabaseError as error:
        raise_unless_damage(error)
        return False


def _last_rows_are_unchanged(
    connection: sqlite3.Connection, table: Table, cursor: TableCursor
) -> bool:
    name = quoted(table.name)
    (largest,) = connection.execute(f"SELECT max(rowid) FROM {name}").fetchone()
    if largest is None or largest < cursor.rowid:
        return False
    key = ", ".join(map(quoted, table.key))
    for rowid, identity in cursor.last_rows.items():
        row = connection.execute(f"SELECT {key} FROM {name} WHERE rowid = ?", (rowid,)).fetchone()
        # A deleted row is no sign of a vacuum; another key under its rowid is.
        if row and RowRecord(table.name, table.key, table.key, row).identity.hex() != identity:
            return False
    return True
