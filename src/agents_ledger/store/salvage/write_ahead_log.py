"""The pages that a write-ahead log of SQLite holds, as far as its checksums go."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

FILE_HEADER, FRAME_HEADER = 32, 24
MAGIC = (0x377F0682, 0x377F0683)  # checksums of little- and of big-endian numbers


_HEADER_DAMAGED = "the header of the write-ahead log is damaged: it is not read"


class WriteAheadLog:
    """The committed pages of a log. As SQLite does, nothing behind a bad checksum counts."""

    def __init__(self, path: Path, page_size: int) -> None:
        self.remarks: list[str] = []
        self._page_size = page_size
        self._positions: dict[int, int] = {}  # of pages in the log, by number
        self._file = path.open("rb") if path.is_file() else None
        if self._file is not None and path.stat().st_size > FILE_HEADER:
            self._read(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __contains__(self, number: int) -> bool:
        return number in self._positions

    def __iter__(self) -> Iterator[int]:
        """The numbers of the pages it holds, in order."""
        return iter(sorted(self._positions))

    def page(self, number: int) -> bytes | None:
        """The newest committed version of a page; None, if it is not in the log."""
        at = self._positions.get(number)
        if at is None or self._file is None:
            return None
        self._file.seek(at)
        return self._file.read(self._page_size)

    def _read(self, file: BinaryIO) -> None:
        header = file.read(FILE_HEADER)
        magic, _, size = struct.unpack(">3I", header[:12])
        order = "<" if magic == MAGIC[0] else ">"
        sums = _checksum(header[:24], (0, 0), order)
        is_sound = magic in MAGIC and sums == struct.unpack(">2I", header[24:])
        if not is_sound or size != self._page_size:
            self.remarks.append(_HEADER_DAMAGED)
            return
        pending: dict[int, int] = {}
        pages = 0  # of the database, after the last commit
        at = FILE_HEADER
        while len(frame := file.read(FRAME_HEADER + size)) == FRAME_HEADER + size:
            number, pages_committed = struct.unpack(">2I", frame[:8])
            if frame[8:16] != header[16:24]:
                break  # of an earlier log: its room is used again
            sums = _checksum(frame[FRAME_HEADER:], _checksum(frame[:8], sums, order), order)
            if sums != struct.unpack(">2I", frame[16:24]):
                remark = f"the write-ahead log is damaged at byte {at}: nothing behind it is read"
                self.remarks.append(remark)
                break
            pending[number] = at + FRAME_HEADER
            at += len(frame)
            # Only a frame with the size of the database ends a transaction; frames after the last
            # such one were never committed.
            if pages_committed:
                self._positions |= pending
                pending, pages = {}, pages_committed
        # A frame with a huge page number would make salvage look for every page up to it.
        self._positions = {n: start for n, start in self._positions.items() if 1 <= n <= pages}


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
