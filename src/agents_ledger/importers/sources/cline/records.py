"""Cline: what one record is: an entry of a timeline, a message of a history or of a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_spans import raw_dict, raw_list
from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.sources.cline import rules
from agents_ledger.importers.transcript.message_tree import MessageKind

TIMELINE, HISTORY = "ui_messages.json", "api_conversation_history.json"  # of a task
MESSAGES, COMPACTION = ".messages.json", ".compaction.json"  # of a session

# -- content, in the form of the Anthropic API ------------------------------------------------


def blocks(content: Any) -> list[dict[str, Any]]:
    """The blocks of a content; a text is one."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in as_list(content) if isinstance(block, dict)]


def texts(content: Any) -> list[str]:
    return [b["text"] for b in blocks(content) if isinstance(b.get("text"), str)]


# -- the timeline of a task -------------------------------------------------------------------


class ClineEntry(Struct, rename="camel"):
    """The fields of a timeline entry that decide its place in the tree."""

    ts: Any = None
    say: Any = None
    ask: Any = None
    text: Any = None
    partial: Any = None
    conversation_history_index: Any = None


decode_entry = msgspec.json.Decoder(ClineEntry).decode


def entry_kind(name: str, entry: ClineEntry, *, is_first: bool) -> MessageKind | None:
    """The kind of an entry; None if it makes no row."""
    if is_first:
        return "prompt" if name in rules.FIRST_ENTRIES else None
    text = as_text(entry.text)
    if name == "completion_result" and text is None:
        return None
    if name == "api_req_started" and cancel_reason(text):
        return "failure"
    return rules.TIMELINE_KINDS.get(name)


def cancel_reason(request: str | None) -> str | None:
    """Why a request was given up; None if it was not."""
    fields = as_dict(parse_json(request or ""))
    reason = as_text(fields.get("cancelReason"))
    return (as_text(fields.get("streamingFailedMessage")) or reason) if reason else None


# -- the history of a task --------------------------------------------------------------------


class ClineCall(Struct):
    id: str | None
    name: str
    params: Any
    result: Any = None
    failed: bool = False


def is_prompt(message: dict[str, Any]) -> bool:
    """Whether a message of a history contains what a person wrote."""
    if message.get("role") != "user":
        return False
    return any(rules.HUMAN.search(text) for text in texts(message.get("content")))


def history_calls(answer: Any, next_message: Any) -> list[ClineCall]:
    """The tool calls of an answer, with their results from the message that follows it."""
    message = as_dict(answer)
    if message.get("role") != "assistant":
        return []
    calls = [
        ClineCall(as_text(b.get("id")), as_text(b.get("name")) or "unknown", b.get("input") or {})
        for b in blocks(message.get("content"))
        if b.get("type") == "tool_use"
    ]
    results = blocks(as_dict(next_message).get("content"))
    for call in calls:
        for block in results:
            if block.get("type") == "tool_result" and block.get("tool_use_id") == call.id:
                call.result = without_data(block.get("content"))
                call.failed = bool(block.get("is_error"))
    calls = calls or _xml_calls(message)
    text_results = _text_results(as_dict(next_message).get("content"))
    if len(text_results) == len(calls):
        for call, (name, result) in zip(calls, text_results, strict=True):
            if call.result is None and name in call.name:  # "subagents" for use_subagents
                call.result, call.failed = result, result.startswith(rules.FAILED_RESULTS)
    return [call for call in calls if call.name not in rules.TALKING_TOOLS]


def _xml_calls(message: dict[str, Any]) -> list[ClineCall]:
    return [
        ClineCall(None, name, dict(rules.XML_PARAM.findall(inner)))
        for text in texts(message.get("content"))
        for name, inner in rules.XML_CALL.findall(text)
    ]


def _text_results(content: Any) -> list[tuple[str, str]]:
    """Results that are part of the text, each with the name of its tool."""
    results: list[tuple[str, str]] = []
    for text in texts(content):
        start = rules.TEXT_RESULT.match(text)
        if start:
            results.append((start[1], text[start.end() :]))
        elif results and not text.startswith(rules.ENVIRONMENT):
            results[-1] = (results[-1][0], f"{results[-1][1]}\n\n{text}".strip())
    return results


# -- the messages of a session ----------------------------------------------------------------


class ClineMessageHead(Struct):
    """The fields of a session's message that decide its place in the tree."""

    id: Any = None
    role: Any = None
    ts: Any = None
    content: Any = None
    metadata: Any = None
    metrics: Any = None


decode_message_head = msgspec.json.Decoder(ClineMessageHead).decode


def decode_session_file(data: bytes) -> tuple[dict[str, Raw], list[Raw] | None]:
    """The fields of a session's file, and its messages if it has any."""
    fields = raw_dict(data)
    return fields, raw_list(fields["messages"]) if "messages" in fields else None


class ClineWords(NamedTuple):
    """What a person wrote in a text, and in which mode."""

    text: str
    mode: str | None = None
    is_wrapped: bool = False


def words_of(text: str) -> ClineWords:
    """A text without what the client wraps around it."""
    start = rules.WRAPPER.match(rules.MODE_NOTICE.sub("", text))
    if start is None:
        words = rules.MODE_NOTICE.sub("", text).strip()
        of_task = rules.HUMAN.fullmatch(words)
        return ClineWords(of_task[2] if of_task else words)
    inner = start.string[start.end() :]
    end = inner.rfind(f"</{start[1]}>")
    words = (inner[:end] if end >= 0 else inner).strip()
    attributes = dict(rules.WRAPPER_ATTRIBUTE.findall(start[2]))
    if "slash" in attributes:
        if attributes["slash"].lower() == "team" and words.lower().startswith(rules.TEAM_COMMAND):
            words = words[len(rules.TEAM_COMMAND) :].strip()
        words = f"/{attributes['slash']} {words}".strip()
    return ClineWords(words, attributes.get("mode"), is_wrapped=True)


def human_words(content: Any) -> list[ClineWords]:
    """What a person wrote in a message; text results and environment details are left out."""
    words: list[ClineWords] = []
    for text in texts(content):
        if rules.TEXT_RESULT.match(text) or text.startswith(rules.ENVIRONMENT):
            words += [ClineWords(human[1]) for human in rules.HUMAN.findall(text)]
        else:
            words.append(words_of(text))
    return [part for part in words if part.text]


def result_ids(content: Any) -> list[str]:
    return [str(b.get("tool_use_id")) for b in blocks(content) if b.get("type") == "tool_result"]


def spawning_calls(content: Any) -> Iterator[tuple[str, str]]:
    """The calls of a message that start an agent, each with its task."""
    for block in blocks(content):
        task = as_text(as_dict(block.get("input")).get("task"))
        if task and block.get("name") in rules.SPAWNING_TOOLS and block.get("type") == "tool_use":
            yield str(block.get("id")), task


def message_kind(role: Any, content: Any, metadata: Any) -> MessageKind | None:
    """The kind of a session's message; None if it makes no row."""
    if role != "user":
        return "reply" if role == "assistant" else None
    fields = as_dict(metadata)
    if fields.get("kind") in rules.COMPACTION_KINDS:
        return "compaction"
    words = human_words(content)
    if _is_injected(fields, words):
        return "failure" if _display_role(fields) == "error" else "notice"
    if result_ids(content):
        return "reply"
    has_attachment = any(block.get("type") in ("file", "image") for block in blocks(content))
    if words or has_attachment:
        return "prompt"
    return "reply" if texts(content) else "notice"


def _display_role(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("displayRole")).strip().lower()


def _is_injected(metadata: Mapping[str, Any], texts: Sequence[ClineWords]) -> bool:
    """Whether the client wrote a message in the place of a person."""
    if (
        _display_role(metadata) in rules.INJECTED_ROLES
        or metadata.get("kind") in rules.INJECTED_KINDS
    ):
        return True
    if metadata.get("userRunSpan") == 0 and texts and not any(text.is_wrapped for text in texts):
        return True  # what a person adds to a run is wrapped
    return bool(texts) and texts[0].text.startswith(rules.INJECTED)
