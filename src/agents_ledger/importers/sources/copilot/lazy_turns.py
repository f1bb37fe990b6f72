"""Copilot CLI: the turns of a family, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from array import array
from functools import partial

from agents_ledger.importers.sources.copilot.claims import Claims
from agents_ledger.importers.sources.copilot.parts import Part, Parts
from agents_ledger.importers.sources.copilot.turns import build_turn
from agents_ledger.importers.transcript.merge_copies import Copies
from agents_ledger.importers.transcript.turn_tree import NONE, made
from agents_ledger.model.imports.sources import DerivedTurn
from agents_ledger.model.imports.sources import Turns as Derived


class Turns:
    """The turns by number."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._named = array("i", [NONE]) * len(parts.names)  # by name, the turn
        self._names = array("I")
        self._copies = Copies(parts.rank)
        claims = Claims(parts)
        self._ends = claims.ends
        for number, part in enumerate(parts):
            name = claims.same.get(part.name, part.name)
            if self._named[name] == NONE:
                self._named[name] = len(self._names)
                self._names.append(name)
            self._named[part.name] = self._named[name]
            self._copies.add(self._named[name], number, part.file_id)
        self._copies.hang(self._parent)

    def _parent(self, number: int) -> int:
        above = self._parts.read(number).above
        return self._named[above] if above != NONE else NONE

    def _name(self, turn: int) -> str | None:
        return self._parts.names.name(self._names[turn]) if turn != NONE else None

    def derived(self) -> Derived:
        """All, each after its parent."""
        return made(self._copies.order, self._made)

    def _made(self, turn: int) -> DerivedTurn:
        copies, number = self._copies, self._copies.best[turn]
        part, sealed = self._parts.read(number), copies.is_followed(turn)
        parent = self._name(copies.above[turn])
        return DerivedTurn(
            str(self._name(turn)),
            parent,
            self._parts.fingerprint(number, part, sealed=sealed),
            copies.files(turn),
            self._parts.keys(number, part),
            partial(build_turn, self._parts, number, parent, sealed),
        )

    def best(self, part: Part) -> Part:
        """A turn as the file has it that tells most of it."""
        return self._parts.read(self._copies.best[self._named[part.name]])

    def head(self, number: int) -> str | None:
        """The nearest turn that has ended, at or above the end of one that a file has."""
        turn = NONE
        if number != NONE:
            turn = self._named[self._ends.get(number, self._parts.read(number).name)]
        return self._name(self._copies.head(turn, self._has_ended))

    def _has_ended(self, turn: int) -> bool:
        part = self._parts.read(self._copies.best[turn])
        return part.ended and not (part.is_compaction and self._copies.above[turn] == NONE)
