"""Turns out of a tree of messages, for sources that tell one.

A prompt opens a turn; what follows belongs to it. Prompts without an answer between them are one
query, unless a failure is all that came of the first: that is a turn that has ended. Notices before
a first prompt belong to it; until it comes they make no turn. Where a turn
goes on in two ways, as after a regeneration, the second is a turn beside it that holds what leads
up to it once more, under ids of its own.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.port.source import Held
from agents_ledger.importers.transcript.packed_store import Named, Packed
from agents_ledger.importers.transcript.turn_tree import NONE

Kind = Literal["prompt", "reply", "notice", "failure", "compaction"]
OPENERS = ("prompt", "compaction")


@lru_cache(maxsize=64)
def _only(file_id: int) -> frozenset[int]:
    """One file, as all nodes that stand there alone have it."""
    return frozenset({file_id})


class Node(Struct, gc=False, array_like=True):
    """A message in its tree, and what its source needs to read it again."""

    kind: Kind
    parent: str | None
    print: bytes
    file_ids: frozenset[int]
    record: Held


def node_of(kind: Kind, parent: str | None, data: bytes, record: Held, file_id: int) -> Node:
    """The node of a message that says this, to be read again from its record."""
    print_ = b"%d:%d;" % (len(data), zlib.crc32(data))
    return Node(kind, parent, print_, _only(file_id), record)


class Nodes(Named[Node]):
    """The messages of a tree by id."""

    def __init__(self) -> None:
        super().__init__(Node)

    def put(self, name: str, node: Node) -> None:
        """A message as a further file says it, which wins, and leaves it where it was if it does
        not say where."""
        known = self.get(name)
        if known is None:
            self[name] = node
        else:
            known.kind, known.print, known.record = node.kind, node.print, node.record
            known.parent = node.parent or known.parent
            known.file_ids |= node.file_ids


class Live:
    """The nodes that a program would show, in order."""

    def __init__(self) -> None:
        self._nodes = array("I")
        self._shown = bytearray()  # by node

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __contains__(self, node: int) -> bool:
        return 0 <= node < len(self._shown) and bool(self._shown[node])

    @property
    def last(self) -> int:
        """The last of them, or NONE."""
        return self._nodes[-1] if self._nodes else NONE

    def add(self, node: int) -> None:
        """One more, unless it is shown."""
        if node not in self:
            self._shown.extend(bytes(max(0, node + 1 - len(self._shown))))
            self._shown[node] = True
            self._nodes.append(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def place(self, node: int, start: int) -> int:
        """Where one of them stands, from a place on, or NONE."""
        try:
            return self._nodes.index(node, start)
        except ValueError:
            return NONE

    def keep(self, number: int) -> None:
        """Leave all but the first."""
        if number < len(self._nodes):
            self.cut(self._nodes[number])

    def cut(self, first: int) -> None:
        """Leave what comes from one of them on; all, if it is none of them."""
        at = self._nodes.index(first) if first in self else 0
        for node in self._nodes[at:]:
            self._shown[node] = False
        del self._nodes[at:]


class PlannedTurn(NamedTuple):
    """A turn and the nodes it is made from."""

    id: str
    parent: str | None
    kind: str
    members: Sequence[tuple[str, str]]  # its messages by id, each with its node

    def prints(self, nodes: Nodes) -> list[bytes]:
        """What tells this content from another."""
        return [
            b"%b;%b;" % (m.encode("utf-8", "replace"), nodes.read(n).print) for m, n in self.members
        ]


class _Turn(Struct, array_like=True):
    """The same in numbers: its nodes, and those that open it and the turn above."""

    opener: int
    above: int  # or NONE
    start: int  # the first node of its span
    nodes: list[int] = field(default_factory=list)
    copied: int = 0  # so many of the first are another turn's too
    ended: bool = False  # it was answered, or failed before it was
    is_compaction: bool = False


class Plan:
    """The turns of a tree by number, parents first."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.turns = Packed(_Turn)
        self.turn_of = array("i", [NONE]) * len(nodes)

    def __len__(self) -> int:
        return len(self.turns)

    def __iter__(self) -> Iterator[PlannedTurn]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> PlannedTurn:
        turn, name = self.turns.read(number), self.nodes.name
        own = name(turn.opener)
        names = [name(node) for node in turn.nodes]
        return PlannedTurn(
            own,
            None if turn.above == NONE else name(turn.above),
            "compaction" if turn.is_compaction else "normal",
            [(f"{own}:{n}" if at < turn.copied else n, n) for at, n in enumerate(names)],
        )

    def unplanned(self) -> Iterator[Node]:
        """The nodes that are of no turn."""
        for number, turn in enumerate(self.turn_of):
            if turn == NONE:
                yield self.nodes.values.read(number)

    def head(self, at: int) -> str | None:
        """The nearest turn at or above a node that has ended: a pending prompt is never a head."""
        while at != NONE and self.turn_of[at] != NONE:
            turn = self.turns.read(self.turn_of[at])
            if turn.ended:
                return self.nodes.name(turn.opener)
            at = turn.above
        return None


def planned(nodes: Nodes) -> Plan:
    """The turns of a tree."""
    return _Planner(nodes).plan


class _Planner:
    """Makes the plan of a tree. Nodes are numbers."""

    def __init__(self, nodes: Nodes) -> None:
        self.plan = Plan(nodes)
        self.kinds: list[Kind] = []
        self.above = array("i")
        for node in nodes.values:
            self.kinds.append(node.kind)
            self.above.append(nodes.number(node.parent) if node.parent is not None else NONE)
        self.first = array("i", [NONE]) * len(nodes)  # by a node, what hangs on it
        self.others: dict[int, list[int]] = {}  # what else does
        self.leading: dict[int, int] = {}  # notices before a first prompt -> what is above
        roots = array("i")
        for number, above in enumerate(self.above):
            if above in (NONE, number):
                roots.append(number)
            elif self.first[above] == NONE:
                self.first[above] = number
            else:
                self.others.setdefault(above, []).append(number)
        for root in roots:
            self._walk(root)
        for number, turn in enumerate(self.plan.turn_of):  # in a loop: no root leads there
            if turn == NONE and number not in self.leading:
                self._walk(number)

    def _walk(self, root: int) -> None:
        waiting = [(root, NONE)]
        while waiting:
            node, above = waiting.pop()
            if self.plan.turn_of[node] != NONE or node in self.leading:
                continue
            self._place(node, above)
            waiting += [(each, node) for each in reversed(self._below(node))]

    def _below(self, node: int) -> list[int]:
        """What hangs on a node, in order."""
        first = self.first[node]
        return [] if first == NONE else [first, *self.others.get(node, ())]

    def _place(self, node: int, above: int) -> None:
        kind = self.kinds[node]
        number = NONE if above == NONE or above in self.leading else self.plan.turn_of[above]
        if number == NONE and kind in ("notice", "failure"):
            self.leading[node] = above
            return
        if number == NONE:
            self._open(node, NONE, self._led_by(above))
            return
        turn = self.plan.turns[number]
        if kind in OPENERS:
            joins = kind == "prompt" and not turn.ended and not turn.is_compaction
            if joins and above not in self.others:
                self._belong(node, number)
            else:
                self._open(node, turn.opener)
        elif self._goes_on(node, above):
            self._belong(node, number)
        else:
            self._open(node, turn.above, self._span(turn, above))

    def _goes_on(self, node: int, above: int) -> bool:
        """Whether this is the first way on within the turn."""
        ways = (each for each in self._below(above) if self.kinds[each] not in OPENERS)
        return next(ways) == node

    def _open(self, node: int, above: int, led_by: Sequence[int] = ()) -> None:
        turn = _Turn(node, above, led_by[0] if led_by else node)
        turn.is_compaction = self.kinds[node] == "compaction"
        number = self.plan.turns.add(turn)
        for each in led_by:
            if each in self.leading and self.plan.turn_of[each] == NONE:
                self._belong(each, number)
            else:
                turn.nodes.append(each)
                turn.copied += 1
        turn.ended = False  # a failure that led to it was of nothing that was asked
        self._belong(node, number)

    def _belong(self, node: int, number: int) -> None:
        turn = self.plan.turns[number]
        turn.nodes.append(node)
        turn.ended |= self.kinds[node] in ("reply", "compaction", "failure")
        self.plan.turn_of[node] = number

    def _span(self, turn: _Turn, last: int) -> list[int]:
        """The nodes of a turn from its start to one of them."""
        found: dict[int, None] = {}
        while last != NONE and last not in found:
            found[last] = None
            last = self.above[last] if last != turn.start else NONE
        return list(found)[::-1]

    def _led_by(self, above: int) -> list[int]:
        """The notices above a first prompt, unless another has them."""
        found: list[int] = []
        while above != NONE and above in self.leading and self.plan.turn_of[above] == NONE:
            found.append(above)
            above = self.leading[above]
        return found[::-1]
