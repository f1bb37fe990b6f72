"""What of a large turn waits in a file until it is written: memory need not hold it."""

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


class Spot(int):
    """Where a value stands."""


class Aside:
    """Values in a file that has no name, and goes with this."""

    def __init__(self) -> None:
        self._folder = _folder()
        self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 - open while somebody may read
        finalize(self, _close, self._file)

    def put(self, value: object) -> Spot:
        """Set a value aside."""
        try:
            spot = Spot(self._file.seek(0, os.SEEK_END))
            pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._folder) from error
        return spot

    def read(self, spot: Spot) -> Any:
        """A value as it was."""
        self._file.seek(spot)
        return pickle.load(self._file)  # noqa: S301 - ours wrote it


def _folder() -> str:
    """Where there is room: /tmp is memory on many systems."""
    if os.environ.get("TMPDIR") or not os.access(ROOMY, os.W_OK):
        return gettempdir()
    return ROOMY


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # what could not be written need not be
        file.close()


class ReadAgain(Sequence[T], Generic[T]):
    """Values that are read whenever somebody goes through them."""

    def __init__(self, spots: Sequence[Any], read: Callable[[Any], T]) -> None:
        self._spots = spots
        self._read = read

    def __reduce__(self) -> tuple[type[tuple[T, ...]], tuple[tuple[T, ...]]]:
        """Another process gets the values."""
        return tuple, (tuple(self),)

    def __len__(self) -> int:
        return len(self._spots)

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> ReadAgain[T]: ...
    def __getitem__(self, at: int | slice) -> T | ReadAgain[T]:
        if isinstance(at, slice):
            return ReadAgain(self._spots[at], self._read)
        return self._read(self._spots[at])
