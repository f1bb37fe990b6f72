"""The pages that a write-ahead log of SQLite holds, as far as its checksums go."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

FILE_HEADER, FRAME_HEADER = 32, 24
MAGIC = (0x377F0682, 0x377F0683)  # checksums of little- and of big-endian numbers


class Logged(NamedTuple):
    """Committed pages by number, and what is wrong with the log."""

    pages: dict[int, bytes]
    remarks: list[str]


def logged_pages(path: Path, page_size: int) -> Logged:
    """What the log adds to its file. As SQLite does, nothing behind a bad checksum counts."""
    committed: dict[int, bytes] = {}
    if not path.is_file() or path.stat().st_size <= FILE_HEADER:
        return Logged(committed, [])
    data = path.read_bytes()
    magic, _, size = struct.unpack(">3I", data[:12])
    if magic not in MAGIC or size != page_size:
        return Logged(committed, ["the header of the write-ahead log is damaged: it is not read"])
    order = "<" if magic == MAGIC[0] else ">"
    sums = _checksum(data[:24], (0, 0), order)
    if sums != struct.unpack(">2I", data[24:32]):
        return Logged(committed, ["the header of the write-ahead log is damaged: it is not read"])
    pending: dict[int, bytes] = {}
    frame = FRAME_HEADER + page_size
    for at in range(FILE_HEADER, len(data) - frame + 1, frame):
        number, commit = struct.unpack(">2I", data[at : at + 8])
        if data[at + 8 : at + 16] != data[16:24]:
            break  # of an earlier log: its room is used again
        page = data[at + FRAME_HEADER : at + frame]
        sums = _checksum(page, _checksum(data[at : at + 8], sums, order), order)
        if sums != struct.unpack(">2I", data[at + 16 : at + 24]):
            remark = f"the write-ahead log is damaged at byte {at}: nothing behind it is read"
            return Logged(committed, [remark])
        pending[number] = page
        if commit:
            committed |= pending
            pending = {}
    return Logged(committed, [])


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
