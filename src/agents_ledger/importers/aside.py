"""What of a large turn waits in a file until it is written: memory need not hold it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from tempfile import TemporaryFile
from typing import Any, Generic, TypeVar, overload
from weakref import finalize

T = TypeVar("T")


class Spot(int):
    """Where a value stands."""


class Aside:
    """Values in a file that has no name, and goes with this."""

    def __init__(self) -> None:
        self._file = TemporaryFile()  # noqa: SIM115 - it is open as long as somebody may read
        finalize(self, self._file.close)

    def put(self, value: object) -> Spot:
        """Set a value aside."""
        spot = Spot(self._file.seek(0, os.SEEK_END))
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)
        return spot

    def read(self, spot: Spot) -> Any:
        """A value as it was."""
        self._file.seek(spot)
        return pickle.load(self._file)  # noqa: S301 - ours wrote it


class ReadAgain(Sequence[T], Generic[T]):
    """Values that are read whenever somebody goes through them."""

    def __init__(self, spots: Sequence[Any], read: Callable[[Any], T]) -> None:
        self._spots = spots
        self._read = read

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
