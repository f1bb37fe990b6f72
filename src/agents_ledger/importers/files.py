"""Reading other programs' files: regular ones only, as far as they go, whatever they hold."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from agents_ledger.ledger.sources import is_own_file
from agents_ledger.model.errors import Refused

CHUNK_BYTES = 8 << 20
PIECE_BYTES = 16 << 10  # unpacked at once: as much is lost where a file is damaged
HEAD_BYTES = 64 << 10


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, unless it is a link, a pipe, a device, or a ledger we have open."""
    if is_own_file(path):
        raise Refused("it belongs to a ledger that is open here")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0)
    try:
        fd = os.open(path, flags)
    except OSError as error:
        what = "it is a link" if path.is_symlink() else error.strerror
        raise Refused(f"cannot be read: {what}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Refused("it is not a file")
    return os.fdopen(fd, "rb")


def logical_path(path: Path) -> str:
    """The name under which a file's content is known, compressed or not."""
    return str(path.with_suffix("") if path.suffix == ".zst" else path)


def chunks(path: Path, file: BinaryIO, start: int) -> Iterator[bytes]:
    """The content from an offset on, unpacked where it is compressed."""
    if path.suffix != ".zst":
        file.seek(start)
        while data := file.read(CHUNK_BYTES):
            yield data
        return
    for data in _unpacked(file):
        if len(data) > start:
            yield data[start:]
        start = max(0, start - len(data))


def _unpacked(file: BinaryIO) -> Iterator[bytes]:
    """All that can be unpacked; then, where the rest is damaged, that it is."""
    import zstandard

    file.seek(0)
    unpacking = zstandard.ZstdDecompressor()
    with unpacking.stream_reader(file, read_across_frames=True, closefd=False) as stream:
        damage = ""
        while not damage:
            unpacked = BytesIO()
            try:
                while unpacked.tell() < CHUNK_BYTES and (some := stream.read(PIECE_BYTES)):
                    unpacked.write(some)
            except zstandard.ZstdError as error:
                damage = str(error)
            if unpacked.tell():
                yield unpacked.getvalue()
            elif not damage:
                return
    raise Refused(f"it is damaged: {damage}")


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file's content."""
    with open_regular(path) as file:
        try:
            return next(_unpacked(file), b"")[:size] if path.suffix == ".zst" else file.read(size)
        except OSError as error:
            raise Refused(f"cannot be read: {error.strerror}") from error
