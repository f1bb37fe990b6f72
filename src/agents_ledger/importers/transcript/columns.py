"""Facts about entries in arrays: a session may have millions of entries, and an object for each
would take too much memory (docs/decisions/0019)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from agents_ledger.model.imports.interning import HELD_NAMES, Numbering, Sets

NONE = -1  # how None is stored in an array


class Column(array):  # type: ignore[type-arg]  # not generic at run time
    """A number for every entry. The type code is that of `array`."""


class Links:
    """For every entry another entry, or None."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        # For the core alone: NONE where there is no link.
        self.numbers = numbers if isinstance(numbers, array) else array("i", numbers)

    @classmethod
    def empty(cls, size: int) -> Links:
        """As many entries, without links."""
        return cls(array("i", [NONE]) * size)

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int | None]:
        return (number if number >= 0 else None for number in self.numbers)

    def __getitem__(self, entry: int) -> int | None:
        number = self.numbers[entry]
        return number if number >= 0 else None

    def __setitem__(self, entry: int, target: int | None) -> None:
        self.numbers[entry] = NONE if target is None else target

    def append(self, target: int | None) -> None:
        """The link of the next entry."""
        self.numbers.append(NONE if target is None else target)

    def lead_forward(self) -> bool:
        """Whether an entry is linked to a later one."""
        return any(target > entry for entry, target in enumerate(self.numbers))

    def copy(self) -> Links:
        """The same links, to be changed."""
        return Links(self.numbers[:])


class SetColumn:
    """For every entry a set of numbers, such as its files. Few of the sets differ."""

    def __init__(self, size: int = 0) -> None:
        """`size` entries whose sets have yet to be assigned."""
        self._sets = Sets()
        self._numbers = array("I", bytes(4 * size))

    def __getitem__(self, entry: int) -> frozenset[int]:
        return self._sets[self._numbers[entry]]

    def append(self, numbers: Iterable[int]) -> None:
        """The set of the next entry."""
        self._numbers.append(self._sets.of(numbers))

    def assign(self, entries: range, numbers: Iterable[int]) -> None:
        """One set for some entries."""
        own = array("I", [self._sets.of(numbers)])
        self._numbers[entries.start : entries.stop] = own * len(entries)

    def include(self, entry: int, numbers: Iterable[int]) -> None:
        """Add to the set of an entry."""
        self._numbers[entry] = self._sets.of(self[entry].union(numbers))

    def union(self, entries: Iterable[int]) -> frozenset[int]:
        """All numbers in the sets of some entries."""
        return self._sets[self._sets.joined(map(self._numbers.__getitem__, entries))]


class Groups:
    """Numbers from 0, grouped by their owners. There may be millions of both."""

    def __init__(
        self, owners: Sequence[int], number: int, order: Iterable[int] | None = None
    ) -> None:
        """`owners` gives the owner of each number, NONE if it has none; there are `number` owners.
        Groups are in `order`, by default ascending."""
        counts = array("I", bytes(4 * number))
        for owner in owners:
            if owner >= 0:
                counts[owner] += 1
        self._ends = array("I", accumulate(counts))
        self._members = array("I", bytes(4 * self._ends[-1])) if number else array("I")
        at = array("I", (end - count for end, count in zip(self._ends, counts, strict=True)))
        for member in range(len(owners)) if order is None else order:
            owner = owners[member]
            if owner >= 0:
                self._members[at[owner]] = member
                at[owner] += 1

    def __getitem__(self, owner: int) -> array[int]:
        return self._members[self._ends[owner - 1] if owner else 0 : self._ends[owner]]


def roots_first(entries: Iterable[int], parents: Links) -> Iterator[int]:
    """Every entry after its parent. A cycle is broken in `parents`: one of it becomes a root."""
    on_path, is_done = 1, 2
    above = parents.numbers
    state = bytearray(len(above))
    for start in entries:
        path: list[int] = []
        at = start
        while at >= 0 and not state[at]:
            state[at] = on_path
            path.append(at)
            at = above[at]
        if at >= 0 and state[at] == on_path:
            above[at] = NONE
            path.remove(at)
            path.append(at)
        for entry in reversed(path):
            state[entry] = is_done
            yield entry


def nearest_above(
    entries: Iterable[int], parents: Links, matches: Callable[[int], bool]
) -> array[int]:
    """By entry, the nearest at or above it that matches; else the topmost. Entries that were not
    asked for, and are not above one that was, have -1."""
    unknown, on_path = -1, -2
    above = parents.numbers
    nearest = array("i", [unknown]) * len(above)
    for entry in entries:
        path: list[int] = []
        at = top = entry
        while at >= 0 and nearest[at] == unknown:
            nearest[at] = on_path
            path.append(at)
            top = at
            if matches(at):
                break
            at = above[at]
        if at >= 0 and nearest[at] >= 0:
            top = nearest[at]
        for member in path:
            nearest[member] = top
    return nearest


class LastByName:
    """A number for every name, such as the turn of a call; the last one counts."""

    def __init__(self, held_names: int = HELD_NAMES) -> None:
        self._names = Numbering(forgets=True, held=held_names)
        self._numbers = array("I")

    def __setitem__(self, name: str, number: int) -> None:
        at = self._names.add(name)
        if at == len(self._numbers):
            self._numbers.append(number)
        self._numbers[at] = number

    def get(self, name: str | None) -> int | None:
        at = self._names.get(name) if name else NONE
        return self._numbers[at] if at >= 0 else None
