"""The policy of importing: keep first, then derive, then reconcile. It never parses."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from agents_ledger.importers import session_titles
from agents_ledger.importers.archive import Keeper
from agents_ledger.importers.derive_worker import Ahead
from agents_ledger.importers.discovery import Found, Unknown, empty_of, found_at
from agents_ledger.importers.exclusion import Left
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Reader
from agents_ledger.importers.relations import (
    Apart,
    Tangles,
    check_shared,
    derived,
    files_of,
    groups,
    in_order,
    material,
)
from agents_ledger.importers.sources.registry import READERS
from agents_ledger.importers.transcript.copy_detection import REMEMBERED
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.reconcile import (
    Names,
    Outcome,
    ProjectionResult,
)
from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import (
    Derivation,
    Fate,
    Fault,
    ImportCounts,
    SourceFile,
    SourceTitle,
)


class Report(Struct):
    """What an import did and met."""

    counts: ImportCounts = field(default_factory=ImportCounts)
    faults: list[Fault] = field(default_factory=list)
    records: Counter[tuple[str, str, Fate]] = field(default_factory=Counter)
    firsts: dict[tuple[str, str], str] = field(default_factory=dict)  # by source and type
    read_bytes: int = 0
    derived_records: int = 0
    written_turns: int = 0
    without_reader: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    left: Left = field(default_factory=Left)


def import_paths(ledger: Ledger, paths: Iterable[Path], limits: ImportLimits = LIMITS) -> Report:
    """Import files and folders, each told by its content."""
    report = Report()
    unknown = Unknown(report.faults, report.without_reader)
    found = [each for path in paths for each in found_at(path, unknown)]
    report.counts.failed += len(report.faults)
    return Importer(ledger, report, limits=limits).run(found)


DERIVING = 0.8  # of the work on a file; keeping is the rest
RANK: dict[Outcome, int] = {"skipped": 0, "upserted": 1, "imported": 2}


Records = tuple[tuple[tuple[str, str, Fate], int], ...]


class _Told(NamedTuple):
    """What was reported of families derived together."""

    families: tuple[str, ...]
    records: Records
    faults: tuple[Fault, ...]


class Importer:
    """Imports files into one ledger."""

    def __init__(
        self,
        ledger: Ledger,
        report: Report | None = None,
        ahead: Ahead | None = None,
        limits: ImportLimits = LIMITS,
    ) -> None:
        self._limits = limits
        self._ahead = ahead
        self.sources = ledger.sources
        self.report = report or Report()
        self._projector = ledger.projector
        self._told: dict[str, _Told] = {}  # by family
        self._records: dict[Records, Records] = {}  # many families have the same
        self._outcomes: dict[str, Outcome] = {}  # by label
        self._titled: list[SourceTitle] = []  # what sessions of other files are called now

    def run(
        self, found: Sequence[Found], progress: Callable[[float], None] = lambda _: None
    ) -> Report:
        """Keep what is new of every file, then derive the families it belongs to. `progress` is
        told how many more bytes are done."""
        started_at = now_ms()
        self.report.empty += empty_of(found)
        self._titled += self.sources.unshown_titles()
        behind = [file for file in self.sources.files_behind() if file.source in READERS]
        sizes: Counter[str] = Counter()
        of_files = [each.family for each in found]
        for family, each in zip(of_files, found, strict=True):
            sizes[family] += each.size
        try:
            planned: list[list[str]] = []
            until = _until(found, of_files) if self._ahead is not None else {}
            keeper = self._kept(found, until, planned, progress)
            for file in behind:  # what an import that was interrupted left
                keeper.take(file, READERS[file.source])
            self._plan(keeper, lambda _: True, planned)
            families = keeper.families
            progress(sum(n for family, n in sizes.items() if family not in families) * DERIVING)
            self._derive_all(keeper, planned, lambda family: progress(sizes[family] * DERIVING))
        finally:
            if self._ahead is not None:  # before the ledger is closed: who is last tidies up
                self._ahead.close()
        self.report.faults.sort(key=_where)  # families were derived as they came
        self.sources.note_run(
            self.report.counts,
            started_at,
            {"faults": len(self.report.faults), "read_bytes": self.report.read_bytes},
        )
        return self.report

    def _kept(
        self,
        found: Sequence[Found],
        until: Mapping[str, int],
        planned: list[list[str]],
        progress: Callable[[float], None],
    ) -> Keeper:
        """Keep what is new. Families that no file to come belongs to, nor a copy of them, are
        planned already."""
        with Keeper(self.sources, self._limits) as keeper:
            for at, each in enumerate(found):
                keeper.add(each)
                progress(each.size * (1 - DERIVING))
                if self._ahead is not None and keeper.has_flushed():
                    self._plan(keeper, partial(_is_settled, until, at), planned)
        self._skip(keeper.unchanged)
        self.report.faults += keeper.faults
        self.report.counts.failed += keeper.failed
        self.report.left.add(keeper.left)
        self.report.read_bytes += keeper.read_bytes
        return keeper

    # -- deriving -----------------------------------------------------------------------------

    def _plan(
        self, keeper: Keeper, is_settled: Callable[[str], bool], planned: list[list[str]]
    ) -> None:
        """Add to `planned` the groups of families that are settled now."""
        for group in groups(keeper.unplanned, keeper.copies).values():
            if all(map(is_settled, group)):
                planned.append(group)
                for family in group:
                    del keeper.unplanned[family]
                if self._ahead is not None:
                    size = sum(keeper.sizes[family] for family in group)
                    self._ahead.plan(group, keeper.families[group[0]], size)

    def _derive_all(
        self, keeper: Keeper, together: Sequence[Sequence[str]], told: Callable[[str], None]
    ) -> None:
        """Each family for itself, or with its copies; those that turn out to share turns with
        others afterwards, together: a family with many forks is read twice, not once more for
        every fork."""
        tangled = Tangles()
        left = deque(together)
        while left:
            group = left.pop() if self._is_waiting(left[-1]) else left.popleft()
            self._derive_one(keeper.families[group[0]], group, tangled)
            for family in group:
                told(family)
        for tangle in tangled:
            self._derive_one(tangle.reader, sorted(tangle.families))
        self._flush()

    def _is_waiting(self, last: Sequence[str]) -> bool:
        return self._ahead is not None and self._ahead.gives_back(last)

    def _flush(self) -> None:
        """Commit what waits; then those whose sessions others have called something are derived
        again, in whatever order they came."""
        self._projector.flush()
        titled, self._titled = self._titled, []
        if titled:
            for family, source in sorted(session_titles.families(self.sources, titled).items()):
                self._derive_one(READERS[source], [family])
            self._projector.flush()
            self.sources.note_shown(titled)

    def derive_safely(self, reader: Reader, family: str, *, again: bool = False) -> set[str]:
        """derive(), with a failure of the reader reported instead of raised."""
        try:
            return self.derive(reader, family, again=again)
        except StoreUnavailable:
            raise
        except Exception as error:
            self._failed(reader, family, error)
            return set()

    def _derive_one(
        self, reader: Reader, families: Sequence[str], tangled: Tangles | None = None
    ) -> None:
        failed = partial(self._failed, reader, families[0])
        try:
            self._derive(reader, families, failed, tangled=tangled)
        except StoreUnavailable:
            raise
        except Exception as error:
            if tangled is None or len(families) == 1:
                failed(error)
                return
            for family in families:  # they need not be together, or one takes the others with it
                self._derive_one(reader, [family], tangled)

    def _failed(self, reader: Reader, family: str, error: Exception) -> None:
        """A reader must not fail on any input. If one does, its file is kept and reported, and the
        others go on."""
        what = f"{reader.name} could not be derived: {type(error).__name__}: {error}"
        self.report.faults.append(Fault(family, what))
        self.report.counts.failed += 1

    def derive(self, reader: Reader, *families: str, again: bool = False) -> set[str]:
        """Derive families and all that share turns with them; the families that were. `again`: also
        states of files that later ones say all of."""
        together = self._derive(reader, families, _raise, again=again)
        self._flush()
        return together

    def _derive(
        self,
        reader: Reader,
        families: Sequence[str],
        failed: Callable[[Exception], None],
        *,
        again: bool = False,
        tangled: Tangles | None = None,
    ) -> set[str]:
        """`tangled`: where to note families that share turns with others, to be derived later."""
        found = self._found(reader, families, again=again, tangled=tangled)
        if found is None:
            return set()
        kept, derivation, names = found
        together = {file.family for file in kept.values()}

        def done(written: ProjectionResult | Exception) -> None:
            if isinstance(written, Exception):
                failed(written)
                return
            self.report.written_turns += written.turns + written.gone
            self._titled += written.titled
            for label, outcome in written.outcomes.items():
                self._note(label, outcome)
            if derivation.part is not None:
                self._skip([file.path for file in kept.values()])
            self._tell(reader, together, derivation)

        files = tuple(kept.values())
        self._projector.add(reader.name, reader.version, files, derivation, names=names, done=done)
        return together

    def _found(
        self,
        reader: Reader,
        families: Sequence[str],
        *,
        again: bool,
        tangled: Tangles | None,
    ) -> tuple[dict[int, SourceFile], Derivation, Names] | None:
        """What the files of families mean, with all that share turns with them. None: there are
        such, and they are noted."""
        kept = self._files(reader, families, again)
        version = 0 if again else reader.version
        while True:
            derivation = self._derivation(reader, version, families, in_order(kept.values()))
            if tangled is not None:
                check_shared(families, derivation.turns, kept)
            names = Names(derivation)
            shared = self._files_shared(names)
            others = {self.sources.file_by_id(file_id).family for file_id in shared - set(kept)}
            others -= {file.family for file in kept.values()}  # states that are not read again
            if tangled is not None and tangled.takes(reader, families, others, names):
                return None
            # A shared file may be a state that is not read again.
            more = self._files(reader, others, again)
            if more.keys() <= kept.keys():
                return kept, derivation, names
            kept |= more
            del derivation, names  # memory need not hold what was found twice

    def _files(self, reader: Reader, families: Iterable[str], again: bool) -> dict[int, SourceFile]:
        each = (files_of(self.sources, reader, family, again=again) for family in families)
        return {file.id: file for files in each for file in files}

    def _files_shared(self, names: Names) -> set[int]:
        """The files that gave turns, or kin, that have these names."""
        if self._projector.concerns(names):
            self._projector.flush()
        shared = self._projector.files_sharing(names)
        if names.with_kin:
            shared |= self._projector.files_of_kin(names)
        return shared

    def _derivation(
        self, reader: Reader, version: int, families: Sequence[str], files: Sequence[SourceFile]
    ) -> Derivation:
        """What files mean, as it was found ahead, or else is found here."""
        found = self._ahead.derived(families) if self._ahead is not None else None
        if isinstance(found, Apart):
            raise found
        if found is not None and found.files == files:
            return found.derivation
        return derived(reader, material(self.sources, files, version, self._limits))

    def _skip(self, paths: Sequence[str]) -> None:
        """Count the sessions of files as skipped, but for those of which more is told."""
        for label in self.sources.labels_of_paths(paths):
            self._note(label, "skipped")

    def _note(self, label: str, outcome: Outcome) -> None:
        """Count a session once, though it may be derived more than once: by what changed most."""
        counts, before = self.report.counts, self._outcomes.get(label)
        if before is not None and RANK[before] >= RANK[outcome]:
            return
        if before is not None:
            setattr(counts, before, getattr(counts, before) - 1)
        setattr(counts, outcome, getattr(counts, outcome) + 1)
        self._outcomes[label] = outcome

    def _tell(self, reader: Reader, families: set[str], derivation: Derivation) -> None:
        """Report each record once, though a fork met later has its parent derived again."""
        counts = sorted(derivation.counts.items())
        records = tuple(((reader.name, *told), number) for told, number in counts)
        told = _Told(tuple(families), self._records.setdefault(records, records), derivation.faults)
        self.report.derived_records += sum(derivation.counts.values())
        known = {id(each): each for f in families if (each := self._told.get(f)) is not None}
        for earlier in [each for each in known.values() if families.issuperset(each.families)]:
            self.report.records -= Counter(dict(earlier.records))
            for fault in earlier.faults:
                self.report.faults.remove(fault)
        self._told |= dict.fromkeys(families, told)
        self.report.records += Counter(dict(told.records))
        for kind, where in derivation.firsts.items():
            first = self.report.firsts.get((reader.name, kind), where)
            self.report.firsts[reader.name, kind] = min(first, where)
        self.report.faults += told.faults


def _until(found: Sequence[Found], families: Sequence[str]) -> dict[str, int]:
    """By the family of each file, the number of the file with which all of it has been added, and
    all that a copy of it is looked for among: those in the same folder, or the next few."""
    ends = {each.path.parent: at for at, each in enumerate(found)}
    until: dict[str, int] = {}
    for at, (family, each) in enumerate(zip(families, found, strict=True)):
        settled = min(ends[each.path.parent], at + REMEMBERED)
        until[family] = max(until.get(family, 0), settled)
    return until


def _is_settled(until: Mapping[str, int], at: int, family: str) -> bool:
    """Whether the files up to a number are all that a family is planned with."""
    return until.get(family, at + 1) <= at


def _where(fault: Fault) -> tuple[str, int, int]:
    return fault.path, fault.line or 0, fault.offset


def _raise(error: Exception) -> None:
    raise error


def rederive(ledger: Ledger, limits: ImportLimits = LIMITS) -> Report:
    """Derive everything again from the kept records alone."""
    importer = Importer(ledger, limits=limits)
    done: set[str] = set()
    for file in importer.sources.all_files():
        reader = READERS.get(file.source)
        if reader is not None and file.family not in done:
            done.add(file.family)
            done |= importer.derive_safely(reader, file.family, again=True)
    return importer.report
