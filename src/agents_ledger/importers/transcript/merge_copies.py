"""Copies of one turn in several files: which copy is shown, and how the turns form a tree."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from agents_ledger.importers.transcript.columns import NONE, Links, SetColumn, roots_first
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.imports.interning import Sets


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


class Copies:
    """Turns by number, in the order they come. Of several copies the one that ranks highest is
    shown."""

    def __init__(self, rank: Callable[[int], Any]) -> None:
        """How much a copy tells."""
        self._rank = rank
        self._files = Sets()
        self._file_sets = array("I")
        self._followed = bytearray()
        self.best = array("i")  # the copy of each that is shown
        self.above = array("i")  # the turn above each, or NONE
        self.order = array("i")  # each after the turn above it

    def __len__(self) -> int:
        return len(self.best)

    def add(self, turn: int, copy: int, file_id: int) -> None:
        """A copy of a turn, which may be the next one, and the file it stands in."""
        if turn == len(self.best):
            self.best.append(copy)
            self._file_sets.append(self._files.of([file_id]))
            return
        self.add_files(turn, {file_id})
        if self._rank(copy) > self._rank(self.best[turn]):
            self.best[turn] = copy

    def add_files(self, turn: int, file_ids: Set[int]) -> None:
        """Files that a turn is part of, too."""
        self._file_sets[turn] = self._files.of(self.files(turn) | file_ids)

    def hang(self, above: Callable[[int], int]) -> None:
        """All are here: put each below the turn that the shown copy of it stands below."""
        self.above = array("i", map(above, self.best))
        self.order = array("i", roots_first(range(len(self.best)), self._links()))
        self._followed = bytearray(len(self.best))
        for turn in self.above:
            if turn >= 0:
                self._followed[turn] = 1

    def _links(self) -> Links:
        links = Links()
        links.numbers = self.above
        return links

    def files(self, turn: int) -> frozenset[int]:
        """The files that have a copy of it."""
        return self._files[self._file_sets[turn]]

    def is_followed(self, turn: int) -> bool:
        """Whether another turn stands below it."""
        return bool(self._followed[turn])

    def head(self, turn: int, has_ended: Callable[[int], Any]) -> int:
        """The nearest turn at or above one that has ended, or NONE: a prompt that waits has not."""
        while turn != NONE and not has_ended(turn):
            turn = self.above[turn]
        return turn
