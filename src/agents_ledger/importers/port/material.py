"""What a source is given: the archived records of one family of files, and where to report."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from itertools import chain
from typing import Any, NamedTuple

from msgspec import Struct, structs

from agents_ledger.importers.parsing import text_size
from agents_ledger.importers.parsing.encodings import BOM, Bytes, Utf8, is_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.model.imports.records import (
    PARTED,
    Framed,
    Parted,
    Peeked,
    RowRecord,
    digest,
    peek,
    raw,
    records,
    unframe,
)
from agents_ledger.model.imports.sources import Fate, Fault, SourceFile, SourceTitle

QUOTED_CHARACTERS = 80  # of a value in a fault
NOT_UTF8 = "not UTF-8: bytes that are no text are shown as \ufffd"
UTF_16 = "it is UTF-16, as PowerShell writes it: kept so, and read"
# The values of a row take about six times its encoded size in memory.
ROW_VALUES = 6
DIGEST_BYTES = 16
LENGTH_BITS = 32  # of a record; see ImportLimits.record_bytes


class SourceLine(Struct, frozen=True, gc=False):
    """One record of a file of lines."""

    file: SourceFile
    offset: int
    length: int
    number: int  # from 1
    data: bytes | None  # None: to be read again

    def fingerprint(self) -> bytes:
        """Distinguishes this record from another one with the same id."""
        return b"%d:%d;" % (self.length, zlib.crc32(self.data or b""))


class RecordSpan(Struct, frozen=True, gc=False, array_like=True):
    """Where a record is, packed into two integers: there may be millions."""

    file_id: int
    # The offset, shifted by LENGTH_BITS, and the length.
    span: int


HeldRecord = bytes | RecordSpan
"""A record to be parsed later: its bytes or, in large families, only where they are."""


class SourceRow(Struct, frozen=True, gc=False, array_like=True):
    """One version of a row of a database."""

    file_id: int
    offset: int
    length: int
    table: str
    values: dict[str, Any] | None  # None: to be read again
    digest: bytes
    latest: bool  # no later version of the row is archived

    def fingerprint(self) -> bytes:
        """Distinguishes this version of a row from the others."""
        return self.digest


RecordPosition = SourceLine | SourceRow | SourceFile
TitleLookup = Callable[[Iterable[str]], Iterable[SourceTitle]]
RowCondition = Callable[[Peeked], bool]


class _RowVersion(NamedTuple):
    """An archived row without its bytes."""

    offset: int
    length: int
    row: RowRecord | None
    digest: bytes
    # The size of a value that is too long to parse; 0: none is.
    oversized: int


def oversized_value(framed: Framed, limit: int) -> int:
    """The size of a value of a row that is too long to parse; 0 if there is none."""
    may_exceed = framed.length * text_size.WIDEST > limit
    if framed.row is None or not (may_exceed or PARTED in framed.data):
        return 0
    for value in framed.row.values:
        parted = Parted.of(value)
        if parted is not None:
            return parted.size
        if not may_exceed or (isinstance(value, str) and _is_narrow(value, limit)):
            continue
        data = raw(value)
        is_json = data[:1] in (b"{", b"[")
        exceeds = text_size.has_text_exceeding if is_json else text_size.exceeds
        if exceeds(data, limit):
            return len(data)
    return 0


def _is_narrow(text: str, limit: int) -> bool:
    return len(text) <= limit and text.isascii() and r"\u" not in text


def _last_occurrences(digests: bytes | bytearray) -> bytearray:
    """For each of the concatenated digests, whether it does not occur again."""

    def digest_at(number: int) -> bytes:
        return bytes(digests[DIGEST_BYTES * number : DIGEST_BYTES * number + DIGEST_BYTES])

    is_last = bytearray(len(digests) // DIGEST_BYTES)
    # By first byte: never all digests as objects at once.
    buckets: dict[int, array[int]] = {}
    for number in range(len(is_last)):
        buckets.setdefault(digests[DIGEST_BYTES * number], array("I")).append(number)
    for bucket in buckets.values():
        for number in {digest_at(number): number for number in bucket}.values():
            is_last[number] = True
    return is_last


def _memory_size(file: SourceFile) -> int:
    return file.kept_bytes * (ROW_VALUES if file.kind == "rows" else 1)


def fingerprint(version: int, fingerprints: Iterable[bytes]) -> bytes:
    """Of the records of a turn, as this version of a source understands them."""
    hashed = hashlib.blake2b(b"%d;" % version, digest_size=DIGEST_BYTES)
    for record_fingerprint in fingerprints:
        hashed.update(record_fingerprint)
    return hashed.digest()


class Material:
    """The archived files of a family, for a source to derive turns and sessions from."""

    def __init__(
        self,
        sources: Bytes,
        files: Sequence[SourceFile],
        version: int = 0,
        titles: TitleLookup = lambda _: (),
        limits: ImportLimits = LIMITS,
    ) -> None:
        """`version` of the source, or 0 to derive everything again. `titles` finds what other files
        call the sessions of records."""
        self.titles = titles
        self.limits = limits
        self.files = tuple(files)
        self.faults: list[Fault] = []
        self.counts: Counter[tuple[str, Fate]] = Counter()
        self.firsts: dict[str, str] = {}  # the first record of each type that makes no rows
        self.holds = sum(map(_memory_size, files)) <= limits.held_bytes
        self._sources = Utf8(sources, self._report_utf16)
        self._version = version
        self._line: SourceLine | None = None  # being parsed
        self._peeked: dict[int, list[Peeked]] = {}
        self._bad_times: set[int] = set()  # files whose first invalid time was reported

    def _report_utf16(self, file_id: int) -> None:
        path = next((file.path for file in self.files if file.id == file_id), None)
        if path is not None:
            self.faults.append(Fault(path, UTF_16))

    # -- lines --------------------------------------------------------------------------------

    def lines(self, file: SourceFile) -> Iterator[SourceLine]:
        """The lines of a file in order, without blank ones and those too long to parse."""
        record_max, text_max = self.limits.record_bytes, self.limits.text_bytes
        # Pieces of a line that continues in the next block.
        unfinished: list[bytes] = []
        blocks = self._sources.stream(file.id)
        first = next(blocks, b"")
        length, start, number = 0, len(BOM) if first.startswith(BOM) else 0, 1
        for block in chain((first[start:],), blocks, (b"\n",)):
            *ended, rest = block.split(b"\n")
            for piece in ended:
                length += len(piece)
                data = b"".join([*unfinished, piece]) if unfinished else piece
                unfinished = []
                if length > record_max or text_size.has_text_exceeding(data, text_max):
                    self._report_long_line(file, start, number, length)
                elif data and not data.isspace():
                    self._line = line = SourceLine(file, start, length, number, data)
                    self.check(line, data)
                    yield line
                start, number, length = start + length + 1, number + 1, 0
            length += len(rest)
            # The rest of the line is still counted, so that the next one has its offset and number.
            if length > record_max:
                unfinished = []
            elif rest:
                unfinished.append(rest)
        self._line = None

    def _report_long_line(self, file: SourceFile, offset: int, number: int, length: int) -> None:
        what = f"a record of {length:,} bytes is kept, but too long to read"
        self.faults.append(
            Fault(file.path, what, self._sources.archived_offset(file.id, offset), number)
        )
        self.count("(overlong)", "malformed")

    def held(self, line: SourceLine) -> HeldRecord:
        """A line to be parsed later."""
        if self.holds:
            return line.data or b""
        # One session of 874 MB is derived in 179 MB of memory (docs/decisions/0019).
        return RecordSpan(line.file.id, line.offset << LENGTH_BITS | line.length)

    def bytes_of(self, record: SourceLine | HeldRecord) -> bytes:
        if isinstance(record, bytes):
            return record
        if isinstance(record, RecordSpan):
            offset, length = record.span >> LENGTH_BITS, record.span & (1 << LENGTH_BITS) - 1
            return self._sources.read(record.file_id, offset, length)
        if record.data is not None:
            return record.data
        return self._sources.read(record.file.id, record.offset, record.length)

    # -- documents ----------------------------------------------------------------------------

    def document(self, file: SourceFile) -> bytes:
        data = BytesIO()  # joining a list of blocks would hold them twice
        data.writelines(self._sources.stream(file.id))
        return data.getvalue()

    def text_document(self, file: SourceFile) -> bytes:
        """The whole of a text file; invalid UTF-8 is reported."""
        data = self.document(file)
        self.check(file, data)
        return data

    def check(self, at: RecordPosition, data: bytes) -> None:
        """Report JSON that is not valid UTF-8."""
        if not (data.isascii() or is_text(data)):
            self.fault(at, NOT_UTF8)

    def blocks(self, file: SourceFile) -> Iterator[bytes]:
        """A file's bytes, a block at a time."""
        return self._sources.stream(file.id)

    def was_derived(self, file: SourceFile) -> bool:
        """Whether some of a file was derived by the present version of the source."""
        return 0 < self._version == file.derived_version and file.derived_bytes > 0

    def is_derived(self, file: SourceFile) -> bool:
        """Whether all of a file was."""
        return self.was_derived(file) and file.derived_bytes == file.kept_bytes

    # -- rows of databases --------------------------------------------------------------------

    def peek(self, file: SourceFile) -> Iterator[Peeked]:
        """Every version of every row, of which only table and key are decoded."""
        if not self.holds:
            return peek(self._sources.stream(file.id))
        if file.id not in self._peeked:
            self._peeked[file.id] = list(peek(self._sources.stream(file.id)))
        return iter(self._peeked[file.id])

    def rows(self, file: SourceFile, wanted: RowCondition | None = None) -> Iterator[SourceRow]:
        """Every version of every row, or of the wanted ones, in the order they were archived."""
        held: list[_RowVersion] = []
        # A first pass, as only the end of the archive shows which version of a row is the latest.
        latest = iter(_last_occurrences(self._identities(file, wanted, held)))
        for version in held or map(self._version_of, self._framed(file, wanted)):
            row = version.row
            if row is None:
                self.faults.append(Fault(file.path, "not a row", version.offset))
                self.count("(malformed)", "malformed")
            elif version.oversized:
                self.report_long_value(file, version.offset, row, version.oversized)
            else:
                source_row = SourceRow(
                    file.id,
                    version.offset,
                    version.length,
                    row.table,
                    row.named,
                    version.digest,
                    bool(next(latest)),
                )
                self._check_values(source_row)
                yield source_row

    def report_long_value(self, file: SourceFile, offset: int, row: RowRecord, length: int) -> None:
        """Report a row with a value that is too long to parse."""
        fields = row.named
        key = ", ".join(str(fields.get(column))[:QUOTED_CHARACTERS] for column in row.key)
        what = f"a value of {length:,} bytes is kept, but too long to read: {row.table} {key}"
        self.faults.append(Fault(file.path, what, offset))
        self.count("(overlong)", "malformed")

    def _version_of(self, framed: Framed) -> _RowVersion:
        size = oversized_value(framed, self.limits.text_bytes)
        return _RowVersion(framed.offset, framed.length, framed.row, digest(framed.data), size)

    def _check_values(self, row: SourceRow) -> None:
        for value in row.values.values() if row.values else ():
            if isinstance(value, str) and value[:1] in ("{", "["):
                self.check(row, value.encode(errors="surrogatepass"))
            elif isinstance(value, bytes) and value[:1] in (b"{", b"["):
                self.check(row, value)

    def _identities(
        self, file: SourceFile, wanted: RowCondition | None, held: list[_RowVersion]
    ) -> bytearray:
        """The identities of all rows that can be parsed, concatenated. Versions that fit in memory
        are added to `held`."""
        identities = bytearray()
        for framed in self._framed(file, wanted):
            if framed.row is not None and not oversized_value(framed, self.limits.text_bytes):
                identities += framed.row.identity
            if self.holds:
                held.append(self._version_of(framed))
        return identities

    def _framed(self, file: SourceFile, wanted: RowCondition | None) -> Iterator[Framed]:
        if wanted is None:
            return records(self._sources.stream(file.id))
        return (
            Framed(row.offset, len(row.data), row.data, unframe(row.data))
            for row in self.peek(file)
            if wanted(row)
        )

    def held_row(self, row: SourceRow) -> SourceRow:
        """A row to be used later: in large families without its values."""
        return row if self.holds else structs.replace(row, values=None)

    def values_of(self, row: SourceRow) -> dict[str, Any]:
        if row.values is not None:
            return row.values
        record = unframe(self._sources.read(row.file_id, row.offset, row.length))
        return record.named if record else {}

    # -- reports ------------------------------------------------------------------------------

    def fault(self, at: RecordPosition, what: str) -> None:
        """Report something that could not be understood."""
        file = self.file_of(at)
        offset = (
            0 if isinstance(at, SourceFile) else self._sources.archived_offset(file.id, at.offset)
        )
        number = at.number if isinstance(at, SourceLine) else None
        self.faults.append(Fault(file.path, what, offset, number))

    def file_of(self, at: RecordPosition) -> SourceFile:
        if isinstance(at, SourceFile):
            return at
        if isinstance(at, SourceLine):
            return at.file
        return next(file for file in self.files if file.id == at.file_id)

    def timestamp(self, value: object, at: RecordPosition) -> int:
        """A time in Unix milliseconds; 0 if there is none. The first value of each file that is not
        a time is reported."""
        time_ms = milliseconds(value)
        if not time_ms and value not in (None, "", 0):
            file = self.file_of(at)
            if file.id not in self._bad_times:
                self._bad_times.add(file.id)
                self.fault(at, f"not a time: {str(value)[:QUOTED_CHARACTERS]}")
        return time_ms

    def count(self, kind: str, fate: Fate, number: int = 1) -> None:
        """Account for records."""
        self.counts[kind, fate] += number
        if fate == "unmapped" and self._line is not None and kind not in self.firsts:
            self.firsts[kind] = f"{self._line.file.path}:{self._line.number}"
