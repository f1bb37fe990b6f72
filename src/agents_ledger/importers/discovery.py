"""Which files of history there are: found where sources keep them, told by what they hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct

from agents_ledger.importers import databases, files
from agents_ledger.importers.reader import Home, Reader
from agents_ledger.importers.readers import READERS
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.sources import Fault


class Found(Struct, frozen=True):
    """A file to import, and its reader."""

    path: Path
    reader: Reader
    size: int
    mtime: float


class Wanted(Struct, frozen=True):
    """Which of the files found are to be imported."""

    since: float = 0  # changed since then, in Unix seconds
    exclude: tuple[str, ...] = ()  # patterns of paths, or folders of projects

    def takes(self, found: Found) -> bool:
        """Whether a file is one of them."""
        if found.mtime < self.since:
            return False
        return not any(self._excludes(pattern, found) for pattern in self.exclude)

    @staticmethod
    def _excludes(pattern: str, found: Found) -> bool:
        path = str(found.path)
        if fnmatch(path, pattern) or path.startswith(pattern.rstrip("/\\") + os.sep):
            return True
        if not Path(pattern).is_absolute():
            return False
        try:
            said = files.head(found.path)
        except LedgerError:
            return False
        folder = pattern.rstrip("/\\").encode()
        return any(
            b'"cwd":' + space + b'"' + folder + end in said
            for space in (b"", b" ")
            for end in (b'"', b"/", b"\\\\")
        )


class Unknown(Struct):
    """What was found and cannot be imported."""

    faults: list[Fault]
    without_reader: list[str]


def this_home() -> Home:
    """The home of the user who runs this program."""
    return Home(Path.home(), os.environ, sys.platform)


def find(home: Home, sources: Iterable[str] = ()) -> list[Found]:
    """Every file of history on this machine, of all sources or of some."""
    wanted = set(sources) or set(READERS)
    return [
        found
        for name, reader in READERS.items()
        if name in wanted
        for root in reader.roots(home)
        for found in below(root, reader)
    ]


def below(root: Path, reader: Reader) -> Iterator[Found]:
    """The files of a source at or below a root."""
    for path in (root,) if root.is_file() else sorted(root.rglob("*")):
        if reader.wants(path) and (path.is_symlink() or path.is_file()):
            status = path.lstat()
            yield Found(path, reader, status.st_size, status.st_mtime)


def found_at(path: Path, unknown: Unknown) -> list[Found]:
    """What a path holds: a file, or a folder of them, each told by its content and known by its
    whole path, whichever folder it was named from."""
    found = []
    for each in _files(Path(os.path.abspath(path))):
        try:
            first = files.head(each)
        except LedgerError as error:
            unknown.faults.append(Fault(str(each), str(error)))
            continue
        reader = told_by(each, first, tuple(READERS.values()))
        if reader is None:
            unknown.without_reader.append(str(each))
        else:
            status = each.stat()
            found.append(Found(each, reader, status.st_size, status.st_mtime))
    return found


def told_by(path: Path, first: bytes, readers: Sequence[Reader]) -> Reader | None:
    """The reader that knows a file by its first bytes."""
    return next((reader for reader in readers if reader.recognises(path, first)), None)


def _files(path: Path) -> list[Path]:
    paths = sorted(p for p in path.rglob("*") if not p.is_dir()) if path.is_dir() else [path]
    return [p for p in paths if not p.name.endswith(databases.SIDECARS)]
