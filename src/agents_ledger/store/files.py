"""New files beside a ledger: private from their first byte, durable before they have their name."""

from __future__ import annotations

import os
from pathlib import Path

from agents_ledger.model.errors import NotFound, ReadOnly, StoreUnavailable
from agents_ledger.model.ids import new_id


def new_private_file(beside: Path) -> Path:
    """An empty file in the same folder that only its owner can read."""
    path = beside.with_name(f"{beside.name}.unfinished-{new_id()}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileNotFoundError as error:
        raise NotFound(f"there is no folder {path.parent}", "Make the folder first.") from error
    except OSError as error:
        raise ReadOnly(f"cannot write into {path.parent}: {error.strerror}") from error
    return path


def replace_durably(file: Path, target: Path) -> None:
    """Give a finished file its name, so that a power cut leaves all of it or nothing."""
    # Content before the name: after a power cut a file with its name must be whole.
    _sync(file)
    # Left under the unfinished name, they would never be removed.
    for suffix in ("-wal", "-shm", ".lock", ".next"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    os.replace(file, target)
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Windows has no such call."""
    if os.name == "nt":
        return
    try:
        _sync(folder)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot sync the folder {folder}: {error.strerror}", "Check the disk it is on."
        ) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_privately(file: Path, text: str) -> None:
    """Replace a file by one that only its owner can read, or make it and its folder."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = new_private_file(file)
    try:
        unfinished.write_text(text, encoding="utf-8")
        replace_durably(unfinished, file)
    finally:
        unfinished.unlink(missing_ok=True)


def append_durably(file: Path, text: str) -> None:
    """Append to a file, which is made for its owner alone. A link is not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        fd = os.open(file, flags, 0o600)
        try:
            os.write(fd, text.encode())
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StoreUnavailable(f"cannot append to {file}: {error.strerror}") from error


KEY_BYTES = 32


def private_key(path: Path, *, create: bool) -> bytes | None:
    """The random key in a file that only its owner can read; None if there is none yet."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        if not create:
            return None
    except OSError as error:
        raise ReadOnly(f"cannot read the key {path}: {error.strerror}") from error
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = new_private_file(path)
        unfinished.write_bytes(os.urandom(KEY_BYTES))
        _sync(unfinished)
        try:
            os.link(unfinished, path)  # another process may have been quicker: its key stays
        except FileExistsError:
            pass
        finally:
            unfinished.unlink()
        sync_folder(path.parent)
        return path.read_bytes()
    except OSError as error:
        raise ReadOnly(f"cannot make the key {path}: {error.strerror}") from error
