"""Finds files of history: where agents store them, or at a path, identified by their content."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from msgspec import Struct, structs

from agents_ledger.importers.exclusion import HEAD_SIZES, ExcludedCounts, ExcludedFolders, Verdict
from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.encodings import is_text
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.imports.sources import Fault
from agents_ledger.model.text import humanize

INCLUDED: tuple[Verdict, ...] = ("included", "unknown")
UNSURE: dict[Verdict, str] = {
    "unknown": "imported although folders are excluded: their project is unknown, as of this one",
    "ambiguous": "excluded by the name of a folder that may mean another one too, as of this one",
}
LINKED = "it is a link to a folder: to import its content, name the folder itself"
SYSTEMS = ("linux", "darwin", "win32")
LINES_LOOKED_AT = 50
CHARACTER_BYTES = 4  # of the longest: the last one may be cut


class HistoryFile(Struct, frozen=True):
    path: Path
    source: Source
    size: int
    mtime: float
    exclude: tuple[str, ...] = ()  # folders of projects that are excluded from it

    @property
    def family(self) -> str:
        """The key of the files it is derived with, compressed or not."""
        return self.source.family(Path(files.logical_path(self.path)))


class FileSelection(Struct, frozen=True):
    since: float = 0  # changed since then, in Unix seconds
    exclude: tuple[str, ...] = ()  # patterns of paths, or folders of projects

    def of(
        self,
        candidates: Iterable[HistoryFile],
        faults: list[Fault] | None = None,
        excluded: ExcludedCounts | None = None,
    ) -> list[HistoryFile]:
        """The selected files. The others are counted in `excluded`; where that is not certain,
        `faults` says so."""
        unsure: dict[tuple[Verdict, str], list[HistoryFile]] = {}
        selected = []
        excluded = ExcludedCounts() if excluded is None else excluded
        for file in candidates:
            if file.mtime < self.since:
                continue
            verdict = self._verdict(file, excluded.matched)
            if verdict in UNSURE:
                unsure.setdefault((verdict, file.source.name), []).append(file)
            if verdict in INCLUDED:
                selected.append(structs.replace(file, exclude=self.exclude))
            else:
                excluded.files += 1
        for (verdict, source), doubtful in unsure.items():
            what = f"{humanize.count(len(doubtful), 'file')} of {source} {UNSURE[verdict]}"
            if faults is not None:
                faults.append(Fault(str(doubtful[0].path), what))
        return selected

    def includes(self, file: HistoryFile) -> bool:
        return file.mtime >= self.since and self._verdict(file, set()) in INCLUDED

    def _verdict(self, file: HistoryFile, matched: set[str]) -> Verdict:
        """Patterns and folders that exclude the file are added to `matched`."""
        path, parent = str(file.path), str(file.path.parent)
        excluded = ExcludedFolders.of(self.exclude)
        by_path = {pattern for pattern in self.exclude if fnmatch(path, pattern)}
        by_path |= {folder.path for folder in excluded.folders if folder.contains(parent)}
        matched |= by_path
        return "excluded" if by_path else excluded.verdict(file.source, file.path, matched)


def empty_files(candidates: Iterable[HistoryFile]) -> list[str]:
    """The paths of files without content: some were only begun, others are lost."""
    return [str(file.path) for file in candidates if file.size == 0]


class Unrecognised(Struct):
    """Files that cannot be imported: unreadable ones, and those of no known source."""

    faults: list[Fault]
    paths: list[str]


def this_home() -> Home:
    """The home of the user who runs this program."""
    return Home(Path.home(), os.environ, sys.platform)


def find(
    home: Home, sources: Iterable[str] = (), faults: list[Fault] | None = None
) -> list[HistoryFile]:
    """Every file of history on this machine, of all sources or of some. Folders that cannot be read
    are reported in `faults`."""
    wanted = set(sources) or set(SOURCES)
    reported: list[Fault] = [] if faults is None else faults
    return [
        file
        for name in SOURCES
        if name in wanted
        for root in SOURCES[name].roots(home)
        for file in files_below(root, SOURCES[name], reported)
    ]


def files_below(root: Path, source: Source, faults: list[Fault]) -> Iterator[HistoryFile]:
    """The files of a source at or below a root."""
    for path in (root,) if os.path.isfile(root) else _walk(root, faults):
        if not source.wants(path):
            continue
        try:
            status = path.lstat()
        except FileNotFoundError:  # deleted meanwhile
            continue
        except OSError as error:
            faults.append(Fault(str(path), f"cannot be read: {error.strerror}"))
            continue
        if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
            yield HistoryFile(path, source, status.st_size, status.st_mtime)
        else:
            faults.append(Fault(str(path), files.NO_FILE))


def _walk(root: Path, faults: list[Fault]) -> list[Path]:
    """All files below a folder, sorted. Links to folders are not followed."""

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            faults.append(Fault(str(error.filename), f"cannot be read: {error.strerror}"))

    paths = []
    for folder, folders, names in os.walk(root, onerror=report):
        paths += [Path(folder, name) for name in names]
        subfolders = (os.path.join(folder, name) for name in folders)
        faults += [Fault(path, LINKED) for path in subfolders if os.path.islink(path)]
    return sorted(paths)


def files_at(path: Path, unrecognised: Unrecognised) -> list[HistoryFile]:
    """The files of history at a path, a file or a folder. Each is identified by its content, and
    known by its absolute path."""
    history = []
    for file_path in _expand(Path(os.path.abspath(path)), unrecognised.faults):
        try:
            (source, head), status = identify(file_path), files.on_disk(file_path).stat()
        except (LedgerError, OSError) as error:
            unrecognised.faults.append(Fault(str(file_path), str(error)))
            continue
        # No input may make a source fail; if one does, others go on.
        except Exception as error:
            what = f"its source could not be determined: {type(error).__name__}: {error}"
            unrecognised.faults.append(Fault(str(file_path), what))
            continue
        if source is None:
            unrecognised.paths.append(str(file_path))
        elif files.is_packed(file_path) and source.kind_of(file_path, head) == "rows":
            what = "a database in an archive: unpack it first"
            unrecognised.faults.append(Fault(str(file_path), what))
        else:
            history.append(HistoryFile(file_path, source, status.st_size, status.st_mtime))
    return history


def _expand(path: Path, faults: list[Fault]) -> Iterator[Path]:
    """The files of a folder, and of archives in it."""
    for file_path in _walk(path, faults) if path.is_dir() else [path]:
        if _is_archive(file_path):
            try:
                yield from files.members(file_path)
            except LedgerError as error:
                faults.append(Fault(str(file_path), str(error)))
        elif not file_path.name.endswith(databases.SIDECARS):
            yield file_path


def _is_archive(path: Path) -> bool:
    """Whether a file is a zip that may contain history; not one that a source knows by its path."""
    is_archive = path.suffix == files.ARCHIVE and path.is_file()
    return is_archive and recognise(path, b"", SOURCES.values()) is None


# -- the source of a file ---------------------------------------------------------------------


def identify(path: Path) -> tuple[Source | None, bytes]:
    """The source of a file, and its first bytes: as many as the first line needs.

    Tried in this order: the first bytes, the schema of a database, the folders above it, lines
    further on (its beginning may be damaged), its name.
    """
    # A first line may be longer than 64 KB: images are inline.
    for size in HEAD_SIZES:
        head = files.head(path, size)
        source = recognise(path, head, SOURCES.values())
        is_whole = len(head) < size or b"\n" in head or not head.lstrip().startswith(b"{")
        if source is not None or is_whole:
            break
    if source is None and head.startswith(databases.MAGIC) and not files.is_packed(path):
        schema = databases.MAGIC + databases.schema(path)  # anywhere in the file
        source = recognise(path, schema, SOURCES.values())
    source = source or _source_by_folder(path) or _source_by_later_lines(path, head)
    source = source or _source_by_name(path, head)
    if source is not None and _has_no_table(path, head, source):
        source = None
    return source, head


def recognise(path: Path, head: bytes, sources: Iterable[Source]) -> Source | None:
    """The source that recognises the first bytes of a file. JSON lines inside a database do not
    count."""
    if head.startswith(databases.MAGIC):
        sources = (source for source in sources if source.tables)
    return next((source for source in sources if source.recognises(path, head)), None)


def _has_no_table(path: Path, head: bytes, source: Source) -> bool:
    """Whether a database has the name of a source's database, but none of its tables."""
    if not source.tables or not head.startswith(databases.MAGIC) or files.is_packed(path):
        return False
    return not databases.has_any(path, source.tables)


def _source_by_folder(path: Path) -> Source | None:
    """The source that stores its files in folders named like those above this file."""
    place = f"/{path.as_posix()}/"
    candidates = (SOURCES[name] for name, folders in _layouts() if folders in place)
    return next((source for source in candidates if source.wants(path)), None)


def _source_by_name(path: Path, head: bytes) -> Source | None:
    return next((source for source in SOURCES.values() if source.is_named(path, head)), None)


@cache
def _layouts() -> list[tuple[str, str]]:
    """The folders of each source below a home, on any operating system."""
    homes = [Home(Path(), {}, system) for system in SYSTEMS]
    return [
        (name, f"/{root.as_posix()}/")
        for name, source in SOURCES.items()
        for root in dict.fromkeys(root for home in homes for root in source.roots(home))
    ]


def _source_by_later_lines(path: Path, head: bytes) -> Source | None:
    """The source that recognises lines from places throughout a file. Ordinary text is not tried:
    it may quote records anywhere."""
    is_damaged = b"\0" in head or b"\n" not in head or not is_text(head[:-CHARACTER_BYTES])
    if head.startswith(databases.MAGIC) or not (is_damaged or path.suffix == ".jsonl"):
        return None
    for sample in files.throughout(path):
        lines = [line for line in sample.split(b"\n")[1:-1] if _may_be_record(line.strip())]
        if not lines:
            continue
        source = recognise(path, b"\n".join(lines[-LINES_LOOKED_AT:]), SOURCES.values())
        if source is not None and source.kind_of(path, head) == "lines":
            return source
    return None


def _may_be_record(line: bytes) -> bool:
    """A cheap test: sources try to repair anything, and a video file has many lines."""
    return line.startswith(b"{") and line.endswith(b"}")
