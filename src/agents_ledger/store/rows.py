"""Values to rows and rows to values, side by side: the order of fields is that of the SELECTs."""

from __future__ import annotations

from agents_ledger.model.compaction import Compaction
from agents_ledger.model.sessions import Alias, Move, Session
from agents_ledger.model.turns import (
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Turn,
)
from agents_ledger.store.database import Row

_HAS_CHILDREN = Turn.__struct_fields__.index("has_children")
_PROJECTED = Turn.__struct_fields__.index("projected")
_IS_SUBAGENT = Session.__struct_fields__.index("is_subagent")
_HAS_MORE = Session.__struct_fields__.index("source_has_more")
_STARRED = Session.__struct_fields__.index("starred")


def to_turn(
    row: Row,
    messages: tuple[Message, ...] = (),
    tool_calls: tuple[ToolCall, ...] = (),
    compaction: Compaction | None = None,
) -> Turn:
    """A row of <turn_columns> and the depth."""
    values = [*row, messages, tool_calls, compaction]
    values[_HAS_CHILDREN] = bool(values[_HAS_CHILDREN])
    values[_PROJECTED] = bool(values[_PROJECTED])
    return Turn(*values)


def to_session(row: Row) -> Session:
    """A row of <session_columns>."""
    values = list(row)
    values[_IS_SUBAGENT] = bool(values[_IS_SUBAGENT])
    values[_STARRED] = bool(values[_STARRED])
    values[_HAS_MORE] = bool(values[_HAS_MORE])
    return Session(*values)


def to_move(row: Row) -> Move:
    """A row of session_history."""
    return Move(*row)


def to_alias(row: Row) -> Alias:
    """A row of session_aliases."""
    return Alias(*row)


def message_row(message: Message) -> dict[str, object]:
    """For insert_message."""
    return {
        "id": message.id,
        "turn_id": message.turn_id,
        "role": message.role,
        "content": message.content,
        "source": message.source,
        "sequence": message.sequence,
        "created_at": message.created_at,
        "thinking": message.thinking,
        "context_json": message.context_json,
        "metadata_json": message.metadata_json,
        "tool_call_id": message.tool_call_id,
        "has_details": int(bool(message.files or message.lints or message.codeblocks)),
    }


def tool_call_row(call: ToolCall) -> dict[str, object]:
    """For insert_tool_call."""
    return {
        "id": call.id,
        "turn_id": call.turn_id,
        "message_id": call.message_id,
        "tool_name": call.tool_name,
        "tool_number": call.tool_number,
        "params_json": call.params_json,
        "result_json": call.result_json,
        "error": call.error,
        "status": call.status,
        "source_status": call.source_status,
        "spawned_session_label": call.spawned_session_label,
        "started_at": call.started_at,
        "completed_at": call.completed_at,
        "sequence": call.sequence,
    }


def compaction_row(compaction: Compaction, turn_id: str) -> dict[str, object]:
    """For insert_compaction."""
    row: dict[str, object] = {
        name: getattr(compaction, name) for name in Compaction.__struct_fields__
    }
    row["turn_id"] = turn_id
    return row


def file_rows(message: Message) -> list[dict[str, object]]:
    """For insert_message_file."""
    return [_plain(file, message) for file in message.files]


def lint_rows(message: Message) -> list[dict[str, object]]:
    """For insert_message_lint."""
    return [_plain(lint, message) for lint in message.lints]


def codeblock_rows(message: Message) -> list[dict[str, object]]:
    """For insert_message_codeblock."""
    return [{**_plain(block, message), "idx": idx} for idx, block in enumerate(message.codeblocks)]


def _plain(
    value: MessageFile | MessageLint | MessageCodeblock, message: Message
) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(value, name) for name in value.__struct_fields__}
    row["message_id"] = message.id
    return row
