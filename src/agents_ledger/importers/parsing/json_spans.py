"""Large JSON documents, an object at a time: an export may be larger than the memory we take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.port.material import (
    LENGTH_BITS,
    HeldRecord,
    Material,
    RecordSpan,
    SourceLine,
)
from agents_ledger.importers.transcript.turn_tree import BROKEN, NO_LETTER, strictly, taken
from agents_ledger.model.imports.sources import Fault, SourceFile

# A string, whole or up to the end of its block, or a bracket. Nothing in it backtracks: that would
# take a hundred bytes of memory for every escaped letter.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\]]', re.DOTALL)
BETWEEN_MAX = 1 << 20  # bytes between two objects, of which elements are told
LONG = "a text in it is kept, but too long to read"
T = TypeVar("T")

raw_list = msgspec.json.Decoder(list[Raw]).decode
raw_dict = msgspec.json.Decoder(dict[str, Raw]).decode


class _Nesting:
    """How deep we are, and where the object we are in began."""

    def __init__(self) -> None:
        self.depth = 0
        self.level = -1  # of the array the objects stand in, once it is known
        self.start = -1

    def met(self, bracket: bytes, at: int) -> tuple[int, int] | None:
        """The object that ends here, if one does."""
        if bracket in b"{[":
            self._open(bracket, at)
            return None
        self.depth -= 1
        if self.depth != self.level or self.start < 0:
            return None
        found, self.start = (self.start, at + 1), -1
        return found

    def _open(self, bracket: bytes, at: int) -> None:
        if self.level < 0:
            self.level = 1 if bracket == b"[" else 0
        if self.depth == self.level and bracket == b"{":
            self.start = at
        self.depth += 1


def objects(blocks: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where each object of a top-level array begins and ends; or the one object that is all."""
    nesting = _Nesting()
    rest, base = b"", 0  # a string goes on after it; where what is looked at stands
    for block in blocks:
        data, rest = rest + block, b""
        for token in TOKEN.finditer(data):
            if token[1] is None:
                found = nesting.met(token[0], base + token.start())
                if found is not None:
                    yield found
            elif not token[1]:
                rest = b'"' + data[token.end() :]  # and the backslash of a letter that is cut
        base += len(data) - len(rest)


def objects_of(material: Material, file: SourceFile) -> Iterator[tuple[SourceLine, bytes]]:
    """The objects of a file that can be read, each with where it stands among all elements; faults
    for the others."""
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
    """The elements of an array, counted: also those that are no objects, each a fault."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self.material = material
        self.file = file
        self.number = 0
        self.ended = 0  # the last object

    def next_object(self, start: int, end: int) -> SourceLine:
        """The next object, and which element it is."""
        if start - self.ended >= len("[5,"):
            before = self._until(start).removeprefix(BOM).strip()
            if not self._pass_over(before[1:].removesuffix(b",")):
                self._no_object()
        self.number += 1
        self.ended = end
        return SourceLine(self.file, start, end - start, self.number, None)

    def end(self) -> None:
        """No object follows."""
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
        """Whether these are elements."""
        try:
            others = raw_list(b"[%b]" % listed)
        except BROKEN:
            return False
        for _ in others:
            self._no_object()
        return True

    def _no_object(self) -> None:
        self.number += 1
        self.material.fault(
            SourceLine(self.file, self.ended, 0, self.number, None), "not an object"
        )
        self.material.count("(malformed)", "malformed")


class Pieces:
    """A document, and pieces of it to be read later: of large families only where they stand."""

    def __init__(self, material: Material, file: SourceFile, offset: int, data: bytes) -> None:
        """`data` of a file, from an offset on."""
        self._limits = material.limits
        self._holds = material.holds
        self._file_id = file.id
        self._offset = offset
        self._data = data
        self._added: Sequence[int] = ()
        self._at = 0

    def read(self, decode: Callable[[bytes], T]) -> T:
        """What a strict decoder makes of the document; pieces are of that."""
        found, data, added = taken(decode, self._data)
        self._holds |= added is None
        self._data, self._added = data, added or ()
        return found

    def decode(self, decode: Callable[[bytes], T], piece: bytes) -> T:
        """A message of the document; one with a text that is too long is refused."""
        return brief_of(decode, piece, self._limits.text_bytes)

    def held(self, piece: bytes) -> HeldRecord:
        """A piece for later; one that may have lost half a letter is held. They come in order: from
        the first that does not on all are held, as to look everywhere for each would take too
        long."""
        at = -1 if self._holds else self._data.find(piece, self._at)
        if at < 0:
            self._holds, self._data = True, b""
            return piece
        self._at = at + len(piece)
        if NO_LETTER in piece:
            return piece
        start, end = (each - bisect_left(self._added, each) for each in (at, self._at))
        return RecordSpan(self._file_id, self._offset + start << LENGTH_BITS | end - start)


def brief_of(decode: Callable[[bytes], T], data: bytes, limit: int) -> T:
    """What a strict decoder makes of a message of a document."""
    if has_text_exceeding(data, limit):
        raise msgspec.DecodeError(LONG)
    return strictly(decode, data)


def text_pieces(material: Material, file: SourceFile) -> Pieces:
    """A file of text that is one document."""
    document = material.text_document(file)
    data = document.removeprefix(BOM)
    return Pieces(material, file, len(document) - len(data), data)


class Document(NamedTuple, Generic[T]):
    """A document, and what a decoder made of it."""

    pieces: Pieces
    said: T


def read_document(
    material: Material, file: SourceFile, decode: Callable[[bytes], T], what: str
) -> Document[T] | None:
    """A file that is one document; None if it is too large, or not what it should be."""
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
    """What a decoder makes of a message of a document; None if it cannot be read."""
    try:
        return brief_of(decode, data, material.limits.text_bytes)
    except BROKEN as error:
        unread(material, file, f"{what} cannot be read: {error}")
        return None


def unread(material: Material, file: SourceFile, what: str) -> None:
    """Report a document that is not read, or a message of one, and account for it."""
    material.faults.append(Fault(file.path, what))
    material.count("(malformed)", "malformed")
