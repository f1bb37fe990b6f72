"""AIX: the content of one turn, from its messages in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.json_values import EMPTY, json_or_text, loose, path_of, pruned
from agents_ledger.importers.parsing.lenient_json import as_dict, as_number, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.aix.rules import DETAIL_TABLES, FILE_KINDS, NAME
from agents_ledger.importers.sources.cursor.records import metadata_of, thinking_of
from agents_ledger.importers.sources.cursor.rules import STATUSES
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, json_text
from agents_ledger.model.turns import (
    OPEN_CALL,
    CallStatus,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageRole,
    MessageSource,
    Turn,
)

Values = dict[str, Any]


class AixMessage(Struct):
    """A message, with the rows of its calls and details."""

    id: str
    role: MessageRole
    sequence: int
    row: SourceRow
    session_id: str
    file_ids: set[int]  # the databases that contain it
    details: dict[tuple[str, bytes], SourceRow] = field(default_factory=dict)
    calls: dict[str, SourceRow] = field(default_factory=dict)

    def rows(self) -> Iterator[SourceRow]:
        """All rows, in an order that does not depend on that of the databases."""
        yield self.row
        yield from (row for _, row in sorted(self.details.items()))
        yield from (row for _, row in sorted(self.calls.items()))


def own_id(message: AixMessage) -> str:
    """AIX keeps the ids of the agents it read, which may be imported themselves: a prefix
    distinguishes its own messages from theirs."""
    return f"{NAME}:{message.id}"


class AixTurnContext(NamedTuple):
    """What is known of a turn besides its messages."""

    model: str | None
    workspace: str | None
    asked_by: MessageSource
    spawned: dict[str, str]  # call -> label of the session it started

    def evidence(self) -> bytes:
        fields = (self.model, self.workspace, self.asked_by, sorted(self.spawned.items()))
        return "".join(f"{value};" for value in fields).encode(errors="replace")


def build_turn(
    material: Material,
    turn_id: str,
    parent_id: str | None,
    messages: Sequence[AixMessage],
    context: AixTurnContext,
) -> Turn:
    builder = TurnBuilder(turn_id, parent_id, material.limits)
    builder.model, builder.workspace_path = context.model, context.workspace
    for message in messages:
        at = _add_message(builder, material, message, context.asked_by)
        for _, row in sorted(message.calls.items()):
            _add_call(builder, material.values_of(row), own_id(message), at, context.spawned)
    return builder.build()


def _add_message(
    builder: TurnBuilder, material: Material, message: AixMessage, asked_by: MessageSource
) -> int:
    """Add a message without its calls; its time."""
    values = material.values_of(message.row)
    details: dict[str, list[Values]] = {table: [] for table in DETAIL_TABLES}
    for (table, _), row in sorted(message.details.items()):
        details[table].append(material.values_of(row))
    bubbles = [as_dict(loose(row.get("metadata_json"))) for row in details["message_metadata"]]
    bubble = bubbles[0] if bubbles else {}
    content = values.get("content")
    at = milliseconds(values.get("timestamp"))
    builder.message(
        own_id(message),
        message.role,
        content if isinstance(content, str) else None,
        at=at,
        source=asked_by if message.role == "user" else None,
        thinking=thinking_of(bubble),
        metadata=_metadata(values, bubble),
        context=pruned(loose(values.get("context_json")) or bubble.get("context")),
        files=tuple(dict.fromkeys(_files(details["message_files"]))),
        lints=tuple(_lints(details["message_lints"])),
        codeblocks=tuple(_codeblocks(details["message_codeblocks"])),
    )
    return at


def _metadata(values: Values, bubble: Values) -> Values:
    """The metadata of Cursor's message, and columns of AIX under the names that Cursor uses."""
    columns = {
        "checkpointId": as_text(values.get("checkpoint_id")),
        "cursorRules": pruned(loose(values.get("cursor_rules_json"))),
        "isAgentic": _flag(values.get("is_agentic")),
        "isPlanExecution": _flag(values.get("is_plan_execution")),
    }
    metadata = {**metadata_of(bubble), "source_message_id": values.get("id")}
    for name, value in columns.items():
        if value not in EMPTY:
            metadata.setdefault(name, value)
    return metadata


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def _add_call(
    builder: TurnBuilder, values: Values, message_id: str, at: int, spawned: dict[str, str]
) -> None:
    call_id = str(values.get("id"))
    params = values.get("params_json")
    builder.call(
        call_id,
        as_text(values.get("tool_name")) or "unknown",
        json_text(json_or_text(params)) if isinstance(params, str) and params else {},
        at=milliseconds(values.get("started_at")) or at,
        message_id=message_id,
        tool_number=as_number(values.get("tool_number")),
    )
    source_status = as_text(values.get("status"))
    default: CallStatus = "completed" if values.get("result_json") else "running"
    status = STATUSES.get(source_status or "", default)
    builder.result(
        call_id,
        json_or_text(values.get("result_json") or None),
        at=0 if status in OPEN_CALL else milliseconds(values.get("completed_at")) or at,
        status=status,
        error="failed" if status == "failed" else None,
        source_status=source_status,
        spawned=spawned.get(call_id),
    )


def _files(rows: list[Values]) -> Iterator[MessageFile]:
    for values in rows:
        path = path_of(values.get("file_path"))
        if path:
            kind = FILE_KINDS.get(str(values.get("kind")), "referenced")
            yield MessageFile(kind, path, as_number(values.get("line_number")))


def _lints(rows: list[Values]) -> Iterator[MessageLint]:
    for values in rows:
        yield MessageLint(
            as_text(values.get("file_path")),
            as_text(values.get("message")),
            as_text(values.get("source")),
            as_number(values.get("start_line")),
            as_number(values.get("start_col")),
            as_number(values.get("end_line")),
            as_number(values.get("end_col")),
        )


def _codeblocks(rows: list[Values]) -> Iterator[MessageCodeblock]:
    for values in sorted(rows, key=lambda row: as_number(row.get("idx")) or 0):
        block = as_dict(loose(values.get("raw_json")))
        content = block.get("content")
        yield MessageCodeblock(
            content if isinstance(content, str) else "",
            as_text(block.get("languageId")),
            path_of(block.get("uri")),
        )
