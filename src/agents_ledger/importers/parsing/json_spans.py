"""Large JSON documents, one object at a time: an export may be larger than the memory limit."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    REPLACEMENT,
    decode_leniently,
    decode_with_repairs,
)
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.port.material import (
    LENGTH_BITS,
    HeldRecord,
    Material,
    RecordSpan,
    SourceLine,
)
from agents_ledger.model.imports.sources import Fault, SourceFile

# A string, complete or up to the end of its block, or a bracket. The quantifiers are possessive:
# backtracking would take a hundred bytes of memory for every escaped character.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\]]', re.DOTALL)
BETWEEN_MAX = 1 << 20  # bytes between two objects that are searched for other elements
LONG = "a text in it is kept, but too long to read"
T = TypeVar("T")

raw_list = msgspec.json.Decoder(list[Raw]).decode
raw_dict = msgspec.json.Decoder(dict[str, Raw]).decode


class _Nesting:
    def __init__(self) -> None:
        self.depth = 0
        self.level = -1  # the depth of the objects, once the first bracket is read
        self.start = -1

    def read(self, bracket: bytes, at: int) -> tuple[int, int] | None:
        """The span of the object that a bracket closes, if it does."""
        if bracket in b"{[":
            self._open(bracket, at)
            return None
        self.depth -= 1
        if self.depth != self.level or self.start < 0:
            return None
        span, self.start = (self.start, at + 1), -1
        return span

    def _open(self, bracket: bytes, at: int) -> None:
        if self.level < 0:
            self.level = 1 if bracket == b"[" else 0
        if self.depth == self.level and bracket == b"{":
            self.start = at
        self.depth += 1


def objects(blocks: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Start and end of each object in a top-level array, or of the only object."""
    nesting = _Nesting()
    rest, base = b"", 0  # an incomplete string; the offset of `data`
    for block in blocks:
        data, rest = rest + block, b""
        for token in TOKEN.finditer(data):
            if token[1] is None:
                span = nesting.read(token[0], base + token.start())
                if span is not None:
                    yield span
            elif not token[1]:
                rest = b'"' + data[token.end() :]  # with the backslash of an incomplete escape
        base += len(data) - len(rest)


def objects_of(material: Material, file: SourceFile) -> Iterator[tuple[SourceLine, bytes]]:
    """The readable objects of a file, each with its number among all elements; the others are
    reported as faults."""
    elements = _Elements(material, file)
    for start, end in objects(material.blocks(file)):
        where = elements.next_object(start, end)
        if where.length > material.limits.record_bytes:
            material.fault(where, f"an object of {where.length:,} bytes is kept, but not read")
            material.count("(overlong)", "malformed")
        else:
            data = material.bytes_of(where)
            material.check(where, data)
            yield where, data
            del data
    elements.end()


class _Elements:
    """Counts the elements of an array. Those that are not objects are reported as faults."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self.material = material
        self.file = file
        self.number = 0
        self.ended = 0  # where the last object ended

    def next_object(self, start: int, end: int) -> SourceLine:
        if start - self.ended >= len("[5,"):
            before = self._until(start).removeprefix(BOM).strip()
            if not self._pass_over(before[1:].removesuffix(b",")):
                self._no_object()
        self.number += 1
        self.ended = end
        return SourceLine(self.file, start, end - start, self.number, None)

    def end(self) -> None:
        """Check what follows the last object."""
        rest = self._until(self.file.kept_bytes).strip()
        if rest.startswith(b",") and rest.endswith(b"]") and self._pass_over(rest[1:-1]):
            return
        if rest.strip(b" \r\n]"):
            what = "the document is cut off"
            self.material.faults.append(Fault(self.file.path, what, self.ended))
            self.material.count("(malformed)", "malformed")

    def _until(self, end: int) -> bytes:
        length = min(end - self.ended, BETWEEN_MAX)
        return self.material.bytes_of(SourceLine(self.file, self.ended, length, 0, None))

    def _pass_over(self, listed: bytes) -> bool:
        """Count elements that are not objects; False if these bytes are not elements."""
        try:
            elements = raw_list(b"[%b]" % listed)
        except BROKEN:
            return False
        for _ in elements:
            self._no_object()
        return True

    def _no_object(self) -> None:
        self.number += 1
        self.material.fault(
            SourceLine(self.file, self.ended, 0, self.number, None), "not an object"
        )
        self.material.count("(malformed)", "malformed")


class Pieces:
    """A document whose messages are parsed later. Large families hold only their positions."""

    def __init__(self, material: Material, file: SourceFile, offset: int, data: bytes) -> None:
        """`data`: the content of the file from `offset` on."""
        self._limits = material.limits
        self._holds = material.holds
        self._file_id = file.id
        self._offset = offset
        self._data = data
        self._added: Sequence[int] = ()
        self._at = 0

    def read(self, decode: Callable[[bytes], T]) -> T:
        """The document decoded by a strict decoder, repaired if it must be."""
        document, data, added = decode_with_repairs(decode, self._data)
        self._holds |= added is None
        self._data, self._added = data, added or ()
        return document

    def decode(self, decode: Callable[[bytes], T], piece: bytes) -> T:
        """A message of the document. Raises DecodeError if a text in it is too long."""
        return brief_of(decode, piece, self._limits.text_bytes)

    def held(self, piece: bytes) -> HeldRecord:
        """A message to be parsed later: its position, or its bytes if a repair may have replaced an
        unpaired surrogate in it. Messages come in the order of the document; from the first that
        does not, the bytes of all are held, as searching the whole document for each is slow."""
        at = -1 if self._holds else self._data.find(piece, self._at)
        if at < 0:
            self._holds, self._data = True, b""
            return piece
        self._at = at + len(piece)
        if REPLACEMENT in piece:
            return piece
        start, end = (offset - bisect_left(self._added, offset) for offset in (at, self._at))
        return RecordSpan(self._file_id, self._offset + start << LENGTH_BITS | end - start)


def brief_of(decode: Callable[[bytes], T], data: bytes, limit: int) -> T:
    """A message decoded by a strict decoder. Raises DecodeError if a text in it is too long."""
    if has_text_exceeding(data, limit):
        raise msgspec.DecodeError(LONG)
    return decode_leniently(decode, data)


def text_pieces(material: Material, file: SourceFile) -> Pieces:
    document = material.text_document(file)
    data = document.removeprefix(BOM)
    return Pieces(material, file, len(document) - len(data), data)


class Document(NamedTuple, Generic[T]):
    pieces: Pieces
    content: T


def read_document(
    material: Material, file: SourceFile, decode: Callable[[bytes], T], what: str
) -> Document[T] | None:
    """A file that is one document; None, and a fault, if it is too large or cannot be decoded."""
    if file.kept_bytes > material.limits.record_bytes:
        size = f"{file.kept_bytes:,} bytes"
        unread(material, file, f"a document of {size} is kept, but not read")
        return None
    pieces = text_pieces(material, file)
    try:
        return Document(pieces, pieces.read(decode))
    except BROKEN as error:
        unread(material, file, f"not {what}: {error}")
        return None


def read_message(
    material: Material, file: SourceFile, decode: Callable[[bytes], T], data: bytes, what: str
) -> T | None:
    """A decoded message of a document; None, and a fault, if it cannot be read."""
    try:
        return brief_of(decode, data, material.limits.text_bytes)
    except BROKEN as error:
        unread(material, file, f"{what} cannot be read: {error}")
        return None


def unread(material: Material, file: SourceFile, what: str) -> None:
    """Report a document that is not read, or a message of one, and account for it."""
    material.faults.append(Fault(file.path, what))
    material.count("(malformed)", "malformed")
