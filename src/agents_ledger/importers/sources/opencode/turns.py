"""opencode: the content of one turn, from its messages and their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents_ledger.importers.parsing.json_values import path_of, pruned
from agents_ledger.importers.sources.opencode.records import Messages, Parts, child_of, parts_of
from agents_ledger.importers.sources.opencode.second_format import SUBAGENTS, in_first_format
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    DEEPEST,
    TOO_DEEP,
    as_dict,
    as_list,
    as_number,
    as_text,
)
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import (
    CallStatus,
    FileKind,
    MessageFile,
    MessageRole,
    MessageSource,
    Turn,
)

NAME = "opencode"
STATUSES: dict[str, CallStatus] = {
    "completed": "completed",
    "error": "failed",
    "exited": "completed",
    "killed": "failed",
    "pending": "pending",
    "running": "running",
    "streaming": "running",
    "success": "completed",
    "timeout": "failed",
}
ROLES: dict[str, MessageRole] = {"user": "user", "system": "system"}
FILE_TOOLS: dict[str, FileKind] = {
    "edit": "written",
    "multiedit": "written",
    "patch": "written",
    "read": "read",
    "write": "written",
}
WITH_COLUMNS = {"id", "messageID", "modelID", "providerID", "role", "sessionID", "time", "tokens"}
PLAIN_PARTS = {"reasoning", "step-finish", "step-start", "text", "tool"}


def label_of(session_id: str) -> str:
    """The label of a session."""
    return f"{NAME}:{session_id}"[:500]


def build_turn(
    messages: Messages,
    parts: Parts,
    group: Sequence[int],
    parent_id: str | None,
    *,
    workspace: str | None,
    compacts: bool,
    asked_by: MessageSource,
) -> Turn:
    """The turn that these messages make."""
    turn_id = messages.ids.name(group[0])
    turn = _Turn(TurnBuilder(turn_id, parent_id), asked_by)
    turn.builder.workspace_path = workspace
    for number in group:
        name, type_ = messages.ids.name(number), messages.type(number)
        own = [(parts.ids.name(part), parts[part]) for part in parts_of(messages, parts, number)]
        info = messages[number]
        if type_:
            info, told = in_first_format(type_, info)
            own = [(f"{name}:{at}", part) for at, part in enumerate(told)]
        turn.message(name, info, own)
    if compacts and parent_id is not None:
        turn.builder.compaction = Compaction(
            "\n\n".join(turn.summary),
            parent_id,
            model=turn.builder.model or "none",
            provider=turn.builder.provider,
            trigger=turn.trigger,
        )
    return turn.builder.build()


class _Turn:
    def __init__(self, builder: TurnBuilder, asked_by: MessageSource) -> None:
        self.asked_by = asked_by
        self.builder = builder
        self.summary: list[str] = []
        self.trigger: str | None = None
        self.called: set[str] = set()  # not every provider gives each call an id of its own

    def message(
        self, message_id: str, info: dict[str, Any], parts: list[tuple[str, dict[str, Any]]]
    ) -> None:
        role = ROLES.get(str(info.get("role")), "assistant")
        at = milliseconds(as_dict(info.get("time")).get("created"))
        said = [part for _, part in parts if _is_text(part) and not part.get("synthetic")]
        added = [part for _, part in parts if _is_text(part) and part.get("synthetic")]
        source: MessageSource | None = None
        if role == "user":
            source = self.asked_by if said or not added else "event"
        words = "\n\n".join(part["text"] for part in said or added)
        if info.get("summary") is True:
            self.summary.append(words)
        self._compacting(parts)
        self._model(info)
        self.builder.message(
            message_id,
            role,
            words,
            at=at,
            source=source,
            thinking="\n\n".join(_thoughts(parts)) or None,
            metadata=_metadata(info, parts),
            context={"synthetic": [part["text"] for part in added]} if said and added else None,
            files=tuple(dict.fromkeys(_files(info, parts))),
        )
        for part_id, part in parts:
            if part.get("type") == "tool":
                self._call(part_id, part, message_id, at)
        if role == "assistant":
            self._finish(info)

    def _compacting(self, parts: list[tuple[str, dict[str, Any]]]) -> None:
        for _, part in parts:
            if part.get("type") == "compaction":
                self.trigger = "context_limit" if part.get("auto") else "manual"

    def _model(self, info: dict[str, Any]) -> None:
        chosen = as_dict(info.get("model"))
        model = as_text(info.get("modelID")) or as_text(chosen.get("modelID"))
        if model:
            self.builder.model = model
            self.builder.provider = as_text(info.get("providerID")) or as_text(
                chosen.get("providerID")
            )

    def _finish(self, info: dict[str, Any]) -> None:
        done = milliseconds(as_dict(info.get("time")).get("completed"))
        self.builder.ended_at = max(self.builder.ended_at, done)
        wrong = as_dict(info.get("error"))
        self.builder.failed = bool(wrong)
        told = as_dict(wrong.get("data")).get("message"), wrong.get("message"), wrong.get("name")
        said = next(filter(None, map(as_text, told)), "failed")
        self.builder.error = said if wrong else None
        tokens, cache = (
            as_dict(info.get("tokens")),
            as_dict(as_dict(info.get("tokens")).get("cache")),
        )
        if not tokens:
            return
        parts = {
            "input_tokens": as_number(tokens.get("input")),
            "output_tokens": as_number(tokens.get("output")),
            "reasoning_tokens": as_number(tokens.get("reasoning")),
            "cached_input_tokens": as_number(cache.get("read")),
            "cache_write_tokens": as_number(cache.get("write")),
        }
        self.builder.add_tokens(**parts, total_tokens=sum(n or 0 for n in parts.values()))

    def _call(self, part_id: str, part: dict[str, Any], message_id: str, at: int) -> None:
        said = as_text(part.get("callID"))
        call_id = said if said and said not in self.called else part_id
        self.called.add(call_id)
        state = as_dict(part.get("state"))
        times = as_dict(state.get("time"))
        self.builder.call(
            call_id,
            as_text(part.get("tool")) or "unknown",
            state.get("input") if state.get("input") is not None else {},
            at=milliseconds(times.get("start")) or at,
            message_id=message_id,
        )
        word = as_text(state.get("status"))
        status = STATUSES.get(word or "", "completed" if "output" in state else "running")
        result = {
            name: _without_data(state[name])
            for name in ("output", "title", "metadata", "attachments")
            if state.get(name) not in (None, "", [], {})
        }
        child = child_of(state)
        error = as_text(state.get("error"))
        self.builder.result(
            call_id,
            result or None,
            at=milliseconds(times.get("end")),
            status=status,
            error=error or ("failed" if status == "failed" else None),
            source_status=word,
            spawned=label_of(child) if child and str(part.get("tool")) in SUBAGENTS else None,
        )


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and bool(as_text(part.get("text")))


def _thoughts(parts: list[tuple[str, dict[str, Any]]]) -> list[str]:
    said = [part.get("text") for _, part in parts if part.get("type") == "reasoning"]
    return [words for words in said if isinstance(words, str) and words]


def _metadata(info: dict[str, Any], parts: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """What has no column. The bytes of attached files stay in the source record."""
    kept = {name: value for name, value in info.items() if name not in WITH_COLUMNS}
    others = [
        {"id": part_id} | {k: _without_data(v) for k, v in part.items() if k not in WITH_COLUMNS}
        for part_id, part in parts
        if str(part.get("type")) not in PLAIN_PARTS
    ]
    found = pruned({**kept, "parts": others})
    return as_dict(found)


def _without_data(value: Any, levels: int = DEEPEST) -> Any:
    if isinstance(value, (dict, list)) and not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [_without_data(each, levels - 1) for each in value]
    if isinstance(value, dict):
        return {name: _without_data(each, levels - 1) for name, each in value.items()}
    if isinstance(value, str) and value.startswith("data:") and ";base64," in value[:200]:
        return value[: value.index(",") + 1]
    return value


def _files(info: dict[str, Any], parts: list[tuple[str, dict[str, Any]]]) -> list[MessageFile]:
    found: list[tuple[FileKind, Any]] = []
    for _, part in parts:
        kind = part.get("type")
        if kind == "file":
            url = as_text(part.get("url")) or ""
            found.append(("attached", part.get("filename") if url.startswith("data:") else url))
        elif kind == "patch":
            found += [("written", name) for name in as_list(part.get("files"))]
        elif kind == "tool" and str(part.get("tool")) in FILE_TOOLS:
            state = as_dict(as_dict(part.get("state")).get("input"))
            found.append(
                (FILE_TOOLS[str(part.get("tool"))], state.get("filePath") or state.get("path"))
            )
    found += [("written", name) for name in as_list(as_dict(info.get("snapshot")).get("files"))]
    paths = [(kind, path_of(name)) for kind, name in found]
    return [MessageFile(kind, path) for kind, path in paths if path]
