"""Collections whose older values are serialised: a session may have a million of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.model.imports.interning import Numbering

T = TypeVar("T", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode
# Such values stay as objects: MessagePack can hold neither.
_UNPACKABLE = (UnicodeEncodeError, OverflowError)  # unpaired surrogates, huge numbers


@lru_cache(maxsize=64)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


class PackedList(Generic[T]):
    """Values of one type by number, from 0. Those not used for long are packed as MessagePack."""

    def __init__(self, kind: type[T], limits: ImportLimits = LIMITS) -> None:
        self._held_max = limits.held_values
        # A value that stays unpacked, because it is still being changed.
        self.going_on = -1
        self._decode = _decoder(kind).decode
        self._open: dict[int, T] = {}
        self._unpackable: dict[int, T] = {}
        self._data = bytearray()
        self._starts = array("Q")
        self._lengths = array("I")

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[T]:
        return map(self.read, range(len(self)))

    def add(self, value: T) -> int:
        """Append a value and return its number."""
        number = len(self._starts)
        self._starts.append(0)
        self._lengths.append(0)
        self._hold(number, value)
        return number

    def __setitem__(self, number: int, value: T) -> None:
        self._unpackable.pop(number, None)
        self._hold(number, value)

    def __getitem__(self, number: int) -> T:
        """A value that may be changed, before any other is read."""
        value = self._open.get(number)
        if value is None:
            value = self.read(number)
            self._hold(number, value)
        return value

    def read(self, number: int) -> T:
        """A value that must not be changed."""
        value = self._open.get(number) or self._unpackable.get(number)
        if value is None:
            start = self._starts[number]
            value = self._decode(self._data[start : start + self._lengths[number]])
        return value

    def _hold(self, number: int, value: T) -> None:
        self._open[number] = value
        if len(self._open) > self._held_max:
            candidates = (n for n in self._open if n not in (number, self.going_on))
            for oldest in list(islice(candidates, 1)):
                self._pack(oldest, self._open.pop(oldest))

    def _pack(self, number: int, value: T) -> None:
        try:
            data = _encode(value)
        except _UNPACKABLE:
            self._unpackable[number] = value
            return
        if len(data) > self._lengths[number]:
            self._starts[number] = len(self._data)
            self._data += data
        else:
            start = self._starts[number]
            self._data[start : start + len(data)] = data
        self._lengths[number] = len(data)


class PackedDict(Generic[T]):
    """The same by name, in the order they were added."""

    def __init__(self, kind: type[T], limits: ImportLimits = LIMITS) -> None:
        self.limits = limits
        self.values = PackedList(kind, limits)
        self._names = Numbering(held=limits.held_names)
        self.number, self.name = self._names.get, self._names.name

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[str]:
        return map(self.name, range(len(self.values)))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.number(name) >= 0

    def __setitem__(self, name: str, value: T) -> None:
        number = self._names.add(name)
        if number < len(self.values):
            self.values[number] = value
        else:
            self.values.add(value)

    def __getitem__(self, name: str) -> T:
        """A value that may be changed, before any other is read."""
        number = self.number(name)
        if number < 0:
            raise KeyError(name)
        return self.values[number]

    def read(self, name: str) -> T:
        """A value that must not be changed."""
        return self.values.read(self.number(name))

    def get(self, name: str | None) -> T | None:
        """A value that may be changed, before any other is read; None if there is none."""
        number = -1 if name is None else self.number(name)
        return self.values[number] if number >= 0 else None

    def items(self) -> Iterator[tuple[str, T]]:
        """All names and values, which must not be changed."""
        return zip(self, self.values, strict=True)
