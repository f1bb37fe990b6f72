"""The policy of importing: keep first, then derive, then reconcile. It never parses."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers import databases, files
from agents_ledger.importers.discovery import Found, Unknown, found_at
from agents_ledger.importers.reader import (
    Material,
    Reader,
    ReaderOfRows,
    Table,
    kind_of,
)
from agents_ledger.importers.readers import READERS
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection import files_of_kin, files_sharing, project
from agents_ledger.ledger.sources import TAIL_BYTES, Sources, tail_hash
from agents_ledger.model.errors import Conflict, LedgerError, StoreUnavailable
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sources import Derivation, Fate, Fault, ImportCounts, SourceFile


class Report(Struct):
    """What an import did and met."""

    counts: ImportCounts = field(default_factory=ImportCounts)
    faults: list[Fault] = field(default_factory=list)
    records: Counter[tuple[str, str, Fate]] = field(default_factory=Counter)
    read_bytes: int = 0
    derived_records: int = 0
    written_turns: int = 0
    without_reader: list[str] = field(default_factory=list)


def import_paths(ledger: Ledger, paths: Iterable[Path]) -> Report:
    """Import files and folders, each told by its content."""
    report = Report()
    unknown = Unknown(report.faults, report.without_reader)
    found = [each for path in paths for each in found_at(path, unknown)]
    report.counts.failed += len(report.faults)
    return Importer(ledger, report).run(found)


class _Told(NamedTuple):
    """What was reported of families derived together."""

    families: set[str]
    records: Counter[tuple[str, str, Fate]]
    faults: tuple[Fault, ...]


class Importer:
    """Imports files into one ledger."""

    def __init__(self, ledger: Ledger, report: Report | None = None) -> None:
        self._core = ledger._core
        self.sources = Sources(ledger._core)
        self.report = report or Report()
        self._told: list[_Told] = []

    def run(
        self, found: Sequence[Found], progress: Callable[[Found], None] = lambda _: None
    ) -> Report:
        """Keep what is new of every file, then derive the families it belongs to."""
        started_at = now_ms()
        families: dict[str, Reader] = {}
        for file in self.sources.files_behind():  # what an import that was interrupted left
            if file.source in READERS:
                families[file.family] = READERS[file.source]
        for each in found:
            kept = self._keep_safely(each)
            if kept is not None:
                families[kept.family] = each.reader
            progress(each)
        done: set[str] = set()
        for family, reader in families.items():
            if family not in done:
                done |= self._derive_safely(reader, family)
        self.sources.note_run(
            self.report.counts,
            started_at,
            {"faults": len(self.report.faults), "read_bytes": self.report.read_bytes},
        )
        return self.report

    # -- keeping ------------------------------------------------------------------------------

    def _keep_safely(self, found: Found) -> SourceFile | None:
        try:
            try:
                return self._keep(found)
            except Conflict:  # another import keeps it: go on from what it kept
                return self._keep(found)
        except StoreUnavailable:  # the ledger itself: no other file will fare better
            raise
        except (LedgerError, OSError) as error:
            self.report.faults.append(Fault(str(found.path), str(error)))
            self.report.counts.failed += 1
            return None

    def _keep(self, found: Found) -> SourceFile | None:
        """Keep what is new of a file; None if nothing is, and all is derived."""
        path, reader = found.path, found.reader
        known = self.sources.file(files.logical_path(path))
        if isinstance(reader, ReaderOfRows) and kind_of(reader, path) == "rows":
            return self._keep_rows(found, known, reader.tables)
        with files.open_regular(path) as opened:
            status = os.fstat(opened.fileno())
            if known and (known.size, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return self._unless_derived(known, reader)
            base = None
            if known is None or not self._continues(known, path, opened, reader):
                base = known if kind_of(reader, path) == "document" else None
                file = self.sources.begin(
                    source=reader.name,
                    path=files.logical_path(path),
                    family=reader.family(path),
                    kind=kind_of(reader, path),
                    previous=known,
                )
            else:
                file = known
            return self._append(file, found, opened, base)

    def _unless_derived(self, file: SourceFile, reader: Reader) -> SourceFile | None:
        derived = (file.derived_bytes, file.derived_version) == (file.kept_bytes, reader.version)
        if derived:
            self.report.counts.skipped += 1
        return None if derived else file

    def _keep_rows(
        self, found: Found, known: SourceFile | None, tables: Sequence[Table]
    ) -> SourceFile | None:
        """Keep the rows of a database that are new or have changed."""
        path, reader = found.path, found.reader
        if known and (known.size, known.mtime_ns) == databases.state(path):
            return self._unless_derived(known, reader)
        file = known or self.sources.begin(
            source=reader.name,
            path=str(path),
            family=reader.family(path),
            kind="rows",
            previous=None,
        )
        kept = databases.keep(self.sources, file, path, tables)
        self.report.read_bytes += kept.file.kept_bytes - file.kept_bytes
        self.report.faults += [Fault(str(path), what) for what in kept.faults]
        return self._unless_derived(kept.file, reader)

    def _continues(self, known: SourceFile, path: Path, opened: BinaryIO, reader: Reader) -> bool:
        """Whether the file still begins with what is kept of it."""
        if kind_of(reader, path) != "lines" or known.kept_bytes == 0:
            return False
        if path.suffix != ".zst":
            opened.seek(0)
            first = opened.read(min(known.kept_bytes, TAIL_BYTES))
            opened.seek(max(0, known.kept_bytes - TAIL_BYTES))
            last = opened.read(min(known.kept_bytes, TAIL_BYTES))
            return known.tail_hash == tail_hash(first, last)
        seen = b""
        first = b""
        for data in files.chunks(path, opened, 0):
            first = first or data[:TAIL_BYTES]
            seen = (seen + data)[: known.kept_bytes]
            if len(seen) >= known.kept_bytes:
                break
        opened.seek(0)
        return known.tail_hash == tail_hash(first[: known.kept_bytes], seen[-TAIL_BYTES:])

    def _append(
        self, file: SourceFile, found: Found, opened: BinaryIO, base: SourceFile | None
    ) -> SourceFile:
        status = os.fstat(opened.fileno())
        first = self.sources.read(file.id, 0, TAIL_BYTES) if file.kept_bytes else b""
        last = b""
        if file.kept_bytes:
            last = self.sources.read(file.id, max(0, file.kept_bytes - TAIL_BYTES), TAIL_BYTES)
        opened.seek(0)
        for data in files.chunks(found.path, opened, file.kept_bytes):
            first = (first + data)[:TAIL_BYTES] if len(first) < TAIL_BYTES else first
            last = (last + data[-TAIL_BYTES:])[-TAIL_BYTES:]
            self.report.read_bytes += len(data)
            # Until all is kept the size is none: an interrupted import reads on.
            file = self.sources.append(
                file, data, size=-1, mtime_ns=0, tail=tail_hash(first, last), base=base
            )
        return self.sources.append(
            file,
            b"",
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            tail=tail_hash(first, last),
        )

    # -- deriving -----------------------------------------------------------------------------

    def _derive_safely(self, reader: Reader, family: str) -> set[str]:
        try:
            return self.derive(reader, family)
        except StoreUnavailable:
            raise
        except Exception as error:
            # A reader must not fail on any input. If one does, its file is kept and reported, and
            # the others go on.
            what = f"{reader.name} could not be derived: {type(error).__name__}: {error}"
            self.report.faults.append(Fault(family, what))
            self.report.counts.failed += 1
            return {family}

    def derive(self, reader: Reader, *families: str) -> set[str]:
        """Derive families and all that share turns with them; the families that were."""
        kept = {
            file.id: file for family in families for file in self.sources.files_of_family(family)
        }
        while True:
            material = Material(
                self.sources, sorted(kept.values(), key=lambda f: (f.path, f.generation))
            )
            derivation = reader.derive(material)
            shared = files_sharing(self._core, derivation.turns) - set(kept)
            if derivation.with_kin:
                shared |= files_of_kin(self._core, derivation.sessions) - set(kept)
            if not shared:
                break
            for file_id in shared:
                for file in self.sources.files_of_family(self.sources.file_by_id(file_id).family):
                    kept[file.id] = file
        written = project(self._core, reader.name, reader.version, tuple(kept.values()), derivation)
        self.report.written_turns += written.turns
        for outcome in written.outcomes.values():
            setattr(self.report.counts, outcome, getattr(self.report.counts, outcome) + 1)
        together = {file.family for file in kept.values()}
        self._tell(reader, together, derivation)
        return together

    def _tell(self, reader: Reader, families: set[str], derivation: Derivation) -> None:
        """Report each record once, though a fork met later has its parent derived again."""
        told = _Told(families, Counter(), derivation.faults)
        for (kind, fate), number in derivation.counts.items():
            told.records[reader.name, kind, fate] += number
            self.report.derived_records += number
        for earlier in [each for each in self._told if each.families <= families]:
            self._told.remove(earlier)
            self.report.records -= earlier.records
            for fault in earlier.faults:
                self.report.faults.remove(fault)
        self._told.append(told)
        self.report.records += told.records
        self.report.faults += told.faults


def rederive(ledger: Ledger) -> Report:
    """Derive everything again from the kept records alone."""
    importer = Importer(ledger)
    done: set[str] = set()
    for file in importer.sources.all_files():
        reader = READERS.get(file.source)
        if reader is not None and file.family not in done:
            done |= importer.derive(reader, file.family)
    return importer.report
