"""Archives what is new of files before anything is derived; many small files in one commit."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from agents_ledger.importers import row_archive
from agents_ledger.importers.discovery import HistoryFile
from agents_ledger.importers.exclusion import ExcludedCounts, ExcludedFolders
from agents_ledger.importers.parsing import files
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.transcript.copy_detection import HEAD_BYTES, TRIED, Heads
from agents_ledger.ledger.projection.archive_reader import TAIL_BYTES, tail_hash
from agents_ledger.ledger.projection.source_records import (
    NO_BASE,
    Cleaned,
    Growth,
    Looks,
    Sources,
)
from agents_ledger.model.errors import Conflict, LedgerError, Refused, StoreUnavailable
from agents_ledger.model.imports.sources import PURGED, Fault, SourceFile, SourceKind

COMPRESSED_IN_THREAD = 64 << 10  # less is compressed before a thread has started
# zstd releases the GIL; a second process for deriving cost more CPU (docs/decisions/0027).
COMPRESSION_THREADS = 2  # compressing is a sixth of an import


NOTHING_NEW = Cleaned(b"", ())


def _whole_records(chunks: Iterator[bytes], kind: SourceKind) -> Iterator[bytes]:
    """The same bytes, cut between records only; those before an error come before it."""
    rest = b""
    failure: Exception | None = None
    try:
        for chunk in chunks:
            rest += chunk
            end = rest.rfind(b"\n") + 1 if kind == "lines" else 0
            if end:
                yield rest[:end]
                rest = rest[end:]
    except (Refused, OSError) as error:
        failure = error
    if rest:
        yield rest
    if failure is not None:
        raise failure


class Archiver:
    """Archives files, and collects the families that have something new to derive.

    zstd releases the GIL, so data is compressed while the next files are read.
    """

    def __init__(self, sources: Sources, limits: ImportLimits = LIMITS) -> None:
        self.families: dict[str, Source] = {}  # to derive, in order
        self.copies: dict[str, str] = {}  # families, and the families they continue
        self.faults: list[Fault] = []
        self.failed = 0
        self.excluded = ExcludedCounts()
        self.unchanged: list[str] = []  # paths
        self.read_bytes = 0
        self._sources = sources
        self._limits = limits
        self._executor = ThreadPoolExecutor(COMPRESSION_THREADS, "compression")
        self._compressing: deque[Future[Growth]] = deque(maxlen=COMPRESSION_THREADS)
        self._batch: list[tuple[HistoryFile, Future[Growth] | Growth]] = []
        self._batch_bytes = 0
        self._heads: dict[str, Heads] = {}  # by source
        self._folders: set[str] = set()  # whose archived files are among these heads

    def __enter__(self) -> Archiver:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        with self._executor:
            if error is None:
                self.flush()

    def add(self, file: HistoryFile) -> None:
        """Archive what is new of a file, now or with the next ones. An unreadable file is reported
        as a fault."""
        try:
            self._add_despite_conflicts(file)
        # The ledger itself: no other file will fare better.
        except StoreUnavailable:
            raise
        except (LedgerError, OSError) as error:
            self._report(file, error)
            self.failed += 1
        if self._batch_is_full():
            self.flush()

    def _batch_is_full(self) -> bool:
        limits = self._limits
        return self._batch_bytes >= limits.batch_bytes or len(self._batch) >= limits.batch_files

    def _add_despite_conflicts(self, file: HistoryFile) -> None:
        """Where another import archives the same file, continue from what it archived, as long as
        it makes progress."""
        path, state = files.logical_path(file.path), None
        while True:
            try:
                return self._add(file)
            except Conflict:
                last_state, state = state, self._sources.file(path)
                if state == last_state:
                    raise

    def flush(self) -> None:
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if not batch:
            return
        growths = [data.result() if isinstance(data, Future) else data for _, data in batch]
        archived = self._sources.keep(growths)
        for (file, _), grown, source_file in zip(batch, growths, archived, strict=True):
            if source_file is not None:
                self._add_unless_derived(source_file, file.source)
                continue
            self.read_bytes -= grown.file.kept_bytes - grown.kept_before
            # Another import was faster: continue from what it archived.
            self.add(file)
        self.flush()

    def _add(self, file: HistoryFile) -> None:
        path, source = file.path, file.source
        archived = self._sources.file(files.logical_path(path))
        if archived is not None and archived.derived_version == PURGED:
            return
        exclusion = ExcludedFolders.of(file.exclude).row_exclusion(source, path)
        if archived and row_archive.is_unchanged(archived, path, source.tables, exclusion):
            self._count_excluded(archived, exclusion)
            self._add_unless_derived(archived, source)
            return
        with files.open_regular(path) as opened:
            status = os.fstat(opened.fileno())
            looks = (status.st_size, status.st_mtime_ns)
            if archived and archived.kind != "rows" and (archived.size, archived.mtime_ns) == looks:
                self._add_unless_derived(archived, source)
                return
            files.check_unpacked(path, opened)
            kind = source.kind_of(path, files.head_of(path, opened))
            if kind != "rows":
                self._add_content(file, archived, opened, kind)
        if kind == "rows" and source.tables:
            self._add_rows(file, archived, exclusion)

    def _add_unless_derived(self, file: SourceFile, source: Source) -> None:
        derived = (file.source, file.derived_bytes, file.derived_version)
        if derived == (source.name, file.kept_bytes, source.version):
            self.unchanged.append(file.path)
        else:  # an earlier version may have assigned it to another family or source
            file = self._sources.given_to(file, source.name, source.family(Path(file.path)))
            self.families.setdefault(file.family, source)

    def _count_excluded(self, file: SourceFile, exclusion: row_archive.RowExclusion) -> None:
        sessions, matched = row_archive.excluded_sessions(file, exclusion)
        self.excluded.add(ExcludedCounts(0, sessions, matched))

    def _report(self, file: HistoryFile, error: Exception) -> None:
        self.faults.append(Fault(str(file.path), str(error)))

    # -- rows of databases --------------------------------------------------------------------

    def _add_rows(
        self, file: HistoryFile, known: SourceFile | None, exclusion: row_archive.RowExclusion
    ) -> None:
        path, source = file.path, file.source
        before = known if known and known.kind == "rows" else None
        before = before or self._sources.begin(
            source=source.name,
            path=str(path),
            family=source.family(path),
            kind="rows",
            previous=known,
        )
        archived = row_archive.archive_rows(
            self._sources, before, path, source.tables, exclusion=exclusion, limits=self._limits
        )
        self._count_excluded(archived.file, exclusion)
        self.read_bytes += archived.file.kept_bytes - before.kept_bytes
        self.faults += [Fault(str(path), what) for what in archived.faults]
        self.failed += not archived.is_whole
        self._add_unless_derived(archived.file, source)

    # -- files of lines and documents ---------------------------------------------------------

    def _add_content(
        self, file: HistoryFile, known: SourceFile | None, opened: BinaryIO, kind: SourceKind
    ) -> None:
        path = file.path
        status = os.fstat(opened.fileno())
        if known and self._is_same(known, path, opened, status.st_size):
            looks: Looks = {
                "size": status.st_size,
                "mtime_ns": status.st_mtime_ns,
                "tail": known.tail_hash,
            }
            self._add_to_batch(file, known, b"", looks, None)
        elif known and kind == known.kind == "lines" and self._continues(known, path, opened):
            self._append(known, file, opened, None)
        else:
            generation = self._sources.begin(
                source=file.source.name,
                path=files.logical_path(path),
                family=file.family,
                kind=kind,
                previous=known,
            )
            self._append(generation, file, opened, known)

    def _is_same(self, known: SourceFile, path: Path, opened: BinaryIO, size: int) -> bool:
        """Whether a file has exactly the archived content: it was rewritten or only touched."""
        if known.size < 0 or (not files.is_packed(path) and size != known.kept_bytes):
            return False
        offset = 0
        try:
            for data in files.chunks(path, opened, 0, self._limits.chunk_bytes):
                on_disk = self._sources.as_archived(known, offset, data)
                if on_disk != self._sources.read(known.id, offset, len(data)):
                    return False
                offset += len(data)
        except Refused as error:
            if offset == 0 or offset != known.kept_bytes:
                raise
            self.faults.append(Fault(str(path), str(error)))  # damaged where it was damaged before
        return offset == known.kept_bytes

    def _continues(self, known: SourceFile, path: Path, opened: BinaryIO) -> bool:
        """Whether a file still begins with the archived content, by its first and last bytes."""
        if known.kept_bytes == 0:
            return False
        if not files.is_packed(path):
            opened.seek(0)
            first = opened.read(min(known.kept_bytes, TAIL_BYTES))
            opened.seek(max(0, known.kept_bytes - TAIL_BYTES))
            last = opened.read(min(known.kept_bytes, TAIL_BYTES))
            return self._has_tail(known, first, last)
        first, last, size = b"", b"", 0
        for chunk in files.chunks(path, opened, 0, self._limits.chunk_bytes):
            data = chunk[: known.kept_bytes - size]
            first = first or data[:TAIL_BYTES]
            last = (last + data)[-TAIL_BYTES:]
            size += len(data)
            if size >= known.kept_bytes:
                break
        return self._has_tail(known, first, last)

    def _has_tail(self, known: SourceFile, first: bytes, last: bytes) -> bool:
        end = known.kept_bytes - len(last)
        return known.tail_hash == tail_hash(
            self._sources.as_archived(known, 0, first), self._sources.as_archived(known, end, last)
        )

    def _append(
        self, archived: SourceFile, file: HistoryFile, opened: BinaryIO, base: SourceFile | None
    ) -> None:
        """Archive the content after what is archived. `base`: a file to compress it against."""
        status = os.fstat(opened.fileno())
        size = archived.kept_bytes
        first = last = b""
        if size:
            first = self._sources.read(archived.id, 0, TAIL_BYTES)
            last = self._sources.read(archived.id, max(0, size - TAIL_BYTES), TAIL_BYTES)
        chunks = self._cleaned(
            archived, files.chunks(file.path, opened, size, self._limits.chunk_bytes)
        )
        data, overwritten = next(chunks, NOTHING_NEW)
        # A fork begins with copies, which take little room when compressed against the original.
        if size == 0 and archived.kind == "lines":
            base = base or self._original(archived, data)
        while True:
            first = (first + data[:TAIL_BYTES])[:TAIL_BYTES]
            last = (last + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            tail = tail_hash(first, last)
            self.read_bytes += len(data)
            following = self._next_chunk(chunks, file)
            if not (following and following.data):
                break
            # The size stays -1 until all is archived: after an interruption the next import
            # continues.
            archived = self._sources.append(
                archived,
                data,
                size=-1,
                mtime_ns=0,
                tail=tail,
                overwritten=overwritten,
                base=base,
            )
            data, overwritten = following
        looks: Looks = {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "tail": tail,
            "overwritten": overwritten,
        }
        if following is None:
            looks |= {"size": -1, "mtime_ns": 0}  # the next import continues
        self._add_to_batch(file, archived, data, looks, base)

    def _cleaned(self, file: SourceFile, chunks: Iterator[bytes]) -> Iterator[Cleaned]:
        """The chunks without what must not come in; each then ends with a record."""
        if not self._sources.cleans:
            return (Cleaned(data, ()) for data in chunks)
        return (self._sources.cleaned(file, data) for data in _whole_records(chunks, file.kind))

    def _next_chunk(self, chunks: Iterator[Cleaned], file: HistoryFile) -> Cleaned | None:
        """The next chunk; empty at the end and where the rest is damaged; None if it cannot be read
        now."""
        try:
            return next(chunks, NOTHING_NEW)
        except Refused as error:
            self._report(file, error)
            return NOTHING_NEW
        except OSError as error:
            self._report(file, error)
            self.failed += 1
            return None

    def _add_to_batch(
        self,
        file: HistoryFile,
        archived: SourceFile,
        data: bytes,
        looks: Looks,
        base: SourceFile | None,
    ) -> None:
        dictionary = self._sources.base_for(archived, base) if data else NO_BASE
        compress = partial(self._sources.growth, archived, data, dictionary, **looks)
        in_thread = len(data) >= COMPRESSED_IN_THREAD
        self._batch.append((file, self._in_thread(compress) if in_thread else compress()))
        self._batch_bytes += len(data)

    def _in_thread(self, compress: Callable[[], Growth]) -> Future[Growth]:
        """Waits for a free thread first: no more is read than can be compressed."""
        if len(self._compressing) == COMPRESSION_THREADS:
            wait([self._compressing[0]])
        self._compressing.append(self._executor.submit(compress))
        return self._compressing[-1]

    def _original(self, file: SourceFile, data: bytes) -> SourceFile | None:
        """The archived file whose records a new file begins with."""
        heads = self._heads.setdefault(file.source, Heads())
        folder = os.path.join(os.path.dirname(file.path), "")
        if folder not in self._folders:
            self._folders.add(folder)
            by_age = sorted(self._sources.files_under(folder), key=attrgetter("mtime_ns"))
            for archived in by_age[-TRIED:]:
                if archived.source == file.source and archived.kind == "lines":
                    heads.remember(archived.path, self._sources.read(archived.id, 0, HEAD_BYTES))
        path = heads.original(data)
        shares_ids = path is not None and heads.shares_ids(path, data)
        heads.remember(file.path, data)
        if path is None:
            return None
        if any(files.logical_path(waiting.path) == path for waiting, _ in self._batch):
            self.flush()
        original = self._sources.file(path)
        if shares_ids and original is not None and original.family != file.family:
            self.copies[file.family] = original.family
        return original
