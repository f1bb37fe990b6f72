"""Where the records of a family are, packed: a session may have millions of them."""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct
from typing import TypeVar

from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.transcript.spill_file import LazySequence
from agents_ledger.model.imports.sources import SourceFile

# 20 bytes a record instead of 0.9 KB as an object: a million fit (docs/decisions/0019).
_ROW = Struct("<QIII")  # offset, length, line number, checksum
_pack, _unpack = _ROW.pack, _ROW.unpack_from
WIDTH = _ROW.size
T = TypeVar("T")


class RecordOffsets:
    """The lines of a family by number, in 20 bytes each; of small families with their content."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self._files = material.files
        sizes = (file.kept_bytes for file in material.files)
        # One number then says both the file and the offset in it.
        self._starts = list(accumulate(sizes, initial=0))  # offsets as if the files were one
        self._first = dict(zip((file.id for file in self._files), self._starts, strict=False))
        self._file: SourceFile | None = None  # the file of the last added line
        self._base = 0
        self._rows = bytearray()
        self._data: list[bytes] | None = [] if material.holds else None

    def __len__(self) -> int:
        return len(self._rows) // WIDTH

    def add_line(self, line: SourceLine) -> None:
        data = line.data or b""
        if line.file is not self._file:
            self._file, self._base = line.file, self._first[line.file.id]
        self._rows += _pack(self._base + line.offset, line.length, line.number, zlib.crc32(data))
        if self._data is not None:
            self._data.append(data)

    def replace(self, number: int, line: SourceLine) -> None:
        """Show another copy of the record."""
        data = line.data or b""
        self._rows[WIDTH * number : WIDTH * number + WIDTH] = _pack(
            self._first[line.file.id] + line.offset, line.length, line.number, zlib.crc32(data)
        )
        if self._data is not None:
            self._data[number] = data

    def show_as(self, number: int, other: int) -> None:
        """Show the record of another number."""
        row = self._rows[WIDTH * other : WIDTH * other + WIDTH]
        self._rows[WIDTH * number : WIDTH * number + WIDTH] = row
        if self._data is not None:
            self._data[number] = self._data[other]

    def line(self, number: int) -> SourceLine:
        """A line without its content."""
        at, length, count, _ = _unpack(self._rows, WIDTH * number)
        file = bisect_right(self._starts, at) - 1 if len(self._files) > 1 else 0
        return SourceLine(self._files[file], at - self._starts[file], length, count, None)

    def data(self, number: int) -> bytes:
        if self._data is not None:
            return self._data[number]
        return self.material.bytes_of(self.line(number))

    def records(self, numbers: Sequence[int], read: Callable[[int], T]) -> Sequence[T]:
        """What `read` makes of each line. Of a large turn each is read whenever it is used."""
        if sum(map(self.length, numbers)) > self.material.limits.held_turn_bytes:
            return LazySequence(numbers, read)
        return [read(number) for number in numbers]

    def length(self, number: int) -> int:
        return int(_unpack(self._rows, WIDTH * number)[1])

    def fingerprint(self, number: int) -> bytes:
        """The same as the fingerprint of the line itself."""
        _, length, _, crc = _unpack(self._rows, WIDTH * number)
        return b"%d:%d;" % (length, crc)
