"""Files of text in UTF-16, as `>` of PowerShell on Windows writes them: read as if they were UTF-8.

They are kept as they are. Where something stands in what is read is told by where it is kept.
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
MARK = 2  # bytes that say so
# A mark may be missing: the first two characters of JSON are ASCII.
UNMARKED = {  # how JSON begins
    "utf-16-le": re.compile(rb"[{\[]\0[\"{}\[\]\s]\0"),
    "utf-16-be": re.compile(rb"\0[{\[]\0[\"{}\[\]\s]"),
}
WIDEST = codecs.BOM_UTF32_LE  # which begins as one of them
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
    """Where the bytes of kept files are: a ledger's sources, or what was given of them."""

    def stream(self, file_id: int) -> Iterator[bytes]:
        """A file's bytes, some at a time."""

    def read(self, file_id: int, start: int, length: int) -> bytes:
        """Some bytes of a file."""


def encoding_of(first: bytes) -> str | None:
    """How a file is written that begins so, if that is UTF-16."""
    if first.startswith(WIDEST):
        return None
    unmarked = (name for name, begins in UNMARKED.items() if begins.match(first))
    return WIDE.get(first[:MARK]) or next(unmarked, None)


def _mark(first: bytes) -> int:
    """The bytes of the mark of a file in UTF-16."""
    return MARK if first[:MARK] in WIDE else 0


def as_utf8(first: bytes) -> bytes:
    """The first bytes of a file as UTF-8, without a mark."""
    encoding = encoding_of(first)
    if encoding is None:
        return first.removeprefix(BOM)
    return _encoded(first[_mark(first) :].decode(encoding, "ignore"))


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


class _Wide:
    """A file in UTF-16, and where pieces of it begin, here and as UTF-8."""

    def __init__(self, encoding: str, mark: int) -> None:
        self.encoding = encoding
        self.mark = mark
        self.kept = array("q", [mark])
        self.read = array("q", [0])
        self.is_known = False  # all of it

    def pieces(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """As UTF-8. Halves of letters, and a last byte, become U+FFFD."""
        kept, read = array("q", [self.mark]), array("q", [0])
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        seen, skipped = 0, self.mark
        for block in blocks:
            for at in range(0, len(block), PIECE):
                piece = block[at : at + PIECE]
                seen += len(piece)
                data = _encoded(decoder.decode(piece[skipped:]))
                skipped = 0
                kept.append(seen - len(decoder.getstate()[0]))
                read.append(read[-1] + len(data))
                yield data
        data = _encoded(decoder.decode(b"", final=True))
        kept.append(seen)
        read.append(read[-1] + len(data))
        yield data
        self.kept, self.read, self.is_known = kept, read, True


class Utf8:
    """The bytes of kept files, those in UTF-16 as UTF-8."""

    def __init__(self, given: Bytes, noticed: Callable[[int], None]) -> None:
        """`noticed` is told the number of each file in UTF-16, once."""
        self._given = given
        self._noticed = noticed
        self._files: dict[int, _Wide | None] = {}

    def stream(self, file_id: int) -> Iterator[bytes]:
        """A file's bytes, some at a time, and a mark at once: the first block may be one byte."""
        blocks = self._given.stream(file_id)
        first = b""
        while len(first) < len(WIDEST) and (more := next(blocks, None)) is not None:
            first += more
        wide = self._wide(file_id, first)
        blocks = chain((first,), blocks)
        return blocks if wide is None else wide.pieces(blocks)

    def read(self, file_id: int, start: int, length: int) -> bytes:
        wide = self._known(file_id)
        if wide is None:
            return self._given.read(file_id, start, length)
        first = bisect_right(wide.read, start) - 1
        last = min(bisect_left(wide.read, start + length), len(wide.read) - 1)
        kept = self._given.read(file_id, wide.kept[first], wide.kept[last] - wide.kept[first])
        data = _encoded(kept.decode(wide.encoding, "replace"))
        return data[start - wide.read[first] :][:length]

    def kept_at(self, file_id: int, offset: int) -> int:
        """Where it is kept what is read at an offset."""
        wide = self._known(file_id)
        if wide is None:
            return offset
        piece = bisect_right(wide.read, offset) - 1
        before = self.read(file_id, wide.read[piece], offset - wide.read[piece])
        return wide.kept[piece] + len(before.decode(errors="replace").encode(wide.encoding))

    def _known(self, file_id: int) -> _Wide | None:
        if file_id not in self._files:
            self._wide(file_id, self._given.read(file_id, 0, len(WIDEST)))
        wide = self._files[file_id]
        if wide is not None and not wide.is_known:
            for _ in self.stream(file_id):
                pass
        return wide

    def _wide(self, file_id: int, first: bytes) -> _Wide | None:
        if file_id not in self._files:
            encoding = encoding_of(first)
            self._files[file_id] = None if encoding is None else _Wide(encoding, _mark(first))
            if encoding is not None:
                self._noticed(file_id)
        return self._files[file_id]
