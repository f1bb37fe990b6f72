"""Parts of a large turn, kept in a temporary file until they are written (docs/decisions/0021)."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any, Generic, TypeVar, overload
from weakref import finalize

T = TypeVar("T")
ROOMY = "/var/tmp"  # noqa: S108 - the file there has no name


class SpillOffset(int):
    """Where a value is in a spill file."""


class SpillFile:
    """Values in an unnamed temporary file, which is removed with this object."""

    def __init__(self) -> None:
        self._folder = _folder()
        self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 - open as long as this object
        finalize(self, _close, self._file)

    def put(self, value: object) -> SpillOffset:
        try:
            offset = SpillOffset(self._file.seek(0, os.SEEK_END))
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._folder) from error
        return offset

    def read(self, offset: SpillOffset) -> Any:
        self._file.seek(offset)
        return pickle.load(self._file)  # noqa: S301 - ours wrote it


def _folder() -> str:
    """A folder with room: /tmp is memory on many systems."""
    if os.environ.get("TMPDIR") or not os.access(ROOMY, os.W_OK):
        return gettempdir()
    return ROOMY


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # unwritten values are no longer needed
        file.close()


class LazySequence(Sequence[T], Generic[T]):
    """Values that are read whenever they are used."""

    def __init__(self, keys: Sequence[Any], read: Callable[[Any], T]) -> None:
        self._keys = keys
        self._read = read

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        return tuple, (tuple(self),)

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> LazySequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | LazySequence[T]:
        if isinstance(at, slice):
            return LazySequence(self._keys[at], self._read)
        return self._read(self._keys[at])
