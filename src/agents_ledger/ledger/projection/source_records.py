"""The archive of imported files: the bytes of every file, compressed in blocks.

A file that grows gets more blocks; a rewritten file gets another generation, which is compressed
against the previous one, as a copy is against its original. Nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypedDict, TypeVar, Unpack

from msgspec import structs

from agents_ledger.ledger.core import SETTING_FRESH_MS, Core
from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.evidence.leaves import BlockSeal
from agents_ledger.ledger.maintenance.redaction.known import ImportFilter
from agents_ledger.ledger.projection.archive_reader import (
    ArchiveReader,
    Edit,
    SourceBlock,
    edited,
    pack,
)
from agents_ledger.model.errors import Conflict, NotFound
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.imports.sources import ImportCounts, SourceFile, SourceKind, SourceTitle
from agents_ledger.model.turns import to_json
from agents_ledger.store.concurrency.locks import is_open_here
from agents_ledger.store.database import Row, Transaction, Work
from agents_ledger.store.text import in_batches

if TYPE_CHECKING:
    pass

T = TypeVar("T")

BASE_MAX = 8 << 20  # bytes of a file that serve as a base
# Files compressed against each other; the next has no base. To read the last, all before it are
# decompressed.
CHAIN_MAX = 16
NOT_KEPT = 0  # the id of a file that is not archived yet


class PackingBase(NamedTuple):
    """The beginning of an archived file, to compress against."""

    file_id: int | None = None
    length: int | None = None
    data: bytes | None = None


NO_BASE = PackingBase()


class Span(NamedTuple):
    """Bytes that were overwritten, because what they said was removed."""

    start: int
    length: int


class Growth(NamedTuple):
    """New bytes of a file, ready to be archived."""

    file: SourceFile  # including the new bytes
    kept_before: int
    blocks: list[SourceBlock]
    seals: list[BlockSeal]  # of each block
    overwritten: Sequence[Span] = ()


class Cleaned(NamedTuple):
    """New bytes of a file without what must not come in, and where it stood in them."""

    data: bytes
    overwritten: Sequence[Span]


class Looks(TypedDict, total=False):
    """The state of a file when it was read."""

    size: Required[int]
    mtime_ns: Required[int]
    tail: bytes | None
    cursor: str | None
    overwritten: Sequence[Span]  # in these bytes, before they came here


def is_own_file(path: Path) -> bool:
    """Whether a file belongs to a ledger that is open in this process.

    Opening and closing it again would drop SQLite's locks.
    """
    return is_open_here(path)


class Sources(ArchiveReader):
    """The archived files of a ledger, for importers and exporters."""

    def __init__(self, core: Core) -> None:
        super().__init__(core.db.read)
        self._core = core
        self._filter: ImportFilter | None = None
        self._filter_read_at = 0

    # -- files --------------------------------------------------------------------------------

    def file(self, path: str) -> SourceFile | None:
        """The latest generation of a file."""
        rows = self._core.db.read(lambda tx: tx.run("source_file", path=path))
        return SourceFile(*rows[0]) if rows else None

    def find(self, file_id: int) -> SourceFile:
        """A file by its id, or NotFound."""
        if not self._core.db.read(lambda tx: tx.run("source_file_by_id", id=file_id)):
            raise NotFound(f"there is no source file {file_id}")
        return self.file_by_id(file_id)

    def all_files(self) -> tuple[SourceFile, ...]:
        """Every file, oldest first."""
        return self._files("all_source_files")

    def files_behind(self) -> tuple[SourceFile, ...]:
        """The files with archived bytes that were not derived yet."""
        return self._files("source_files_behind")

    def files_of_family(self, family: str) -> tuple[SourceFile, ...]:
        """All files that are derived together, every generation."""
        return self._files("source_files_of_family", family=family)

    def files_under(self, prefix: str) -> tuple[SourceFile, ...]:
        """The files whose path has a prefix, every generation, oldest first."""
        return self._files("source_files_under", prefix=prefix, upper=prefix + "\U0010ffff")

    def files_of_session(self, label: str) -> tuple[SourceFile, ...]:
        return self._files("source_files_of_session", label=label)

    def titles_of(self, record_ids: Iterable[str]) -> list[SourceTitle]:
        """The titles that files have for the sessions of these records."""
        if not self._core.db.read(lambda tx: tx.run("has_source_titles")):
            return []
        return [SourceTitle(*row) for row in self._rows("source_titles", record_ids)]

    def unshown_titles(self) -> list[SourceTitle]:
        """Titles whose sessions were not derived since the titles were stored."""
        rows = self._core.db.read(lambda tx: tx.run("unshown_titles"))
        return [SourceTitle(*row) for row in rows]

    def note_shown(self, titles: Sequence[SourceTitle]) -> None:
        """Note that the sessions of these titles were derived with them."""
        self._write(lambda tx: tx.run_many("note_title_shown", titles))

    def files_of_records(self, record_ids: Sequence[str]) -> dict[str, SourceFile]:
        """A file that holds each of these records, for those that are known."""
        file_ids: dict[str, int] = dict(self._rows("source_file_of_records", record_ids))
        files = {file_id: self.file_by_id(file_id) for file_id in set(file_ids.values())}
        return {record_id: files[file_id] for record_id, file_id in file_ids.items()}

    def families_of_sessions(self, labels: Iterable[str]) -> dict[str, str]:
        """The families these sessions were derived from, and their source."""
        return dict(self._rows("families_of_sessions", labels))

    def labels_of_paths(self, paths: Sequence[str]) -> tuple[str, ...]:
        """The sessions that were derived from any of these files."""
        return tuple(dict.fromkeys(row[0] for row in self._rows("labels_of_paths", paths)))

    def _rows(self, statement: str, keys: Iterable[str]) -> Iterator[Any]:
        for ids in in_batches(keys):
            yield from self._core.db.read(partial(_run, statement, ids))

    def _files(self, statement: str, **values: object) -> tuple[SourceFile, ...]:
        rows = self._core.db.read(lambda tx: tx.run(statement, **values))
        return tuple(SourceFile(*row) for row in rows)

    # -- what must not come in ----------------------------------------------------------------

    def cleaned(self, file: SourceFile, data: bytes) -> Cleaned:
        """The next bytes of a file, which end with a record, without what was removed from the
        ledger, and without secrets if it is set so."""
        edits = self._import_filter().edits(data, file.kind, file.family)
        spans = [Span(edit.start, len(edit.data)) for edit in edits]
        return Cleaned(edited(data, 0, edits), spans)

    @property
    def cleans(self) -> bool:
        """Whether cleaned() may overwrite anything."""
        return bool(self._import_filter())

    def as_archived(self, file: SourceFile, offset: int, data: bytes) -> bytes:
        """Bytes of an archived file as they are on disk, without what was overwritten in the
        archive."""
        rows = self._core.db.read(lambda tx: tx.run("redacted_spans", file_id=file.id))
        within = [
            Edit(start, self.read(file.id, start, length))
            for start, length in rows
            if start < offset + len(data) and start + length > offset
        ]
        return edited(data, offset, within)

    @cached_property
    def redacted_ids(self) -> dict[str, str]:
        """What ids stand for that a source makes of redacted records."""
        return dict(self._core.db.read(lambda tx: tx.run("redacted_ids")))

    def _import_filter(self) -> ImportFilter:
        now = now_ms()
        if self._filter is None or abs(now - self._filter_read_at) > SETTING_FRESH_MS:
            self._filter = self._core.db.read(ImportFilter.of)
            self._filter_read_at = now
        return self._filter

    # -- archiving ----------------------------------------------------------------------------

    def begin(
        self,
        *,
        source: str,
        path: str,
        family: str,
        kind: SourceKind,
        previous: SourceFile | None,
    ) -> SourceFile:
        """A new file, or a new generation of a rewritten one; stored with its first bytes."""
        generation = previous.generation + 1 if previous else 0
        return SourceFile(NOT_KEPT, source, path, generation, family, kind, 0, 0, 0)

    def given_to(self, file: SourceFile, source: str, family: str) -> SourceFile:
        """The file assigned to a source and family, with all its generations."""
        if (file.source, file.family) == (source, family):
            return file
        values = {"path": file.path, "before": file.source, "source": source, "family": family}
        self._write(lambda tx: tx.run("give_source_file", **values))
        return structs.replace(file, source=source, family=family)

    def base_for(self, file: SourceFile, original: SourceFile | None) -> PackingBase:
        """What the next bytes of a file are compressed against: the beginning of the previous
        generation, or of the original that it copies."""
        if original is None or file.kept_bytes >= BASE_MAX:
            return NO_BASE
        return self._base(original)

    def _base(self, file: SourceFile) -> PackingBase:
        """The beginning of a file to compress against.

        Copies of logs are compressed against the first original alone, because any line may be read
        at any time. A generation of a document is compressed against the previous one, unless that
        is already at the end of a long chain.
        """
        base_id = self._base_id_of(file.id)
        if file.kind == "lines" and base_id is not None:
            return self._base(self.file_by_id(base_id))
        for _ in range(CHAIN_MAX):
            if base_id is None:
                length = min(file.kept_bytes, BASE_MAX)
                return (
                    PackingBase(file.id, length, self.beginning(file.id, length))
                    if length
                    else NO_BASE
                )
            base_id = self._base_id_of(base_id)
        return NO_BASE

    def _base_id_of(self, file_id: int) -> int | None:
        rows = self._core.db.read(lambda tx: tx.run("base_of_file", file_id=file_id))
        return int(rows[0][0]) if rows else None

    def growth(
        self, file: SourceFile, data: bytes, base: PackingBase, **looks: Unpack[Looks]
    ) -> Growth:
        """The next bytes of a file, compressed, with its state when they were read."""
        block_bytes = self._core.db.limits.block_bytes
        blocks, seals = [], []
        for at in range(0, len(data), block_bytes):
            content = data[at : at + block_bytes]
            blocks.append(
                SourceBlock(
                    file.id,
                    file.kept_bytes + at,
                    len(content),
                    base.file_id,
                    base.length,
                    pack(content, base.data),
                )
            )
            seals.append(leaves.seal_block(content))
        grown = structs.replace(
            file,
            size=looks["size"],
            mtime_ns=looks["mtime_ns"],
            kept_bytes=file.kept_bytes + len(data),
            tail_hash=looks.get("tail"),
            cursor_json=looks.get("cursor"),
        )
        overwritten = [
            Span(file.kept_bytes + span.start, span.length) for span in looks.get("overwritten", ())
        ]
        return Growth(grown, file.kept_bytes, blocks, seals, overwritten)

    def keep(self, growths: Sequence[Growth]) -> list[SourceFile | None]:
        """Archive new bytes of files in one commit. None: another import archives that file."""
        files = self._write(partial(_keep, growths=growths))
        for growth in growths:
            self._starts.pop(growth.file.id, None)
        return files

    def append(
        self,
        file: SourceFile,
        data: bytes,
        *,
        base: SourceFile | None = None,
        **looks: Unpack[Looks],
    ) -> SourceFile:
        """Archive the next bytes of one file. `base`: the previous generation, or the original."""
        packing_base = self.base_for(file, base) if data else NO_BASE
        grown = self.keep([self.growth(file, data, packing_base, **looks)])[0]
        if grown is None:
            raise Conflict(f"another import is archiving {file.path}", "Retry the import.")
        return grown

    def _write(self, work: Work[T]) -> T:
        self._core.recover_if_due()
        result = self._core.db.write(work)
        self._core.wrote()
        return result

    def note_run(self, counts: ImportCounts, started_at: int, report: object) -> None:
        """Store the counts and the report of an import."""
        values = {name: getattr(counts, name) for name in ImportCounts.__struct_fields__}
        self._write(
            lambda tx: tx.run(
                "insert_import_run",
                id=new_id(),
                started_at=started_at,
                finished_at=now_ms(),
                report_json=to_json(report),
                **values,
            )
        )


def _run(statement: str, ids: str, tx: Transaction) -> list[Row]:
    return tx.run(statement, ids=ids)


class _OverwrittenSpan(NamedTuple):
    file_id: int
    start: int
    length: int
    redaction_id: str | None = None


def _keep(tx: Transaction, growths: Sequence[Growth]) -> list[SourceFile | None]:
    return [_keep_one(tx, growth) for growth in growths]


def _keep_one(tx: Transaction, growth: Growth) -> SourceFile | None:
    file, now = growth.file, now_ms()
    if file.id == NOT_KEPT:
        begun = tx.run(
            "insert_source_file",
            source=file.source,
            path=file.path,
            generation=file.generation,
            family=file.family,
            kind=file.kind,
            size=0,
            mtime_ns=0,
            now=now,
        )
        if not begun:
            return None
        file = structs.replace(file, id=begun[0][0])
    grown = tx.run(
        "grow_source_file",
        id=file.id,
        size=file.size,
        mtime_ns=file.mtime_ns,
        kept_bytes=file.kept_bytes,
        tail_hash=file.tail_hash,
        cursor_json=file.cursor_json,
        kept_before=growth.kept_before,
        now=now,
    )
    if not grown:
        return None
    if growth.blocks:
        tx.run_many("insert_block", [block._replace(file_id=file.id) for block in growth.blocks])
        leaves.add_all(
            tx,
            [
                leaves.block_leaf(file.id, file.path, file.generation, block.start, seal)
                for block, seal in zip(growth.blocks, growth.seals, strict=True)
            ],
        )
    tx.run_many(
        "insert_redacted_span",
        [_OverwrittenSpan(file.id, *span) for span in growth.overwritten],
    )
    return file
