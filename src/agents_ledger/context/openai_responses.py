"""OpenAI's Responses: a context in their form, and what is wrong with a list of input items.

Thinking is left out: it is known there by ids of the provider's own store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agents_ledger.context import images
from agents_ledger.context.openai_chat import function_problems
from agents_ledger.context.problems import content_problems, known_as, objects
from agents_ledger.model.context.items import (
    CallItem,
    ImageItem,
    Item,
    Problem,
    ResultItem,
    TextItem,
    ThinkingItem,
)

NAME = "openai-responses"
ID_MAX = 64
ROLES = ("user", "assistant", "system", "developer")


def render(system_prompt: str | None, items: Iterable[Item]) -> dict[str, Any]:
    """What `responses.create` takes: `instructions`, if there are any, and `input`."""
    visible = (item for item in items if not isinstance(item, ThinkingItem))
    inputs: list[dict[str, Any]] = []
    for asking, run in groupby(visible, _asks):
        if asking:
            inputs.append({"role": "user", "content": list(map(_part, run))})
        else:
            inputs += map(_entry, run)
    instructions = {"instructions": system_prompt} if system_prompt else {}
    return {**instructions, "input": inputs}


def _asks(item: Item) -> bool:
    return isinstance(item, (TextItem, ImageItem)) and item.role == "user"


def _part(item: Any) -> dict[str, Any]:
    if isinstance(item, TextItem):
        return {"type": "input_text", "text": item.text}
    if images.can_be_sent(item):
        return {"type": "input_image", "image_url": item.reference, "detail": "auto"}
    return {"type": "input_text", "text": images.in_words(item)}


def _entry(item: Any) -> dict[str, Any]:
    if isinstance(item, CallItem):
        return {
            "type": "function_call",
            "call_id": item.id,
            "name": item.tool_name,
            "arguments": item.params_json,
        }
    if isinstance(item, ResultItem):
        return {"type": "function_call_output", "call_id": item.call_id, "output": _output(item)}
    return {"role": "assistant", "content": item.text}


def _output(item: ResultItem) -> str | list[dict[str, Any]]:
    if not item.images:
        return item.text
    content = [{"type": "input_text", "text": item.text}] if item.text else []
    return [*content, *map(_part, item.images)]


# -- what is wrong ----------------------------------------------------------------------------


def problems(messages: Sequence[Any]) -> Iterator[Problem]:
    """Everything that the provider would refuse. Kinds of items that only the provider itself
    makes are taken as they are."""
    listed = yield from objects(messages)
    called: dict[str, int] = {}
    answered: set[str] = set()
    for index, item in enumerate(listed):
        kind = item.get("type", "message")
        call_id = known_as(item.get("call_id"))
        if kind == "message":
            yield from _message_problems(index, item)
        elif kind == "function_call":
            yield from _call_problems(index, item, called)
            called.setdefault(call_id, index)
        elif kind == "function_call_output":
            yield from _output_problems(index, item, called, answered)
            answered.add(call_id)
        elif not isinstance(kind, str):
            yield Problem(index, f"type {kind!r} is not text")
    for call_id, index in called.items():
        if call_id not in answered:
            yield Problem(index, f"tool call {call_id!r} has no result")


def _message_problems(index: int, item: Mapping[str, Any]) -> Iterator[Problem]:
    if item.get("role") not in ROLES:
        yield Problem(index, f"role {item.get('role')!r} is none of {', '.join(ROLES)}")
    yield from content_problems(index, item.get("content"))


def _call_problems(
    index: int, item: Mapping[str, Any], called: Mapping[str, int]
) -> Iterator[Problem]:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not 0 < len(call_id) <= ID_MAX:
        yield Problem(index, f"{call_id!r} cannot be the id of a tool call")
    if known_as(call_id) in called:
        yield Problem(index, f"tool call id {call_id!r} came before")
    yield from function_problems(index, item)


def _output_problems(
    index: int, item: Mapping[str, Any], called: Mapping[str, int], answered: set[str]
) -> Iterator[Problem]:
    call_id = known_as(item.get("call_id"))
    if call_id not in called:
        yield Problem(index, f"result of {call_id!r} has no call before it")
    elif call_id in answered:
        yield Problem(index, f"tool call {call_id!r} has two results")
    if not isinstance(item.get("output"), (str, list)):
        yield Problem(index, f"the result of {call_id!r} has no output")
