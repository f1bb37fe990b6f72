"""Values in archived files: searched record by record, and overwritten in the compressed blocks.

A value is overwritten with as many bytes, so that offsets stay. Blocks that were compressed against
a file that changes are compressed again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agents_ledger.ledger.evidence.canonical import pieces
from agents_ledger.ledger.maintenance.redaction.record_contents import (
    CONTENT,
    Part,
    content_spans,
)
from agents_ledger.ledger.projection.archive_reader import (
    TAIL_BYTES,
    ArchiveReader,
    Edit,
    SourceBlock,
    TurnRecords,
    edited,
    pack,
    tail_hash,
)
from agents_ledger.model.imports.records import raw, records
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.secrets.nested_json import Find, ValueSpan, blanked, merged, value_spans
from agents_ledger.store.database import Transaction

# Of these keys the values are words of the format, if they are single words.
_FORMAT_KEY = re.compile(
    r"\\*\"(?:\w*(?:type|role|kind|status|name|id|uuid|model|version|level|mode|source|provider"
    r"|state|subtype|origin|event|tool|reason|time|timestamp|date|at))\\*\"\s{0,4}:\s{0,4}\\*\"\Z",
    re.IGNORECASE,
)
_FORMAT_WORD = re.compile(r"[A-Za-z][A-Za-z_.:/-]{0,40}")
_KEY_MAX = 80


class FileEdits(NamedTuple):
    """What is overwritten in one archived file."""

    file: SourceFile
    edits: tuple[Edit, ...]
    values: frozenset[str]
    # Of a scope without a search: it has texts that may be content and were not understood.
    is_partly: bool = False


class Kept(NamedTuple):
    """What is not overwritten though it is searched for: ids, and the words of a format."""

    ids: frozenset[str]

    def has(self, text: str, span: ValueSpan) -> bool:
        """Whether the value at a place belongs to the format."""
        if span.value in self.ids:
            return True
        if not _FORMAT_WORD.fullmatch(span.value):
            return False
        return bool(_FORMAT_KEY.search(text[max(0, span.start - _KEY_MAX) : span.start]))


NOTHING = Kept(frozenset())


def edits_of(
    reader: ArchiveReader, file: SourceFile, find: Find, kept: Kept | None = None
) -> FileEdits:
    """What a search finds in an archived file."""
    edits: list[Edit] = []
    values: set[str] = set()
    for start, data in records_of(reader.stream(file.id), file.kind):
        for edit in record_edits(data, find, values, kept):
            edits.append(Edit(start + edit.start, edit.data))
    return FileEdits(file, tuple(edits), frozenset(values))


class FileContent(NamedTuple):
    """Which records of a file go with all that they say, and what goes from the others."""

    find: Find
    kept: Kept
    is_whole: bool  # all its records
    records: TurnRecords | None = None  # otherwise these; None: they are not known
    part: Part | None = None  # of these only what belongs to a part of the turn


def content_edits_of(reader: ArchiveReader, file: SourceFile, content: FileContent) -> FileEdits:
    """What is overwritten in a file if the content of turns goes."""
    edits: list[Edit] = []
    values: set[str] = set()
    is_partly = not content.is_whole and content.records is None
    is_own = _ownership(file, content)
    for start, data in records_of(reader.stream(file.id), file.kind):
        text = data.decode("utf-8", "surrogateescape")
        said: list[ValueSpan] | None = None
        if is_own(start):
            said = content_spans(text, content.kept.ids, content.part)
            if said is None and content.is_whole and file.kind == "document":
                # An output in a file of its own.
                said = [ValueSpan(0, len(text), CONTENT, text)] if text.strip("*") else []
            is_partly |= said is None and file.kind == "lines" and bool(text.strip("* \r"))
        spans = said or []
        if said is None or content.part is not None:
            spans += [s for s in value_spans(text, content.find) if not content.kept.has(text, s)]
        values.update(span.value for span in spans)
        edits += (Edit(start + e.start, e.data) for e in _edits_at(text, sorted(set(spans))))
    if file.kind == "document" and not content.is_whole:
        edits += _edits_of_pieces(reader, file, content, values)
        edits = _joined(edits)
    return FileEdits(file, tuple(edits), frozenset(values), is_partly)


def _ownership(file: SourceFile, content: FileContent) -> Callable[[int], bool]:
    """Whether the record at an offset goes; asked in order. In a log, what no turn is made of goes
    with the record before it."""
    if content.is_whole or content.records is None or file.kind == "document":
        return lambda start: content.is_whole
    if file.kind == "rows":
        places = sorted(content.records.own, key=lambda place: place.start)
        starts = [place.start for place in places]

        def is_in_row(start: int) -> bool:
            at = bisect_right(starts, start) - 1
            return at >= 0 and start < starts[at] + places[at].length

        return is_in_row
    own = {place.start for place in content.records.own}
    others = {place.start for place in content.records.others}
    was_own = False

    def is_own_line(start: int) -> bool:
        nonlocal was_own
        was_own = start in own or (was_own and start not in others)
        return was_own

    return is_own_line


def _edits_of_pieces(
    reader: ArchiveReader, file: SourceFile, content: FileContent, values: set[str]
) -> Iterator[Edit]:
    for place in sorted(content.records.own if content.records is not None else ()):
        text = reader.read(*place).decode("utf-8", "surrogateescape")
        spans = content_spans(text, content.kept.ids, content.part) or []
        values.update(span.value for span in spans)
        yield from (Edit(place.start + e.start, e.data) for e in _edits_at(text, spans))


def _joined(edits: Iterable[Edit]) -> list[Edit]:
    """Edits in order. Of two that overlap the filler is the same."""
    joined: list[Edit] = []
    for edit in sorted(edits):
        if joined and edit.start < joined[-1].end:
            longer = joined[-1].data + edit.data[joined[-1].end - edit.start :]
            joined[-1] = Edit(joined[-1].start, longer)
        else:
            joined.append(edit)
    return joined


def records_of(blocks: Iterable[bytes], kind: str) -> Iterator[tuple[int, bytes]]:
    """The texts of a file that are searched by themselves, with their offsets."""
    if kind == "rows":
        yield from _cells(blocks)
    elif kind == "lines":
        yield from _lines(blocks)
    else:
        yield 0, b"".join(blocks)


def _lines(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    offset, rest = 0, b""
    for block in blocks:
        *ended, rest = (rest + block).split(b"\n")
        for line in ended:
            yield offset, line
            offset += len(line) + 1
    if rest:
        yield offset, rest


def _cells(blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The values of rows. A cell's bytes stand in its row as they are."""
    for framed in records(blocks):
        at = 0
        for value in framed.row.values if framed.row is not None else ():
            data = raw(value)
            place = framed.data.find(data, at) if data else -1
            if place >= 0:
                yield framed.offset + place, data
                at = place + len(data)


def record_edits(
    data: bytes, find: Find, values: set[str] | None = None, kept: Kept | None = None
) -> Iterator[Edit]:
    """What is overwritten in one record; the values are added to `values`."""
    text = data.decode("utf-8", "surrogateescape")
    spans = value_spans(text, find)
    if kept is not None:
        spans = [span for span in spans if not kept.has(text, span)]
    if not spans:
        return
    if values is not None:
        values.update(span.value for span in spans)
    yield from _edits_at(text, spans)


def _edits_at(text: str, spans: Sequence[ValueSpan]) -> Iterator[Edit]:
    if not spans:
        return
    overwritten = blanked(text, [(span.start, span.end) for span in spans])
    new = overwritten.encode("utf-8", "surrogateescape")
    at = at_byte = 0
    for start, end in merged((span.start, span.end) for span in spans):
        at_byte += len(text[at:start].encode("utf-8", "surrogateescape"))
        length = len(text[start:end].encode("utf-8", "surrogateescape"))
        yield Edit(at_byte, new[at_byte : at_byte + length])
        at, at_byte = end, at_byte + length


class NewBlock(NamedTuple):
    """A block to be written over, with its content before and after."""

    block: SourceBlock
    before: bytes
    after: bytes

    @property
    def records(self) -> list[bytes]:
        """The lines that it had, as they are now."""
        records, at = [], 0
        for line in pieces(self.before):
            records.append(self.after[at : at + len(line)])
            at += len(line)
        return records


def overwritten(
    tx: Transaction, reader: ArchiveReader, files: Mapping[int, FileEdits]
) -> list[NewBlock]:
    """The blocks of files with their edits, compressed anew; everything is read before the first
    is written."""
    due: set[tuple[int, int]] = set()
    for file_id, change in files.items():
        for start, length, *_ in _blocks(tx, file_id):
            if any(edit.start < start + length and edit.end > start for edit in change.edits):
                due.add((file_id, start))
        due.update((row[0], row[1]) for row in tx.run("blocks_based_on", file_id=file_id))
    return [_packed_anew(tx, reader, files, *place) for place in sorted(due)]


def _packed_anew(
    tx: Transaction,
    reader: ArchiveReader,
    files: Mapping[int, FileEdits],
    file_id: int,
    start: int,
) -> NewBlock:
    block = SourceBlock(file_id, *tx.run("block_at", file_id=file_id, start=start)[0])
    data = before = reader.unpacked(block)
    if file_id in files:
        data = edited(data, start, files[file_id].edits)
    base = None
    if block.base_file_id is not None:
        length = block.base_length or reader.file_by_id(block.base_file_id).kept_bytes
        base = reader.beginning(block.base_file_id, length)
        if block.base_file_id in files:
            base = edited(base, 0, files[block.base_file_id].edits)
    return NewBlock(block._replace(data=pack(data, base)), before, data)


def _blocks(tx: Transaction, file_id: int) -> list[tuple[int, int]]:
    rows = tx.run("block_lengths", file_id=file_id)
    return [(row[0], row[1]) for row in rows]


def new_tail(reader: ArchiveReader, change: FileEdits) -> bytes | None:
    """The hash of a file's ends after its edits, if it had one."""
    file = change.file
    if file.tail_hash is None:
        return None
    last = max(0, file.kept_bytes - TAIL_BYTES)
    ends = (
        (0, reader.read(file.id, 0, TAIL_BYTES)),
        (last, reader.read(file.id, last, TAIL_BYTES)),
    )
    return tail_hash(*(edited(data, start, change.edits) for start, data in ends))


class Span(msgspec.Struct, frozen=True):
    """Bytes of an archived file that were overwritten."""

    file_id: int
    start: int
    length: int
    redaction_id: str | None = None
