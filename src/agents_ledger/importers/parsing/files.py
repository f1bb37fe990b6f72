"""Reading other programs' files: regular ones only, as far as they go, whatever they hold.

A file in a zip archive is known by the archive's path with its own after it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import lru_cache
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from agents_ledger.importers.parsing.encodings import BOM, as_utf8, encoding_of
from agents_ledger.ledger.projection.source_records import is_own_file
from agents_ledger.model.errors import LedgerError, Refused

if TYPE_CHECKING:
    from zipfile import ZipInfo

CHUNK_BYTES = 8 << 20
# Unpacked at once: as much is lost where a file is damaged.
PIECE_BYTES = 16 << 10
CHECKED_BYTES = 1 << 20  # unpacked at once, to be counted
HEAD_BYTES = 64 << 10
PLACES = 16  # in a file, at which it is looked at
PACKED_BYTES = 1 << 20  # from each, where it is packed
ARCHIVE, COMPRESSED = ".zip", ".zst"
LINKED = "it is a link: to import what it leads to, name that file itself"
NO_FILE = "it is not a file"
UNPACKED_MAX = 64 << 20  # bytes that any packed file may hold
# A larger one may hold so many times its size: logs are packed to a tenth or less.
RATIO_MAX = 200
NO_FILES = b"PK\x05\x06" + bytes(18)  # an archive without any


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading, unless it is a link, a pipe, a device, or a ledger we have open; of
    one in an archive, the archive."""
    path = on_disk(path)
    if is_own_file(path):
        raise Refused("it belongs to a ledger that is open here")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0)
    try:
        if not _may_be_opened(path.lstat().st_mode):
            raise Refused(NO_FILE)
        fd = os.open(path, flags)
    except OSError as error:
        what = LINKED if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise Refused(what) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Refused(NO_FILE)
    return os.fdopen(fd, "rb")


def _may_be_opened(mode: int) -> bool:
    """Whether nobody notices: who writes into a pipe waits for a reader, and devices do things."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def on_disk(path: Path) -> Path:
    """The file itself, or the archive that it stands in."""
    if ARCHIVE not in str(path):
        return path
    archives = (each for each in path.parents if each.suffix == ARCHIVE)
    return next((each for each in archives if each.is_file()), path)


def is_packed(path: Path) -> bool:
    """Whether its content has another size than the file on the disk."""
    return path.suffix == COMPRESSED or on_disk(path) != path


def logical_path(path: Path) -> str:
    """The name under which a file's content is known, compressed or not."""
    return str(path.with_suffix("") if path.suffix == COMPRESSED else path)


def members(path: Path) -> list[Path]:
    """The files in an archive that have a name."""
    try:
        return sorted(path / name for name in _directory(path, _state(path)))
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from error


def _state(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1)
def _directory(path: Path, _: tuple[int, ...]) -> dict[str, ZipInfo]:
    """The files in an archive by their names. It is read once for all of them: see `_state`."""
    import zipfile

    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            named = [each for each in archive.infolist() if each.filename and not each.is_dir()]
    except (OSError, Refused):
        raise
    except Exception as error:  # whatever is made of bytes that are no archive
        raise Refused(f"it is damaged: {error}") from error
    paths = [PurePath(each.filename) for each in named]
    names = [each.relative_to(each.anchor).as_posix() for each in paths]
    return {name: each for name, each in zip(names, named, strict=True) if name != "."}


def chunks(path: Path, file: BinaryIO, start: int) -> Iterator[bytes]:
    """The content from an offset on, unpacked where it is compressed."""
    if not is_packed(path):
        file.seek(start)
        left = os.fstat(file.fileno()).st_size - start  # more is not made room for
        while data := file.read(min(CHUNK_BYTES, max(HEAD_BYTES, left + 1))):
            left -= len(data)
            yield data
        return
    for data in _unpacked(path, file):
        if len(data) > start:
            yield data[start:]
        start = max(0, start - len(data))


def _unpacked(path: Path, file: BinaryIO, at_once: int = CHUNK_BYTES) -> Iterator[bytes]:
    """All that can be unpacked; then, where the rest is damaged, that it is."""
    damage = ""
    with ExitStack() as opened:
        try:
            stream = _stream(path, file, opened)
        except Exception as error:
            raise Refused(f"it is damaged: {_damage(error)}") from error
        while not damage:
            unpacked = BytesIO()
            try:
                while unpacked.tell() < at_once and (some := stream.read(PIECE_BYTES)):
                    unpacked.write(some)
            except Exception as error:
                damage = _damage(error)
            if unpacked.tell():
                yield unpacked.getvalue()
            elif not damage:
                return
    raise Refused(f"it is damaged: {damage}")


def check_unpacked(
    path: Path, file: BinaryIO, at_least: int = UNPACKED_MAX, ratio: int = RATIO_MAX
) -> None:
    """Refuse a packed file that would unpack to far more than it takes on the disk."""
    if not is_packed(path):
        return
    limit = max(at_least, ratio * _packed_bytes(path, file))
    size = 0
    with suppress(Exception), ExitStack() as opened:  # damage is reported when it is read
        stream = _stream(path, file, opened)
        while size <= limit and (some := stream.read(CHECKED_BYTES)):
            size += len(some)
    if size > limit:
        raise Refused(
            f"it unpacks to over {limit >> 20} MB, far more than it takes on the disk: if you trust"
            " it, unpack it and import what comes out"
        )


def _packed_bytes(path: Path, file: BinaryIO) -> int:
    archive = on_disk(path)
    if archive == path:
        return os.fstat(file.fileno()).st_size
    member = _directory(archive, _state(archive)).get(path.relative_to(archive).as_posix())
    return member.compress_size if member else 0


def _damage(error: Exception) -> str:
    """What is wrong with packed bytes: each way to pack has errors of its own. One of the disk, or
    a file that is not to be read, is raised again."""
    if isinstance(error, LedgerError) or (isinstance(error, OSError) and error.errno):
        raise error
    return str(error) or type(error).__name__


def _stream(path: Path, file: BinaryIO, opened: ExitStack) -> Any:
    file.seek(0)
    stream: Any = file
    archive = on_disk(path)
    if archive != path:
        stream = opened.enter_context(_member(archive, path, file))
    if path.suffix == COMPRESSED:
        import zstandard

        unpacking = zstandard.ZstdDecompressor()
        stream = opened.enter_context(
            unpacking.stream_reader(stream, read_across_frames=True, closefd=False)
        )
    return stream


def _member(archive: Path, path: Path, file: BinaryIO) -> IO[bytes]:
    """A file in an archive that is open."""
    import zipfile

    name = path.relative_to(archive).as_posix()
    found = _directory(archive, _state(archive)).get(name)
    if found is None:
        raise Refused("it is not in the archive any more")
    reading = zipfile.ZipFile(BytesIO(NO_FILES))
    # Its directory is known: it need not be read for every file.
    reading.fp = file
    return reading.open(found)


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file's content."""
    with open_regular(path) as file:
        return head_of(path, file, size)


def head_of(path: Path, file: BinaryIO, size: int = HEAD_BYTES) -> bytes:
    """The same of one that is open. What is UTF-16 comes as UTF-8, and without a mark."""
    first = _first(path, file, size + len(BOM))
    if encoding_of(first) is not None:  # of most letters it takes two bytes
        first = _first(path, file, max(size, min(2 * size, CHUNK_BYTES)) + len(BOM))
    return as_utf8(first)[:size]


def _first(path: Path, file: BinaryIO, size: int) -> bytes:
    try:
        if is_packed(path):
            return next(_unpacked(path, file, size), b"")[:size]
        file.seek(0)
        return file.read(size)
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror}") from error


def throughout(path: Path) -> Iterator[bytes]:
    """Some bytes from places of a file, the last first; of what is packed, all up to a bound."""
    with open_regular(path) as file:
        if is_packed(path):
            yield from islice(_unpacked(path, file, PACKED_BYTES), PLACES)
            return
        size = os.fstat(file.fileno()).st_size
        step = max(HEAD_BYTES, size // PLACES)
        for end in range(size, 0, -step):
            file.seek(max(0, end - HEAD_BYTES))
            yield file.read(min(end, HEAD_BYTES))
