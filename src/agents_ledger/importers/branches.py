"""Turns out of a tree of messages, for sources that tell one.

A prompt opens a turn; what follows belongs to it. Prompts without an answer between them are one
query. Notices before a first prompt belong to it; until it comes they make no turn. Where a turn
goes on in two ways, as after a regeneration, the second is a turn beside it that holds what leads
up to it once more, under ids of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct, field

from agents_ledger.importers.reader import Held

Kind = Literal["prompt", "reply", "notice", "compaction"]
OPENERS = ("prompt", "compaction")


@lru_cache(maxsize=64)
def only(file_id: int) -> frozenset[int]:
    """One file, as all nodes that stand there alone have it."""
    return frozenset({file_id})


class Node(Struct, gc=False):
    """A message in its tree, and what its source needs to read it again."""

    kind: Kind
    parent: str | None
    print: bytes
    file_ids: frozenset[int]
    record: Held


class PlannedTurn(Struct):
    """A turn and the nodes it is made from."""

    id: str
    parent: str | None
    start: str  # the first node of its span
    nodes: list[str] = field(default_factory=list)
    copied: int = 0  # so many of the first are another turn's too
    answered: bool = False
    kind: str = "normal"

    @property
    def members(self) -> Iterator[tuple[str, str]]:
        """Its messages by id, each with its node."""
        for number, node in enumerate(self.nodes):
            yield f"{self.id}:{node}" if number < self.copied else node, node

    def prints(self, nodes: dict[str, Node]) -> list[bytes]:
        """What tells this content from another."""
        return [b"%b;%b;" % (m.encode("utf-8", "replace"), nodes[n].print) for m, n in self.members]


class Plan(Struct):
    """The turns, parents first, and the turn of every node."""

    turns: dict[str, PlannedTurn] = field(default_factory=dict)
    turn_of: dict[str, str] = field(default_factory=dict)

    def head(self, node: str | None) -> str | None:
        """The nearest answered turn at or above a node: a pending prompt is never a head."""
        turn = self.turns.get(self.turn_of.get(node or "", ""))
        while turn is not None and not turn.answered:
            turn = self.turns.get(turn.parent or "")
        return turn.id if turn is not None else None


class Planner:
    """Makes the plan of a tree."""

    def __init__(self, nodes: dict[str, Node]) -> None:
        self.nodes = nodes
        self.plan = Plan()
        self.first: dict[str, str] = {}  # by a node, what hangs on it
        self.others: dict[str, list[str]] = {}  # what else does
        self.leading: dict[str, str | None] = {}  # notices before a first prompt -> who has them
        roots: list[str] = []
        for node_id, node in nodes.items():
            if node.parent in nodes and node.parent != node_id:
                above = str(node.parent)
                if self.first.setdefault(above, node_id) != node_id:
                    self.others.setdefault(above, []).append(node_id)
            else:
                roots.append(node_id)
        for root in roots:
            self._walk(root)
        for node_id in nodes:  # in a loop: no root leads there
            if node_id not in self.plan.turn_of and node_id not in self.leading:
                self._walk(node_id)

    def _walk(self, root: str) -> None:
        waiting: list[tuple[str, str | None]] = [(root, None)]
        while waiting:
            node_id, above = waiting.pop()
            if node_id in self.plan.turn_of or node_id in self.leading:
                continue
            self._place(node_id, above)
            waiting += [(each, node_id) for each in reversed(self._below(node_id))]

    def _below(self, node_id: str) -> list[str]:
        """What hangs on a node, in order."""
        first = self.first.get(node_id)
        return [] if first is None else [first, *self.others.get(node_id, ())]

    def _place(self, node_id: str, above: str | None) -> None:
        node = self.nodes[node_id]
        turn = None
        if above is not None and above not in self.leading:
            turn = self.plan.turns[self.plan.turn_of[above]]
        if turn is None and node.kind == "notice":
            self.leading[node_id] = above
        elif turn is None:
            self._open(node_id, None, self._led_by(above))
        elif node.kind in OPENERS:
            joins = node.kind == "prompt" and not turn.answered and turn.kind == "normal"
            if joins and above not in self.others:
                self._belong(node_id, turn)
            else:
                self._open(node_id, turn.id)
        elif self._goes_on(node_id, str(above)):
            self._belong(node_id, turn)
        else:
            self._open(node_id, turn.parent, self._span(turn, above))

    def _goes_on(self, node_id: str, above: str) -> bool:
        """Whether this is the first way on within the turn."""
        ways = (each for each in self._below(above) if self.nodes[each].kind not in OPENERS)
        return next(ways) == node_id

    def _open(self, node_id: str, parent: str | None, led_by: Sequence[str] = ()) -> None:
        kind = "compaction" if self.nodes[node_id].kind == "compaction" else "normal"
        turn = PlannedTurn(node_id, parent, led_by[0] if led_by else node_id, kind=kind)
        self.plan.turns[node_id] = turn
        for each in led_by:
            if each in self.leading and each not in self.plan.turn_of:
                self._belong(each, turn)
            else:
                turn.nodes.append(each)
                turn.copied += 1
        self._belong(node_id, turn)

    def _belong(self, node_id: str, turn: PlannedTurn) -> None:
        turn.nodes.append(node_id)
        turn.answered |= self.nodes[node_id].kind in ("reply", "compaction")
        self.plan.turn_of[node_id] = turn.id

    def _span(self, turn: PlannedTurn, last: str | None) -> list[str]:
        """The nodes of a turn from its start to one of them."""
        found: dict[str, None] = {}
        while last is not None and last not in found:
            found[last] = None
            last = self.nodes[last].parent if last != turn.start else None
        return list(found)[::-1]

    def _led_by(self, above: str | None) -> list[str]:
        """The notices above a first prompt, unless another has them."""
        found: list[str] = []
        while above is not None and above in self.leading and above not in self.plan.turn_of:
            found.append(above)
            above = self.leading[above]
        return found[::-1]
