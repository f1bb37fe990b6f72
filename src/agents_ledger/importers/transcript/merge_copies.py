"""Copies of one turn in several files: which copy is shown, and how the turns form a tree."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.transcript.columns import SetColumn, roots_first
from agents_ledger.importers.transcript.entries import OwnedEntries
from agents_ledger.importers.transcript.packed_store import PackedList
from agents_ledger.importers.transcript.turn_tree import TurnTree


class TurnCopy(Struct):
    """A turn as one file has it; a source adds what it knows of it."""

    file_id: int
    is_compaction: bool

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

    def all_entries(self, number: int) -> Iterable[int]:
        """The entries that a copy is built from."""
        return self.entries.of(number)

    def fingerprints(self, number: int) -> list[bytes]:
        return list(map(self.entries.fingerprint, self.all_entries(number)))

    @abstractmethod
    def rank(self, number: int) -> Any:
        """How complete a copy is."""


class MergedTurns(TurnTree, Generic[C]):
    """Turns of which every file may have a copy. The copy with the highest rank is shown.

    First all copies are added, then `link` makes the tree.
    """

    def __init__(self, copies: TurnCopies[C]) -> None:
        super().__init__()
        self.copies = copies
        self._best = array("i")
        self._files = SetColumn()
        self._order: Sequence[int] = ()

    def add_copy(self, turn: int, copy: int) -> None:
        """A copy of a turn, which may be a new one: the next number."""
        file_id = self.copies.read(copy).file_id
        if turn == len(self._best):
            self.add(None)
            self._best.append(copy)
            self._files.append([file_id])
            return
        self.add_files(turn, [file_id])
        # By rank alone: the order in which files are read must not matter (docs/decisions/0020).
        if self.copies.rank(copy) > self.copies.rank(self._best[turn]):
            self._best[turn] = copy

    def add_files(self, turn: int, file_ids: Iterable[int]) -> None:
        """Further files that a turn is in."""
        self._files.include(turn, file_ids)

    def link(self, parent_of: Callable[[C], int | None]) -> None:
        """Put every turn below the parent of its best copy; cycles are broken."""
        for turn in range(len(self)):
            self._parents[turn] = parent_of(self.best_copy(turn))
        self._order = array("i", roots_first(range(len(self)), self._parents))
        for parent in self._parents:
            if parent is not None:
                self._followed[parent] = True
        for turn in range(len(self)):
            copy = self.best_copy(turn)
            # The history that a root compaction summarises is in no file.
            if copy.is_settled and not (copy.is_compaction and self.parent(turn) is None):
                self.settle(turn)

    def order(self) -> Sequence[int]:
        """The turns, each after its parent."""
        return self._order

    def best(self, turn: int) -> int:
        """The number of the copy that is shown."""
        return self._best[turn]

    def best_copy(self, turn: int) -> C:
        return self.copies.read(self._best[turn])

    def files(self, turn: int) -> frozenset[int]:
        """The ids of the files that have a copy."""
        return self._files[turn]
