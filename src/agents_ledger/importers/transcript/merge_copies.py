"""Copies of one turn in several files: which copy is shown, and how the turns form a tree."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agents_ledger.importers.transcript.columns import SetColumn, roots_first
from agents_ledger.importers.transcript.turn_tree import TurnTree


class MergedTurns(TurnTree):
    """Turns of which every file may have a copy. The copy with the highest rank is shown.

    First all copies are added, then `link` makes the tree.
    """

    def __init__(self, rank: Callable[[int], Any]) -> None:
        """`rank` says how complete a copy is."""
        super().__init__()
        self._rank = rank
        self._best = array("i")
        self._files = SetColumn()
        self._order: Sequence[int] = ()

    def add_copy(self, turn: int, copy: int, file_id: int) -> None:
        """A copy of a turn, which may be a new one: the next number."""
        if turn == len(self._best):
            self.add(None)
            self._best.append(copy)
            self._files.append([file_id])
            return
        self.add_files(turn, [file_id])
        if self._rank(copy) > self._rank(self._best[turn]):
            self._best[turn] = copy

    def add_files(self, turn: int, file_ids: Iterable[int]) -> None:
        """Further files that a turn is in."""
        self._files.include(turn, file_ids)

    def link(self, parent_of: Callable[[int], int | None]) -> None:
        """Put every turn below the parent of its best copy; cycles are broken."""
        for turn, copy in enumerate(self._best):
            self._parents[turn] = parent_of(copy)
        self._order = array("i", roots_first(range(len(self)), self._parents))
        for parent in self._parents:
            if parent is not None:
                self._followed[parent] = True

    def order(self) -> Sequence[int]:
        """The turns, each after its parent."""
        return self._order

    def best(self, turn: int) -> int:
        """The copy that is shown."""
        return self._best[turn]

    def files(self, turn: int) -> frozenset[int]:
        """The ids of the files that have a copy."""
        return self._files[turn]
