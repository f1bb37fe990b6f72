"""Text files in UTF-16, which `>` of PowerShell on Windows writes: they are read as UTF-8.

They are archived unchanged; offsets in the UTF-8 text can be mapped to archived ones.
"""

from __future__ import annotations

import codecs
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Protocol

BOM = b"\xef\xbb\xbf"
WIDE = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
MARK = 2  # bytes of a BOM in UTF-16
UNMARKED = {  # how JSON begins
    "utf-16-le": re.compile(rb"[{\[]\0[\"{}\[\]\s]\0"),
    "utf-16-be": re.compile(rb"\0[{\[]\0[\"{}\[\]\s]"),
}
WIDEST = codecs.BOM_UTF32_LE  # begins with the BOM of UTF-16
PIECE = 64 << 10
TEXT_BYTES = 1 << 20


def texts(data: bytes, errors: str, size: int = TEXT_BYTES) -> Iterator[str]:
    """UTF-8 decoded in chunks of `size` bytes: decoded, it may take four times the memory."""
    whole_characters = re.compile(rb".{1,%d}[\x80-\xbf]{0,3}" % size, re.DOTALL)
    return (chunk[0].decode(errors=errors) for chunk in whole_characters.finditer(data))


def is_text(data: bytes, errors: str = "surrogatepass") -> bool:
    """Whether data is UTF-8. Unpaired surrogates are accepted, unless `errors` is "strict"."""
    try:
        for _ in texts(data, errors):
            pass
    except UnicodeDecodeError:
        return False
    return True


class Bytes(Protocol):
    def stream(self, file_id: int) -> Iterator[bytes]: ...

    def read(self, file_id: int, start: int, length: int) -> bytes: ...


def encoding_of(first: bytes) -> str | None:
    """The encoding of a file with these first bytes if it is UTF-16, else None."""
    if first.startswith(WIDEST):
        return None
    unmarked = (name for name, begins in UNMARKED.items() if begins.match(first))
    return WIDE.get(first[:MARK]) or next(unmarked, None)


def _mark(first: bytes) -> int:
    return MARK if first[:MARK] in WIDE else 0


def as_utf8(first: bytes) -> bytes:
    """The first bytes of a file as UTF-8, without a BOM."""
    encoding = encoding_of(first)
    if encoding is None:
        return first.removeprefix(BOM)
    return _encoded(first[_mark(first) :].decode(encoding, "ignore"))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


class _Utf16File:
    """A file in UTF-16, and where its pieces begin, as archived and as UTF-8."""

    def __init__(self, encoding: str, mark: int, piece_bytes: int) -> None:
        self.encoding = encoding
        self._piece_bytes = piece_bytes
        self.mark = mark
        self.archived_starts = array("q", [mark])
        self.utf8_starts = array("q", [0])
        self.is_mapped = False  # to its end

    def pieces(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """As UTF-8. Unpaired surrogates and an odd last byte become U+FFFD."""
        archived_starts, utf8_starts = array("q", [self.mark]), array("q", [0])
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        seen, skipped = 0, self.mark
        for block in blocks:
            for at in range(0, len(block), self._piece_bytes):
                piece = block[at : at + self._piece_bytes]
                seen += len(piece)
                data = _encoded(decoder.decode(piece[skipped:]))
                skipped = 0
                archived_starts.append(seen - len(decoder.getstate()[0]))
                utf8_starts.append(utf8_starts[-1] + len(data))
                yield data
        data = _encoded(decoder.decode(b"", final=True))
        archived_starts.append(seen)
        utf8_starts.append(utf8_starts[-1] + len(data))
        yield data
        self.archived_starts, self.utf8_starts = archived_starts, utf8_starts
        self.is_mapped = True


class Utf8:
    """The bytes of archived files, those in UTF-16 as UTF-8."""

    def __init__(
        self, archived: Bytes, report_utf16: Callable[[int], None], piece_bytes: int = PIECE
    ) -> None:
        """`report_utf16` is called once with the id of each file in UTF-16."""
        self._archived = archived
        self._piece_bytes = piece_bytes
        self._report_utf16 = report_utf16
        self._files: dict[int, _Utf16File | None] = {}

    def stream(self, file_id: int) -> Iterator[bytes]:
        """The bytes of a file. A BOM is never split, though the first block may be one byte."""
        blocks = self._archived.stream(file_id)
        first = b""
        while len(first) < len(WIDEST) and (more := next(blocks, None)) is not None:
            first += more
        wide = self._wide(file_id, first)
        blocks = chain((first,), blocks)
        return blocks if wide is None else wide.pieces(blocks)

    def read(self, file_id: int, start: int, length: int) -> bytes:
        wide = self._mapped(file_id)
        if wide is None:
            return self._archived.read(file_id, start, length)
        first = bisect_right(wide.utf8_starts, start) - 1
        last = min(bisect_left(wide.utf8_starts, start + length), len(wide.utf8_starts) - 1)
        start_at, end_at = wide.archived_starts[first], wide.archived_starts[last]
        archived = self._archived.read(file_id, start_at, end_at - start_at)
        data = _encoded(archived.decode(wide.encoding, "replace"))
        return data[start - wide.utf8_starts[first] :][:length]

    def archived_offset(self, file_id: int, offset: int) -> int:
        """The archived offset of an offset in the UTF-8 text."""
        wide = self._mapped(file_id)
        if wide is None:
            return offset
        piece = bisect_right(wide.utf8_starts, offset) - 1
        before = self.read(file_id, wide.utf8_starts[piece], offset - wide.utf8_starts[piece])
        return wide.archived_starts[piece] + len(
            before.decode(errors="replace").encode(wide.encoding)
        )

    def _mapped(self, file_id: int) -> _Utf16File | None:
        if file_id not in self._files:
            self._wide(file_id, self._archived.read(file_id, 0, len(WIDEST)))
        wide = self._files[file_id]
        if wide is not None and not wide.is_mapped:
            for _ in self.stream(file_id):
                pass
        return wide

    def _wide(self, file_id: int, first: bytes) -> _Utf16File | None:
        if file_id not in self._files:
            encoding = encoding_of(first)
            self._files[file_id] = (
                None if encoding is None else _Utf16File(encoding, _mark(first), self._piece_bytes)
            )
            if encoding is not None:
                self._report_utf16(file_id)
        return self._files[file_id]
