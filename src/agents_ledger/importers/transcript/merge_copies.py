"""Turns that several files have copies of: which copy is shown, and how the turns hang together."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Set
from typing import Any

from agents_ledger.importers.transcript.turn_tree import NONE, roots_first
from agents_ledger.model.imports.interning import Sets


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
        self.order = array("i", roots_first(range(len(self.best)), self.above))
        self._followed = bytearray(len(self.best))
        for turn in self.above:
            if turn >= 0:
                self._followed[turn] = 1

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
