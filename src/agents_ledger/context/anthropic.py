"""Anthropic's Messages: a context in its form, and what is wrong with a list of messages.

Thinking goes back only to the provider that signed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from agents_ledger.context import images
from agents_ledger.context.problems import content_problems, known_as, objects
from agents_ledger.model.context.items import (
    CallItem,
    ImageItem,
    Item,
    Problem,
    ResultItem,
    TextItem,
)

NAME = "anthropic"
NAMES = re.compile(r"[A-Za-z0-9_-]{1,128}")
IDS = re.compile(r"[A-Za-z0-9_-]+")
MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
KNOWN = {
    "user": ("text", "image", "tool_result", "document", "search_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def render(system_prompt: str | None, items: Iterable[Item]) -> dict[str, Any]:
    """What `messages.create` takes: `system`, if there is one, and `messages`."""
    messages: list[dict[str, Any]] = [
        {"role": role, "content": blocks}
        for role, run in groupby(items, _role)
        if (blocks := _without_thinking_alone([b for item in run for b in _blocks(item)]))
    ]
    messages = _joined(messages)
    if messages and messages[-1]["role"] == "assistant":
        _strip_end(messages[-1]["content"])
    system = {"system": system_prompt} if system_prompt else {}
    return {**system, "messages": messages}


def _role(item: Item) -> str:
    if isinstance(item, (TextItem, ImageItem)):
        return item.role
    return "user" if isinstance(item, ResultItem) else "assistant"


def _blocks(item: Item) -> list[dict[str, Any]]:
    if isinstance(item, TextItem):
        return [{"type": "text", "text": item.text}]
    if isinstance(item, ImageItem):
        return [_image(item)]
    if isinstance(item, CallItem):
        params = msgspec.json.decode(item.params_json)
        return [{"type": "tool_use", "id": item.id, "name": item.tool_name, "input": params}]
    if isinstance(item, ResultItem):
        return [_result(item)]
    if item.provider == NAME and item.signature:
        return [{"type": "thinking", "thinking": item.text, "signature": item.signature}]
    return []


def _image(item: ImageItem) -> dict[str, Any]:
    if not images.can_be_sent(item):
        return {"type": "text", "text": images.in_words(item)}
    if not item.reference.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": item.reference}}
    head, _, data = item.reference.partition(",")
    media_type = head.removeprefix("data:").partition(";")[0]
    if media_type not in MEDIA_TYPES or not head.endswith(";base64"):
        return {"type": "text", "text": images.in_words(item)}
    source = {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "image", "source": source}


def _result(item: ResultItem) -> dict[str, Any]:
    blocks = [{"type": "text", "text": item.text}] if item.text.strip() else []
    content = [*blocks, *map(_image, item.images)]
    block = {"type": "tool_result", "tool_use_id": item.call_id, "content": content}
    return {**block, "is_error": True} if item.is_error else block


def _without_thinking_alone(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    while blocks and blocks[-1]["type"] == "thinking":
        blocks = blocks[:-1]
    return blocks


def _joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of one role that came to stand side by side, as one."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] += message["content"]
        else:
            joined.append(message)
    return joined


def _strip_end(blocks: list[dict[str, Any]]) -> None:
    """The assistant's last words must not end in space."""
    if blocks[-1]["type"] == "text":
        blocks[-1] = {**blocks[-1], "text": blocks[-1]["text"].rstrip()}


# -- what is wrong ----------------------------------------------------------------------------


def problems(messages: Sequence[Any]) -> Iterator[Problem]:
    """Everything that the provider would refuse."""
    listed = yield from objects(messages)
    if listed and listed[0].get("role") != "user":
        yield Problem(0, "the first message is not the user's")
    seen: set[str] = set()
    owed: list[str] = []
    for index, message in enumerate(listed):
        blocks = _content(message.get("content"))
        yield from _pairs(index, blocks, owed)
        owed = [known_as(b.get("id")) for b in blocks if b.get("type") == "tool_use"]
        for n, call_id in enumerate(owed):
            if call_id in seen or call_id in owed[:n]:
                yield Problem(index, f"tool call id {call_id!r} came before")
        seen.update(owed)
        yield from content_problems(index, message.get("content"))
        yield from _message_problems(index, message.get("role"), blocks)
    yield from _end_problems(listed, owed)


def _message_problems(
    index: int, role: Any, blocks: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    if role not in ("user", "assistant"):
        yield Problem(index, f"role {role!r} is neither user nor assistant")
        return
    for block in blocks:
        yield from (Problem(index, what) for what in _wrong(role, block))
    if blocks and blocks[-1].get("type") in ("thinking", "redacted_thinking"):
        yield Problem(index, "a message ends with thinking")


def _content(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, Mapping)]


def _pairs(index: int, blocks: Sequence[Mapping[str, Any]], owed: list[str]) -> Iterator[Problem]:
    """Results stand first in the message after their calls, one for each."""
    results = [known_as(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
    for call_id in owed:
        if call_id not in results:
            yield Problem(index - 1, f"tool call {call_id!r} has no result in the next message")
    for n, call_id in enumerate(results):
        if call_id not in owed:
            yield Problem(index, f"result of {call_id!r} has no call in the message before")
        elif call_id in results[:n]:
            yield Problem(index, f"tool call {call_id!r} has two results")
    if any(b.get("type") == "tool_result" for b in blocks[len(results) :]):
        yield Problem(index, "results do not stand before the other content")


def _wrong(role: str, block: Mapping[str, Any]) -> Iterator[str]:
    kind = block.get("type")
    if kind not in KNOWN[role]:
        yield f"a {role}'s message holds {kind!r}"
    elif kind == "text" and not (isinstance(block.get("text"), str) and block["text"].strip()):
        yield "a text is blank"
    elif kind == "tool_use":
        yield from _wrong_call(block)
    elif kind == "thinking" and not isinstance(block.get("signature"), str):
        yield "thinking has no signature"
    elif kind == "image" and not isinstance(block.get("source"), Mapping):
        yield "an image has no source"


def _wrong_call(block: Mapping[str, Any]) -> Iterator[str]:
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not IDS.fullmatch(call_id):
        yield f"{call_id!r} cannot be the id of a tool call"
    if not isinstance(name, str) or not NAMES.fullmatch(name):
        yield f"{name!r} cannot be the name of a tool"
    if not isinstance(block.get("input"), Mapping):
        yield f"the input of tool call {call_id!r} is not an object"


def _end_problems(listed: Sequence[Mapping[str, Any]], owed: Iterable[str]) -> Iterator[Problem]:
    last = len(listed) - 1
    for call_id in owed:
        yield Problem(last, f"tool call {call_id!r} has no result")
    if not listed or listed[-1].get("role") != "assistant":
        return
    blocks = _content(listed[-1].get("content"))
    text = blocks[-1].get("text") if blocks else None
    if isinstance(text, str) and text != text.rstrip():
        yield Problem(last, "the assistant's last words end in space")
