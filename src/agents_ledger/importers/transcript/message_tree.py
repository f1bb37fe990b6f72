"""Turns of a tree of messages, for sources that have one.

A prompt opens a turn, and what follows belongs to it. Prompts without an answer between them are
one query, unless the first of them failed: then its turn has ended. Notices before a first prompt
belong to that prompt; until it comes they are in no turn. Where a turn continues in two ways, as
after a regeneration, the second is a sibling turn, which has the messages that lead up to it once
more under ids of its own.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.material import HeldRecord
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.packed_store import PackedDict, PackedList
from agents_ledger.importers.transcript.turn_tree import TurnTree
from agents_ledger.model.turns import Turn

MessageKind = Literal["prompt", "reply", "notice", "failure", "compaction"]
OPENERS = ("prompt", "compaction")
SETTLING = ("reply", "compaction", "failure")


@lru_cache(maxsize=64)
def _single_file(file_id: int) -> frozenset[int]:
    return frozenset({file_id})  # one object for all messages of the file


class MessageNode(Struct, gc=False, array_like=True):
    """A message in its tree, without its content."""

    kind: MessageKind
    parent: str | None
    fingerprint: bytes
    file_ids: frozenset[int]
    record: HeldRecord


def message_node(
    kind: MessageKind, parent: str | None, data: bytes, record: HeldRecord, file_id: int
) -> MessageNode:
    """The node of a message with this content, which can be read again from its record."""
    # A checksum is enough: it only has to notice that a message of the same id has changed.
    fingerprint = b"%d:%d;" % (len(data), zlib.crc32(data))
    return MessageNode(kind, parent, fingerprint, _single_file(file_id), record)


class MessageNodes(PackedDict[MessageNode]):
    """The messages of a tree by id."""

    def __init__(self, limits: ImportLimits) -> None:
        super().__init__(MessageNode, limits)

    def put(self, name: str, node: MessageNode) -> None:
        """Add a message, or replace it by the copy of a further file. A copy without a parent
        leaves the message where it was."""
        present = self.get(name)
        if present is None:
            self[name] = node
            return
        present.kind, present.fingerprint, present.record = node.kind, node.fingerprint, node.record
        present.parent = node.parent or present.parent
        present.file_ids |= node.file_ids


class ActiveBranch:
    """The messages that the program shows, in order."""

    def __init__(self) -> None:
        self._nodes = array("I")
        self._shown = bytearray()  # by node

    def __iter__(self) -> Iterator[int]:
        return iter(self._nodes)

    def __contains__(self, node: int) -> bool:
        return 0 <= node < len(self._shown) and bool(self._shown[node])

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def last(self) -> int:
        """The last message, or NONE."""
        return self._nodes[-1] if self._nodes else NONE

    def add(self, node: int) -> None:
        """Append a message, unless it is shown already."""
        if node not in self:
            self._shown.extend(bytes(max(0, node + 1 - len(self._shown))))
            self._shown[node] = True
            self._nodes.append(node)

    def place(self, node: int, start: int) -> int:
        """The position of a message, searched from `start` on; NONE if it is not there."""
        try:
            return self._nodes.index(node, start)
        except ValueError:
            return NONE

    def keep(self, number: int) -> None:
        """Hide all but the first messages."""
        if number < len(self._nodes):
            self.cut(self._nodes[number])

    def cut(self, first: int) -> None:
        """Hide a message and all after it; everything if the message is not shown."""
        at = self._nodes.index(first) if first in self else 0
        for node in self._nodes[at:]:
            self._shown[node] = False
        del self._nodes[at:]


class MessageTurn(NamedTuple):
    """A turn and its messages."""

    id: str
    parent: str | None
    kind: str
    members: Sequence[tuple[str, str]]  # ids of messages, each with the id of its node

    def prints(self, nodes: MessageNodes) -> list[bytes]:
        """The parts of the fingerprint that come from the messages."""
        return [
            b"%b;%b;" % (message_id.encode("utf-8", "replace"), nodes.read(node_id).fingerprint)
            for message_id, node_id in self.members
        ]


class _TurnNodes(Struct, array_like=True):
    """The nodes of a turn, by number."""

    opener: int
    start: int  # the first node of its span
    nodes: list[int] = field(default_factory=list)
    copied: int = 0  # number of first nodes that are in another turn too
    is_compaction: bool = False


class MessageTree(TurnTree):
    """The turns of a tree of messages. A turn has the id of the message that opens it."""

    def __init__(self, nodes: MessageNodes) -> None:
        super().__init__()
        self.nodes = nodes
        self.turn_nodes = PackedList(_TurnNodes, nodes.limits)
        self.turn_of = array("i", [NONE]) * len(nodes)
        _MessageGrouping(self)

    def __iter__(self) -> Iterator[MessageTurn]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, number: int) -> MessageTurn:
        turn, name = self.turn_nodes.read(number), self.nodes.name
        own = name(turn.opener)
        names = [name(node) for node in turn.nodes]
        return MessageTurn(
            own,
            self.optional_name(self.parent(number)),
            "compaction" if turn.is_compaction else "normal",
            [(f"{own}:{n}" if at < turn.copied else n, n) for at, n in enumerate(names)],
        )

    def name(self, turn: int) -> str:
        """The id of the message that opens a turn."""
        return self.nodes.name(self.turn_nodes.read(turn).opener)

    def unplanned(self) -> Iterator[MessageNode]:
        """The messages that are in no turn."""
        for number, turn in enumerate(self.turn_of):
            if turn == NONE:
                yield self.nodes.values.read(number)

    def head(self, node: int) -> str | None:
        """The id of the nearest settled turn at or above a message; `node` may be NONE."""
        turn = NONE if node == NONE else self.turn_of[node]
        return self.head_name(turn if turn >= 0 else None)


class MessageTurns(LazyTurns):
    """The turns of a tree of messages, for a source that only has to say what a message is."""

    def __init__(self, tree: MessageTree, version: int) -> None:
        self.tree = tree
        self.nodes = tree.nodes
        super().__init__(tree, version)

    @abstractmethod
    def context(self, turn: MessageTurn) -> bytes:
        """What the content of a turn depends on besides its messages."""

    @abstractmethod
    def build_turn(self, turn: MessageTurn, messages: Sequence[tuple[str, MessageNode]]) -> Turn:
        """The content of a turn; its messages are given by their ids."""

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        members = self.tree[turn]
        file_ids = {f for _, node_id in members.members for f in self.nodes.read(node_id).file_ids}
        return [self.context(members), *members.prints(self.nodes)], file_ids

    def record_ids(self, turn: int) -> Iterable[str]:
        return [message_id for message_id, _ in self.tree[turn].members]

    def build(self, turn: int) -> Turn:
        members = self.tree[turn]
        nodes = [(message_id, self.nodes.read(node_id)) for message_id, node_id in members.members]
        return self.build_turn(members, nodes)


class _MessageGrouping:
    """Walks a tree of messages from its roots, and puts each into a turn. Messages are numbers."""

    def __init__(self, tree: MessageTree) -> None:
        self.tree = tree
        nodes = tree.nodes
        self.kinds: list[MessageKind] = []
        self.parents = array("i")
        for node in nodes.values:
            self.kinds.append(node.kind)
            self.parents.append(nodes.number(node.parent) if node.parent is not None else NONE)
        self.first_child = array("i", [NONE]) * len(nodes)
        self.more_children: dict[int, list[int]] = {}
        self.leading: dict[int, int] = {}  # notices before a first prompt, and their parents
        roots = array("i")
        for number, parent in enumerate(self.parents):
            if parent in (NONE, number):
                roots.append(number)
            elif self.first_child[parent] == NONE:
                self.first_child[parent] = number
            else:
                self.more_children.setdefault(parent, []).append(number)
        for root in roots:
            self._walk(root)
        for number, turn in enumerate(tree.turn_of):  # no root leads into a cycle
            if turn == NONE and number not in self.leading:
                self._walk(number)

    def _walk(self, root: int) -> None:
        waiting = [(root, NONE)]
        while waiting:
            node, parent = waiting.pop()
            if self.tree.turn_of[node] != NONE or node in self.leading:
                continue
            self._place(node, parent)
            waiting += [(child, node) for child in reversed(self._children(node))]

    def _children(self, node: int) -> list[int]:
        first = self.first_child[node]
        return [] if first == NONE else [first, *self.more_children.get(node, ())]

    def _place(self, node: int, parent: int) -> None:
        kind = self.kinds[node]
        number = NONE if parent == NONE or parent in self.leading else self.tree.turn_of[parent]
        if number == NONE and kind in ("notice", "failure"):
            self.leading[node] = parent
            return
        if number == NONE:
            self._open(node, None, self._leading_to(parent))
            return
        turn = self.tree.turn_nodes[number]
        if kind in OPENERS:
            waits = not self.tree.is_settled(number) and not turn.is_compaction
            if kind == "prompt" and waits and parent not in self.more_children:
                self._add(node, number)
            else:
                self._open(node, number)
        elif self._continues(node, parent):
            self._add(node, number)
        else:
            self._open(node, self.tree.parent(number), self._span(turn, parent))

    def _continues(self, node: int, parent: int) -> bool:
        """Whether this is the first message after `parent` that stays in the turn."""
        ways = (child for child in self._children(parent) if self.kinds[child] not in OPENERS)
        return next(ways) == node

    def _open(self, node: int, parent: int | None, prefix: Sequence[int] = ()) -> None:
        turn = _TurnNodes(node, prefix[0] if prefix else node)
        turn.is_compaction = self.kinds[node] == "compaction"
        self.tree.turn_nodes.add(turn)
        number = self.tree.add(parent)
        for member in prefix:
            if member in self.leading and self.tree.turn_of[member] == NONE:
                # A failure before anything was asked settles nothing.
                turn.nodes.append(member)
                self.tree.turn_of[member] = number
            else:
                turn.nodes.append(member)
                turn.copied += 1
        self._add(node, number)

    def _add(self, node: int, number: int) -> None:
        self.tree.turn_nodes[number].nodes.append(node)
        if self.kinds[node] in SETTLING:
            self.tree.settle(number)
        self.tree.turn_of[node] = number

    def _span(self, turn: _TurnNodes, last: int) -> list[int]:
        """The nodes of a turn from its start to one of them."""
        nodes: dict[int, None] = {}
        while last != NONE and last not in nodes:
            nodes[last] = None
            last = self.parents[last] if last != turn.start else NONE
        return list(nodes)[::-1]

    def _leading_to(self, parent: int) -> list[int]:
        """The notices above a first prompt, unless another prompt has them."""
        notices: list[int] = []
        while parent != NONE and parent in self.leading and self.tree.turn_of[parent] == NONE:
            notices.append(parent)
            parent = self.leading[parent]
        return notices[::-1]
