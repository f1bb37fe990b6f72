"""Which projects are left out. What tells the project of a file is looked at, and not kept."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agents_ledger.importers import databases, files
from agents_ledger.importers.outlines import as_dict, as_text, parsed
from agents_ledger.importers.reader import (
    RECORD_MAX,
    Found,
    Project,
    Reader,
    ReaderOfManyProjects,
    Select,
    Sieve,
    Table,
    Trace,
)
from agents_ledger.model.errors import LedgerError

HEADS = (files.HEAD_BYTES, 1 << 20, RECORD_MAX)  # of a file, in which it may say its project
NO_LETTERS = re.compile(r"[^0-9A-Za-z]+")
SEPARATORS = ("/", "\\")


class Excluded(NamedTuple):
    """The folders whose projects are left out."""

    folders: tuple[str, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Excluded:
        """Of what is left out, the folders; the rest are patterns of paths."""
        named = (each.rstrip("/\\") for each in patterns if Path(each).is_absolute())
        return cls(tuple(sorted({each for each in named if each})))

    def holds(self, project: Project) -> bool:
        """Whether a project is in one of them."""
        return any(_is_in(project, folder) for folder in self.folders)

    def leaves(self, reader: Reader, path: Path) -> bool | None:
        """Whether a file is left out; None: nothing tells, and it is not."""
        told = reader.projects(path, LOOK)
        if told is None:
            return None
        if any(self.holds(each) for each in told):
            return True
        # A hash tells whether it is of a folder, but not whether it is of one within.
        is_hash = any(isinstance(each, Trace) and each.kind != "dashes" for each in told)
        return None if is_hash else False

    def sieve(self, reader: Reader, path: Path) -> Callable[[Select], Sieve] | None:
        """What makes the sieve of a database, from its rows; None: all may be kept."""
        if not self.folders or not isinstance(reader, ReaderOfManyProjects):
            return None
        return lambda own: reader.sieve(path, own, LOOK, self.holds)


def _is_in(project: Project, folder: str) -> bool:
    if isinstance(project, str):
        return project == folder or project.startswith(tuple(folder + end for end in SEPARATORS))
    if project.kind == "dashes":
        return _is_dashed_in(project.value, folder)
    made = hashlib.new(project.kind, os.fsencode(folder), usedforsecurity=False)
    return made.hexdigest() == project.value.lower()


def dashed(folder: str) -> str:
    """A path as some sources make the name of a folder from it."""
    return NO_LETTERS.sub("-", folder).strip("-")


def _is_dashed_in(name: str, folder: str) -> bool:
    """`home-dev-shop-2` may be a folder within /home/dev/shop, or the one beside it: then that one
    is there, and none within is."""
    name, own = dashed(name), dashed(folder)
    if name == own:
        return True
    if not name.startswith(f"{own}-"):
        return False

    def leads(above: str) -> bool:
        said = (dashed(os.path.join(above, each)) for each in LOOK.names(Path(above)))
        return any(name == each or name.startswith(f"{each}-") for each in said if each != own)

    return leads(folder) or not leads(os.path.dirname(folder))


class Looking:
    """Looks at files, most of them once until they change."""

    def head(self, path: Path, size: int = files.HEAD_BYTES) -> bytes:
        """The first bytes of a file; none if it cannot be read."""
        try:
            return files.head(path, size) if size != files.HEAD_BYTES else files.head(path)
        except (LedgerError, OSError):
            return b""

    def document(self, path: Path, read: Callable[[Any], Found]) -> Found:
        """What `read` makes of a JSON document; of None if it is none."""
        try:
            status = path.stat()
        except OSError:
            return read(None)
        looks = (status.st_ino, status.st_size, status.st_mtime_ns)
        made: Found = _document(path, looks, read)
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
        except (LedgerError, OSError, sqlite3.Error):
            return None

    def rows(self, path: Path, table: Table, columns: Sequence[str]) -> Sequence[tuple[Any, ...]]:
        """Rows of another database; none of one that cannot be read."""
        try:
            return _rows(path, databases.state(path), table, tuple(columns))
        except (LedgerError, OSError, sqlite3.Error):
            return ()

    def folder(self, path: Path) -> str | None:
        """The folder that the first record of a file to name its own worked in."""
        try:
            status = files.on_disk(path).stat()
            return _folder(path, (status.st_ino, status.st_size, status.st_mtime_ns))
        except (LedgerError, OSError):
            return None

    def folder_beside(self, place: Path) -> str | None:
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
    record = as_dict(parsed(line))
    context = as_dict(as_dict(record.get("data")).get("context"))
    found = (each.get("cwd") for each in (record, as_dict(record.get("payload")), context))
    return next((said for each in found if (said := as_text(each))), None)


@lru_cache(maxsize=256)
def _folder_beside(place: Path, _: int) -> str | None:
    names = (each for each in LOOK.names(place) if each.endswith(".jsonl"))
    return next((said for each in names if (said := LOOK.folder(place / each))), None)


@lru_cache(maxsize=4)
def _document(path: Path, _: tuple[int, ...], read: Callable[[Any], Any]) -> Any:
    return read(parsed(LOOK.head(path, RECORD_MAX)))


@lru_cache(maxsize=4096)
def _names(folder: Path, _: int) -> Collection[str]:
    return dict.fromkeys(sorted(os.listdir(folder)))


@lru_cache(maxsize=4)
def _by_first(
    path: Path, state: databases.State, table: Table, columns: tuple[str, ...]
) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row for row in _rows(path, state, table, columns) if isinstance(row[0], str)}


@lru_cache(maxsize=4)
def _rows(
    path: Path, _: databases.State, table: Table, columns: tuple[str, ...]
) -> tuple[tuple[Any, ...], ...]:
    files.open_regular(path).close()  # not a link, a pipe or a device
    with databases.snapshot(path) as connection:
        return tuple(databases.select(connection, table, columns))
