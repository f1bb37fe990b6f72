"""Claude.ai: newer exports name the parent of each message; older ones are a plain list."""

from __future__ import annotations

from typing import Any

from agents_ledger.importers.parsing.export_documents import Counts, Told
from agents_ledger.importers.parsing.json_spans import Pieces
from agents_ledger.importers.parsing.lenient_json import BROKEN, UUID, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.claude_ai.records import (
    decode_conversation,
    decode_message_head,
)
from agents_ledger.importers.sources.claude_ai.rules import KINDS
from agents_ledger.importers.sources.claude_ai.turns import add_message
from agents_ledger.importers.transcript.message_tree import MessageKind, MessageNodes, message_node
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.turns import Turn


class ClaudeAiTree:
    """A conversation, merged from all exports that contain it."""

    def __init__(self, conversation_id: str) -> None:
        self.id = conversation_id
        self.nodes = MessageNodes()
        self.current: str | None = None
        self.told = Told()

    def add(self, pieces: Pieces, file_id: int, counts: Counts) -> None:
        """Merge a further export: its messages win, and nothing is removed."""
        conversation = pieces.read(decode_conversation)
        summary = as_text(conversation.summary)
        self.told = Told(
            as_text(conversation.name),
            milliseconds(conversation.created_at),
            milliseconds(conversation.updated_at),
            {"summary": summary} if summary else {},
        )
        last: str | None = None
        for number, raw in enumerate(conversation.chat_messages):
            data = bytes(raw)
            try:
                head = pieces.decode(decode_message_head, data)
            except BROKEN:
                counts["(malformed)", "malformed"] += 1
                continue
            sender = str(head.sender)
            counts[sender, "derived" if sender in KINDS else "unmapped"] += 1
            parent_uuid = as_text(head.parent_message_uuid)
            parent = self._scoped(parent_uuid) if parent_uuid else last
            last = self._scoped(as_text(head.uuid) or str(number))
            kind = KINDS.get(sender, "notice")
            self.nodes.put(last, message_node(kind, parent, data, pieces.held(data), file_id))
        leaf = as_text(conversation.current_leaf_message_uuid)
        self.current = self._scoped(leaf) if leaf else last or self.current

    def _scoped(self, name: str) -> str:
        return name if UUID.fullmatch(name) else f"{self.id}:{name}"

    def build(
        self, builder: TurnBuilder, members: list[tuple[str, MessageKind, dict[str, Any]]]
    ) -> Turn:
        """The turn of these messages."""
        for message_id, kind, message in members:
            add_message(builder, message_id, kind, message)
        return builder.build()
