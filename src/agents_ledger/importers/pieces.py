"""Large JSON documents, an object at a time: an export may be larger than the memory we take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from agents_ledger.importers.outlines import NO_LETTER, taken
from agents_ledger.importers.reader import (
    BOM,
    LENGTH_BITS,
    RECORD_MAX,
    Held,
    Line,
    Material,
    Place,
)
from agents_ledger.model.sources import Fault, SourceFile

# A string, whole or up to the end of its block, or a bracket. Nothing in it backtracks: that would
# take a hundred bytes of memory for every escaped letter.
TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+("?)|[{}\[\]]', re.DOTALL)
T = TypeVar("T")


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


def objects_of(material: Material, file: SourceFile) -> Iterator[tuple[Line, bytes]]:
    """The objects of a file that can be read, each with where it stands; faults for the others."""
    ended = 0
    for number, (start, end) in enumerate(objects(material.blocks(file)), 1):
        ended = end
        where = Line(file, start, end - start, number, None)
        if end - start > RECORD_MAX:
            material.fault(where, f"an object of {end - start:,} bytes is kept, but not read")
            material.count("(overlong)", "malformed")
        else:
            yield where, material.bytes_of(where)
    tail = file.kept_bytes - ended
    if tail > 0 and material.bytes_of(Line(file, ended, min(tail, 64), 0, None)).strip(b" \r\n]"):
        material.faults.append(Fault(file.path, "the document is cut off", ended))
        material.count("(malformed)", "malformed")


class Pieces:
    """A document, and pieces of it to be read later: of large families only where they stand."""

    def __init__(self, material: Material, file: SourceFile, offset: int, data: bytes) -> None:
        """`data` of a file, from an offset on."""
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

    def held(self, piece: bytes) -> Held:
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
        return Place(self._file_id, self._offset + start << LENGTH_BITS | end - start)


def text_pieces(material: Material, file: SourceFile) -> Pieces:
    """A file of text that is one document."""
    document = material.text_document(file)
    data = document.removeprefix(BOM)
    return Pieces(material, file, len(document) - len(data), data)
