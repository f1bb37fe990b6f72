"""Which projects are excluded. Files that tell the project of a session are not archived."""

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
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.source import FolderTrace, Project, Source, Table
from agents_ledger.importers.project_folders import ExcludedFolder
from agents_ledger.importers.row_archive import NO_EXCLUSION, RowExclusion
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.installation.settings import is_whole

T = TypeVar("T")
# The folder is mostly in the first record, but a file may begin with a long one.
HEAD_SIZES = (files.HEAD_BYTES, 1 << 20, LIMITS.record_bytes)  # tried one after the other

Verdict = Literal["included", "excluded", "unknown", "ambiguous"]


class ExcludedCounts(Struct):
    """How much was excluded, and by which folders and patterns."""

    files: int = 0
    sessions: int = 0  # of databases
    matched: set[str] = field(default_factory=set)

    def add(self, other: ExcludedCounts) -> None:
        self.files += other.files
        self.sessions += other.sessions
        self.matched |= other.matched


class ExcludedFolders(NamedTuple):
    folders: tuple[ExcludedFolder, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> ExcludedFolders:
        """The folders among these; the others are patterns of paths."""
        paths = sorted({pattern for pattern in patterns if is_whole(pattern)})
        return cls(tuple(map(ExcludedFolder.of, paths)))

    def contain(self, project: Project, matched: set[str]) -> bool | None:
        """Whether a project is in one of them; None: perhaps. Those it may be in are added to
        `matched`."""
        answers = {folder.path: folder.contains_project(project) for folder in self.folders}
        matched.update(path for path, answer in answers.items() if answer is not False)
        return True if True in answers.values() else None if None in answers.values() else False

    def verdict(self, source: Source, path: Path, matched: set[str]) -> Verdict:
        """A file of unknown project is included; one whose folder name may mean an excluded folder
        or another one is excluded."""
        if not self.folders:
            return "included"
        projects = source.projects(path, PROBE)
        if projects is None:
            return "unknown"
        answers = [self.contain(project, matched) for project in projects]
        if True in answers or None in answers:
            return "excluded" if True in answers else "ambiguous"
        # A hash shows whether it is of an excluded folder, but not whether it is of one below it.
        is_hash = any(isinstance(p, FolderTrace) and p.kind != "dashes" for p in projects)
        return "unknown" if is_hash else "included"

    def row_exclusion(self, source: Source, path: Path) -> RowExclusion:
        """What is excluded from a database with several projects."""
        if not self.folders or not source.tables:
            return NO_EXCLUSION
        matched: set[str] = set()

        def is_excluded(project: Project) -> bool:
            return self.contain(project, matched) is not False

        return RowExclusion(
            tuple(folder.path for folder in self.folders),
            lambda own_rows: source.row_filter(path, own_rows, PROBE, is_excluded),
            matched,
        )


class CachedProbe:
    """A FileProbe that reads most files only once until they change."""

    def __init__(self, head_sizes: Sequence[int] = HEAD_SIZES) -> None:
        self._head_sizes = tuple(head_sizes)

    def head(self, path: Path, size: int = files.HEAD_BYTES) -> bytes:
        try:
            return files.head(path, size)
        except (LedgerError, OSError):
            return b""

    def document(self, path: Path, read: Callable[[Any], T]) -> T:
        try:
            status = path.stat()
        except OSError:
            return read(None)
        looks = (status.st_ino, status.st_size, status.st_mtime_ns)
        result: T = _document(path, looks, read)
        return result

    def names(self, folder: Path) -> Collection[str]:
        try:
            return _names(folder, folder.stat().st_mtime_ns)
        except OSError:
            return ()

    def row(
        self, path: Path, table: Table, columns: Sequence[str], first: str
    ) -> tuple[Any, ...] | None:
        try:
            rows = _rows_by_first_column(path, databases.state(path), table, tuple(columns))
            return rows.get(first)
        except databases.UNREADABLE:
            return None

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        try:
            return _rows(path, databases.state(path), table, tuple(columns))
        except databases.UNREADABLE:
            return ()

    def working_folder(self, path: Path) -> str | None:
        try:
            status = files.on_disk(path).stat()
            looks = (status.st_ino, status.st_size, status.st_mtime_ns)
            return _working_folder(path, looks, self._head_sizes)
        except (LedgerError, OSError):
            return None

    def working_folder_within(self, folder: Path) -> str | None:
        try:
            return _working_folder_within(folder, folder.stat().st_mtime_ns)
        except OSError:
            return None


PROBE = CachedProbe()


@lru_cache(maxsize=4096)
def _working_folder(path: Path, _: tuple[int, ...], head_sizes: tuple[int, ...]) -> str | None:
    for size in head_sizes:
        data = files.head(path, size)
        folders = (_own_folder(line) for line in data.split(b"\n") if b'"cwd"' in line)
        folder = next((folder for folder in folders if folder), None)
        if folder or len(data) < size:
            return folder
    return None


def _own_folder(line: bytes) -> str | None:
    """The working folder of a record itself: a deeper "cwd" is an argument of a tool."""
    record = as_dict(parse_json(line))
    context = as_dict(as_dict(record.get("data")).get("context"))
    # Where Claude Code, Codex and Copilot CLI have it.
    candidates = (record, as_dict(record.get("payload")), context)
    return next((cwd for fields in candidates if (cwd := as_text(fields.get("cwd")))), None)


@lru_cache(maxsize=256)
def _working_folder_within(folder: Path, _: int) -> str | None:
    names = (name for name in PROBE.names(folder) if name.endswith(".jsonl"))
    return next((cwd for name in names if (cwd := PROBE.working_folder(folder / name))), None)


@lru_cache(maxsize=4)
def _document(path: Path, _: tuple[int, ...], read: Callable[[Any], Any]) -> Any:
    return read(parse_json(PROBE.head(path, LIMITS.record_bytes)))


@lru_cache(maxsize=4096)
def _names(folder: Path, _: int) -> Collection[str]:
    return dict.fromkeys(sorted(os.listdir(folder)))


@lru_cache(maxsize=4)
def _rows_by_first_column(
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
