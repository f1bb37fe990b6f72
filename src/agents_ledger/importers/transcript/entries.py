"""The records of a family that turns are made of, by number and without their content."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.transcript.columns import NONE, Groups
from agents_ledger.importers.transcript.record_offsets import RecordOffsets


class Entries(RecordOffsets):
    """Entries of some kinds, numbered from 0 in the order they are added.

    An entry takes 21 bytes: its kind, and where its record is. The content is read again when a
    turn is built; that of small families is held.
    """

    def __init__(self, material: Material, kinds: Sequence[str]) -> None:
        super().__init__(material)
        self.kind_names = tuple(kinds)
        self._kind_numbers = {kind: number for number, kind in enumerate(kinds)}
        self._kinds = bytearray()

    def add_record(self, line: SourceLine, kind: str) -> int:
        """The number of one more entry."""
        self.add_line(line)
        self._kinds.append(self._kind_numbers[kind])
        return len(self._kinds) - 1

    def kind(self, entry: int) -> str:
        return self.kind_names[self._kinds[entry]]

    def set_kind(self, entry: int, kind: str) -> None:
        """Change the kind of an entry, as when it turns out to be a copy."""
        self._kinds[entry] = self._kind_numbers[kind]

    def has_kind(self, *kinds: str) -> bool:
        """Whether there is an entry of one of these kinds."""
        return any(self._kind_numbers[kind] in self._kinds for kind in kinds)

    def kinds_by(self, owners: Sequence[int], number: int) -> KindSets:
        """The kinds of the entries of each owner; there are `number` owners."""
        # Two bytes of bits: a source has at most 16 kinds of entries.
        bits, kinds = array("H", bytes(2 * number)), self._kinds
        for entry, owner in enumerate(owners):
            if owner >= 0:
                bits[owner] |= 1 << kinds[entry]
        return KindSets(bits, self.kind_names)


class KindSets:
    """Which kinds of entries each turn has."""

    def __init__(self, bits: array[int], names: Sequence[str]) -> None:
        self._bits = bits
        self._names = names
        self._sets: dict[int, frozenset[str]] = {}

    def __getitem__(self, turn: int) -> frozenset[str]:
        bits = self._bits[turn]
        if bits not in self._sets:
            names = (name for number, name in enumerate(self._names) if bits >> number & 1)
            self._sets[bits] = frozenset(names)
        return self._sets[bits]


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
