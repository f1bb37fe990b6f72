"""Cursor: what one record is: a chat, a bubble, a tool call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_spans import raw_dict, raw_list
from agents_ledger.importers.parsing.json_values import (
    BROKEN,
    EMBEDDED,
    EMPTY,
    decoded,
    dicts,
    encoded,
    loose,
    pruned,
)
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.cursor import rules
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import raw
from agents_ledger.model.turns import CallStatus

# Bytes; longer unknown fields are states of the editor.
EXTRA_FIELD_MAX = 4000
# Characters; longer ones are not repeated in the metadata.
LONG_ARGUMENT = 2000
# Ends the recursion in a damaged or crafted state.
LEXICAL_DEPTH_MAX = 50

# -- chats ------------------------------------------------------------------------------------

JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
ChatFields = Mapping[str, Any]
"""What a record says of a chat; values that are Raw are not decoded yet."""


def fields_of(value: Any) -> ChatFields:
    """The fields of an object, decoded as far as necessary."""
    return as_dict(_opened(value, raw_dict))


def items_of(value: Any) -> list[Any]:
    """The items of a list, decoded as far as necessary."""
    return as_list(_opened(value, raw_list))


def plain(value: Any) -> Any:
    """A value that may not be decoded yet."""
    return decoded(bytes(value), JSON_DECODER) if isinstance(value, Raw) else value


def _opened(value: Any, decode: Callable[[bytes], Any]) -> Any:
    if isinstance(value, (dict, list)):
        return value
    data = bytes(value) if isinstance(value, Raw) else raw(value)
    try:
        return decode(data)
    except BROKEN:
        value = loose(data)
    if isinstance(value, dict):
        return {name: Raw(encoded(member)) for name, member in value.items()}
    return [Raw(encoded(item)) for item in as_list(value)]


def bubble_order(fields: ChatFields) -> Numbering | None:
    """The ids of a chat's bubbles in its order; None if it has none."""
    for name in (rules.BUBBLE_LIST, "conversation"):
        listed = items_of(fields.get(name))
        if listed:
            ids = (as_text(as_dict(plain(bubble)).get("bubbleId")) for bubble in listed)
            return _numbered(own or str(at) for at, own in enumerate(ids))
    return _numbered(fields_of(fields.get("conversationMap")))


def _numbered(names: Iterable[str]) -> Numbering | None:
    order = Numbering()
    for name in names:
        order.add(name)
    return order if len(order) else None


def extra_fields(fields: ChatFields) -> dict[str, Any]:
    """The fields of a chat that nothing else is made of."""
    extra = {}
    for name, value in fields.items():
        if name in rules.MAPPED_FIELDS:
            continue
        # Measured before it is parsed, as states of the editor are long.
        data = bytes(value) if isinstance(value, Raw) else encoded(value)
        if len(data) <= EXTRA_FIELD_MAX:
            extra[name] = loose(data)
    return as_dict(pruned(extra))


def listed_chats(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chats in the value of a list, each with its id; decoded one at a time."""
    fields = fields_of(value)
    for name in rules.LIST_FIELDS:
        for entry in map(as_dict, map(plain, items_of(fields.get(name)))):
            chat_id = listed_id(entry)
            if chat_id is not None:
                yield chat_id, entry


def listed_id(entry: dict[str, Any]) -> str | None:
    return as_text(entry.get("composerId")) or as_text(entry.get("tabId"))


# -- bubbles ----------------------------------------------------------------------------------


class BubbleHead(Struct, rename="camel"):
    """The fields of a bubble that decide its place in the tree."""

    type: Any = None
    bubble_id: Any = None
    id: Any = None
    created_at: Any = None
    timing_info: Any = None
    model_info: Any = None
    model_type: Any = None
    request_id: Any = None
    checkpoint_id: Any = None
    text: Any = None
    raw_text: Any = None
    thinking: Raw = Raw(b"null")
    tool_former_data: Raw = Raw(b"null")


BUBBLE_DECODER = msgspec.json.Decoder(BubbleHead)


def bubble_time(created: Any, timing: Any) -> int:
    """When a bubble was made; 0 if unknown."""
    if created:
        return milliseconds(created)
    for name in rules.CLIENT_TIMES:
        at = as_dict(timing).get(name)
        if isinstance(at, (int, float)) and at > rules.CLIENT_TIME_MIN:
            return milliseconds(at)
    return 0


def text_of(bubble: dict[str, Any]) -> str:
    # Tabs of 2024 have rawText, later bubbles text; richText is the Lexical state of the editor.
    for name in ("text", "rawText", "message"):
        if as_text(bubble.get(name)):
            return str(bubble[name])
    answer = as_text(as_dict(bubble.get("modelResponse")).get("text"))
    if answer:
        return answer
    for name in ("richText", "initText"):
        text = "".join(_lexical(loose(bubble.get(name)))).strip("\n")
        if text:
            return text
    initial, delegated = bubble.get("initText"), as_dict(bubble.get("delegate")).get("a")
    plain = initial if loose(initial) is None else None
    return as_text(plain) or as_text(delegated) or ""


def _lexical(node: Any, depth: int = 0) -> Iterator[str]:
    """The text of a Lexical editor state, with a line per paragraph."""
    node = as_dict(node)
    kind = node.get("type")
    if kind == "linebreak":
        yield "\n"
    elif kind == "tab":
        yield "\t"
    elif isinstance(node.get("text"), str):
        yield node["text"]
    elif depth < LEXICAL_DEPTH_MAX:
        for child in [node.get("root"), *as_list(node.get("children"))]:
            yield from _lexical(child, depth + 1)
    if kind == "paragraph":
        yield "\n"


def thinking_of(bubble: dict[str, Any]) -> str | None:
    """What the model thought before it answered."""
    thinking = bubble.get("thinking")
    texts = [as_text(thinking) or as_text(as_dict(thinking).get("text"))]
    if not texts[0]:
        texts = [
            as_text(block.get("thinking")) or as_text(block.get("text"))
            for block in dicts(bubble.get("allThinkingBlocks"))
        ]
    return "\n\n".join(filter(None, texts)) or None


def metadata_of(bubble: dict[str, Any]) -> dict[str, Any]:
    """Every field of a bubble that is not empty and has no column."""
    content = text_of(bubble)
    fields = pruned(
        {
            name: value
            for name, value in bubble.items()
            if not (name in ("text", "rawText") and value == content)
        }
    )
    fields["thinking"] = _thinking_metadata(fields.get("thinking"))
    if isinstance(fields.get("context"), dict):
        # It has a column of its own: the context of the message.
        del fields["context"]
    if isinstance(fields.get("toolFormerData"), dict):
        fields["toolFormerData"] = _call_metadata(fields["toolFormerData"])
    return {name: value for name, value in fields.items() if value not in EMPTY}


def _thinking_metadata(thinking: Any) -> Any:
    if isinstance(thinking, dict) and as_text(thinking.get("text")):
        return {name: value for name, value in thinking.items() if name != "text"}
    return None if isinstance(thinking, str) else thinking


def _call_metadata(call: dict[str, Any]) -> dict[str, Any]:
    """The fields of a call without the long ones that the tool call has."""
    params, raw_args = call.get("params"), call.get("rawArgs")
    in_call = {"error", "result", "params" if params else "rawArgs"}
    if params and raw_args and _is_long(raw_args) and loose(raw_args) == (loose(params) or params):
        in_call.add("rawArgs")
    fields = {n: value for n, value in call.items() if not (n in in_call and _is_long(value))}
    extra = as_dict(fields.get("additionalData"))
    if starts_subagent(call) and isinstance(embedded_chat(call), dict):  # it is its own session
        fields["additionalData"] = {n: value for n, value in extra.items() if n != EMBEDDED}
    return fields


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > LONG_ARGUMENT


# -- tool calls -------------------------------------------------------------------------------


def tool_calls(bubble: dict[str, Any]) -> list[dict[str, Any]]:
    """The tool calls of a bubble; a prompt's toolFormerData is only a state of the editor."""
    data = bubble.get("toolFormerData")
    calls = dicts(data) if isinstance(data, list) else dicts([data])
    return [call for call in calls if {"name", "tool", "toolCallId"} & call.keys()]


def starts_subagent(call: dict[str, Any]) -> bool:
    return call.get("name") in rules.TASK_TOOLS or call.get("tool") == rules.TASK_NUMBER


def embedded_chat(call: dict[str, Any]) -> Any:
    """The chat of a subagent that is part of the call that started it."""
    value = as_dict(call.get("additionalData")).get(EMBEDDED)
    return loose(value) if isinstance(value, str) else value


def params_of(call: dict[str, Any]) -> Any:
    """The parameters of a call: an object, or JSON text, in one of two fields."""
    for name in ("params", "rawArgs"):
        value = call.get(name)
        value = loose(value) if isinstance(value, str) else value
        if value:
            return value
    return {}


def status_of(call: dict[str, Any]) -> tuple[CallStatus, str | None]:
    """The status of a call, and the source's own word for it."""
    status = as_text(call.get("status"))
    status = status or as_text(as_dict(call.get("additionalData")).get("status"))
    if call.get("userDecision") == "rejected":
        return "rejected", status or "rejected"
    # Call and result are one bubble: a call without a word for its state is judged by its result.
    default: CallStatus = "completed" if call.get("result") else "running"
    return rules.STATUSES.get((status or "").lower(), default), status
