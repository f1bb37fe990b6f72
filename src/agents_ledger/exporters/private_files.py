"""New files that only their owner can read, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

MODE = 0o600


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, MODE)


def open_new(path: Path, kind: str, **options: Any) -> IO[Any]:
    """Open a file that does not exist yet; `kind` is "t" or "b"."""
    return open(path, f"x{kind}", opener=_open_private, **options)


def make_new(path: Path) -> None:
    """Make an empty file, for a library that opens it by its name."""
    open_new(path, "b").close()
