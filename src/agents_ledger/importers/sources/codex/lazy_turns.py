"""Codex: the turns of a family, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agents_ledger.importers.sources.codex.history import Joined
from agents_ledger.importers.sources.codex.parts import Part, Parts
from agents_ledger.importers.sources.codex.turns import build_turn
from agents_ledger.importers.transcript.merge_copies import Copies
from agents_ledger.importers.transcript.turn_tree import NONE, NamedLater
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import DerivedTurn

PRINT = 16  # bytes of a turn's fingerprint


class Turns:
    """The turns, each after its parent."""

    def __init__(self, parts: Parts, joined: Joined) -> None:
        self._parts = parts
        self._joined = joined
        self._ids = Numbering()
        self._copies = copies = Copies(parts.rank)
        for number in range(len(parts)):
            part = parts.read(number)
            turn = self._ids.add(part.id)
            if turn < len(copies):
                parts.share_tokens(number, copies.best[turn])
            copies.add(turn, number, part.file_id)
        for turn_id, file_ids in joined.file_ids.items():
            copies.add_files(self._ids.get(turn_id), file_ids)
        copies.hang(self._parent)
        self._prints = bytearray()
        self._heads = bytearray()  # whether each can be one: a prompt that waits cannot
        for turn, number in enumerate(copies.best):
            part = parts.read(number)
            self._prints += parts.fingerprint(number, part, sealed=copies.is_followed(turn))
            lost = part.is_compaction and copies.above[turn] == NONE
            self._heads.append(not lost and (part.answered or part.ended or part.is_summary))

    def _parent(self, number: int) -> int:
        above = self._parts.read(number).parent
        return self._ids.get(above) if above is not None else NONE

    def __len__(self) -> int:
        return len(self._copies)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._made, self._copies.order)

    def _made(self, turn: int) -> DerivedTurn:
        copies, number = self._copies, self._copies.best[turn]
        parent = self._name(copies.above[turn])
        return DerivedTurn(
            self._ids.name(turn),
            parent,
            bytes(self._prints[PRINT * turn : PRINT * turn + PRINT]),
            copies.files(turn),
            NamedLater(self._names, number),
            partial(build_turn, self._parts, number, parent, copies.is_followed(turn)),
            repeated_ids=self._joined.names.get(self._ids.name(turn), ()),
        )

    def _names(self, number: int) -> Iterator[str]:
        part = self._parts.read(number)
        for item in range(part.items):
            yield f"{part.id}:{item}"
        for event in range(part.events):
            yield f"{part.id}:asked:{event}"

    def _name(self, turn: int) -> str | None:
        return self._ids.name(turn) if turn != NONE else None

    def best(self, turn_id: str) -> Part:
        """A turn as the file has it that tells most of it."""
        return self._parts.read(self._copies.best[self._ids.get(turn_id)])

    def head(self, turn_id: str) -> str | None:
        """The nearest turn at or above one that was answered, or ended without an answer."""
        return self._name(self._copies.head(self._ids.get(turn_id), self._heads.__getitem__))
