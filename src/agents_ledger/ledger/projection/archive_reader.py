"""The bytes of archived files, read back from their compressed blocks."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.store.database import Row, Transaction, Work

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict

# Level 5 takes twice the time and saves 5 %.
LEVEL = 4
WINDOW_LOG = 24  # the window covers a block and its base
# Compressing against the longest base takes 70 MB, so it is done by one thread at a time.
BASE_LOCK = Lock()
TAIL_BYTES = 4096
CACHED_BLOCKS = 3
# So that a chain of generations is decompressed once.
CACHED_BASES = 2
BLOCKS_AT_ONCE = 8


def tail_hash(head: bytes, tail: bytes) -> bytes:
    """A hash of a file's first and its last archived bytes, to detect a rewritten file."""
    return hashlib.sha256(head[:TAIL_BYTES] + b"\0" + tail[-TAIL_BYTES:]).digest()


class SourceBlock(NamedTuple):
    file_id: int
    start: int
    length: int
    base_file_id: int | None
    base_length: int | None  # bytes of its beginning; None: all of it
    data: bytes


def _dictionary(base: bytes | None) -> ZstdCompressionDict | None:
    import zstandard

    return zstandard.ZstdCompressionDict(base, zstandard.DICT_TYPE_RAWCONTENT) if base else None


def pack(data: bytes, base: bytes | None = None) -> bytes:
    """Compress `data`; against `base`, which should have most of its content."""
    with BASE_LOCK if base else nullcontext():
        return _packed(data, base)


def _packed(data: bytes, base: bytes | None) -> bytes:
    import zstandard

    size = len(data) + len(base or b"")
    wide = {"window_log": min(WINDOW_LOG, max(10, size.bit_length()))}
    # Hash tables large enough to find matches in all of the base.
    if base:
        wide |= dict.fromkeys(("hash_log", "chain_log"), min(22, max(10, size.bit_length() - 1)))
    parameters = zstandard.ZstdCompressionParameters.from_level(LEVEL, source_size=size, **wide)
    packing = zstandard.ZstdCompressor(compression_params=parameters, dict_data=_dictionary(base))
    return packing.compress(data)


def unpack(data: bytes, length: int, base: bytes | None = None) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor(dict_data=_dictionary(base)).decompress(
        data, max_output_size=length
    )


class Edit(NamedTuple):
    """Bytes of a file that are overwritten."""

    start: int
    data: bytes

    @property
    def end(self) -> int:
        return self.start + len(self.data)


def edited(data: bytes, start: int, edits: Sequence[Edit]) -> bytes:
    """Bytes of a file that begin at `start`, with the edits within them."""
    changed: bytearray | None = None
    for edit in edits:
        first, last = max(edit.start, start), min(edit.end, start + len(data))
        if first < last:
            changed = changed if changed is not None else bytearray(data)
            changed[first - start : last - start] = edit.data[
                first - edit.start : last - edit.start
            ]
    return data if changed is None else bytes(changed)


class RecordPlace(NamedTuple):
    """Where a record is."""

    file_id: int
    start: int
    length: int


class TurnRecords(NamedTuple):
    """The records of some turns in an archived file."""

    kept_bytes: int  # of the file, when they were looked for
    own: frozenset[RecordPlace]  # of these turns only
    others: frozenset[RecordPlace]


class ArchiveReader:
    """Reads the bytes of archived files, by a function that runs what reads the ledger."""

    def __init__(self, work: Callable[[Work[Any]], Any]) -> None:
        self._work = work
        # What is read as if it were overwritten already, by file.
        self.edits: Mapping[int, Sequence[Edit]] = {}
        # Where read() was asked for records; None: nobody wants to know.
        self.places_read: set[RecordPlace] | None = None
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._starts: dict[int, list[int]] = {}
        self._bases: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def file_by_id(self, file_id: int) -> SourceFile:
        return SourceFile(*self._work(lambda tx: tx.run("source_file_by_id", id=file_id))[0])

    def stream(self, file_id: int) -> Iterator[bytes]:
        start, more = 0, True
        while more:
            rows = self._work(partial(_blocks_from, file_id, start))
            for row in rows:
                block = SourceBlock(file_id, *row)
                start = block.start + block.length
                yield edited(self.unpacked(block), block.start, self.edits.get(file_id, ()))
            more = len(rows) == BLOCKS_AT_ONCE

    def read(self, file_id: int, start: int, length: int) -> bytes:
        if self.places_read is not None:
            self.places_read.add(RecordPlace(file_id, start, length))
        data = self._read_whole(file_id, start, length)
        return edited(data, start, self.edits.get(file_id, ()))

    def _read_whole(self, file_id: int, start: int, length: int) -> bytes:
        data = self._read(file_id, start, length)
        # Another process may have archived more since the starts of the blocks were cached.
        if len(data) < length:
            self._starts.pop(file_id, None)
            data = self._read(file_id, start, length)
        return data

    def _read(self, file_id: int, start: int, length: int) -> bytes:
        starts = self._block_starts(file_id)
        first, end = max(0, bisect_right(starts, start) - 1), bisect_left(starts, start + length)
        pieces = (
            self._block(file_id, at)[max(0, start - at) : start + length - at]
            for at in starts[first:end]
        )
        if end - first == 1:
            return next(pieces)
        # b"".join() would hold all pieces twice.
        data = BytesIO()
        data.writelines(pieces)
        return data.getvalue()

    def _block_starts(self, file_id: int) -> list[int]:
        if file_id not in self._starts:
            rows = self._work(lambda tx: tx.run("block_starts", file_id=file_id))
            self._starts[file_id] = [row[0] for row in rows]
        return self._starts[file_id]

    def _block(self, file_id: int, start: int) -> bytes:
        key = (file_id, start)
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        rows = self._work(lambda tx: tx.run("block_at", file_id=file_id, start=start))
        self._cache[key] = data = self.unpacked(SourceBlock(file_id, *rows[0]))
        while len(self._cache) > CACHED_BLOCKS:
            self._cache.popitem(last=False)
        return data

    def unpacked(self, block: SourceBlock) -> bytes:
        base = None
        if block.base_file_id is not None:
            length = block.base_length or self.file_by_id(block.base_file_id).kept_bytes
            base = self.beginning(block.base_file_id, length)
        return unpack(bytes(block.data), block.length, base)

    def beginning(self, file_id: int, length: int) -> bytes:
        key = (file_id, length)
        cached = self._bases.pop(key, None)
        self._bases[key] = data = (
            cached if cached is not None else self._read_whole(file_id, 0, length)
        )
        while len(self._bases) > CACHED_BASES:
            self._bases.popitem(last=False)
        return data


def _blocks_from(file_id: int, start: int, tx: Transaction) -> list[Row]:
    return tx.run("blocks_from", file_id=file_id, start=start, limit=BLOCKS_AT_ONCE)
