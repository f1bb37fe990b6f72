"""OpenAI's chat messages: a context in their form, and what is wrong with a list of them.

Thinking is left out, and images in results are words: there is no place for either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

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

NAME = "openai"
NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
ID_MAX = 40
ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def render(system_prompt: str | None, items: Iterable[Item]) -> dict[str, Any]:
    """What `chat.completions.create` takes: `messages`, the system prompt first."""
    messages = [{"role": "system", "content": system_prompt}] if system_prompt else []
    role, run = "", list[Item]()
    for item in items:
        if not (speaker := _role(item)):
            continue
        if speaker != role and run:
            messages += _RENDER[role](run)
            run = []
        role = speaker
        run.append(item)
    if run:
        messages += _RENDER[role](run)
    return {"messages": messages}


def _role(item: Item) -> str:
    kind = type(item)
    if kind is ResultItem:
        return "tool"
    if kind is CallItem:
        return "assistant"
    return item.role if isinstance(item, (TextItem, ImageItem)) else ""


def _user(run: list[Any]) -> list[dict[str, Any]]:
    if len(run) == 1 and isinstance(run[0], TextItem):
        return [{"role": "user", "content": run[0].text}]
    parts = list(map(_part, run))
    if len(parts) == 1 and parts[0]["type"] == "text":
        return [{"role": "user", "content": parts[0]["text"]}]
    return [{"role": "user", "content": parts}]


def _part(item: Any) -> dict[str, Any]:
    if isinstance(item, TextItem):
        return {"type": "text", "text": item.text}
    if images.can_be_sent(item):
        return {"type": "image_url", "image_url": {"url": item.reference}}
    return {"type": "text", "text": images.in_words(item)}


def _assistant(run: list[Any]) -> list[dict[str, Any]]:
    text = "\n\n".join([item.text for item in run if isinstance(item, TextItem)])
    calls = [
        {
            "id": item.id,
            "type": "function",
            "function": {"name": item.tool_name, "arguments": item.params_json},
        }
        for item in run
        if isinstance(item, CallItem)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    return [{**message, "tool_calls": calls} if calls else message]


def _results(run: list[Any]) -> list[dict[str, Any]]:
    return [
        {"role": "tool", "tool_call_id": item.call_id, "content": _in_words(item)} for item in run
    ]


def _in_words(item: ResultItem) -> str:
    if not item.images:
        return item.text
    return "\n".join(filter(None, [item.text, *map(images.in_words, item.images)]))


_RENDER = {"user": _user, "assistant": _assistant, "tool": _results}


# -- what is wrong ----------------------------------------------------------------------------


def problems(messages: Sequence[Any]) -> Iterator[Problem]:
    """Everything that the provider would refuse."""
    listed = yield from objects(messages)
    seen: set[str] = set()
    owed: list[str] = []
    for index, message in enumerate(listed):
        role = message.get("role")
        if role not in ROLES:
            yield Problem(index, f"role {role!r} is none of {', '.join(ROLES)}")
        if role == "tool":
            yield from _result_problems(index, message, owed)
            continue
        yield from _unanswered(index - 1, owed)
        owed = []
        calls = _calls(message)
        if role == "assistant":
            for call in calls:
                yield from _call_problems(index, call, seen)
                owed.append(known_as(call.get("id")))
        if message.get("content") or not calls or role != "assistant":
            yield from content_problems(index, message.get("content"))
    yield from _unanswered(len(listed) - 1, owed)


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, Mapping)] if isinstance(calls, list) else []


def _unanswered(index: int, owed: Iterable[str]) -> Iterator[Problem]:
    for call_id in owed:
        yield Problem(index, f"tool call {call_id!r} has no result right after it")


def _result_problems(index: int, message: Mapping[str, Any], owed: list[str]) -> Iterator[Problem]:
    call_id = known_as(message.get("tool_call_id"))
    if call_id in owed:
        owed.remove(call_id)
    else:
        yield Problem(index, f"result of {call_id!r} has no open call right before it")
    if not isinstance(message.get("content"), (str, list)):
        yield Problem(index, "there is no content")


def _call_problems(index: int, call: Mapping[str, Any], seen: set[str]) -> Iterator[Problem]:
    call_id, call_function = call.get("id"), call.get("function")
    function = call_function if isinstance(call_function, Mapping) else {}
    if not isinstance(call_id, str) or not 0 < len(call_id) <= ID_MAX:
        yield Problem(index, f"{call_id!r} cannot be the id of a tool call")
    if known_as(call_id) in seen:
        yield Problem(index, f"tool call id {call_id!r} came before")
    seen.add(known_as(call_id))
    yield from function_problems(index, function)


def function_problems(index: int, function: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the name and the arguments of a call."""
    name = function.get("name")
    if not isinstance(name, str) or not NAMES.fullmatch(name):
        yield Problem(index, f"{name!r} cannot be the name of a tool")
    if not isinstance(function.get("arguments"), str):
        yield Problem(index, f"the arguments of {name!r} are not text")
