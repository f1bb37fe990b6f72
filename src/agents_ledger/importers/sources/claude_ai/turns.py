"""Claude.ai: the content of one turn, from its messages in order."""

from __future__ import annotations

from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, without_data
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.importers.transcript.turn_builder import TurnBuilder


def add_message(
    builder: TurnBuilder, message_id: str, kind: MessageKind, message: dict[str, Any]
) -> None:
    at = milliseconds(message.get("created_at"))
    blocks = [as_dict(block) for block in as_list(message.get("content"))]
    text = "\n\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))
    text = text or as_text(message.get("text")) or ""
    extras = {name: as_list(message.get(name)) for name in ("attachments", "files")}
    metadata = {name: values for name, values in extras.items() if values}
    if kind == "prompt":
        builder.message(message_id, "user", text, at=at, source="human", metadata=metadata)
    elif kind == "notice":
        builder.message(message_id, "system", text, at=at, source="event", metadata=metadata)
    else:
        builder.provider = "anthropic"
        thoughts = (block.get("thinking") for block in blocks if block.get("type") == "thinking")
        thinking = "\n\n".join(text for text in thoughts if isinstance(text, str)) or None
        builder.message(message_id, "assistant", text, at=at, thinking=thinking, metadata=metadata)
        _add_calls(builder, message_id, blocks, at)


def _add_calls(
    builder: TurnBuilder, message_id: str, blocks: list[dict[str, Any]], at: int
) -> None:
    """Calls and results are blocks of one message; a result without an id is of the last call."""
    last_call = ""
    for number, block in enumerate(blocks):
        started = milliseconds(block.get("start_timestamp")) or at
        if block.get("type") == "tool_use":
            last_call = as_text(block.get("id")) or f"{message_id}:{number}"
            name = as_text(block.get("name")) or "unknown"
            builder.call(
                last_call, name, block.get("input") or {}, at=started, message_id=message_id
            )
        elif block.get("type") == "tool_result":
            failed = bool(block.get("is_error"))
            builder.result(
                as_text(block.get("tool_use_id")) or last_call,
                without_data(block.get("content")),
                at=milliseconds(block.get("stop_timestamp")) or started,
                status="failed" if failed else "completed",
                error="failed" if failed else None,
            )
