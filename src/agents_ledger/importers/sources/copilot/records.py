"""Copilot CLI: one event, who wrote its message, and the documents of 2025 read as events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_values import dicts, encoded
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, parse_json
from agents_ledger.importers.sources.copilot import rules
from agents_ledger.model.turns import MessageSource


class CopilotEvent(Struct, rename="camel"):
    """An event. Any field may be missing, or of another type."""

    type: Any = None
    id: Any = None
    timestamp: Any = None
    agent_id: Any = None
    data: Raw = Raw(b"null")


class EventData(Struct, rename="camel"):
    """The fields of an event's data that the tree needs."""

    session_id: Any = None
    copilot_version: Any = None
    selected_model: Any = None
    new_model: Any = None
    chosen_model: Any = None
    context: Any = None
    parent_tool_call_id: Any = None
    tool_call_id: Any = None
    interaction_id: Any = None
    source: Any = None
    model: Any = None
    output_tokens: Any = None
    model_metrics: Any = None
    success: Any = None
    error_type: Any = None
    content: Raw = Raw(b"null")
    arguments: Raw = Raw(b"null")

    @property
    def given_prompt(self) -> str | None:
        """The prompt in the arguments of a call, which may be JSON in a string."""
        arguments = parse_json(self.arguments)
        arguments = parse_json(arguments.encode()) if isinstance(arguments, str) else arguments
        return as_text(as_dict(arguments).get("prompt"))


decode_event = msgspec.json.Decoder(CopilotEvent).decode
_decode_data = msgspec.json.Decoder(EventData).decode


def decode_event_and_data(line: bytes) -> tuple[CopilotEvent, EventData]:
    event = decode_event(line)
    return event, _decode_data(event.data)


def message_source(source: Any, text: str = "") -> MessageSource:
    """Who wrote a message, by the source that it names and its text."""
    name = as_text(source) or "user"
    if name == "user":
        return "event" if _is_notice(text) else "human"
    return "agent" if name.startswith(rules.AGENT_SOURCE) else "event"


def _is_notice(text: str) -> bool:
    end = 0
    while match := rules.NOTICE.match(text, end):
        end = match.end()
    return 0 < end == len(text)


# -- documents of 2025: one file per session, rewritten as it grows ---------------------------


class DocumentEntry(NamedTuple):
    """An entry of a document: its kind, and the events it amounts to; none if it is not mapped."""

    kind: str
    events: tuple[bytes, ...]


def is_session_document(document: Any) -> bool:
    lists = (as_dict(document).get(name) for name in ("timeline", "chatMessages"))
    has_list = any(isinstance(value, list) for value in lists)
    return has_list and as_text(as_dict(document).get("sessionId")) is not None


def document_entries(document: dict[str, Any]) -> Iterator[DocumentEntry]:
    """The entries of a document in order. `chatMessages`, the requests to the model, repeats the
    timeline and is read only without one."""
    start = _event("session.start", "start", document.get("startTime"), _start(document))
    yield DocumentEntry("session", (start,))
    timeline, messages = as_list(document.get("timeline")), as_list(document.get("chatMessages"))
    started: set[str] = set()
    for number, entry in enumerate(map(as_dict, timeline)):
        yield DocumentEntry(_kind(entry), tuple(_timeline_events(entry, number, started)))
    for number, message in enumerate(messages):
        events = () if timeline else tuple(_message_events(as_dict(message), number))
        yield DocumentEntry("chatMessage", events)


def _kind(entry: dict[str, Any]) -> str:
    return as_text(entry.get("type")) or "(none)"


def _start(document: dict[str, Any]) -> dict[str, Any]:
    fields = rules.DOCUMENT_FIELDS.items()
    data = {to: document[name] for name, to in fields if as_text(document.get(name))}
    if as_text(document.get("cwd")):
        data["context"] = {"cwd": document["cwd"]}
    return data


def _event(kind: str, name: str, at: Any, data: dict[str, Any]) -> bytes:
    return encoded({"type": kind, "id": name, "timestamp": at, "data": data})


def _timeline_events(entry: dict[str, Any], number: int, started: set[str]) -> Iterator[bytes]:
    """The events of an entry. `started`: the calls before it."""
    kind, at = _kind(entry), entry.get("timestamp")
    name, text = as_text(entry.get("id")) or f"timeline:{number}", as_text(entry.get("text")) or ""
    if kind == "user":
        images = dicts(entry.get("imageAttachments"))
        data = {"content": text, "transformedContent": entry.get("expandedText")}
        yield _event("user.message", name, at, data | ({"attachments": images} if images else {}))
    elif kind == "copilot":
        yield _event("assistant.message", name, at, {"content": text})
    elif kind in ("tool_call_requested", "tool_call_completed"):
        yield from _call_events(entry, name, started)
    elif kind == "error":
        yield _event("session.error", name, at, {"message": text})
    elif kind in rules.NOTICES and text.startswith(rules.CANCELLED):
        yield _event("abort", name, at, {"reason": text})
    elif kind in rules.NOTICES:
        yield _event("system.message", name, at, {"content": text})


def _call_events(entry: dict[str, Any], name: str, started: set[str]) -> Iterator[bytes]:
    """A call has an entry when it is requested and one when it is completed, or the latter only."""
    call_id, at = as_text(entry.get("callId")) or name, entry.get("timestamp")
    tool = as_text(entry.get("name")) or as_text(entry.get("toolTitle"))
    is_completed = _kind(entry) == "tool_call_completed"
    if call_id not in started:
        started.add(call_id)
        request = {"toolCallId": call_id, "name": tool, "arguments": entry.get("arguments")}
        # Two events of one entry must not have the same id.
        start = f"{name}:asked" if is_completed else name
        yield _event("tool.execution_start", start, at, request)
    if is_completed:
        result = as_dict(entry.get("result"))
        word, log = as_text(result.get("type")), result.get("log")
        data: dict[str, Any] = {"toolCallId": call_id, "success": word in (None, "success")}
        data["result"] = {"content": log if log is not None else entry.get("result")}
        if not data["success"]:
            data["error"] = {"code": word, "message": as_text(log)}
        yield _event("tool.execution_complete", name, at, data)


def _message_events(message: dict[str, Any], number: int) -> Iterator[bytes]:
    name, role, content = f"chat:{number}", message.get("role"), message.get("content")
    texts = [as_text(block.get("text")) for block in dicts(content)]
    text = as_text(content) or "\n\n".join(filter(None, texts))
    if role == "user":
        yield _event("user.message", name, None, {"content": text})
    elif role == "assistant":
        requests = [
            {"toolCallId": call.get("id"), **_function(call)}
            for call in dicts(message.get("tool_calls"))
        ]
        yield _event("assistant.message", name, None, {"content": text, "toolRequests": requests})
    elif role == "tool":
        data = {"toolCallId": message.get("tool_call_id"), "success": True}
        yield _event("tool.execution_complete", name, None, data | {"result": {"content": text}})
    elif role == "system":
        yield _event("system.message", name, None, {"content": text})


def _function(call: dict[str, Any]) -> dict[str, Any]:
    function = as_dict(call.get("function"))
    return {"name": function.get("name"), "arguments": function.get("arguments")}
