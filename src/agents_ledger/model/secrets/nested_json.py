"""Values in a text and in the JSON within it, at any depth, by their place in the text as it is.

A log is JSON whose strings hold JSON again: what a tool was called with, what it returned. There a
line break is two characters, or three. A value is searched in what each string says, and removed
from what is written, with as many bytes as before: what points behind it still fits.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

DEPTH_MAX = 5  # of JSON within JSON
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL
)
_STAR, _DIGIT = "*", "1"


class ValueSpan(NamedTuple):
    """Where in a text a value stands, and the value as it is meant."""

    start: int
    end: int
    kind: str
    value: str


Find = Callable[[str], Iterable[ValueSpan]]
_Place = Callable[[int], int]


class _Search:
    def __init__(self, find: Find) -> None:
        self.find = find
        self.spans: list[ValueSpan] = []
        # Escape sequences. A span that ends within one was found in what is written, not in what is
        # meant: "\nope" has no "nope".
        self.escapes: list[tuple[int, int]] = []

    def search(self, text: str, place: _Place, depth: int = 0) -> None:
        for start, end, kind, value in self.find(text):
            self.spans.append(ValueSpan(place(start), place(end), kind, value))
        if depth == DEPTH_MAX or "\\" not in text or not looks_like_json(text):
            return
        is_valid = is_json(text)
        for literal in _LITERAL.finditer(text):
            body = literal[1]
            if "\\" not in body:
                continue
            at = literal.start(1)
            meant, inner = meant_by(body)
            if is_valid:
                self.escapes += (
                    (place(at + escape.start()), place(at + escape.end()))
                    for escape in _ESCAPE.finditer(body)
                )
            self.search(meant, partial(_within, place, at, inner), depth + 1)

    def whole(self) -> Iterator[ValueSpan]:
        """The spans that cut no escape sequence."""
        self.escapes.sort()
        starts = [start for start, _ in self.escapes]
        for span in self.spans:
            if not any(self._cuts(starts, place) for place in (span.start, span.end)):
                yield span

    def _cuts(self, starts: list[int], place: int) -> bool:
        # Escapes of inner levels lie within those of outer ones: look at a few before the place.
        at = bisect_right(starts, place)
        return any(
            start < place < end for start, end in self.escapes[max(0, at - DEPTH_MAX - 1) : at]
        )


def _within(place: _Place, at: int, inner: _Place, index: int) -> int:
    return place(at + inner(index))


def value_spans(text: str, find: Find) -> list[ValueSpan]:
    """The values that `find` finds in a text, and in what the strings of JSON in it say."""
    search = _Search(find)
    search.search(text, lambda index: index)
    return sorted(set(search.whole()))


def looks_like_json(text: str) -> bool:
    """Whether a text begins as JSON; it may be cut short."""
    return text.lstrip()[:1] in ("{", "[", '"')


def is_json(text: str) -> bool:
    """Whether a text is valid JSON."""
    try:
        msgspec.json.decode(text.encode("utf-8", "replace"), type=msgspec.Raw)
    except (msgspec.DecodeError, ValueError):
        return False
    return True


def meant_by(body: str) -> tuple[str, Callable[[int], int]]:
    """What a string says, and where in its body each character is written."""
    pieces, meant_at, written_at = [], [0], [0]
    at = length = 0
    for escape in _ESCAPE.finditer(body):
        pieces.append(body[at : escape.start()])
        length += escape.start() - at
        character = _character(escape[0])
        pieces.append(character)
        meant_at += [length, length + len(character)]
        written_at += [escape.start(), escape.end()]
        length, at = length + len(character), escape.end()
    pieces.append(body[at:])

    def place(index: int) -> int:
        part = bisect_right(meant_at, index) - 1
        return written_at[part] + index - meant_at[part]

    return "".join(pieces), place


def _character(escape: str) -> str:
    try:
        return str(json.loads(f'"{escape}"'))
    except ValueError:  # no escape that JSON has
        return escape[1:]


def string_spans(text: str, kind: str) -> list[ValueSpan]:
    """What every string of a JSON text says, except the keys of objects."""
    return [
        ValueSpan(*literal.span(1), kind, meant_by(literal[1])[0])
        for literal in _LITERAL.finditer(text)
        if literal[1] and not literal[2]
    ]


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order, those that touch joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def blanked(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text with each span filled with stars, as many as its bytes. Valid JSON stays valid:
    outside of its strings digits become ones."""
    joined = merged(spans)
    if not joined:
        return text
    bodies = _bodies(text) if looks_like_json(text) and is_json(text) else None
    pieces, at = [], 0
    for start, end in joined:
        pieces += [text[at:start], _filler(text, start, end, bodies)]
        at = end
    return "".join([*pieces, text[at:]])


def _bodies(text: str) -> list[tuple[int, int]]:
    return [literal.span(1) for literal in _LITERAL.finditer(text)]


def _filler(text: str, start: int, end: int, bodies: list[tuple[int, int]] | None) -> str:
    if bodies is None:
        return _stars(text[start:end])
    filler, at = "", start
    first = max(0, bisect_right(bodies, (start, len(text))) - 1)
    for body_start, body_end in bodies[first:]:
        if body_start >= end:
            break
        inside = max(at, body_start), min(end, body_end)
        if inside[0] < inside[1]:
            filler += _ones(text[at : inside[0]]) + _stars(text[inside[0] : inside[1]])
            at = inside[1]
    return filler + _ones(text[at:end])


def _stars(text: str) -> str:
    return _STAR * len(text.encode("utf-8", "surrogateescape"))


def _ones(text: str) -> str:
    return re.sub(r"\d", _DIGIT, text)
