"""Keeps what is new of files, before anything is derived; many small files in one commit."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from agents_ledger.importers import row_archive
from agents_ledger.importers.discovery import Found
from agents_ledger.importers.exclusion import Excluded, Left
from agents_ledger.importers.parsing import files
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Reader, Table
from agents_ledger.importers.transcript.copy_detection import HEAD_BYTES, TRIED, Heads
from agents_ledger.ledger.projection.source_records import (
    NO_BASE,
    TAIL_BYTES,
    Growth,
    Looks,
    Sources,
    growth,
    tail_hash,
)
from agents_ledger.model.errors import Conflict, LedgerError, Refused, StoreUnavailable
from agents_ledger.model.imports.sources import Fault, SourceFile, SourceKind

PACKED_BESIDE = 64 << 10  # less is packed before a thread has begun
PACKERS = 2  # threads: packing is a sixth of an import


class Keeper:
    """Keeps files; which families have something new is known when all is kept. Packing lets other
    threads run, so it is done beside the reading of the next files."""

    def __init__(self, sources: Sources, limits: ImportLimits = LIMITS) -> None:
        self._limits = limits
        self.families: dict[str, Reader] = {}  # that have something to derive
        self.unplanned: dict[str, None] = {}  # those that nobody planned yet, in order
        self.copies: dict[str, str] = {}  # families, and those that they go on from
        self.sizes: Counter[str] = Counter()  # bytes that are kept of each
        self._taken: set[str] = set()  # their paths
        self.faults: list[Fault] = []
        self.failed = 0
        self.left = Left()
        self.unchanged: list[str] = []  # the paths of files with nothing new
        self.read_bytes = 0
        self._sources = sources
        self._packing: deque[_Packing] = deque(maxlen=PACKERS)
        self._waiting: list[tuple[Found, Callable[[], Growth]]] = []
        self._waiting_bytes = 0
        self._flushed = False
        self._heads: dict[str, Heads] = {}  # of the files of a source
        self._seen: set[str] = set()  # the folders whose kept files are among them

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        try:
            if failed is None:
                self.flush()
        finally:
            for packing in self._packing:
                packing.join()

    def add(self, found: Found) -> None:
        """Keep what is new of a file, now or with the next ones. A fault is noted, not raised."""
        try:
            self._add_beside_others(found)
        except StoreUnavailable:  # the ledger itself: no other file will fare better
            raise
        except (LedgerError, OSError) as error:
            self.faults.append(Fault(str(found.path), str(error)))
            self.failed += 1
        if self._waiting_bytes >= self._limits.batch_bytes or self._is_batch():
            self.flush()

    def _is_batch(self) -> bool:
        return len(self._waiting) >= self._limits.batch_files

    def _add_beside_others(self, found: Found) -> None:
        """Where another import keeps the same file, go on from what it kept, as often as it kept
        more."""
        path, met = files.logical_path(found.path), None
        while True:
            try:
                return self._add(found)
            except Conflict:
                last, met = met, self._sources.file(path)
                if met == last:
                    raise

    def flush(self) -> None:
        """Keep what waits."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not waiting:
            return
        grown = [growing() for _, growing in waiting]
        kept = self._sources.keep(grown)
        self._flushed = True
        for (found, _), lost, file in zip(waiting, grown, kept, strict=True):
            if file is not None:
                self._unless_derived(file, found.reader)
                continue
            self.read_bytes -= lost.file.kept_bytes - lost.kept_before
            self.add(found)  # another import was quicker: go on from what it kept
        self.flush()

    def has_flushed(self) -> bool:
        """Whether something was kept since this was asked before. All that was added is."""
        flushed = self._flushed and not self._waiting
        self._flushed = self._flushed and not flushed
        return flushed

    def _add(self, found: Found) -> None:
        path, reader = found.path, found.reader
        known = self._sources.file(files.logical_path(path))
        tables = reader.tables
        leaving = Excluded.of(found.exclude).leaving(reader, path)
        if known and row_archive.is_unchanged(known, path, tables, leaving):
            self._count_left(known, leaving)
            self._unless_derived(known, reader)
            return
        with files.open_regular(path) as opened:
            status = os.fstat(opened.fileno())
            now = (status.st_size, status.st_mtime_ns)
            if known and known.kind != "rows" and _looks_as(known, now):
                self._unless_derived(known, reader)
                return
            files.check_unpacked(path, opened)
            kind = reader.kind_of(path, files.head_of(path, opened))
            if kind != "rows":
                self._add_file(found, known, opened, kind)
        if kind == "rows" and tables:
            self._add_rows(found, known, tables, leaving)

    def _add_file(
        self, found: Found, known: SourceFile | None, opened: BinaryIO, kind: SourceKind
    ) -> None:
        """Keep what is new of a file that is kept whole."""
        path, reader = found.path, found.reader
        status = os.fstat(opened.fileno())
        if known and self._is_same(known, path, opened, status.st_size):
            looks: Looks = {
                "size": status.st_size,
                "mtime_ns": status.st_mtime_ns,
                "tail": known.tail_hash,
            }
            self._wait(found, known, b"", looks, None)
        elif known and kind == known.kind == "lines" and self._continues(known, path, opened):
            self._grow(known, found, opened, None)
        else:
            file = self._sources.begin(
                source=reader.name,
                path=files.logical_path(path),
                family=found.family,
                kind=kind,
                previous=known,
            )
            self._grow(file, found, opened, known)

    def take(self, file: SourceFile, reader: Reader) -> None:
        """A kept file is to be derived."""
        if file.path not in self._taken:
            self._taken.add(file.path)
            if file.family not in self.families:
                self.families[file.family] = reader
                self.unplanned[file.family] = None
            self.sizes[file.family] += file.kept_bytes

    def _unless_derived(self, file: SourceFile, reader: Reader) -> None:
        derived = (file.source, file.derived_bytes, file.derived_version)
        if derived == (reader.name, file.kept_bytes, reader.version):
            self.unchanged.append(file.path)
        else:  # an earlier version may have put it into another family, or taken it for another's
            family = reader.family(Path(file.path))
            self.take(self._sources.given_to(file, reader.name, family), reader)

    def _count_left(self, file: SourceFile, leaving: row_archive.RowExclusion) -> None:
        sessions, met = row_archive.excluded_sessions(file, leaving)
        self.left.add(Left(0, sessions, met))

    def _add_rows(
        self,
        found: Found,
        known: SourceFile | None,
        tables: Sequence[Table],
        leaving: row_archive.RowExclusion,
    ) -> None:
        """Keep the rows of a database that are new or have changed."""
        path, reader = found.path, found.reader
        goes_on = known if known and known.kind == "rows" else None
        file = goes_on or self._sources.begin(
            source=reader.name,
            path=str(path),
            family=reader.family(path),
            kind="rows",
            previous=known,
        )
        kept = row_archive.archive_rows(
            self._sources, file, path, tables, exclusion=leaving, limits=self._limits
        )
        self._count_left(kept.file, leaving)
        self.read_bytes += kept.file.kept_bytes - file.kept_bytes
        self.faults += [Fault(str(path), what) for what in kept.faults]
        self.failed += not kept.is_whole
        self._unless_derived(kept.file, reader)

    def _is_same(self, known: SourceFile, path: Path, opened: BinaryIO, size: int) -> bool:
        """Whether all of a file is what is kept of it: it was written anew, or only touched."""
        if known.size < 0 or (not files.is_packed(path) and size != known.kept_bytes):
            return False
        at = 0
        try:
            for data in files.chunks(path, opened, 0):
                if data != self._sources.read(known.id, at, len(data)):
                    return False
                at += len(data)
        except Refused as error:
            if at == 0 or at != known.kept_bytes:
                raise
            self.faults.append(Fault(str(path), str(error)))  # what is damaged ends where it did
        return at == known.kept_bytes

    def _continues(self, known: SourceFile, path: Path, opened: BinaryIO) -> bool:
        """Whether the file still begins with what is kept of it."""
        if known.kept_bytes == 0:
            return False
        if not files.is_packed(path):
            opened.seek(0)
            first = opened.read(min(known.kept_bytes, TAIL_BYTES))
            opened.seek(max(0, known.kept_bytes - TAIL_BYTES))
            last = opened.read(min(known.kept_bytes, TAIL_BYTES))
            return known.tail_hash == tail_hash(first, last)
        first, last, read = b"", b"", 0
        for chunk in files.chunks(path, opened, 0):
            data = chunk[: known.kept_bytes - read]
            first = first or data[:TAIL_BYTES]
            last = (last + data)[-TAIL_BYTES:]
            read += len(data)
            if read >= known.kept_bytes:
                break
        return known.tail_hash == tail_hash(first, last)

    def _grow(
        self, file: SourceFile, found: Found, opened: BinaryIO, base: SourceFile | None
    ) -> None:
        status = os.fstat(opened.fileno())
        first = last = b""
        if file.kept_bytes:
            first = self._sources.read(file.id, 0, TAIL_BYTES)
            last = self._sources.read(file.id, max(0, file.kept_bytes - TAIL_BYTES), TAIL_BYTES)
        pieces = files.chunks(found.path, opened, file.kept_bytes)
        data = next(pieces, b"")
        if file.kept_bytes == 0 and file.kind == "lines":
            base = base or self._original(file, data)
        while True:
            first = (first + data[:TAIL_BYTES])[:TAIL_BYTES]
            last = (last + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            tail = tail_hash(first, last)
            self.read_bytes += len(data)
            following = self._following(pieces, found)
            if not following:
                break
            # Until all is kept the size is none: an interrupted import reads on.
            file = self._sources.append(file, data, size=-1, mtime_ns=0, tail=tail, base=base)
            data = following
        looks: Looks = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "tail": tail}
        if following is None:
            looks |= {"size": -1, "mtime_ns": 0}  # the next import reads on
        self._wait(found, file, data, looks, base)

    def _wait(
        self, found: Found, file: SourceFile, data: bytes, looks: Looks, base: SourceFile | None
    ) -> None:
        """Keep the last bytes of a file with the next ones."""
        known = self._sources.base_for(file, base) if data else NO_BASE
        growing = partial(growth, file, data, known, **looks)
        beside = len(data) >= PACKED_BESIDE
        self._waiting.append((found, self._beside(growing) if beside else _done(growing())))
        self._waiting_bytes += len(data)

    def _beside(self, growing: Callable[[], Growth]) -> Callable[[], Growth]:
        """The same, done by another thread; no more is read than can be packed."""
        if len(self._packing) == PACKERS:
            self._packing[0].join()
        self._packing.append(_Packing(growing))
        return self._packing[-1].result

    def _following(self, pieces: Iterator[bytes], found: Found) -> bytes | None:
        """The next of a file's content; None: it cannot be read now. Where the rest is damaged,
        what was read before is all there is."""
        try:
            return next(pieces, b"")
        except Refused as error:
            self.faults.append(Fault(str(found.path), str(error)))
            return b""
        except OSError as error:
            self.faults.append(Fault(str(found.path), str(error)))
            self.failed += 1
            return None

    def _original(self, file: SourceFile, data: bytes) -> SourceFile | None:
        """The kept file whose records a new one begins with."""
        heads = self._heads.setdefault(file.source, Heads())
        folder = os.path.join(os.path.dirname(file.path), "")
        if folder not in self._seen:
            self._seen.add(folder)
            latest = sorted(self._sources.files_under(folder), key=lambda known: known.mtime_ns)
            for known in latest[-TRIED:]:
                if known.source == file.source and known.kind == "lines":
                    heads.remember(known.path, self._sources.read(known.id, 0, HEAD_BYTES))
        path = heads.original(data)
        shares_ids = path is not None and heads.shares_ids(path, data)
        heads.remember(file.path, data)
        if path is None:
            return None
        if any(files.logical_path(found.path) == path for found, _ in self._waiting):
            self.flush()
        original = self._sources.file(path)
        if shares_ids and original is not None and original.family != file.family:
            self.copies[file.family] = original.family
        return original


class _Packing(Thread):
    """Packs in a thread of its own."""

    _grown: Growth | BaseException

    def __init__(self, growing: Callable[[], Growth]) -> None:
        super().__init__(name="packing")
        self._growing = growing
        self.start()

    def run(self) -> None:
        """Pack, and let go of what was packed."""
        try:
            self._grown = self._growing()
        except BaseException as error:  # raised where it is asked for
            self._grown = error
        del self._growing

    def result(self) -> Growth:
        """What came of it, once it is done."""
        self.join()
        if isinstance(self._grown, BaseException):
            raise self._grown
        return self._grown


def _done(grown: Growth) -> Callable[[], Growth]:
    return lambda: grown


def _looks_as(known: SourceFile, now: tuple[int, int]) -> bool:
    return (known.size, known.mtime_ns) == now
