"""ChatGPT: what an export says of a conversation, its nodes and its messages."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.lenient_json import BROKEN, as_dict, as_text, decode_leniently


class ChatGptConversation(Struct):
    mapping: dict[str, Raw] = field(default_factory=dict)
    title: Any = None
    create_time: Any = None
    update_time: Any = None
    current_node: Any = None
    conversation_id: Any = None
    id: Any = None
    default_model_slug: Any = None
    gizmo_id: Any = None
    gizmo_type: Any = None
    is_archived: Any = None
    is_starred: Any = None
    conversation_origin: Any = None
    plugin_ids: Any = None
    voice: Any = None


class ChatGptNode(Struct):
    message: Raw = field(default_factory=lambda: Raw(b"null"))
    parent: Any = None
    children: Any = None


class ChatGptMessageHead(Struct):
    """The fields of a message that decide its place in the tree."""

    author: Any = None
    content: Any = None


decode_conversation = msgspec.json.Decoder(ChatGptConversation).decode
decode_message_head = msgspec.json.Decoder(ChatGptMessageHead | None).decode
_decode_node = msgspec.json.Decoder(ChatGptNode).decode


def conversation_id(data: bytes) -> str | None:
    """The id of a conversation: its own, or that of its first node."""
    conversation = decode_leniently(decode_conversation, data)
    own = as_text(conversation.conversation_id) or as_text(conversation.id)
    return own or next(iter(conversation.mapping), None)


def node_in(raw: Raw) -> ChatGptNode:
    """The node, or one whose message is reported as malformed."""
    try:
        return _decode_node(raw)
    except BROKEN:
        return ChatGptNode(Raw(b"0"))


def role_of(author: Any) -> str:
    """The role of an author: an object with a role, or only the role."""
    return as_text(author) or as_text(as_dict(author).get("role")) or ""
