"""Copilot CLI until late 2025: one document a session, rewritten as it goes on. What its timeline
tells is told here as the events of later versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.json_values import dicts, encoded
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text

CANCELLED = "Operation cancelled"
NOTICES = ("info", "warning")


class Told(NamedTuple):
    """An entry of the document: what it was, and the events that say it; none: not mapped."""

    kind: str
    events: tuple[bytes, ...]


def is_history(said: Any) -> bool:
    """Whether a document is one of these."""
    listed = any(isinstance(as_dict(said).get(name), list) for name in ("timeline", "chatMessages"))
    return listed and as_text(as_dict(said).get("sessionId")) is not None


def told(said: dict[str, Any]) -> Iterator[Told]:
    """What a document tells, in order. What was sent to the model repeats the timeline, and is
    read where there is none."""
    yield Told("session", (_event("session.start", "start", said.get("startTime"), _about(said)),))
    timeline, sent = as_list(said.get("timeline")), as_list(said.get("chatMessages"))
    asked: set[str] = set()
    for number, entry in enumerate(timeline):
        yield Told(_kind(entry), tuple(_entry(as_dict(entry), number, asked)))
    for number, message in enumerate(sent):
        events = () if timeline else tuple(_message(as_dict(message), number))
        yield Told("chatMessage", events)


def _kind(entry: Any) -> str:
    return as_text(as_dict(entry).get("type")) or "(none)"


def _about(said: dict[str, Any]) -> dict[str, Any]:
    names = {"sessionId": "sessionId", "selectedModel": "selectedModel", "model": "selectedModel"}
    about = {to: said[name] for name, to in names.items() if as_text(said.get(name))}
    if as_text(said.get("cwd")):
        about["context"] = {"cwd": said["cwd"]}
    return about


def _event(kind: str, name: str, at: Any, data: dict[str, Any]) -> bytes:
    return encoded({"type": kind, "id": name, "timestamp": at, "data": data})


def _entry(entry: dict[str, Any], number: int, asked: set[str]) -> Iterator[bytes]:
    kind, at = _kind(entry), entry.get("timestamp")
    name, text = as_text(entry.get("id")) or f"timeline:{number}", as_text(entry.get("text")) or ""
    if kind == "user":
        images = dicts(entry.get("imageAttachments"))
        data = {"content": text, "transformedContent": entry.get("expandedText")}
        yield _event("user.message", name, at, data | ({"attachments": images} if images else {}))
    elif kind == "copilot":
        yield _event("assistant.message", name, at, {"content": text})
    elif kind in ("tool_call_requested", "tool_call_completed"):
        yield from _call(entry, name, asked)
    elif kind == "error":
        yield _event("session.error", name, at, {"message": text})
    elif kind in NOTICES and text.startswith(CANCELLED):
        yield _event("abort", name, at, {"reason": text})
    elif kind in NOTICES:
        yield _event("system.message", name, at, {"content": text})


def _call(entry: dict[str, Any], name: str, asked: set[str]) -> Iterator[bytes]:
    """A call is told when it is asked for, and again, with what came of it."""
    call_id, at = as_text(entry.get("callId")) or name, entry.get("timestamp")
    tool = as_text(entry.get("name")) or as_text(entry.get("toolTitle"))
    is_end = _kind(entry) == "tool_call_completed"
    if call_id not in asked:
        asked.add(call_id)
        given = {"toolCallId": call_id, "name": tool, "arguments": entry.get("arguments")}
        yield _event("tool.execution_start", f"{name}:asked" if is_end else name, at, given)
    if is_end:
        result = as_dict(entry.get("result"))
        word, log = as_text(result.get("type")), result.get("log")
        ended: dict[str, Any] = {"toolCallId": call_id, "success": word in (None, "success")}
        ended["result"] = {"content": log if log is not None else entry.get("result")}
        if not ended["success"]:
            ended["error"] = {"code": word, "message": as_text(log)}
        yield _event("tool.execution_complete", name, at, ended)


def _message(message: dict[str, Any], number: int) -> Iterator[bytes]:
    """A message as it was sent to the model."""
    name, role, content = f"chat:{number}", message.get("role"), message.get("content")
    words = [as_text(part.get("text")) for part in dicts(content)]
    text = as_text(content) or "\n\n".join(word for word in words if word)
    if role == "user":
        yield _event("user.message", name, None, {"content": text})
    elif role == "assistant":
        requests = [
            {"toolCallId": call.get("id"), **_function(call)}
            for call in dicts(message.get("tool_calls"))
        ]
        yield _event("assistant.message", name, None, {"content": text, "toolRequests": requests})
    elif role == "tool":
        ended = {"toolCallId": message.get("tool_call_id"), "success": True}
        yield _event("tool.execution_complete", name, None, ended | {"result": {"content": text}})
    elif role == "system":
        yield _event("system.message", name, None, {"content": text})


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = as_dict(call.get("function"))
    return {"name": function.get("name"), "arguments": function.get("arguments")}
