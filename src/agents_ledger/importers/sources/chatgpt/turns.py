"""ChatGPT: the content of one turn, from its messages in order."""

from __future__ import annotations

from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, parse_json
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.chatgpt import rules
from agents_ledger.importers.sources.chatgpt.records import role_of
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.turns import CallStatus


class ChatGptTurn:
    """Adds messages to a turn, one after the other."""

    def __init__(self, builder: TurnBuilder) -> None:
        self.builder = builder
        self.open_call: str | None = None  # the call that has no result yet

    def add(self, message_id: str, kind: MessageKind, message: dict[str, Any]) -> None:
        at = milliseconds(message.get("create_time"))
        metadata = _metadata(message)
        if kind == "prompt":
            text = _text(message, metadata)
            self.builder.message(message_id, "user", text, at=at, source="human", metadata=metadata)
        elif kind == "notice":
            text = _text(message, metadata)
            self.builder.message(
                message_id, "system", text, at=at, source="event", metadata=metadata
            )
        elif role_of(message.get("author")) == "tool":
            self._result(message_id, message, metadata, at)
        else:
            self._reply(message_id, message, metadata, at)

    def _reply(
        self, message_id: str, message: dict[str, Any], metadata: dict[str, Any], at: int
    ) -> None:
        model = as_text(as_dict(message.get("metadata")).get("model_slug"))
        self.builder.model = model or self.builder.model
        self.builder.provider = "openai"
        recipient = message.get("recipient")
        if recipient not in rules.EVERYONE:
            self.builder.call(message_id, str(recipient), _params(message), at=at)
            self.open_call = message_id
            return
        thinking = _thinking(message)
        text = None if thinking is not None else _text(message, metadata)
        self.builder.message(
            message_id, "assistant", text, at=at, thinking=thinking, metadata=metadata
        )

    def _result(
        self, message_id: str, message: dict[str, Any], metadata: dict[str, Any], at: int
    ) -> None:
        """The first tool node after a call is its result, further ones are messages."""
        text = _text(message, metadata)
        if self.open_call is not None:
            status, error = _status(message, text)
            self.builder.result(
                self.open_call,
                {"text": text, **metadata},
                at=at,
                status=status,
                error=error,
                source_status=as_text(message.get("status")),
            )
            self.open_call = None
            return
        name = as_text(as_dict(message.get("author")).get("name"))
        if name:
            metadata["name"] = name
        self.builder.message(message_id, "tool", text, at=at, metadata=metadata)


def _status(message: dict[str, Any], text: str) -> tuple[CallStatus, str | None]:
    run = as_dict(as_dict(message.get("metadata")).get("aggregate_result"))
    status = as_text(run.get("status")) or ""
    content_type = as_dict(message.get("content")).get("content_type")
    if status.startswith(rules.FAILED_PREFIXES) or content_type == rules.FAILED_TYPE:
        return "failed", text or status or "failed"
    return "completed", None


def _params(message: dict[str, Any]) -> Any:
    """The parameters of a call: the object if it is one, else the code or text."""
    content = as_dict(message.get("content"))
    text = _text(message, {})
    params = parse_json(text.encode("utf-8", "replace"))
    if isinstance(params, dict):
        return params
    name = "code" if content.get("content_type") == "code" else "input"
    return {name: text, **({"language": content["language"]} if content.get("language") else {})}


def _text(message: dict[str, Any], metadata: dict[str, Any]) -> str:
    """The text of a message; parts that are not text go to its metadata."""
    content = as_dict(message.get("content"))
    texts: list[str] = [message["content"]] if isinstance(message.get("content"), str) else []
    other_parts: list[Any] = []
    for part in as_list(content.get("parts")):
        text = part if isinstance(part, str) else as_dict(part).get("text")
        if isinstance(text, str):
            texts.append(text)
        elif part:
            other_parts.append(part)
    texts += [content[name] for name in rules.TEXT_FIELDS if as_text(content.get(name))]
    if other_parts:
        metadata["parts"] = other_parts
    if content.get("content_type") not in ("text", None):
        metadata["content_type"] = content["content_type"]
    return "\n\n".join(filter(None, texts))


def _thinking(message: dict[str, Any]) -> str | None:
    content = as_dict(message.get("content"))
    if content.get("content_type") == "reasoning_recap":
        return as_text(content.get("content"))
    if content.get("content_type") != "thoughts":
        return None
    thoughts = map(as_dict, as_list(content.get("thoughts")))
    fields = (map(thought.get, ("summary", "content")) for thought in thoughts)
    return "\n\n".join(filter(None, (": ".join(filter(None, map(as_text, f))) for f in fields)))


def _metadata(message: dict[str, Any]) -> dict[str, Any]:
    fields = as_dict(message.get("metadata"))
    metadata = {name: fields[name] for name in rules.MESSAGE_FIELDS if fields.get(name)}
    if message.get("weight") == 0:
        metadata["weight"] = 0  # discarded
    if message.get("status") not in rules.FINISHED_STATUSES:
        metadata["status"] = message["status"]
    return metadata
