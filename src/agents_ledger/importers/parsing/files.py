"""Reading other programs' files: only regular ones, some packed, any of them damaged.

The path of a file in a zip archive is the path of the archive followed by its name in it.
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
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.ledger.projection.source_records import is_own_file
from agents_ledger.model.errors import LedgerError, Refused

if TYPE_CHECKING:
    from zipfile import ZipInfo

PIECE_BYTES = 16 << 10  # unpacked at once: as much is lost before damage
CHECKED_BYTES = 1 << 20  # unpacked at once to measure the size
HEAD_BYTES = 64 << 10
SAMPLES = 16  # of a file
PACKED_BYTES = 1 << 20  # of a sample of a packed file
ARCHIVE, COMPRESSED = ".zip", ".zst"
LINKED = "it is a link: to import what it leads to, name that file itself"
NO_FILE = "it is not a file"
UNPACKED_MAX = 64 << 20  # bytes that any packed file may unpack to
RATIO_MAX = 200  # of larger ones; logs have one of 10 and more
NO_FILES = b"PK\x05\x06" + bytes(18)  # an empty archive


def open_regular(path: Path) -> BinaryIO:
    """Open a file, or the archive that contains it. Refused: links, pipes, devices, and ledgers
    that this process has open."""
    path = on_disk(path)
    if is_own_file(path):
        raise Refused("it belongs to a ledger that is open here")
    # O_NOFOLLOW and O_NONBLOCK: the path may have become a link or a pipe since it was looked at.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_BINARY", 0)
    try:
        if not _may_be_opened(path.lstat().st_mode):
            raise Refused(NO_FILE)
        fd = os.open(path, flags)
    except OSError as error:
        what = LINKED if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise Refused(what) from error
    # Checked once more on what was opened.
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Refused(NO_FILE)
    return os.fdopen(fd, "rb")


def _may_be_opened(mode: int) -> bool:
    """Opening a pipe unblocks its writer, and opening a device may have effects."""
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def on_disk(path: Path) -> Path:
    """The file itself, or the archive that contains it."""
    if ARCHIVE not in str(path):
        return path
    archives = (parent for parent in path.parents if parent.suffix == ARCHIVE)
    return next((archive for archive in archives if archive.is_file()), path)


def is_packed(path: Path) -> bool:
    """Whether a file is compressed or in an archive."""
    return path.suffix == COMPRESSED or on_disk(path) != path


def logical_path(path: Path) -> str:
    """The path of a file without the suffix of compression: both forms are the same file."""
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
    """The files in an archive by name. Cached while the archive has the same `_state`."""
    import zipfile

    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            entries = [info for info in archive.infolist() if info.filename and not info.is_dir()]
    except (OSError, Refused):
        raise
    except Exception as error:  # zipfile raises many kinds for damaged archives
        raise Refused(f"it is damaged: {error}") from error
    paths = [PurePath(info.filename) for info in entries]
    names = [path.relative_to(path.anchor).as_posix() for path in paths]
    return {name: info for name, info in zip(names, entries, strict=True) if name != "."}


def chunks(
    path: Path, file: BinaryIO, start: int, chunk_bytes: int = LIMITS.chunk_bytes
) -> Iterator[bytes]:
    """The content from an offset on, unpacked if the file is packed."""
    if not is_packed(path):
        file.seek(start)
        left = os.fstat(file.fileno()).st_size - start  # avoids a buffer larger than the file
        while data := file.read(min(chunk_bytes, max(HEAD_BYTES, left + 1))):
            left -= len(data)
            yield data
        return
    for data in _unpacked(path, file, chunk_bytes):
        if len(data) > start:
            yield data[start:]
        start = max(0, start - len(data))


def _unpacked(path: Path, file: BinaryIO, at_once: int) -> Iterator[bytes]:
    """Everything that can be unpacked; then Refused if the rest is damaged."""
    damage = ""
    with ExitStack() as opened:
        try:
            stream = _stream(path, file, opened)
        except Exception as error:
            raise Refused(f"it is damaged: {_damage(error)}") from error
        while not damage:
            unpacked = BytesIO()
            try:
                while unpacked.tell() < at_once and (piece := stream.read(PIECE_BYTES)):
                    unpacked.write(piece)
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
    with suppress(Exception), ExitStack() as opened:  # damage is reported by `chunks`
        stream = _stream(path, file, opened)
        while size <= limit and (piece := stream.read(CHECKED_BYTES)):
            size += len(piece)
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
    """The message of an error in packed bytes; every format raises its own kinds. Errors of the
    disk and refusals are raised again."""
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
    import zipfile

    name = path.relative_to(archive).as_posix()
    info = _directory(archive, _state(archive)).get(name)
    if info is None:
        raise Refused("it is not in the archive any more")
    reader = zipfile.ZipFile(BytesIO(NO_FILES))
    reader.fp = file  # the directory is cached: do not parse it again for every file
    return reader.open(info)


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a file's content."""
    with open_regular(path) as file:
        return head_of(path, file, size)


def head_of(path: Path, file: BinaryIO, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of an open file. UTF-16 is converted to UTF-8; a BOM is removed."""
    first = _first(path, file, size + len(BOM))
    if encoding_of(first) is not None:  # two bytes for most characters
        first = _first(path, file, max(size, min(2 * size, LIMITS.chunk_bytes)) + len(BOM))
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
    """Samples of a file, the last first; of a packed one, its beginning."""
    with open_regular(path) as file:
        if is_packed(path):
            yield from islice(_unpacked(path, file, PACKED_BYTES), SAMPLES)
            return
        size = os.fstat(file.fileno()).st_size
        step = max(HEAD_BYTES, size // SAMPLES)
        for end in range(size, 0, -step):
            file.seek(max(0, end - HEAD_BYTES))
            yield file.read(min(end, HEAD_BYTES))
