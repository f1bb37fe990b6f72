"""What archived records say besides their structure: every string of JSON at any depth, except ids,
types, roles, statuses and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from agents_ledger.model.secrets.nested_json import (
    DEPTH_MAX,
    ValueSpan,
    is_json,
    looks_like_json,
    meant_by,
)

CONTENT = "content"  # the kind of what is removed because of where it stands
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?|[{}\[\]]', re.DOTALL)
# What a tool was given or returned has keys of its own: nothing in it is structure.
_FREE_KEY = re.compile(
    "input|arguments|args|params|parameters|tooluseresult|output|results?|response|stdout|stderr"
)
_WORD_KEY = re.compile(
    "(?:sub|content)?type|kind|role|status|level|(?:permission)?mode|phase|trigger|operation|origin"
    "|source|state|(?:stop)?reason|(?:cli)?version|modelprovider|table|recipient|channel"
)
_WORD = re.compile(r"[A-Za-z0-9][\w.:/-]{0,40}")
_ID_KEY = re.compile(r"(?:^|_)(?:uu)?ids?$|(?:Uu|UU)?(?:Id|ID)s?$|^(?:parent|children)$|Uuids?$")
_ID = re.compile(r"[\w.:@/-]{1,200}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|[+-]\d\d:?\d\d)?")
# By these marks sources tell what a program wrote from what a person did: tags in a text that
# begins with one, and the beginnings of some texts.
_TAG = re.compile(
    r"<image name=|>\Z"
    r"|</?(?:[a-z]+(?:[-_][a-z]+)+|skill|task|feedback|answer|image|permissions)(?=[\s>])>?"
)
_BEGINNING = re.compile(r"\[Request interrupted by user[a-z ]*\]?|# AGENTS\.md instructions")
_Place = Callable[[int], int]


class Leaf(NamedTuple):
    """A string of a record, without the marks in it."""

    key: str
    value: str
    spans: tuple[ValueSpan, ...]


def leaves(text: str, ids: frozenset[str]) -> Iterator[Leaf]:
    """The strings of a JSON text that are content."""
    return _leaves(text, ids, lambda index: index, is_free=False, depth=0)


def _leaves(
    text: str, ids: frozenset[str], place: _Place, *, is_free: bool, depth: int
) -> Iterator[Leaf]:
    stack: list[tuple[str, bool]] = []
    key = ""
    for token in _TOKEN.finditer(text):
        if token[1] is None:
            if token[0] in "{[":
                stack.append((key, is_free))
                is_free = is_free or bool(_FREE_KEY.fullmatch(_plain(key)))
            elif stack:
                key, is_free = stack.pop()
        elif token[2]:
            key = token[1]
        else:
            yield from _leaf(key, token, ids, place, is_free=is_free, depth=depth)


def _leaf(
    key: str,
    token: re.Match[str],
    ids: frozenset[str],
    place: _Place,
    *,
    is_free: bool,
    depth: int,
) -> Iterator[Leaf]:
    value, inner = meant_by(token[1])
    if not value.strip("*") or value in ids or (not is_free and _is_structure(key, value)):
        return
    at = token.start(1)

    def within(index: int) -> int:
        return place(at + inner(index))

    if value[:1] in ("{", "[") and depth < DEPTH_MAX and is_json(value):
        yield from _leaves(value, ids, within, is_free=True, depth=depth + 1)
        return
    spans, start = [], 0
    for mark in _marks(value):
        spans.append((start, mark.start()))
        start = mark.end()
    spans.append((start, len(value)))
    yield Leaf(
        key,
        value,
        tuple(
            ValueSpan(within(first), within(last), CONTENT, value[first:last])
            for first, last in spans
            if value[first:last].strip("*")
        ),
    )


def _marks(value: str) -> Iterator[re.Match[str]]:
    if beginning := _BEGINNING.match(value):
        yield beginning
    elif _TAG.match(value.lstrip()):
        yield from _TAG.finditer(value)


def _is_structure(key: str, value: str) -> bool:
    if _UUID.fullmatch(value) or _TIME.fullmatch(value):
        return True
    if _ID_KEY.search(key):
        return bool(_ID.fullmatch(value))
    return bool(_WORD_KEY.fullmatch(_plain(key)) and _WORD.fullmatch(value))


def _plain(key: str) -> str:
    return key.replace("_", "").lower()


class Part(NamedTuple):
    """A message or call, whose turn stays."""

    id: str
    values: frozenset[str]  # what its row says
    others: str  # what else the rows of the turn say


def content_spans(
    text: str, ids: frozenset[str], part: Part | None = None
) -> list[ValueSpan] | None:
    """What is removed from a record with all that it says, or with what it says of a part of the
    turn; None: it is not JSON."""
    if not looks_like_json(text) or not is_json(text):
        return None
    found = list(leaves(text, ids))
    if part is not None and not _is_only_of(part, text, found):
        found = [leaf for leaf in found if _is_of(leaf.value, part.values)]
    return [span for leaf in found for span in leaf.spans]


def _is_of(value: str, values: frozenset[str]) -> bool:
    return value in values or value.strip() in values


def _is_only_of(part: Part, text: str, found: list[Leaf]) -> bool:
    """Whether a record names the part, and says nothing that belongs to another."""
    named = re.finditer(rf'"(\w+)"\s*:\s*"{re.escape(part.id)}"', text)
    if all(re.search("parent|leaf", name[1], re.IGNORECASE) for name in named):
        return False
    return not any(
        leaf.value.strip() in part.others for leaf in found if not _is_of(leaf.value, part.values)
    )
