"""What the messages of Gemini CLI make of a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.port.source import Material
from agents_ledger.importers.transcript.message_tree import Node, PlannedTurn
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_number,
    as_text,
    record_of,
    without_data,
)
from agents_ledger.model.turns import CallStatus, FileKind, MessageFile, MessageSource, Turn

NAME = "gemini-cli"
CANCELLED = "Request cancelled."
API_ERROR = "[API Error: "
STATUSES: dict[str, CallStatus] = {
    "success": "completed",
    "error": "failed",
    "cancelled": "cancelled",
}
FILE_TOOLS: dict[str, FileKind] = {
    "read_file": "read",
    "replace": "written",
    "write_file": "written",
}
TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_input_tokens",
    "thoughts": "reasoning_tokens",
    "total": "total_tokens",
}
CALLED_AT = re.compile(r"[-_](\d{13})[-_]")  # in the id of a call, in milliseconds
BY_CLIENT = (
    "System: Please continue.",
    "<session_context>",
    "This is the Gemini CLI.",
    "You have exceeded the maximum number of turns. You have one final chance",
    "You have exceeded the time limit. You have one final chance",
    "You have stopped calling tools without finishing. You have one final chance",
)


class Told(NamedTuple):
    """What is known of a turn beside its messages."""

    asked_by: MessageSource
    folder: str | None
    spawned: dict[str, str]  # by call


def build_turn(
    material: Material,
    turn: PlannedTurn,
    nodes: list[tuple[str, Node]],
    told: Told,
) -> Turn:
    """The turn that these messages make."""
    builder = TurnBuilder(turn.id, turn.parent)
    builder.workspace_path = told.folder
    done = False  # nothing that was asked waits for an answer
    for message_id, node in nodes:
        said = record_of(material, node.record)
        if node.kind == "reply":
            _reply(builder, message_id, said, told.spawned)
            done = bool(content(said)[0].strip()) and not said.get("toolCalls")
            continue
        _input(builder, message_id, said, told.asked_by if node.kind == "prompt" else None)
        done = done and node.kind != "prompt"
        if node.kind == "failure":
            _fail(builder, said, done)
    return builder.build()


def _fail(builder: TurnBuilder, said: dict[str, Any], done: bool) -> None:
    """A request that met an error failed. What the program says behind an answer is of something
    else, such as a command it does not know, unless it is the model's error."""
    text, _ = content(said)
    fails = not builder.answered if is_cancelled(said) else not done or text.startswith(API_ERROR)
    if fails:
        builder.failed, builder.error = True, text or "error"


def _input(
    builder: TurnBuilder, message_id: str, said: dict[str, Any], asked_by: MessageSource | None
) -> None:
    text, others = content(said)
    at = milliseconds(said.get("timestamp") or said.get("ts"))
    metadata: dict[str, Any] = {"parts": others} if others else {}
    shown, _ = content({"content": said.get("displayContent")})
    if shown and shown != text:
        metadata["display"] = shown
    if asked_by is not None:
        builder.failed, builder.error = False, None
        source: MessageSource = "event" if text.startswith(BY_CLIENT) else asked_by
        builder.message(message_id, "user", text, at=at, source=source, metadata=metadata)
        return
    type_ = str(said.get("type"))
    metadata["type"] = type_
    builder.message(message_id, "system", text, at=at, source="event", metadata=metadata)


def is_cancelled(said: dict[str, Any]) -> bool:
    """Whether the program says that nothing will come of a request."""
    return content(said)[0].strip() == CANCELLED


def content(said: dict[str, Any]) -> tuple[str, list[Any]]:
    """The words of a message, and its other parts without their bytes."""
    found = said.get("content", said.get("parts"))
    if isinstance(found, str):
        return found, []
    parts = found if isinstance(found, list) else [found] if found else []
    words: list[str] = []
    others: list[Any] = []
    for part in parts:
        text = part if isinstance(part, str) else as_dict(part).get("text")
        if isinstance(text, str):
            words.append(text)
        else:
            others.append(without_data(part))
    return "\n".join(words), others


def _reply(
    builder: TurnBuilder, message_id: str, said: dict[str, Any], spawned: dict[str, str]
) -> None:
    text, others = content(said)
    at = milliseconds(said.get("timestamp") or said.get("ts"))
    builder.failed, builder.error = False, None
    builder.model = as_text(said.get("model")) or builder.model
    builder.provider = "google"
    tokens = as_dict(said.get("tokens"))
    builder.add_tokens(**{ours: as_number(tokens.get(name)) for name, ours in TOKENS.items()})
    metadata: dict[str, Any] = {"parts": others} if others else {}
    if as_number(tokens.get("tool")):
        metadata["tool_tokens"] = tokens["tool"]
    builder.message(
        message_id,
        "assistant",
        text,
        at=at,
        thinking="\n\n".join(_thoughts(said)) or None,
        metadata=metadata,
    )
    for number, call in enumerate(as_list(said.get("toolCalls"))):
        if isinstance(call, dict):
            named = {**call, "id": call.get("id") or f"{message_id}:{number}"}
            _call(builder, message_id, named, at, spawned)


def _thoughts(said: dict[str, Any]) -> Iterator[str]:
    for thought in as_list(said.get("thoughts")):
        words = [as_dict(thought).get(name) for name in ("subject", "description")]
        told = ": ".join(word for word in words if isinstance(word, str) and word)
        if told:
            yield told


def _call(
    builder: TurnBuilder,
    message_id: str,
    call: dict[str, Any],
    at: int,
    spawned: dict[str, str],
) -> None:
    call_id = str(call["id"])
    name, args = as_text(call.get("name")) or "unknown", as_dict(call.get("args"))
    ended = milliseconds(call.get("timestamp")) or at
    builder.call(call_id, name, args, at=_began(call_id, at, ended), message_id=message_id)
    said = as_text(call.get("status"))
    status = STATUSES.get(said or "", "running")
    result = _result(call.get("result"))
    error = None
    if status == "failed":
        shown = call.get("resultDisplay")
        error = as_text(as_dict(result).get("error")) or as_text(shown) or "failed"
    agent = as_text(call.get("agentId"))
    builder.result(
        call_id,
        result,
        at=ended if status != "running" else 0,
        status=status,
        error=error,
        source_status=said,
        spawned=f"{NAME}:{agent}" if agent else spawned.get(call_id),
    )
    path = as_text(args.get("file_path")) or as_text(args.get("absolute_path"))
    if name in FILE_TOOLS and path:
        builder.add_files(message_id, [MessageFile(FILE_TOOLS[name], path)])


def _began(call_id: str, at: int, ended: int) -> int:
    """When a call began: its id says so. Its message may have been written when it had ended."""
    found = CALLED_AT.search(call_id)
    began = int(found[1]) if found else at
    return began if began <= ended else min(at, ended)


def _result(result: Any) -> Any:
    """What the tool answered; several parts as they are."""
    parts = as_list(result)
    if len(parts) == 1 and "functionResponse" in as_dict(parts[0]):
        answer = as_dict(parts[0]["functionResponse"]).get("response")
        return without_data(answer)
    return without_data(result)
