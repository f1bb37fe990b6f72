"""Gemini CLI: the content of one turn, from its messages in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.gemini import rules
from agents_ledger.importers.sources.gemini.records import content_of, is_cancellation
from agents_ledger.importers.transcript.field_maps import token_counts
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.turns import MessageSource


class GeminiTurnContext(NamedTuple):
    """What is known of a turn besides its messages."""

    asked_by: MessageSource
    folder: str | None
    spawned: dict[str, str]  # call -> label of the subagent's session

    def evidence(self) -> bytes:
        """Its part of the turn's fingerprint; every ledger has the class's first name in it."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
        return f"Told({fields})".encode()


class GeminiTurn:
    def __init__(self, builder: TurnBuilder, context: GeminiTurnContext) -> None:
        self.builder = builder
        self.builder.workspace_path = context.folder
        self.context = context
        self.is_done = False  # whether the last request has its final answer

    def add(self, message_id: str, kind: MessageKind, message: dict[str, Any]) -> None:
        if kind == "reply":
            self._add_reply(message_id, message)
            self.is_done = bool(content_of(message)[0].strip()) and not message.get("toolCalls")
        elif kind == "prompt":
            self._add_prompt(message_id, message)
            self.is_done = False
        else:
            self._add_notice(message_id, message)
            if kind == "failure":
                self._note_failure(message)

    def _note_failure(self, message: dict[str, Any]) -> None:
        text, _ = content_of(message)
        if is_cancellation(message):
            fails = not self.builder.answered
        else:
            # After a final answer, other errors are of commands or editors.
            fails = not self.is_done or text.startswith(rules.API_ERROR)
        if fails:
            self.builder.failed, self.builder.error = True, text or "error"

    def _add_prompt(self, message_id: str, message: dict[str, Any]) -> None:
        sent, metadata = _input(message)
        source: MessageSource = (
            "event" if sent.startswith(rules.INJECTED) else self.context.asked_by
        )
        words = _typed(sent)
        self.builder.failed, self.builder.error = False, None
        self.builder.message(
            message_id,
            "user",
            words or sent,
            at=_time(message),
            source=source,
            metadata=metadata,
            context={"sent": sent} if words else None,
        )

    def _add_notice(self, message_id: str, message: dict[str, Any]) -> None:
        text, metadata = _input(message)
        metadata["type"] = str(message.get("type"))
        self.builder.message(
            message_id, "system", text, at=_time(message), source="event", metadata=metadata
        )

    def _add_reply(self, message_id: str, message: dict[str, Any]) -> None:
        text, other_parts = content_of(message)
        at = _time(message)
        self.builder.failed, self.builder.error = False, None
        self.builder.model = as_text(message.get("model")) or self.builder.model
        self.builder.provider = "google"
        usage = as_dict(message.get("tokens"))
        self.builder.add_tokens(**token_counts(usage, rules.TOKENS))
        metadata: dict[str, Any] = {"parts": other_parts} if other_parts else {}
        if as_number(usage.get("tool")):
            metadata["tool_tokens"] = usage["tool"]
        thinking = "\n\n".join(_thoughts(message)) or None
        self.builder.message(
            message_id, "assistant", text, at=at, thinking=thinking, metadata=metadata
        )
        for number, call in enumerate(as_list(message.get("toolCalls"))):
            if isinstance(call, dict):
                call_id = str(call.get("id") or f"{message_id}:{number}")
                self._add_call(message_id, call_id, call, at)

    def _add_call(self, message_id: str, call_id: str, call: dict[str, Any], at: int) -> None:
        name, args = as_text(call.get("name")) or "unknown", as_dict(call.get("args"))
        ended = milliseconds(call.get("timestamp")) or at
        started = _call_start(call_id, at, ended)
        self.builder.call(call_id, name, args, at=started, message_id=message_id)
        source_status = as_text(call.get("status"))
        status = rules.STATUSES.get(source_status or "", "running")
        result = _result(call.get("result"))
        error = None
        if status == "failed":
            displayed = as_text(call.get("resultDisplay"))
            error = as_text(as_dict(result).get("error")) or displayed or "failed"
        agent = as_text(call.get("agentId"))
        self.builder.result(
            call_id,
            result,
            at=ended if status != "running" else 0,
            status=status,
            error=error,
            source_status=source_status,
            spawned=f"{rules.NAME}:{agent}" if agent else self.context.spawned.get(call_id),
        )
        self.builder.add_files(message_id, rules.FILE_TOOLS.files(name, args), call_id=call_id)


def _input(message: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The text and metadata of a message that is not the model's."""
    text, other_parts = content_of(message)
    metadata: dict[str, Any] = {"parts": other_parts} if other_parts else {}
    displayed, _ = content_of({"content": message.get("displayContent")})
    if displayed and displayed != text:
        metadata["display"] = displayed
    return text, metadata


def _typed(sent: str) -> str | None:
    """What a person typed, if more was sent: instructions around it, or the contexts of hooks."""
    steering = rules.STEERING.match(sent)
    if steering:
        return steering[1] or steering[2]
    typed = rules.HOOK_CONTEXT.sub("", sent).strip()
    return typed if typed and len(typed) < len(sent.strip()) else None


def _time(message: dict[str, Any]) -> int:
    return milliseconds(message.get("timestamp") or message.get("ts"))


def _thoughts(message: dict[str, Any]) -> Iterator[str]:
    for thought in map(as_dict, as_list(message.get("thoughts"))):
        words = filter(None, (as_text(thought.get(name)) for name in ("subject", "description")))
        text = ": ".join(words)
        if text:
            yield text


def _call_start(call_id: str, at: int, ended: int) -> int:
    """The time in the id of a call: its message may have been written after it ended."""
    match = rules.CALL_TIME.search(call_id)
    started = int(match[1]) if match else at
    return started if started <= ended else min(at, ended)


def _result(result: Any) -> Any:
    """The response of the tool; if there are several parts, all as they are."""
    parts = as_list(result)
    if len(parts) == 1 and "functionResponse" in as_dict(parts[0]):
        return without_data(as_dict(parts[0]["functionResponse"]).get("response"))
    return without_data(result)
