"""Which files of history there are: found where sources keep them, told by what they hold."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from agents_ledger.importers.exclusion import HEADS, Excluded, Left, Verdict
from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.port.source import (
    Home,
    Reader,
    is_text,
)
from agents_ledger.importers.sources.registry import READERS
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.imports.sources import Fault
from agents_ledger.model.text import humanize

TAKEN: tuple[Verdict, ...] = ("kept", "untold")
UNSURE: dict[Verdict, str] = {
    "untold": "imported though folders are excluded: nothing says the project, as of this one",
    "doubted": "excluded by the name of a folder that may mean another one too, as of this one",
}
LINKED = "it is a link to a folder: to import what is there, name the folder itself"
SYSTEMS = ("linux", "darwin", "win32")
LINES = 50  # as many as readers look at
LETTER = 4  # bytes that the longest takes: the last one may be cut


class Found(Struct, frozen=True):
    """A file to import, and its reader."""

    path: Path
    reader: Reader
    size: int
    mtime: float
    exclude: tuple[str, ...] = ()  # folders of projects that are left out of it

    @property
    def family(self) -> str:
        """What it is derived with, compressed or not."""
        return self.reader.family(Path(files.logical_path(self.path)))


class Wanted(Struct, frozen=True):
    """Which of the files found are to be imported."""

    since: float = 0  # changed since then, in Unix seconds
    exclude: tuple[str, ...] = ()  # patterns of paths, or folders of projects

    def of(
        self, found: Iterable[Found], faults: list[Fault] | None = None, left: Left | None = None
    ) -> list[Found]:
        """Those of them; the others are counted in `left`. What could not be told for certain is
        noted in `faults`."""
        unsure: dict[tuple[Verdict, str], list[Found]] = {}
        taken = []
        left = Left() if left is None else left
        for each in found:
            if each.mtime < self.since:
                continue
            verdict = self._verdict(each, left.met)
            if verdict in UNSURE:
                unsure.setdefault((verdict, each.reader.name), []).append(each)
            if verdict in TAKEN:
                taken.append(structs.replace(each, exclude=self.exclude))
            else:
                left.files += 1
        for (verdict, source), some in unsure.items():
            what = f"{humanize.count(len(some), 'file')} of {source} {UNSURE[verdict]}"
            if faults is not None:
                faults.append(Fault(str(some[0].path), what))
        return taken

    def takes(self, found: Found) -> bool:
        """Whether a file is one of them."""
        return found.mtime >= self.since and self._verdict(found, set()) in TAKEN

    def _verdict(self, found: Found, met: set[str]) -> Verdict:
        """Those that leave a file out are noted in `met`."""
        path, place = str(found.path), str(found.path.parent)
        excluded = Excluded.of(self.exclude)
        by_path = {each for each in self.exclude if fnmatch(path, each)}
        by_path |= {folder.given for folder in excluded.folders if folder.has(place)}
        met |= by_path
        return "left" if by_path else excluded.leaves(found.reader, found.path, met)


def empty_of(found: Iterable[Found]) -> list[str]:
    """The paths of files with nothing in them: some were only begun, others are lost."""
    return [str(each.path) for each in found if each.size == 0]


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
        for name in READERS
        if name in wanted
        for root in READERS[name].roots(home)
        for found in below(root, READERS[name], noted)
    ]


def below(root: Path, reader: Reader, faults: list[Fault]) -> Iterator[Found]:
    """The files of a source at or below a root."""
    for path in (root,) if os.path.isfile(root) else _files_below(root, faults):
        if not reader.wants(path):
            continue
        try:
            status = path.lstat()
        except FileNotFoundError:  # gone meanwhile
            continue
        except OSError as error:
            faults.append(Fault(str(path), f"cannot be read: {error.strerror}"))
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield Found(path, reader, status.st_size, status.st_mtime)
        else:
            faults.append(Fault(str(path), files.NO_FILE))


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
            (reader, first), status = _told(each), files.on_disk(each).stat()
        except (LedgerError, OSError) as error:
            unknown.faults.append(Fault(str(each), str(error)))
            continue
        except Exception as error:  # a reader must not fail on any input; if one does, others go on
            what = f"its reader could not be told: {type(error).__name__}: {error}"
            unknown.faults.append(Fault(str(each), what))
            continue
        if reader is None:
            unknown.without_reader.append(str(each))
        elif files.is_packed(each) and reader.kind_of(each, first) == "rows":
            unknown.faults.append(Fault(str(each), "a database in an archive: unpack it first"))
        else:
            found.append(Found(each, reader, status.st_size, status.st_mtime))
    return found


def _told(path: Path) -> tuple[Reader | None, bytes]:
    """The reader of a file, and its first bytes: more than some where the first line has more. A
    database may also be told by its tables; one that is known by its name must have some. What is
    damaged where it begins is told by its place, by what stands further on, or by its name."""
    for size in HEADS:
        first = files.head(path, size)
        reader = told_by(path, first, READERS.values())
        is_whole = len(first) < size or b"\n" in first or not first.lstrip().startswith(b"{")
        if reader is not None or is_whole:
            break
    if reader is None and first.startswith(databases.MAGIC) and not files.is_packed(path):
        schema = databases.MAGIC + databases.schema(path)  # it may stand anywhere
        reader = told_by(path, schema, READERS.values())
    reader = reader or _told_by_place(path) or _told_further_on(path, first)
    reader = reader or _told_by_name(path, first)
    if reader is not None and _is_only_named(path, first, reader):
        reader = None
    return reader, first


def _is_only_named(path: Path, first: bytes, reader: Reader) -> bool:
    """Whether a database has the name of a source's, and none of its tables."""
    tables = reader.tables
    if not tables or not first.startswith(databases.MAGIC) or files.is_packed(path):
        return False
    return not databases.has_any(path, tables)


def told_by(path: Path, first: bytes, readers: Iterable[Reader]) -> Reader | None:
    """The reader that knows a file by its first bytes. Lines that stand in a database are of
    whoever wrote it."""
    if first.startswith(databases.MAGIC):
        readers = (reader for reader in readers if reader.tables)
    return next((reader for reader in readers if reader.recognises(path, first)), None)


def _told_by_place(path: Path) -> Reader | None:
    """The reader whose source keeps its files in folders called as those above this one."""
    place = f"/{path.as_posix()}/"
    named = (READERS[name] for name, folders in _layouts() if folders in place)
    return next((reader for reader in named if reader.wants(path)), None)


def _told_by_name(path: Path, first: bytes) -> Reader | None:
    return next((reader for reader in READERS.values() if reader.is_named(path, first)), None)


@cache
def _layouts() -> list[tuple[str, str]]:
    """Where each source keeps its files below a home, on any system."""
    homes = [Home(Path(), {}, system) for system in SYSTEMS]
    return [
        (name, f"/{root.as_posix()}/")
        for name, reader in READERS.items()
        for root in dict.fromkeys(root for home in homes for root in reader.roots(home))
    ]


def _told_further_on(path: Path, first: bytes) -> Reader | None:
    """The reader that knows lines of a file from places throughout it. Text that tells nothing
    where it begins is not looked at: it may speak of records anywhere."""
    is_damaged = b"\0" in first or b"\n" not in first or not is_text(first[:-LETTER])
    if first.startswith(databases.MAGIC) or not (is_damaged or path.suffix == ".jsonl"):
        return None
    for some in files.throughout(path):
        whole = [line for line in some.split(b"\n")[1:-1] if _is_record(line.strip())]
        if not whole:
            continue
        reader = told_by(path, b"\n".join(whole[-LINES:]), READERS.values())
        if reader is not None and reader.kind_of(path, first) == "lines":
            return reader
    return None


def _is_record(line: bytes) -> bool:
    """Whether a line may be one: readers try to mend what is none, and a film has many."""
    return line.startswith(b"{") and line.endswith(b"}")


def _is_archive(path: Path) -> bool:
    """Whether files of history may stand in it; one that is known by where it stands is one."""
    is_archive = path.suffix == files.ARCHIVE and path.is_file()
    return is_archive and told_by(path, b"", READERS.values()) is None


def _files(path: Path, faults: list[Fault]) -> Iterator[Path]:
    for each in _files_below(path, faults) if path.is_dir() else [path]:
        if _is_archive(each):
            try:
                yield from files.members(each)
            except LedgerError as error:
                faults.append(Fault(str(each), str(error)))
        elif not each.name.endswith(databases.SIDECARS):
            yield each
