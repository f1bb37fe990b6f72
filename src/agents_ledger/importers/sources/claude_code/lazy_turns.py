"""Claude Code: the turns of a tree, each made when it is asked for: memory need not hold them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from agents_ledger.importers.port.source import fingerprint
from agents_ledger.importers.sources.claude_code.nodes import COPY, KINDS
from agents_ledger.importers.sources.claude_code.records import whole
from agents_ledger.importers.sources.claude_code.tree import Tree
from agents_ledger.importers.sources.claude_code.turns import Beside, Kept, Said, build_turn
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import NONE, NamedLater
from agents_ledger.model.imports.sources import DerivedTurn, SourceFile
from agents_ledger.model.turns import Turn

PRINT = 16  # bytes of a turn's fingerprint


class Spill(Struct, frozen=True):
    """An output that was too large for a record."""

    file: SourceFile
    print: bytes


class Extras(Struct, frozen=True):
    """What belongs to turns and does not stand in their records."""

    spills: Mapping[str, Spill]
    spawned: Mapping[int, Mapping[str, str]]  # subagents by the record and the call
    kept: Mapping[int, Kept]  # what compactions left, by their turns


class Turns:
    """The turns, each after its parent."""

    def __init__(self, tree: Tree, version: int, extras: Extras) -> None:
        self._tree = tree
        self._nodes = tree.nodes
        self._extras = extras
        self._repeats = COPY in tree.nodes.kinds
        self._prints = bytearray()
        self._file_sets = array("I")
        self._named: tuple[int, tuple[str, ...]] = (NONE, ())
        for turn in range(len(tree)):
            self._prints += fingerprint(version, self._told(turn))
            file_sets = map(self._nodes.file_sets.__getitem__, tree.members(turn))
            self._file_sets.append(self._nodes.files.joined(file_sets))

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._made, range(len(self._tree)))

    def _made(self, turn: int) -> DerivedTurn:
        tree = self._tree
        top, parent = str(tree.name(turn)), tree.name(tree.parents[turn])
        return DerivedTurn(
            top,
            parent,
            bytes(self._prints[PRINT * turn : PRINT * turn + PRINT]),
            self._nodes.files[self._file_sets[turn]],
            NamedLater(self.names, turn),
            partial(self._built, turn, top, parent),
            repeated_ids=NamedLater(self._repeated, turn) if self._repeats else (),
        )

    def _own(self, turn: int) -> array[int]:
        """The records that a turn is made of: without those that repeat them."""
        members, kinds = self._tree.members(turn), self._nodes.kinds
        return array("i", (r for r in members if kinds[r] != COPY)) if self._repeats else members

    def _repeated(self, turn: int) -> Iterator[str]:
        nodes = self._nodes
        return (nodes.ids.name(r) for r in self._tree.members(turn) if nodes.kinds[r] == COPY)

    def names(self, turn: int) -> tuple[str, ...]:
        """The records of a turn. Who asks for them often builds it next."""
        if self._named[0] != turn:
            names = tuple(map(self._nodes.ids.name, self._own(turn)))
            self._named = (turn, names)
        return self._named[1]

    def _built(self, turn: int, top: str, parent: str | None) -> Turn:
        nodes, members = self._nodes, self._own(turn)
        kinds = [KINDS[nodes.kinds[record]] for record in members]
        said = Said(self.names(turn), kinds, nodes.places.each(members, self._record))
        spills = {key: spill.file for key, spill in self._spills(turn).items()}
        beside = Beside(self._children(turn), spills, self._extras.kept.get(turn))
        return build_turn(nodes.material, TurnBuilder(top, parent), said, beside)

    def _record(self, number: int) -> dict[str, Any]:
        return whole(self._nodes.places.bytes_of(number))

    def _told(self, turn: int) -> list[bytes]:
        """All that the content of a turn comes from."""
        prints = list(map(self._nodes.places.print, self._own(turn)))
        spills = self._spills(turn)
        prints += [spills[key].print for key in sorted(spills)]
        children = sorted(self._children(turn).items())
        said = [*(self._extras.kept.get(turn) or ()), *(part for pair in children for part in pair)]
        return [*prints, ":".join(said).encode(errors="replace")] if said else prints

    def _children(self, turn: int) -> dict[str, str]:
        spawned = self._extras.spawned
        if not spawned:
            return {}
        members = self._tree.members(turn)
        return {call: child for r in members for call, child in spawned.get(r, {}).items()}

    def _spills(self, turn: int) -> dict[str, Spill]:
        named = self._nodes.spills
        if not named:
            return {}
        members = self._tree.members(turn)
        return {key: self._extras.spills[key] for r in members for key in named.get(r, ())}
