"""Changes members of a JSON text and leaves every other byte as it is, comments included.

Reads JSON with comments and trailing commas, as opencode's `.jsonc` files have them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,\]}/]+')

_LINE_COMMENT = re.compile(r"[ \t]*(?://[^\r\n]*|/\*[^\n]*?\*/[ \t]*)(?=\r?\n)")


class Span(NamedTuple):
    """A value in a text; of an object or a list, also its members."""

    start: int
    end: int
    kind: str  # object, list or scalar
    members: tuple[Member, ...] = ()


class Member(NamedTuple):
    key: str  # "" in a list
    start: int  # of the key, or of the value in a list
    value: Span


def parse(text: str) -> Span:
    """ValueError if the text is not one JSON value."""
    at = _skip(text, 1 if text.startswith("\ufeff") else 0)
    if at == len(text):
        raise ValueError("it is empty")
    span = _value(text, at)
    if _skip(text, span.end) != len(text):
        raise ValueError(f"unexpected text at offset {_skip(text, span.end)}")
    return span


def value_of(text: str, span: Span) -> Any:
    if span.kind == "object":
        return {member.key: value_of(text, member.value) for member in span.members}
    if span.kind == "list":
        return [value_of(text, member.value) for member in span.members]
    return json.loads(text[span.start : span.end])


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _value(text: str, at: int) -> Span:
    if text[at : at + 1] in ("{", "["):
        return _container(text, at)
    scalar = _SCALAR.match(text, at)
    if scalar is None:
        raise ValueError(f"a value is missing at offset {at}")
    json.loads(scalar[0])
    return Span(at, scalar.end(), "scalar")


def _container(text: str, start: int) -> Span:
    is_object = text[start] == "{"
    end = "}" if is_object else "]"
    members: list[Member] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != end:
        begin, key = at, ""
        if is_object:
            name = _value(text, at)
            key = json.loads(text[name.start : name.end])
            at = _skip(text, name.end)
            if not isinstance(key, str) or text[at : at + 1] != ":":
                raise ValueError(f"a key is missing at offset {begin}")
            at = _skip(text, at + 1)
        value = _value(text, at)
        members.append(Member(key, begin, value))
        at = _skip(text, value.end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != end:
            raise ValueError(f"a comma is missing at offset {at}")
    return Span(start, at + 1, "object" if is_object else "list", tuple(members))


# -- changes ----------------------------------------------------------------------------------


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """The text with the value at a path of keys; missing objects are made."""
    span = parse(text)
    for number, key in enumerate(path):
        if span.kind != "object":
            raise ValueError(f"{'.'.join(path[:number]) or 'the file'} is not an object")
        member = next((m for m in reversed(span.members) if m.key == key), None)
        if member is None:
            for inner in reversed(path[number + 1 :]):
                value = {inner: value}
            return _added(text, span, key, value)
        span = member.value
    indent = _indent_at(text, span.start)
    return text[: span.start] + _dumped(text, value, indent) + text[span.end :]


def append_item(text: str, path: Sequence[str], item: Any) -> str:
    """The text with an item at the end of the list at a path, which is made if it is missing."""
    span = find(parse(text), path)
    if span is None:
        return set_member(text, path, [item])
    if span.kind != "list":
        raise ValueError(f"{'.'.join(path)} is not a list")
    return _added(text, span, None, item)


def find(span: Span, path: Sequence[str]) -> Span | None:
    for key in path:
        member = next((m for m in reversed(span.members) if m.key == key), None)
        if member is None or span.kind != "object":
            return None
        span = member.value
    return span


def remove(text: str, path: Sequence[str], which: Callable[[str, Any], bool]) -> str:
    """The text without the members of a container that `which`(key, value) chooses; a container
    that becomes empty is removed from the one around it."""
    while (span := find(parse(text), path)) is not None:
        at = next(
            (i for i, m in enumerate(span.members) if which(m.key, value_of(text, m.value))), None
        )
        if at is None:
            return text
        if len(span.members) == 1 and path:
            name, path = path[-1], path[:-1]
            which = _named(name)
            continue
        text = _without(text, span, at)
    return text


def _named(name: str) -> Callable[[str, Any], bool]:
    return lambda key, _: key == name


def _without(text: str, span: Span, at: int) -> str:
    """The text without a member; comments around it stay."""
    member = span.members[at]
    end = member.value.end
    comma = _skip(text, end) if _after_comma(text, end) > end else None
    if comma is not None and at + 1 < len(span.members):
        if text[end:comma].strip():  # a comment
            return text[: member.start] + text[end:comma] + text[comma + 1 :]
        return text[: member.start] + text[comma + 1 :].lstrip()
    if at:
        first = _skip(text, span.members[at - 1].value.end)
        between = text[first + 1 : member.start].rstrip()
        if comma is not None and between:  # a comma behind a comment would be part of it
            return text[: first + 1] + between + text[end:comma] + text[comma + 1 :]
        return text[:first] + between + text[end:]
    comments = text[span.start + 1 : member.start].rstrip()
    if comments:
        comments += _newline(text) + _indent_at(text, span.start)
    return text[: span.start + 1] + comments + text[span.end - 1 :]


def _after_comma(text: str, at: int) -> int:
    """Where a value's comma ends; if it has none, where the value ends."""
    comma = _skip(text, at)
    return comma + 1 if text[comma : comma + 1] == "," else at


def _added(text: str, span: Span, key: str | None, value: Any) -> str:
    name = "" if key is None else f"{json.dumps(key)}: "
    newline = _newline(text)
    if not span.members:
        outer = _indent_at(text, span.start)
        inner = outer + _unit(text)
        new = f"{newline}{inner}{name}{_dumped(text, value, inner)}{newline}{outer}"
        rest = text[span.start + 1 : span.end - 1]
        return text[: span.start + 1] + rest.rstrip() + new + text[span.end - 1 :]
    last = span.members[-1]
    if text.rfind("\n", span.start, last.start) < 0:  # all on one line
        new = f", {name}{json.dumps(value, ensure_ascii=False)}"
        return text[: last.value.end] + new + text[last.value.end :]
    indent = _indent_at(text, last.start)
    new = f"{newline}{indent}{name}{_dumped(text, value, indent)}"
    # A comment on the line of the last member stays there, and so does the habit of a last comma.
    end = _after_comma(text, last.value.end)
    has_comma = end > last.value.end
    comment = _LINE_COMMENT.match(text, end)
    after = comment.end() if comment else end
    if has_comma:
        return f"{text[:after]}{new},{text[after:]}"
    return f"{text[:end]},{text[end:after]}{new}{text[after:]}"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, at: int) -> str:
    line = text.rfind("\n", 0, at) + 1
    blank = re.match(r"[ \t]*", text[line:at])
    return blank[0] if blank else ""


def _unit(text: str) -> str:
    indented = re.search(r"\n([ \t]+)\S", text)
    return indented[1] if indented else "  "


def _dumped(text: str, value: Any, indent: str) -> str:
    dumped = json.dumps(value, indent=_unit(text), ensure_ascii=False)
    return dumped.replace("\n", f"{_newline(text)}{indent}")
