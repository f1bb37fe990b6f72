"""Exports of chat services: one document with all conversations, which may have any size.

Only one conversation is in memory at a time: the outline knows where each stands, and reads it
again when its turns are built.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.parsing.json_spans import Pieces, objects_of
from agents_ledger.importers.port.source import Line, Material, fingerprint
from agents_ledger.importers.transcript.message_tree import Kind, Nodes, Plan, planned
from agents_ledger.importers.transcript.packed_store import Named
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.importers.transcript.turn_tree import BROKEN, NONE, made, record_of
from agents_ledger.model.imports.sources import Derivation, DerivedSession, DerivedTurn, Fate
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import Turn

Counts = Counter[tuple[str, Fate]]


class Told(Struct):
    """What an export says of a conversation beside its messages."""

    title: str | None = None
    created_at: int = 0
    updated_at: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class Tree(Protocol):
    """A conversation, out of all exports that hold it."""

    id: str
    nodes: Nodes
    current: str | None  # the last node of the live path
    told: Told

    def add(self, pieces: Pieces, file_id: int, counts: Counts) -> None:
        """Take what a further export says; it wins, and takes nothing away."""

    def build(self, builder: TurnBuilder, members: list[tuple[str, Kind, dict[str, Any]]]) -> Turn:
        """The turn these messages make."""


class Service(Struct, frozen=True):
    """A service, its conversations, and how to tell them apart."""

    name: str
    version: int
    identify: Callable[[bytes], str | None]
    tree: Callable[[str], Tree]


class _Found(Struct, array_like=True):
    """A turn, and where it stands."""

    conversation: str
    number: int
    parent: str | None
    fingerprint: bytes
    file_ids: frozenset[int]
    record_ids: tuple[str, ...]


def derive(service: Service, material: Material) -> Derivation:
    """What the conversations of all exports say."""
    return _Outline(service, material).derivation()


class _Outline:
    def __init__(self, service: Service, material: Material) -> None:
        self.service = service
        self.material = material
        self.places: dict[str, list[Line]] = {}
        self.held: tuple[str, Tree, Plan] | None = None
        for file in material.files:
            for where, data in objects_of(material, file):
                self._find(where, data)

    def _find(self, where: Line, data: bytes) -> None:
        try:
            named = self.service.identify(data)
        except BROKEN as error:
            self.material.fault(where, f"not a conversation: {error}")
            self.material.count("(malformed)", "malformed")
            return
        if named is None:
            self.material.count("(no conversation)", "unmapped")
            return
        self.material.count("conversation", "derived")
        self.places.setdefault(named, []).append(where)

    def _report(self, where: Line, counts: Counts) -> None:
        self.material.counts.update(counts)
        malformed = sum(number for (_, fate), number in counts.items() if fate == "malformed")
        if malformed:
            told = humanize.count(malformed, "message")
            self.material.fault(where, f"{told} in this conversation cannot be read")

    def _tree(self, name: str, *, is_new: bool = False) -> tuple[Tree, Plan]:
        """A conversation; what a new one holds is counted."""
        if self.held is not None and self.held[0] == name:
            return self.held[1], self.held[2]
        tree = self.service.tree(name)
        for where in self.places[name]:
            data = self.material.bytes_of(where)
            pieces = Pieces(self.material, where.file, where.offset, data)
            del data  # once it was mended nobody needs it
            counts: Counts = Counter()
            tree.add(pieces, where.file.id, counts)
            if is_new:
                self._report(where, counts)
        plan = planned(tree.nodes)
        self.held = (name, tree, plan)
        return tree, plan

    def derivation(self) -> Derivation:
        turns = Named(_Found)
        sessions: list[DerivedSession] = []
        for name in self.places:
            tree, plan = self._tree(name, is_new=True)
            file_ids = frozenset(where.file.id for where in self.places[name])
            for number, turn in enumerate(plan):
                if turn.id not in turns:  # else shared with a conversation it was copied from
                    turns[turn.id] = _Found(
                        name,
                        number,
                        turn.parent,
                        fingerprint(self.service.version, turn.prints(tree.nodes)),
                        file_ids,
                        tuple(message_id for message_id, _ in turn.members),
                    )
            sessions.append(self._session(tree, plan, file_ids))
        return Derivation(
            turns=made(range(len(turns)), partial(self._derived, turns)),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _derived(self, turns: Named[_Found], number: int) -> DerivedTurn:
        turn = turns.values.read(number)
        return DerivedTurn(
            turns.name(number),
            turn.parent,
            turn.fingerprint,
            turn.file_ids,
            turn.record_ids,
            partial(self._build, turn.conversation, turn.number),
        )

    def _session(self, tree: Tree, plan: Plan, file_ids: frozenset[int]) -> DerivedSession:
        head = plan.head(NONE if tree.current is None else tree.nodes.number(tree.current))
        prints = hashlib.sha256(msgspec.json.encode([self.service.version, head, tree.told]))
        for node in tree.nodes.values:
            prints.update(node.print)
        return DerivedSession(
            session_id=tree.id,
            label=f"{self.service.name}:{tree.id}",
            head=head,
            fingerprint=prints.hexdigest(),
            file_ids=file_ids,
            title=tree.told.title,
            created_at=tree.told.created_at,
            updated_at=tree.told.updated_at,
            metadata=tree.told.metadata,
        )

    def _build(self, name: str, number: int) -> Turn:
        tree, plan = self._tree(name)
        turn = plan[number]
        members = [
            (message_id, node.kind, record_of(self.material, node.record))
            for message_id, node_id in turn.members
            for node in (tree.nodes.read(node_id),)
        ]
        return tree.build(TurnBuilder(turn.id, turn.parent), members)
