"""Qwen Code: how records become turns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import SourceLine
from agents_ledger.importers.sources.qwen_code import rules
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.lines import report_malformed, scoped_id
from agents_ledger.importers.transcript.message_log import LogMessage, MessageLog
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.turns import MessageSource


class QwenLog(MessageLog):
    """Records of sessions and subagents. /branch copies records with their uuids: one turn."""

    name = rules.NAME

    def read(self, file: SourceFile) -> None:
        skipped: dict[str, str | None] = {}  # records without a message, and their parents
        for line in self.material.lines(file):
            record = parse_json(line.data or b"")
            if isinstance(record, dict):
                self._add(line, record, skipped)
            else:
                report_malformed(self.material, line, "not an object")

    def _add(
        self, line: SourceLine, record: dict[str, Any], skipped: dict[str, str | None]
    ) -> None:
        own = as_text(record.get("sessionId")) or Path(line.file.path).stem
        # A subagent's records have the id of its parent's session, in a file of its own.
        is_subagent = bool(record.get("isSidechain"))
        session = self.session(Path(line.file.path).stem if is_subagent else own)
        session.parent_id = own if is_subagent else None
        session.seen(milliseconds(record.get("timestamp")))
        session.folder = as_text(record.get("cwd")) or session.folder
        title = as_text(as_dict(record.get("systemPayload")).get("customTitle"))
        session.title = title or session.title
        type_ = "/".join(filter(None, map(as_text, (record.get("type"), record.get("subtype")))))
        kind = rules.KINDS.get(type_)
        self.material.count(type_, "derived" if kind or title else "unmapped")
        uuids = (as_text(record.get(name)) for name in ("uuid", "parentUuid"))
        name, parent = (scoped_id(rules.NAME, own, uuid) if uuid else None for uuid in uuids)
        # System records without a message are links of the chain.
        while parent in skipped:
            parent = skipped[parent]
        if kind and name:
            message = LogMessage(name, kind, line.data or b"")
            self.add(session, message, parent, self.material.held(line))
        elif name:
            skipped[name] = parent

    def build(self, builder: TurnBuilder, messages: Iterable[LogMessage]) -> None:
        for message in messages:
            record = as_dict(parse_json(message.data))
            builder.workspace_path = as_text(record.get("cwd")) or builder.workspace_path
            _add_message(builder, message, record)


def _add_message(builder: TurnBuilder, message: LogMessage, record: dict[str, Any]) -> None:
    at = milliseconds(record.get("timestamp"))
    parts = _parts(record.get("message"))
    if message.kind == "compaction":
        _compact(builder, as_dict(record.get("systemPayload")))
    elif record.get("type") == "tool_result":
        _add_results(builder, parts, as_dict(record.get("toolCallResult")), at)
    elif message.kind == "reply":
        builder.model = as_text(record.get("model")) or builder.model
        builder.add_tokens(**token_counts(record.get("usageMetadata"), rules.TOKENS))
        thinking = _text(parts, is_thought=True) or None
        builder.message(message.id, "assistant", _text(parts), at=at, thinking=thinking)
        _add_calls(builder, message.id, parts, at)
    else:
        typed: MessageSource = "agent" if record.get("isSidechain") else "human"
        source = rules.PROMPT_SOURCES.get(str(record.get("subtype")), typed)
        other_parts = [without_data(part) for part in parts if "text" not in part]
        metadata = {"parts": other_parts} if other_parts else None
        builder.message(message.id, "user", _text(parts), at=at, source=source, metadata=metadata)


def _parts(content: Any) -> list[dict[str, Any]]:
    return [as_dict(part) for part in as_list(as_dict(content).get("parts"))]


def _text(parts: list[dict[str, Any]], is_thought: bool = False) -> str:
    texts = (as_text(part.get("text")) for part in parts if bool(part.get("thought")) is is_thought)
    return "\n\n".join(filter(None, texts))


def _add_calls(builder: TurnBuilder, message_id: str, parts: list[Any], at: int) -> None:
    for number, call in enumerate(as_dict(part.get("functionCall")) for part in parts):
        name, args = as_text(call.get("name")), as_dict(call.get("args"))
        if name:
            call_id = as_text(call.get("id")) or f"{message_id}:{number}"
            builder.call(call_id, name, args, at=at, message_id=message_id)
            builder.add_files(message_id, rules.FILE_TOOLS.files(name, args), call_id=call_id)


def _add_results(builder: TurnBuilder, parts: list[Any], shown: dict[str, Any], at: int) -> None:
    """The response is what the model was sent; the status is the client's."""
    status = rules.STATUSES.get(str(shown.get("status")), "completed")
    for response in (as_dict(part.get("functionResponse")) for part in parts):
        call_id = as_text(response.get("id")) or as_text(shown.get("callId")) or ""
        result = as_dict(response.get("response"))
        error = as_text(result.get("error")) or "failed" if status == "failed" else None
        builder.result(call_id, result, at=at, status=status, error=error)


def _compact(builder: TurnBuilder, payload: dict[str, Any]) -> None:
    history, info = as_list(payload.get("compressedHistory")), as_dict(payload.get("info"))
    if builder.parent_id is not None:
        builder.compaction = Compaction(
            _text(_parts(history[0])) if history else "",
            builder.parent_id,
            tokens_before=as_number(info.get("originalTokenCount")),
            tokens_after=as_number(info.get("newTokenCount")),
        )
