"""Which projects are left out. What tells the project of a file is looked at, and not kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, field

from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.db_cursor import DatabaseState
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json
from agents_ledger.importers.parsing.table_scan import select
from agents_ledger.importers.port.source import (
    RECORD_MAX,
    FolderTrace,
    Project,
    Reader,
    Table,
)
from agents_ledger.importers.project_folders import Folder
from agents_ledger.importers.row_archive import NO_EXCLUSION, RowExclusion
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.settings import is_whole

T = TypeVar("T")
HEADS = (files.HEAD_BYTES, 1 << 20, RECORD_MAX)  # of a file, in which it may say its project


Verdict = Literal["kept", "left", "untold", "doubted"]


class Left(Struct):
    """What was left out, and by which of the folders and patterns."""

    files: int = 0
    sessions: int = 0  # of databases
    met: set[str] = field(default_factory=set)

    def add(self, other: Left) -> None:
        """Count what another part of the work left out."""
        self.files += other.files
        self.sessions += other.sessions
        self.met |= other.met


class Excluded(NamedTuple):
    """The folders whose projects are left out."""

    folders: tuple[Folder, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Excluded:
        """Of what is left out, the folders; the rest are patterns of paths."""
        return cls(tuple(Folder.of(each) for each in sorted(set(patterns)) if is_whole(each)))

    def holds(self, project: Project, met: set[str]) -> bool | None:
        """Whether a project is in one of them; None: in doubt. Those it may be in are noted."""
        said = {folder.given: folder.holds(project) for folder in self.folders}
        met.update(given for given, holds in said.items() if holds is not False)
        return True if True in said.values() else None if None in said.values() else False

    def leaves(self, reader: Reader, path: Path, met: set[str]) -> Verdict:
        """Whether a file is left out. It is not where nothing tells, but it is where the disk does
        not say which of two folders is meant."""
        if not self.folders:
            return "kept"
        told = reader.projects(path, LOOK)
        if told is None:
            return "untold"
        said = [self.holds(each, met) for each in told]
        if True in said or None in said:
            return "left" if True in said else "doubted"
        # A hash tells whether it is of a folder, but not whether it is of one within.
        is_hash = any(isinstance(each, FolderTrace) and each.kind != "dashes" for each in told)
        return "untold" if is_hash else "kept"

    def leaving(self, reader: Reader, path: Path) -> RowExclusion:
        """What is to be left out of a database."""
        if not self.folders or not reader.tables:
            return NO_EXCLUSION
        met: set[str] = set()

        def is_left(project: Project) -> bool:
            return self.holds(project, met) is not False

        given = tuple(folder.given for folder in self.folders)
        return RowExclusion(given, lambda own: reader.row_filter(path, own, LOOK, is_left), met)


class Looking:
    """Looks at files, most of them once until they change."""

    def head(self, path: Path, size: int = files.HEAD_BYTES) -> bytes:
        """The first bytes of a file; none if it cannot be read."""
        try:
            return files.head(path, size)
        except (LedgerError, OSError):
            return b""

    def document(self, path: Path, read: Callable[[Any], T]) -> T:
        """What `read` makes of a JSON document; of None if it is none."""
        try:
            status = path.stat()
        except OSError:
            return read(None)
        looks = (status.st_ino, status.st_size, status.st_mtime_ns)
        made: T = _document(path, looks, read)
        return made

    def names(self, folder: Path) -> Collection[str]:
        """What stands in a folder, in order."""
        try:
            return _names(folder, folder.stat().st_mtime_ns)
        except OSError:
            return ()

    def row(
        self, path: Path, table: Table, columns: Sequence[str], first: str
    ) -> tuple[Any, ...] | None:
        """The row of another database whose first column says this."""
        try:
            return _by_first(path, databases.state(path), table, tuple(columns)).get(first)
        except databases.UNREADABLE:
            return None

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Rows of another database; none of one that cannot be read."""
        try:
            return _rows(path, databases.state(path), table, tuple(columns))
        except databases.UNREADABLE:
            return ()

    def working_folder(self, path: Path) -> str | None:
        """The folder that the first record of a file to name its own worked in."""
        try:
            status = files.on_disk(path).stat()
            return _folder(path, (status.st_ino, status.st_size, status.st_mtime_ns))
        except (LedgerError, OSError):
            return None

    def working_folder_within(self, place: Path) -> str | None:
        """That of the first file of lines in a folder that says one."""
        try:
            return _folder_beside(place, place.stat().st_mtime_ns)
        except OSError:
            return None


LOOK = Looking()


@lru_cache(maxsize=4096)
def _folder(path: Path, _: tuple[int, ...]) -> str | None:
    for size in HEADS:
        data = files.head(path, size)
        found = (_own(line) for line in data.split(b"\n") if b'"cwd"' in line)
        said = next((each for each in found if each), None)
        if said or len(data) < size:
            return said
    return None


def _own(line: bytes) -> str | None:
    """The folder of a record itself: one that stands deeper is what a tool was given."""
    record = as_dict(parse_json(line))
    context = as_dict(as_dict(record.get("data")).get("context"))
    found = (each.get("cwd") for each in (record, as_dict(record.get("payload")), context))
    return next((said for each in found if (said := as_text(each))), None)


@lru_cache(maxsize=256)
def _folder_beside(place: Path, _: int) -> str | None:
    names = (each for each in LOOK.names(place) if each.endswith(".jsonl"))
    return next((said for each in names if (said := LOOK.working_folder(place / each))), None)


@lru_cache(maxsize=4)
def _document(path: Path, _: tuple[int, ...], read: Callable[[Any], Any]) -> Any:
    return read(parse_json(LOOK.head(path, RECORD_MAX)))


@lru_cache(maxsize=4096)
def _names(folder: Path, _: int) -> Collection[str]:
    return dict.fromkeys(sorted(os.listdir(folder)))


@lru_cache(maxsize=4)
def _by_first(
    path: Path, state: DatabaseState, table: Table, columns: tuple[str, ...]
) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in _rows(path, state, table, columns) if isinstance(row[0], str)}


@lru_cache(maxsize=4)
def _rows(
    path: Path, _: DatabaseState, table: Table, columns: tuple[str, ...]
) -> tuple[tuple[Any, ...], ...]:
    files.open_regular(path).close()  # not a link, a pipe or a device
    with databases.snapshot(path) as connection:
        return tuple(select(connection, table, columns))
