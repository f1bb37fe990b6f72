"""What a search finds, as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from agents_ledger.model.turns import TurnStatus, TurnType

TextPart = Literal["user", "assistant", "thinking", "system", "tool_call", "tool_result"]
Kind = Literal["prompt", "answer", "tool"]
Action = Literal["read", "written"]
Order = Literal["newest", "relevance"]
Ranking = Literal["newest", "relevance", "meaning"]  # which needs an embedder

# How much a word counts in each part of a turn, for both engines.
PART_WEIGHTS: dict[TextPart, float] = {
    "user": 4.0,
    "assistant": 3.0,
    "thinking": 1.0,
    "system": 0.5,
    "tool_call": 1.5,
    "tool_result": 1.0,
}
PARTS = tuple(PART_WEIGHTS)
KIND_PARTS: dict[Kind, tuple[TextPart, ...]] = {
    "prompt": ("user",),
    "answer": ("assistant", "thinking"),
    "tool": ("tool_call", "tool_result"),
}


class Snippet(Struct, frozen=True):
    """A piece of a turn's text with what was found in it."""

    part: TextPart
    text: str
    marks: tuple[tuple[int, int], ...] = ()  # from, to: positions in the text
    tool_name: str | None = None  # of a call's parameters or result
    sequence: int | None = None  # of the message or call that holds it, in its turn
    message_id: str | None = None  # None: a call, or the turn itself

    def marked(self, before: str, after: str) -> str:
        """The text with `before` and `after` around everything that was found."""
        pieces, at = [], 0
        for start, end in self.marks:
            pieces += [self.text[at:start], before, self.text[start:end], after]
            at = end
        return "".join([*pieces, self.text[at:]])


class Hit(Struct, frozen=True):
    """A turn that was found."""

    turn_id: str
    session_label: str | None  # the oldest session whose thread holds it; None: no session does
    session_title: str | None
    also_in: int  # how many other sessions hold it
    depth: int
    started_at: int
    turn_type: TurnType
    status: TurnStatus
    model: str | None
    workspace_path: str | None
    query: str | None  # how its first message begins
    snippets: tuple[Snippet, ...]
    score: float | None = None  # the higher the better; None: newest first


class Found(Struct, frozen=True):
    """A page of hits."""

    hits: tuple[Hit, ...]
    matched: Literal["all", "any"]  # any: no turn has all the words, these have some
    next: str | None = None  # where the next page begins; None: there is none
    capped: bool = False  # only the newest of many were ranked, or looked at
    words: tuple[str, ...] = ()  # to mark in a text: the terms without common words

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def by_session(self) -> tuple[tuple[str | None, tuple[Hit, ...]], ...]:
        """The hits under the session that each belongs to, both in the order found."""
        grouped: dict[str | None, list[Hit]] = {}
        for hit in self.hits:
            grouped.setdefault(hit.session_label, []).append(hit)
        return tuple((label, tuple(hits)) for label, hits in grouped.items())


class SearchFacets(Struct, frozen=True):
    """What the turns that a search finds have in common: values with the number of turns."""

    turns: int  # that were counted
    capped: bool  # there are more; only the newest were counted
    origins: tuple[tuple[str, int], ...] = ()
    projects: tuple[tuple[str, int], ...] = ()
    kinds: tuple[tuple[Kind, int], ...] = ()
    periods: tuple[tuple[int, int], ...] = ()  # length in days up to now, turns


class ThreadMatch(Struct, frozen=True):
    """A message or a call of a thread that has a text."""

    turn_id: str
    depth: int
    snippet: Snippet


class ThreadMatches(Struct, frozen=True):
    """Where a thread has a text, from its root to its head."""

    matches: tuple[ThreadMatch, ...]
    words: tuple[str, ...] = ()  # to mark in a text
    capped: bool = False  # there may be more

    def __iter__(self) -> Iterator[ThreadMatch]:
        return iter(self.matches)

    def __len__(self) -> int:
        return len(self.matches)


class Touch(Struct, frozen=True):
    """A turn that read or wrote a file."""

    turn_id: str
    path: str
    action: Action
    tool_name: str | None  # None: a message says so itself
    session_label: str | None
    session_title: str | None
    also_in: int
    started_at: int


class Touched(Struct, frozen=True):
    """A page of touches, newest turn first."""

    touches: tuple[Touch, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[Touch]:
        return iter(self.touches)

    def __len__(self) -> int:
        return len(self.touches)
