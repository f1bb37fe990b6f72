"""ChatGPT: a conversation is a tree; regenerated answers and edited prompts are branches."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_spans import Pieces
from agents_ledger.importers.parsing.lenient_json import BROKEN, as_dict, as_list, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.chatgpt import records, rules
from agents_ledger.importers.sources.chatgpt.turns import ChatGptTurn
from agents_ledger.importers.transcript.exports import (
    ConversationHeader,
    ExportCounts,
    ExportedConversation,
    ExportMember,
)
from agents_ledger.importers.transcript.message_tree import MessageKind, MessageNode, message_node
from agents_ledger.importers.transcript.packed_store import PackedDict
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.turns import Turn


class _MappedNode(Struct, array_like=True):
    node: MessageNode | None  # None: it only connects others
    parent: str | None
    children: list[str]


class ChatGptTree(ExportedConversation):
    """A conversation, merged from all exports that contain it."""

    def add(self, pieces: Pieces, file_id: int, counts: ExportCounts) -> None:
        conversation = pieces.read(records.decode_conversation)
        self.header = ConversationHeader(
            as_text(conversation.title),
            milliseconds(conversation.create_time),
            milliseconds(conversation.update_time),
            {
                name: value
                for name in rules.CONVERSATION_FIELDS
                if (value := getattr(conversation, name))
            },
        )
        mapping = PackedDict(_MappedNode, self.nodes.limits)
        for name, raw in conversation.mapping.items():
            mapping[name] = self._mapped(records.node_in(raw), pieces, file_id, counts)
        for number in _parents_first(mapping):
            name, node = mapping.name(number), mapping.values.read(number).node
            if node is not None:
                node.parent = self._parent(mapping, name)
                self.nodes.put(self.scoped(name), node)
        current = conversation.current_node
        if not isinstance(current, str) or current not in mapping:
            # Without a current_node the last node of the mapping is the best guess at the newest.
            current = mapping.name(len(mapping) - 1) if mapping else None
        if current is not None and mapping.read(current).node is None:
            self.current = self._parent(mapping, current) or self.current
        elif current is not None:
            self.current = self.scoped(current)

    def _mapped(
        self, node: records.ChatGptNode, pieces: Pieces, file_id: int, counts: ExportCounts
    ) -> _MappedNode:
        kind = _kind(node.message, pieces, counts)
        message = bytes(node.message)
        return _MappedNode(
            message_node(kind, None, message, pieces.held(message), file_id) if kind else None,
            node.parent if isinstance(node.parent, str) else None,
            [child for child in as_list(node.children) if isinstance(child, str)],
        )

    def _parent(self, mapping: PackedDict[_MappedNode], name: str) -> str | None:
        seen = {name}
        parent = mapping.read(name).parent
        while parent is not None and parent in mapping and parent not in seen:
            if mapping.read(parent).node is not None:
                return self.scoped(parent)
            seen.add(parent)
            parent = mapping.read(parent).parent
        return None

    def build(self, builder: TurnBuilder, members: list[ExportMember]) -> Turn:
        turn = ChatGptTurn(builder)
        for member in members:
            turn.add(*member)
        return builder.build()


def _kind(message: Raw, pieces: Pieces, counts: ExportCounts) -> MessageKind | None:
    """The kind of a node, counted; None if it only connects others."""
    try:
        head = pieces.decode(records.decode_message_head, bytes(message))
    except BROKEN:
        counts["(malformed)", "malformed"] += 1
        return None
    if head is None:
        counts["(empty node)", "unmapped"] += 1
        return None
    role = records.role_of(head.author)
    content = as_dict(head.content)
    if role not in rules.KINDS and not any(as_list(content.get("parts"))):
        counts[role or "(no role)", "unmapped"] += 1
        return None
    counts[role or "(no role)", "derived"] += 1
    if content.get("content_type") in rules.INSTRUCTION_TYPES:
        return "notice"
    return rules.KINDS.get(role, "notice")


def _parents_first(mapping: PackedDict[_MappedNode]) -> Iterator[int]:
    """All nodes, each after its parent, siblings in the order of the parent's list."""
    visited = bytearray(len(mapping))
    for root, node in enumerate(mapping.values):
        if node.parent in mapping:
            continue
        stack = [root]
        while stack:
            number = stack.pop()
            if number >= 0 and not visited[number]:
                visited[number] = 1
                yield number
                children = mapping.values.read(number).children
                stack += [mapping.number(name) for name in reversed(children)]
    yield from (number for number, is_visited in enumerate(visited) if not is_visited)
