"""Which files of history there are: found where sources keep them, told by what they hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from msgspec import Struct, structs

from agents_ledger.importers import databases, files
from agents_ledger.importers.exclusion import Excluded
from agents_ledger.importers.reader import Home, Reader, kind_of
from agents_ledger.importers.readers import READERS
from agents_ledger.model import amounts
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.sources import Fault

UNTOLD = "imported though folders are excluded: nothing says the project, as of this one"
LINKED = "it is a link to a folder: to import what is there, name the folder itself"


class Found(Struct, frozen=True):
    """A file to import, and its reader."""

    path: Path
    reader: Reader
    size: int
    mtime: float
    exclude: tuple[str, ...] = ()  # folders of projects that are left out of it


class Wanted(Struct, frozen=True):
    """Which of the files found are to be imported."""

    since: float = 0  # changed since then, in Unix seconds
    exclude: tuple[str, ...] = ()  # patterns of paths, or folders of projects

    def of(self, found: Iterable[Found], faults: list[Fault] | None = None) -> list[Found]:
        """Those of them. Where it cannot be told whether they are of a project that is left out,
        they are, and that is noted in `faults`."""
        untold: dict[str, list[Found]] = {}
        taken = []
        for each in found:
            leaves = self._leaves(each)
            if leaves is None:
                untold.setdefault(each.reader.name, []).append(each)
            if not leaves:
                taken.append(structs.replace(each, exclude=self.exclude))
        for some in untold.values():
            number = amounts.count(len(some), "file")
            what = f"{number} of {some[0].reader.name} {UNTOLD}"
            noted = Fault(str(some[0].path), what)
            if faults is not None:
                faults.append(noted)
        return taken

    def takes(self, found: Found) -> bool:
        """Whether a file is one of them."""
        return not self._leaves(found)

    def _leaves(self, found: Found) -> bool | None:
        """Whether a file is left out; None: nothing tells, and it is not."""
        path = str(found.path)
        if found.mtime < self.since:
            return True
        if any(
            fnmatch(path, pattern) or path.startswith(pattern.rstrip("/\\") + os.sep)
            for pattern in self.exclude
        ):
            return True
        excluded = Excluded.of(self.exclude)
        return excluded.leaves(found.reader, found.path) if excluded.folders else False


class Unknown(Struct):
    """What was found and cannot be imported."""

    faults: list[Fault]
    without_reader: list[str]


def this_home() -> Home:
    """The home of the user who runs this program."""
    return Home(Path.home(), os.environ, sys.platform)


def find(home: Home, sources: Iterable[str] = (), faults: list[Fault] | None = None) -> list[Found]:
    """Every file of history on this machine, of all sources or of some. Where one could not look
    is noted in `faults`."""
    wanted = set(sources) or set(READERS)
    noted: list[Fault] = [] if faults is None else faults
    return [
        found
        for name, reader in READERS.items()
        if name in wanted
        for root in reader.roots(home)
        for found in below(root, reader, noted)
    ]


def below(root: Path, reader: Reader, faults: list[Fault]) -> Iterator[Found]:
    """The files of a source at or below a root."""
    for path in (root,) if os.path.isfile(root) else _files_below(root, faults):
        if reader.wants(path) and (os.path.islink(path) or os.path.isfile(path)):
            try:
                status = path.lstat()
            except FileNotFoundError:  # gone meanwhile
                continue
            yield Found(path, reader, status.st_size, status.st_mtime)


def _files_below(root: Path, faults: list[Fault]) -> list[Path]:
    """All files of a folder, in order. Links lead nowhere."""

    def closed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            faults.append(Fault(str(error.filename), f"cannot be read: {error.strerror}"))

    paths = []
    for folder, folders, names in os.walk(root, onerror=closed):
        paths += [Path(folder, name) for name in names]
        linked = (os.path.join(folder, name) for name in folders)
        faults += [Fault(each, LINKED) for each in linked if os.path.islink(each)]
    return sorted(paths)


def found_at(path: Path, unknown: Unknown) -> list[Found]:
    """What a path holds: a file, or a folder of them, each told by its content and known by its
    whole path, whichever folder it was named from."""
    found = []
    for each in _files(Path(os.path.abspath(path)), unknown.faults):
        try:
            first, status = files.head(each), files.on_disk(each).stat()
        except (LedgerError, OSError) as error:
            unknown.faults.append(Fault(str(each), str(error)))
            continue
        reader = told_by(each, first, tuple(READERS.values()))
        if reader is None:
            unknown.without_reader.append(str(each))
        elif kind_of(reader, each, first) == "rows" and files.is_packed(each):
            unknown.faults.append(Fault(str(each), "a database in an archive: unpack it first"))
        else:
            found.append(Found(each, reader, status.st_size, status.st_mtime))
    return found


def told_by(path: Path, first: bytes, readers: Sequence[Reader]) -> Reader | None:
    """The reader that knows a file by its first bytes."""
    return next((reader for reader in readers if reader.recognises(path, first)), None)


def _files(path: Path, faults: list[Fault]) -> Iterator[Path]:
    for each in _files_below(path, faults) if path.is_dir() else [path]:
        if each.suffix == files.ARCHIVE and each.is_file():
            try:
                yield from files.members(each)
            except LedgerError as error:
                faults.append(Fault(str(each), str(error)))
        elif not each.name.endswith(databases.SIDECARS):
            yield each
