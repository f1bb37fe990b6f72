"""Large JSON documents, an object at a time: an export may be larger than the memory we take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agents_ledger.importers.reader import LENGTH_BITS, RECORD_MAX, Held, Line, Material, Place
from agents_ledger.model.sources import Fault, SourceFile

TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
STRING_MAX = 2 * RECORD_MAX
NEAR = 1024  # bytes, between a piece and the next


class _Nesting:
    """How deep we are, and where the object we are in began."""

    def __init__(self) -> None:
        self.depth = 0
        self.level = -1  # of the array the objects stand in, once it is known
        self.start = -1

    def open(self, sign: bytes, at: int) -> None:
        if self.level < 0:
            self.level = 1 if sign == b"[" else 0
        if self.depth == self.level and sign == b"{":
            self.start = at
        self.depth += 1

    def close(self, at: int) -> tuple[int, int] | None:
        """The object that ends here, if one does."""
        self.depth -= 1
        if self.depth != self.level or self.start < 0:
            return None
        found, self.start = (self.start, at), -1
        return found


def objects(blocks: Iterable[bytes]) -> Iterator[tuple[int, int]]:
    """Where each object of a top-level array begins and ends; or the one object that is all."""
    nesting = _Nesting()
    rest, base = b"", 0  # what could not be told yet, and where it stands
    for block in blocks:
        data, rest = rest + block, b""
        for token in TOKEN.finditer(data):
            sign = token[0]
            if sign in b"{[":
                nesting.open(sign, base + token.start())
            elif sign in b"}]":
                found = nesting.close(base + token.end())
                if found is not None:
                    yield found
            elif sign == b'"':  # a string that ends in a later block
                rest = data[token.start() :]
                break
        if len(rest) > STRING_MAX:
            return
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
    """Pieces of a document, to be read later: of large families only where they stand."""

    def __init__(self, material: Material, file: SourceFile, offset: int, data: bytes) -> None:
        """`data` of a file, from an offset on."""
        self._holds = material.holds
        self._file_id = file.id
        self._offset = offset
        self._data = data
        self._at = 0

    def held(self, piece: bytes) -> Held:
        """A piece for later. They come in order, most of them; one that was mended is held."""
        if self._holds:
            return piece
        at = self._data.find(piece, self._at, self._at + len(piece) + NEAR)
        at = self._data.find(piece) if at < 0 else at
        if at < 0:
            return piece
        self._at = at + len(piece)
        return Place(self._file_id, self._offset + at << LENGTH_BITS | len(piece))
