"""Claude.ai: what an export says of a conversation and its messages."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.lenient_json import as_text, decode_leniently


class ClaudeAiConversation(Struct):
    uuid: Any = None
    name: Any = None
    summary: Any = None
    created_at: Any = None
    updated_at: Any = None
    chat_messages: list[Raw] = field(default_factory=list)
    current_leaf_message_uuid: Any = None


class ClaudeAiMessageHead(Struct):
    """The fields of a message that decide its place in the tree."""

    uuid: Any = None
    sender: Any = None
    parent_message_uuid: Any = None


decode_conversation = msgspec.json.Decoder(ClaudeAiConversation).decode
decode_message_head = msgspec.json.Decoder(ClaudeAiMessageHead).decode


def conversation_id(data: bytes) -> str | None:
    return as_text(decode_leniently(decode_conversation, data).uuid)
