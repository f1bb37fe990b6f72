"""Copilot CLI: the turns of a family, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from array import array
from functools import partial

from agents_ledger.importers.copilot_parts import Part, Parts, Rank
from agents_ledger.importers.copilot_turns import build_turn
from agents_ledger.importers.outlines import NONE, made, roots_first
from agents_ledger.model.numbering import Sets
from agents_ledger.model.sources import DerivedTurn
from agents_ledger.model.sources import Turns as Derived


class Turns:
    """The turns by number. Of several copies the one that tells most is shown."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._named = array("i", [NONE]) * len(parts.names)  # by name, the turn
        self._names = array("I")
        self._best = array("i")  # the part of each
        self._files = Sets()
        self._file_sets = array("I")
        for number, part in enumerate(parts):
            self._add(number, part)
        self._above = array("i", map(self._parent, self._best))
        self._order = array("i", roots_first(range(len(self._best)), self._above))
        self._followed = bytearray(len(self._best))
        for above in self._above:
            if above >= 0:
                self._followed[above] = 1

    def _add(self, number: int, part: Part) -> None:
        turn = self._named[part.name]
        if turn == NONE:
            self._named[part.name] = len(self._best)
            self._names.append(part.name)
            self._best.append(number)
            self._file_sets.append(self._files.of([part.file_id]))
            return
        files = self._files[self._file_sets[turn]]
        self._file_sets[turn] = self._files.of(files | {part.file_id})
        if self._parts.rank(number, part) > self._rank(self._best[turn]):
            self._best[turn] = number

    def _rank(self, number: int) -> Rank:
        return self._parts.rank(number, self._parts.read(number))

    def _parent(self, number: int) -> int:
        above = self._parts.read(number).above
        return self._named[above] if above >= 0 else NONE

    def _name(self, turn: int) -> str:
        return self._parts.names.name(self._names[turn])

    def derived(self) -> Derived:
        """All, each after its parent."""
        return made(self._order, self._made)

    def _made(self, turn: int) -> DerivedTurn:
        number, above, sealed = self._best[turn], self._above[turn], bool(self._followed[turn])
        part, parent = self._parts.read(number), self._name(above) if above >= 0 else None
        return DerivedTurn(
            self._name(turn),
            parent,
            self._parts.fingerprint(number, part, sealed=sealed),
            self._files[self._file_sets[turn]],
            self._parts.keys(number, part),
            partial(build_turn, self._parts, number, parent, sealed),
        )

    def best(self, part: Part) -> Part:
        """A turn as the file has it that tells most of it."""
        return self._parts.read(self._best[self._named[part.name]])

    def head(self, part: Part | None) -> str | None:
        """The nearest answered turn at or above one: a pending prompt is never a head."""
        turn = self._named[part.name] if part is not None else NONE
        while turn >= 0 and not self._is_answered(turn):
            turn = self._above[turn]
        return self._name(turn) if turn >= 0 else None

    def _is_answered(self, turn: int) -> bool:
        part = self._parts.read(self._best[turn])
        return part.answered and not (part.is_compaction and self._above[turn] < 0)
