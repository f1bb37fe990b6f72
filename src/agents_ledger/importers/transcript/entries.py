"""The records of a family that turns are made of, by number and without their content."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TypeVar

from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.transcript.columns import NONE, Groups
from agents_ledger.importers.transcript.record_offsets import RecordOffsets

T = TypeVar("T")


class Entries:
    """Entries of some kinds, numbered from 0 in the order they are added.

    An entry takes 21 bytes: its kind, and where its record is. The content is read again when a
    turn is built; that of small families is held.
    """

    def __init__(self, material: Material, kinds: Sequence[str]) -> None:
        self.material = material
        self._kind_names = tuple(kinds)
        self._kind_numbers = {kind: number for number, kind in enumerate(kinds)}
        self._kinds = bytearray()
        self._offsets = RecordOffsets(material)
        self.data = self._offsets.bytes_of
        self.line = self._offsets.line
        self.length = self._offsets.length
        self.fingerprint = self._offsets.fingerprint

    def __len__(self) -> int:
        return len(self._kinds)

    def add_record(self, line: SourceLine, kind: str) -> int:
        """The number of one more entry."""
        self._offsets.add(line)
        self._kinds.append(self._kind_numbers[kind])
        return len(self._kinds) - 1

    def kind(self, entry: int) -> str:
        return self._kind_names[self._kinds[entry]]

    def set_kind(self, entry: int, kind: str) -> None:
        """Change the kind of an entry, as when it turns out to be a copy."""
        self._kinds[entry] = self._kind_numbers[kind]

    def has_kind(self, *kinds: str) -> bool:
        """Whether there is an entry of one of these kinds."""
        return any(self._kind_numbers[kind] in self._kinds for kind in kinds)

    def kind_mask(self, *kinds: str) -> int:
        """Some kinds, as `KindSets` takes them."""
        return sum(1 << self._kind_numbers[kind] for kind in kinds)

    def kind_sets(self, owners: Sequence[int], number: int) -> array[int]:
        """For `KindSets`: by owner, the kinds of its entries as bits."""
        # Two bytes of bits: a source has at most 16 kinds of entries.
        bits, kinds = array("H", bytes(2 * number)), self._kinds
        for entry, owner in enumerate(owners):
            if owner >= 0:
                bits[owner] |= 1 << kinds[entry]
        return bits

    def replace(self, entry: int, line: SourceLine) -> None:
        """Show another copy of the record."""
        self._offsets.put(entry, line)

    def show_as(self, entry: int, other: int) -> None:
        """Show the record of another entry."""
        self._offsets.take(entry, other)

    def records(self, entries: Sequence[int], read: Callable[[int], T]) -> Sequence[T]:
        """What `read` makes of each entry. Of a large turn each is read whenever it is used."""
        return self._offsets.each(entries, read)


class OwnedEntries(Entries):
    """Entries that each belong to one owner, such as the copy of a turn in one file."""

    def __init__(self, material: Material, kinds: Sequence[str]) -> None:
        super().__init__(material, kinds)
        self._owners = array("i")
        self._tags = array("I")
        self._groups = Groups((), 0)

    def add(self, line: SourceLine, kind: str, owner: int | None, tag: int = 0) -> int:
        """The number of one more entry. `tag` is a number of the source's own."""
        self._owners.append(NONE if owner is None else owner)
        self._tags.append(tag)
        return self.add_record(line, kind)

    def tag(self, entry: int) -> int:
        """The source's own number for an entry."""
        return self._tags[entry]

    def give(self, entry: int, owner: int | None) -> None:
        """Say whose an entry is, from the next grouping on."""
        self._owners[entry] = NONE if owner is None else owner

    def group(self, owners: int) -> None:
        """Group the entries by their owners, which are numbered from 0."""
        self._groups = Groups(self._owners, owners)

    def free_owners(self) -> None:
        """Free what only another grouping would need."""
        self._owners = array("i")

    def of(self, owner: int) -> Sequence[int]:
        """The entries of an owner, in order."""
        return self._groups[owner]


class KindSets:
    """Which kinds of entries each turn has. Kinds are given as masks, see `Entries.kind_mask`."""

    def __init__(self, entries: Entries, owners: Sequence[int], number: int) -> None:
        self._bits = entries.kind_sets(owners, number)

    def has(self, turn: int, kinds: int) -> bool:
        return bool(self._bits[turn] & kinds)

    def has_only(self, turn: int, kinds: int) -> bool:
        """Whether a turn has no entry of any other kind."""
        return not self._bits[turn] & ~kinds
