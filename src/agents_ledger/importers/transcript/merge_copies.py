"""Copies of one turn in several files: which copy is shown, and how the turns form a tree."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.transcript.columns import Links, SetColumn, roots_first
from agents_ledger.importers.transcript.entries import OwnedEntries
from agents_ledger.importers.transcript.packed_store import PackedList
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.imports.interning import Numbering


class TurnCopy(Struct):
    """A turn as one file has it; a source adds what it knows of it. Names are numbers of
    `TurnCopies.names`."""

    file_id: int
    is_compaction: bool
    name: int
    parent: int | None  # its name

    @property
    def is_settled(self) -> bool:
        """Whether it can be the head of a session: a prompt that waits cannot."""
        raise NotImplementedError


C = TypeVar("C", bound=TurnCopy)


class TurnCopies(PackedList[C]):
    """The copies of turns by number, and the entries of each."""

    def __init__(self, copy_type: type[C], material: Material, kinds: Sequence[str]) -> None:
        super().__init__(copy_type, material.limits)
        self.entries = OwnedEntries(material, kinds)
        self.names = Numbering(held=material.limits.held_names)

    def id(self, number: int) -> str:
        """The id of the turn that a copy is of."""
        return self.names.name(self.read(number).name)

    def all_entries(self, number: int) -> Iterable[int]:
        """The entries that a copy is built from."""
        return self.entries.of(number)

    def fingerprints(self, number: int) -> list[bytes]:
        return list(map(self.entries.fingerprint, self.all_entries(number)))

    @abstractmethod
    def rank(self, number: int) -> Any:
        """How complete a copy is."""

    def merge(self, one: int, other: int) -> None:
        """Give two copies of a turn what either alone knows of it."""


class MergedTurns(TurnTree, Generic[C]):
    """Turns of which every file may have a copy. The copy with the highest rank is shown."""

    def __init__(self, copies: TurnCopies[C], merged_into: Mapping[int, int] | None = None) -> None:
        """`merged_into`: names of turns that are part of another, and the name of that."""
        super().__init__()
        self.copies = copies
        self._names = array("I")  # by turn
        self._turns = Links.empty(len(copies.names))  # by name
        self._best = array("i")
        self._files = SetColumn()
        for number, copy in enumerate(copies):
            name = (merged_into or {}).get(copy.name, copy.name)
            if self._turns[name] is None:
                self._turns[name] = self.add(None)
                self._names.append(name)
                self._best.append(number)
                self._files.append([copy.file_id])
            else:
                self._add_copy(self._turns.numbers[name], number, copy.file_id)
            self._turns[copy.name] = self._turns[name]
        self._link()
        self._order = array("i", roots_first(range(len(self)), self._parents))
        for turn in range(len(self)):
            best, parent = self.best_copy(turn), self.parent(turn)
            if parent is not None:
                self._followed[parent] = True
            # The history that a root compaction summarises is in no file.
            if best.is_settled and not (best.is_compaction and parent is None):
                self.settle(turn)

    def _add_copy(self, turn: int, number: int, file_id: int) -> None:
        self.add_files(turn, [file_id])
        best = self._best[turn]
        self.copies.merge(number, best)
        # By rank alone: the order in which files are read must not matter (docs/decisions/0020).
        if self.copies.rank(number) > self.copies.rank(best):
            self._best[turn] = number

    def _link(self) -> None:
        """Put every turn below the parent of its best copy."""
        for turn in range(len(self)):
            parent = self.best_copy(turn).parent
            self._parents[turn] = None if parent is None else self._turns[parent]

    def order(self) -> Sequence[int]:
        """The turns, each after its parent."""
        return self._order

    def name(self, turn: int) -> str:
        return self.copies.names.name(self._names[turn])

    def head(self, name: int) -> str | None:
        """The id of the nearest settled turn at or above one."""
        return self.head_name(self._turns[name])

    def best(self, turn: int) -> int:
        """The number of the copy that is shown."""
        return self._best[turn]

    def best_copy(self, turn: int) -> C:
        return self.copies.read(self._best[turn])

    def best_of(self, copy: C) -> C:
        """The best copy of the same turn."""
        return self.best_copy(self._turns.numbers[copy.name])

    def files(self, turn: int) -> frozenset[int]:
        """The ids of the files that have a copy."""
        return self._files[turn]

    def add_files(self, turn: int, file_ids: Iterable[int]) -> None:
        """Further files that a turn is in."""
        self._files.include(turn, file_ids)
