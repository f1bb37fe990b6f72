"""Codex: the turns of a family, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import partial

from agents_ledger.importers.codex_parts import Part, Parts, Rank
from agents_ledger.importers.codex_turns import build_turn
from agents_ledger.importers.outlines import NONE, roots_first
from agents_ledger.model.numbering import Numbering, Sets
from agents_ledger.model.sources import DerivedTurn

PRINT = 16  # bytes of a turn's fingerprint


class Turns:
    """The turns, each after its parent. Of several copies the one that tells most is shown."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ids = Numbering()
        self._best = array("i")  # the part of each turn
        self._files = Sets()
        self._file_sets = array("I")
        for number in range(len(parts)):
            self._add(number, parts.read(number))
        self._parents = array("i", map(self._parent, self._best))
        self._order = array("i", roots_first(range(len(self._ids)), self._parents))
        self._followed = bytearray(len(self._ids))
        for parent in self._parents:
            if parent >= 0:
                self._followed[parent] = 1
        self._prints = bytearray()
        self._answered = bytearray()
        for turn, number in enumerate(self._best):
            part, sealed = parts.read(number), bool(self._followed[turn])
            self._prints += parts.fingerprint(number, part, sealed=sealed)
            lost = part.is_compaction and self._parents[turn] < 0
            self._answered.append(not lost and (part.answered or part.is_summary))

    def _add(self, number: int, part: Part) -> None:
        turn = self._ids.add(part.id)
        if turn == len(self._best):
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
        above = self._parts.read(number).parent
        return self._ids.get(above) if above is not None else NONE

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._made, self._order)

    def _made(self, turn: int) -> DerivedTurn:
        number, sealed = self._best[turn], bool(self._followed[turn])
        parent = self._name(self._parents[turn])
        return DerivedTurn(
            self._ids.name(turn),
            parent,
            bytes(self._prints[PRINT * turn : PRINT * turn + PRINT]),
            self._files[self._file_sets[turn]],
            _Names(self._parts, number),
            partial(build_turn, self._parts, number, parent, sealed),
        )

    def _name(self, turn: int) -> str | None:
        return self._ids.name(turn) if turn >= 0 else None

    def best(self, turn_id: str) -> Part:
        """A turn as the file has it that tells most of it."""
        return self._parts.read(self._best[self._ids.get(turn_id)])

    def head(self, turn_id: str) -> str | None:
        """The nearest answered turn at or above one: a pending prompt is never a head."""
        turn = self._ids.get(turn_id)
        while turn >= 0 and not self._answered[turn]:
            turn = self._parents[turn]
        return self._name(turn)


class _Names:
    """The records of one turn, named when they are gone through."""

    def __init__(self, parts: Parts, number: int) -> None:
        self._parts = parts
        self._number = number

    def __iter__(self) -> Iterator[str]:
        part = self._parts.read(self._number)
        for number in range(part.items):
            yield f"{part.id}:{number}"
        for number in range(part.events):
            yield f"{part.id}:asked:{number}"
