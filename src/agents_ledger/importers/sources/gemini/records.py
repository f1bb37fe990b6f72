"""Gemini CLI: what a message and the head of a chat say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.lenient_json import (
    UUID,
    as_dict,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.gemini.rules import CANCELLED, SESSION_FIELDS

HEAD_FIELDS = {"sessionId", "startTime", "lastUpdated", "summary", *SESSION_FIELDS}
OWN_RECORD = re.compile(rb'"(?:gemini|\$set|\$rewindTo)"')


class GeminiMessageHead(Struct):
    """The fields of a message that decide its place in the tree."""

    id: Any = None
    type: Any = None
    role: Any = None
    timestamp: Any = None
    ts: Any = None


decode_message_head = msgspec.json.Decoder(GeminiMessageHead).decode


def head_of(fields: dict[str, Raw]) -> dict[str, Any]:
    """What a document or a patch says of its session."""
    return {name: parse_json(raw) for name, raw in fields.items() if name in HEAD_FIELDS}


def is_own_record(line: bytes) -> bool:
    """Whether a line is a record that no other source writes."""
    match parse_json(line) if OWN_RECORD.search(line) else None:
        case {"$rewindTo": str()}:
            return True
        case {"$set": dict(patch)}:
            return not patch.keys().isdisjoint({"messages", *HEAD_FIELDS})
        case {"id": str(), "timestamp": str(), "type": "gemini", "content": _}:
            return True
    return False


def session_key(path: Path, fields: dict[str, Raw]) -> tuple[str, str]:
    """The id of a chat's session, and its start time, which tells chats of one id apart."""
    names = ("sessionId", "kind", "startTime")
    session_id, kind, start = (as_text(parse_json(fields.get(name, b"null"))) for name in names)
    start = start if start and milliseconds(start) else ""
    if not session_id:
        return path.stem, start
    is_subagent = kind == "subagent" or path.parent.parent.name == "chats"
    # Ids of subagents are unique below their session, whatever form they have.
    if is_subagent or UUID.fullmatch(session_id):
        return session_id, start
    # packages/a2a-server (0.2x to 0.40) gives all its chats the id "a2a-server".
    return f"{session_id}:{start or path.stem}", start


def content_of(message: dict[str, Any]) -> tuple[str, list[Any]]:
    """The text of a message, and its other parts without their bytes."""
    content = message.get("content", message.get("parts"))
    if isinstance(content, str):
        return content, []
    parts = content if isinstance(content, list) else [content] if content else []
    texts: list[str] = []
    other_parts: list[Any] = []
    for part in parts:
        text = part if isinstance(part, str) else as_dict(part).get("text")
        if isinstance(text, str):
            texts.append(text)
        else:
            other_parts.append(without_data(part))
    return "\n".join(texts), other_parts


def is_cancellation(message: dict[str, Any]) -> bool:
    """Whether the client reports that a request was cancelled."""
    return content_of(message)[0].strip() == CANCELLED
