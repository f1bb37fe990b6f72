"""The import pipeline: archive what is new, derive turns and sessions, reconcile the ledger.

`Importer.run` shows the steps in order. The sources parse; nothing here knows a file format.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import NamedTuple

from msgspec import Struct, field, structs

from agents_ledger.importers import session_titles
from agents_ledger.importers.archive import Archiver
from agents_ledger.importers.discovery import HistoryFile, Unrecognised, empty_files, files_at
from agents_ledger.importers.exclusion import ExcludedCounts
from agents_ledger.importers.kept_ids import keeping_ids
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.relations import (
    MergeGroups,
    check_related,
    family_files,
    group_copies,
    in_derivation_order,
)
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.reconcile import Names, Outcome, ProjectionResult
from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.evidence.verification import EvidenceFinding
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import (
    Derivation,
    Fate,
    Fault,
    ImportCounts,
    SourceFile,
    SourceTitle,
)

DERIVING_SHARE = 0.8  # of the work on a file; archiving is the rest
OUTCOME_RANK: dict[Outcome, int] = {"skipped": 0, "upserted": 1, "imported": 2}

RecordCounts = tuple[tuple[tuple[str, str, Fate], int], ...]
Progress = Callable[[float], None]


class Report(Struct):
    """What an import did, and what it could not do."""

    counts: ImportCounts = field(default_factory=ImportCounts)
    faults: list[Fault] = field(default_factory=list)
    records: Counter[tuple[str, str, Fate]] = field(default_factory=Counter)
    firsts: dict[tuple[str, str], str] = field(default_factory=dict)  # by source and type
    read_bytes: int = 0
    derived_records: int = 0
    written_turns: int = 0
    unrecognised: list[str] = field(default_factory=list)  # paths
    empty: list[str] = field(default_factory=list)
    excluded: ExcludedCounts = field(default_factory=ExcludedCounts)


class _FamilyReport(NamedTuple):
    families: tuple[str, ...]
    records: RecordCounts
    faults: tuple[Fault, ...]


def import_paths(ledger: Ledger, paths: Iterable[Path], limits: ImportLimits = LIMITS) -> Report:
    """Import files and folders. Files are identified by their content."""
    report = Report()
    unrecognised = Unrecognised(report.faults, report.unrecognised)
    files = [file for path in paths for file in files_at(path, unrecognised)]
    report.counts.failed += len(report.faults)
    return Importer(ledger, report, limits).run(files)


def rederive(ledger: Ledger, limits: ImportLimits = LIMITS) -> Report:
    """Derive everything again from the archived records alone."""
    importer = Importer(ledger, limits=limits)
    derived: set[str] = set()
    for file in importer.sources.all_files():
        source = SOURCES.get(file.source)
        if source is not None and file.family not in derived:
            derived.add(file.family)
            derived |= importer.derive_safely(source, file.family, superseded=True)
    return importer.report


def derived_findings(ledger: Ledger) -> tuple[EvidenceFinding, ...]:
    """The imported turns that are not what their source records give, when they are derived again
    in a ledger of their own."""
    with (
        TemporaryDirectory(prefix="agents-ledger-") as folder,
        Ledger.open(str(Path(folder) / "derived.db")) as derived,
    ):
        ledger.evidence.copy_sources(derived)
        rederive(derived)
        return ledger.evidence.differences(derived)


class Importer:
    def __init__(
        self, ledger: Ledger, report: Report | None = None, limits: ImportLimits = LIMITS
    ) -> None:
        self.sources = ledger.sources
        self.report = report or Report()
        self._limits = limits
        self._projector = ledger.projector
        self._family_reports: dict[str, _FamilyReport] = {}
        self._record_counts: dict[RecordCounts, RecordCounts] = {}  # many families have the same
        self._outcomes: dict[str, Outcome] = {}  # by session label
        self._new_titles: list[SourceTitle] = []  # of sessions in other families
        self._stop = Event()

    def run(
        self,
        files: Sequence[HistoryFile],
        progress: Progress = lambda _: None,
        stop: Event | None = None,
    ) -> Report:
        """Archive what is new of every file, then derive and reconcile the families it belongs to,
        batch by batch, the newest first. `progress` is called with the number of bytes done since
        the last call. Once `stop` is set, the rest is left to the next import."""
        started_at = now_ms()
        self._stop = stop or Event()
        self.report.empty += empty_files(files)
        # An import that died may have archived titles for sessions that it did not derive again.
        self._new_titles += self.sources.unshown_titles()
        # Before archiving: what this import archives is behind as well, and is derived anyway.
        behind = [file for file in self.sources.files_behind() if file.source in SOURCES]
        derived: set[str] = set()
        for batch in _batches(files, self._limits.first_batch_bytes):
            if self._stop.is_set():
                break
            archiver = self._archive(batch, progress)
            self._derive_families(archiver, batch, progress)
            derived |= archiver.families.keys()
        # Left by an interrupted import, and not among these files.
        families = {file.family: SOURCES[file.source] for file in behind}
        unfinished = {name: families[name] for name in families if name not in derived}
        self._derive_all(unfinished, {}, lambda _: None)
        self.report.faults.sort(key=_position)
        self.sources.note_run(
            self.report.counts,
            started_at,
            {"faults": len(self.report.faults), "read_bytes": self.report.read_bytes},
        )
        return self.report

    # -- archiving ----------------------------------------------------------------------------

    def _archive(self, files: Sequence[HistoryFile], progress: Progress) -> Archiver:
        with Archiver(self.sources, self._limits) as archiver:
            for file in files:
                if self._stop.is_set():
                    break
                archiver.add(file)
                progress(file.size * (1 - DERIVING_SHARE))
        self._count_skipped(archiver.unchanged)
        self.report.faults += archiver.faults
        self.report.counts.failed += archiver.failed
        self.report.excluded.add(archiver.excluded)
        self.report.read_bytes += archiver.read_bytes
        return archiver

    # -- deriving -----------------------------------------------------------------------------

    def _derive_families(
        self, archiver: Archiver, files: Sequence[HistoryFile], progress: Progress
    ) -> None:
        families = archiver.families
        sizes: Counter[str] = Counter()
        for file in files:
            sizes[file.family] += file.size
        unchanged = sum(size for family, size in sizes.items() if family not in families)
        progress(unchanged * DERIVING_SHARE)
        self._derive_all(
            families, archiver.copies, lambda family: progress(sizes[family] * DERIVING_SHARE)
        )

    def _derive_all(
        self, families: Mapping[str, Source], copies: Mapping[str, str], done: Callable[[str], None]
    ) -> None:
        """Derive each family by itself or with its copies. Families that turn out to share turns
        are derived once more at the end, all together: a session with many forks is read twice, and
        not again for every fork. `done` is called with each family."""
        merged = MergeGroups()
        for group in group_copies(families, copies):
            if self._stop.is_set():
                break
            self._derive_group(families[group[0]], group, merged)
            for family in group:
                done(family)
        for merge_group in merged:
            if self._stop.is_set():
                break
            self._derive_group(merge_group.source, sorted(merge_group.families))
        self._flush()

    def _derive_group(
        self, source: Source, families: Sequence[str], merged: MergeGroups | None = None
    ) -> None:
        on_error = partial(self._report_failure, source, families[0])
        try:
            self._derive(source, families, on_error, merged=merged)
        except StoreUnavailable:
            raise
        except Exception as error:
            if merged is None or len(families) == 1:
                on_error(error)
                return
            # They are unrelated, or one of them cannot be derived.
            for family in families:
                self._derive_group(source, [family], merged)

    def derive(self, source: Source, *families: str, superseded: bool = False) -> set[str]:
        """Derive families with all that share turns with them; returns all of these. `superseded`
        includes states of documents that later states contain."""
        together = self._derive(source, families, _raise, superseded=superseded)
        self._flush()
        return together

    def derive_safely(self, source: Source, family: str, *, superseded: bool = False) -> set[str]:
        """derive(), with a failure of the source reported instead of raised."""
        try:
            return self.derive(source, family, superseded=superseded)
        except StoreUnavailable:
            raise
        except Exception as error:
            self._report_failure(source, family, error)
            return set()

    def _derive(
        self,
        source: Source,
        families: Sequence[str],
        on_error: Callable[[Exception], None],
        *,
        superseded: bool = False,
        merged: MergeGroups | None = None,
    ) -> set[str]:
        """Derive families, again and again with those they turn out to share turns with. With
        `merged`, families that share turns with others are only added there."""
        derived = self._derived(source, families, superseded=superseded, merged=merged)
        if derived is None:
            return set()
        files, derivation, names = derived
        self._reconcile(source, files, derivation, names, on_error)
        return {file.family for file in files.values()}

    def outline(self, source: Source, family: str) -> tuple[list[SourceFile], Derivation]:
        """The files that a family is derived from and what they give; nothing is written."""
        derived = self._derived(source, [family], superseded=True)
        if derived is None:
            return [], Derivation(turns=(), sessions=())
        return list(derived[0].values()), derived[1]

    def _derived(
        self,
        source: Source,
        families: Sequence[str],
        *,
        superseded: bool = False,
        merged: MergeGroups | None = None,
    ) -> tuple[dict[int, SourceFile], Derivation, Names] | None:
        """What families give with all they share turns with; None: they were added to `merged`."""
        files = self._files(source, families, superseded)
        version = 0 if superseded else source.version
        while True:
            ordered = in_derivation_order(files.values())
            material = Material(
                self.sources, ordered, version, self.sources.titles_of, self._limits
            )
            derivation = keeping_ids(source.derive(material), self.sources.redacted_ids)
            derivation = structs.replace(derivation, firsts=material.firsts)
            if merged is not None:
                check_related(families, derivation.turns, files)
            names = self._projector.names_of(derivation)
            derived = {file.family for file in files.values()}
            shared = self._files_sharing(names) - set(files)
            related = {self.sources.file_by_id(file_id).family for file_id in shared}
            related -= derived  # superseded states of these
            if merged is not None and merged.merge(source, families, related, names):
                return None
            more = self._files(source, related, superseded)
            if more.keys() <= files.keys():
                return files, derivation, names
            files |= more
            del derivation, names  # before the larger ones are made

    def _files(
        self, source: Source, families: Iterable[str], superseded: bool
    ) -> dict[int, SourceFile]:
        return {
            file.id: file
            for family in families
            for file in family_files(self.sources, source, family, superseded=superseded)
        }

    def _files_sharing(self, names: Names) -> set[int]:
        """The files of turns and related sessions with one of these names."""
        if self._projector.concerns(names):
            self._projector.flush()
        file_ids = self._projector.files_sharing(names)
        if names.with_kin:
            file_ids |= self._projector.files_of_kin(names)
        return file_ids

    # -- reconciling --------------------------------------------------------------------------

    def _reconcile(
        self,
        source: Source,
        files: Mapping[int, SourceFile],
        derivation: Derivation,
        names: Names,
        on_error: Callable[[Exception], None],
    ) -> None:
        """Write what differs from the ledger, now or with the next derivations."""
        families = {file.family for file in files.values()}

        def done(written: ProjectionResult | Exception) -> None:
            if isinstance(written, Exception):
                on_error(written)
                return
            self.report.written_turns += written.turns + written.gone
            self._new_titles += written.titled
            for label, outcome in written.outcomes.items():
                self._count_session(label, outcome)
            if derivation.part is not None:
                self._count_skipped([file.path for file in files.values()])
            self._report_records(source, families, derivation)

        self._projector.add(
            source.name, source.version, tuple(files.values()), derivation, names=names, done=done
        )

    def _flush(self) -> None:
        """Commit what waits; then derive the families whose sessions got a title from another file,
        in whatever order the files came."""
        self._projector.flush()
        titles, self._new_titles = self._new_titles, []
        if titles:
            for family, source in sorted(session_titles.families(self.sources, titles).items()):
                self._derive_group(SOURCES[source], [family])
            self._projector.flush()
            self.sources.note_shown(titles)

    # -- reporting ----------------------------------------------------------------------------

    def _report_failure(self, source: Source, family: str, error: Exception) -> None:
        """No input may make a source fail. If one does, its files stay archived, the failure is
        reported, and the import continues."""
        what = f"{source.name} could not be derived: {type(error).__name__}: {error}"
        self.report.faults.append(Fault(family, what))
        self.report.counts.failed += 1

    def _count_skipped(self, paths: Sequence[str]) -> None:
        for label in self.sources.labels_of_paths(paths):
            self._count_session(label, "skipped")

    def _count_session(self, label: str, outcome: Outcome) -> None:
        """Count each session once, by its highest outcome: it may be derived more than once."""
        counts, before = self.report.counts, self._outcomes.get(label)
        if before is not None and OUTCOME_RANK[before] >= OUTCOME_RANK[outcome]:
            return
        if before is not None:
            setattr(counts, before, getattr(counts, before) - 1)
        setattr(counts, outcome, getattr(counts, outcome) + 1)
        self._outcomes[label] = outcome

    def _report_records(self, source: Source, families: set[str], derivation: Derivation) -> None:
        """Report each record once: a family may be derived again with a fork of it."""
        counts = sorted(derivation.counts.items())
        records = tuple(((source.name, *kind_and_fate), n) for kind_and_fate, n in counts)
        records = self._record_counts.setdefault(records, records)
        new = _FamilyReport(tuple(families), records, derivation.faults)
        reports = (self._family_reports.get(family) for family in families)
        for earlier in {id(report): report for report in reports if report is not None}.values():
            if families.issuperset(earlier.families):
                self.report.records -= Counter(dict(earlier.records))
                for fault in earlier.faults:
                    self.report.faults.remove(fault)
        self._family_reports |= dict.fromkeys(families, new)
        self.report.derived_records += sum(derivation.counts.values())
        self.report.records += Counter(dict(new.records))
        for kind, where in derivation.firsts.items():
            first = self.report.firsts.get((source.name, kind), where)
            self.report.firsts[source.name, kind] = min(first, where)
        self.report.faults += new.faults


def _batches(files: Sequence[HistoryFile], size: int) -> Iterator[list[HistoryFile]]:
    """The files in batches of at least this size, each twice as large as the previous. The family
    that changed last comes first; databases, with the sessions of years in one file, come last.
    Within a batch their order stays: a copy is recognised after its original."""
    families: dict[str, list[int]] = {}
    for index, file in enumerate(files):
        families.setdefault(file.family, []).append(index)

    def rank(family: list[int]) -> tuple[bool, float]:
        return bool(files[family[0]].source.tables), -max(files[index].mtime for index in family)

    batch: list[int] = []
    batch_bytes = 0
    for family in sorted(families.values(), key=rank):
        batch += family
        batch_bytes += sum(files[index].size for index in family)
        if batch_bytes >= size:
            yield [files[index] for index in sorted(batch)]
            batch, batch_bytes, size = [], 0, size * 2
    if batch:
        yield [files[index] for index in sorted(batch)]


def _position(fault: Fault) -> tuple[str, int, int]:
    return fault.path, fault.line or 0, fault.offset


def _raise(error: Exception) -> None:
    raise error
