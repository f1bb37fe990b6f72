"""Which projects are excluded. Files that tell the project of a session are not archived."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct, field

from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json
from agents_ledger.importers.parsing.table_scan import select
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.source import FolderTrace, Project, SharedDatabase, Source, Table
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
            lambda rows: source.row_filter(SharedDatabase(path, rows, PROBE, is_excluded)),
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
        result: T = _cached(_few, read(None), _document, path, read)
        return result

    def names(self, folder: Path) -> Collection[str]:
        names: Collection[str] = _cached(_many, (), _names, folder)
        return names

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        rows: Sequence[tuple[Any, ...]] = _cached(_few, (), _rows, path, table, tuple(columns))
        return rows

    def row(
        self, path: Path, table: Table, columns: Sequence[str], first: str
    ) -> tuple[Any, ...] | None:
        rows = _cached(_few, {}, _rows_by_first_column, path, table, tuple(columns))
        row: tuple[Any, ...] | None = rows.get(first)
        return row

    def working_folder(self, path: Path) -> str | None:
        folder: str | None = _cached(_many, None, _working_folder, path, self._head_sizes)
        return folder

    def working_folder_within(self, folder: Path) -> str | None:
        names = (name for name in self.names(folder) if name.endswith(".jsonl"))
        folders = (self.working_folder(folder / name) for name in names)
        return next(filter(None, folders), None)


PROBE = CachedProbe()


def _cached(
    cache: Callable[..., Any], otherwise: Any, read: Callable[..., Any], path: Path, *more: Any
) -> Any:
    """What is read of a path, until the file or folder changes; `otherwise` if it cannot be."""
    try:
        place = files.on_disk(path)
        return cache(read, path, (place.stat().st_ino, *databases.state(place)), *more)
    except databases.UNREADABLE:
        return otherwise


def _call(read: Callable[..., Any], path: Path, _: tuple[int, ...], *more: Any) -> Any:
    return read(path, *more)


_few = lru_cache(maxsize=4)(_call)  # large results
_many = lru_cache(maxsize=8192)(_call)


def _document(path: Path, read: Callable[[Any], Any]) -> Any:
    return read(parse_json(PROBE.head(path, LIMITS.record_bytes)))


def _names(folder: Path) -> Collection[str]:
    return dict.fromkeys(sorted(os.listdir(folder)))


def _rows(path: Path, table: Table, columns: tuple[str, ...]) -> Sequence[tuple[Any, ...]]:
    files.open_regular(path).close()  # not a link, a pipe or a device
    with databases.snapshot(path) as connection:
        return tuple(select(connection, table, columns))


def _rows_by_first_column(
    path: Path, table: Table, columns: tuple[str, ...]
) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in _rows(path, table, columns) if isinstance(row[0], str)}


def _working_folder(path: Path, head_sizes: tuple[int, ...]) -> str | None:
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
