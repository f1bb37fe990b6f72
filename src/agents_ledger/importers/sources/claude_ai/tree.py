"""Claude.ai: newer exports name the parent of each message; older ones are a plain list."""

from __future__ import annotations

from agents_ledger.importers.parsing.json_spans import Pieces
from agents_ledger.importers.parsing.lenient_json import BROKEN, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.claude_ai.records import (
    decode_conversation,
    decode_message_head,
)
from agents_ledger.importers.sources.claude_ai.rules import KINDS
from agents_ledger.importers.sources.claude_ai.turns import add_message
from agents_ledger.importers.transcript.exports import (
    ConversationHeader,
    ExportCounts,
    ExportedConversation,
    ExportMember,
)
from agents_ledger.importers.transcript.message_tree import message_node
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.turns import Turn


class ClaudeAiTree(ExportedConversation):
    """A conversation, merged from all exports that contain it."""

    def add(self, pieces: Pieces, file_id: int, counts: ExportCounts) -> None:
        conversation = pieces.read(decode_conversation)
        summary = as_text(conversation.summary)
        self.header = ConversationHeader(
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
            parent = self.scoped(parent_uuid) if parent_uuid else last
            last = self.scoped(as_text(head.uuid) or str(number))
            kind = KINDS.get(sender, "notice")
            self.nodes.put(last, message_node(kind, parent, data, pieces.held(data), file_id))
        leaf = as_text(conversation.current_leaf_message_uuid)
        self.current = self.scoped(leaf) if leaf else last or self.current

    def build(self, builder: TurnBuilder, members: list[ExportMember]) -> Turn:
        for message_id, kind, message in members:
            add_message(builder, message_id, kind, message)
        return builder.build()
