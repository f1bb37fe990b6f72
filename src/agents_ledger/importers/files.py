"""Reading other programs' files: regular ones only, as far as they go, whatever they hold.

A file in a zip archive is known by the archive's path with its own after it.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from agents_ledger.ledger.sources import is_own_file
from agents_ledger.model.errors import Refused

CHUNK_BYTES = 8 << 20
PIECE_BYTES = 16 << 10  # unpacked at once: as much is lost where a file is damaged
HEAD_BYTES = 64 << 10
ARCHIVE, COMPRESSED = ".zip", ".zst"


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, unless it is a link, a pipe, a device, or a ledger we have open; of
    one in an archive, the archive."""
    path = on_disk(path)
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


def on_disk(path: Path) -> Path:
    """The file itself, or the archive that it stands in."""
    archives = (each for each in path.parents if each.suffix == ARCHIVE)
    return next((each for each in archives if each.is_file()), path)


def is_packed(path: Path) -> bool:
    """Whether its content has another size than the file on the disk."""
    return path.suffix == COMPRESSED or on_disk(path) != path


def logical_path(path: Path) -> str:
    """The name under which a file's content is known, compressed or not."""
    return str(path.with_suffix("") if path.suffix == COMPRESSED else path)


def members(path: Path) -> list[Path]:
    """The files in an archive."""
    import zipfile

    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            names = [each.filename for each in archive.infolist() if not each.is_dir()]
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
        raise Refused(f"it is damaged: {error}") from error
    return sorted(path / PurePath(name).relative_to(PurePath(name).anchor) for name in names)


def chunks(path: Path, file: BinaryIO, start: int) -> Iterator[bytes]:
    """The content from an offset on, unpacked where it is compressed."""
    if not is_packed(path):
        file.seek(start)
        while data := file.read(CHUNK_BYTES):
            yield data
        return
    for data in _unpacked(path, file):
        if len(data) > start:
            yield data[start:]
        start = max(0, start - len(data))


def _unpacked(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """All that can be unpacked; then, where the rest is damaged, that it is."""
    import zipfile

    import zstandard

    broken = (zstandard.ZstdError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError)
    damage = ""
    with ExitStack() as opened:
        try:
            stream = _stream(path, file, opened)
        except broken as error:
            raise Refused(f"it is damaged: {error}") from error
        while not damage:
            unpacked = BytesIO()
            try:
                while unpacked.tell() < CHUNK_BYTES and (some := stream.read(PIECE_BYTES)):
                    unpacked.write(some)
            except broken as error:
                damage = str(error)
            if unpacked.tell():
                yield unpacked.getvalue()
            elif not damage:
                return
    raise Refused(f"it is damaged: {damage}")


def _stream(path: Path, file: BinaryIO, opened: ExitStack) -> Any:
    import zipfile

    import zstandard

    file.seek(0)
    if path.suffix == COMPRESSED:
        unpacking = zstandard.ZstdDecompressor()
        return opened.enter_context(
            unpacking.stream_reader(file, read_across_frames=True, closefd=False)
        )
    name = path.relative_to(on_disk(path)).as_posix()
    archive = opened.enter_context(zipfile.ZipFile(file))
    found = (each for each in archive.namelist() if each.lstrip("/") == name)
    return opened.enter_context(archive.open(next(found, name)))


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file's content."""
    with open_regular(path) as file:
        try:
            return next(_unpacked(path, file), b"")[:size] if is_packed(path) else file.read(size)
        except OSError as error:
            raise Refused(f"cannot be read: {error.strerror}") from error
