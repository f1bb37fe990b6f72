"""Compactions as values: their record, how one is planned, and the strategies that choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

# Also the default of `compact_at` in the broker's policy.
COMPACT_AT = 0.85
Trigger = Literal["context_limit", "manual", "periodic", "overflow_recovery"]
NO_MODEL = "none"  # of a compaction that no model summarised


def nears_limit(tokens: int, window: int, compact_at: float = COMPACT_AT) -> bool:
    """Whether a context is so large that its session should be compacted."""
    return tokens > window * compact_at


class Compaction(Struct, frozen=True):
    """One compaction. `turn_id` is filled in when it is recorded."""

    summary: str
    summarized_through_turn_id: str
    first_kept_turn_id: str | None = None
    turns_summarized: int | None = None
    compaction_type: str = "summary"
    model: str = NO_MODEL
    provider: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    summary_tokens: int | None = None
    summarization_input_tokens: int | None = None
    summarization_output_tokens: int | None = None
    duration_ms: int | None = None
    trigger: str | None = None
    metadata_json: str | None = None
    turn_id: str = ""


class VisibleTurn(Struct, frozen=True):
    """A turn as strategies see it: how much of the context it takes, and its words."""

    turn_id: str
    tokens: int
    text: str


class Chosen(Struct, frozen=True):
    """Which turns stay: all from `first` on, and single older ones; counted from 0."""

    first: int
    picked: tuple[int, ...] = ()


class Strategy(Struct, frozen=True):
    """A way to choose which turns stay within a number of tokens.

    `summarises`: what does not stay is summarised by an engine, which must be passed;
    `may_summarise`: only if one is passed.
    """

    name: str
    choose: Callable[[Sequence[VisibleTurn], int], Chosen]
    summarises: bool = False
    may_summarise: bool = False


class CompactionPlan(Struct, frozen=True):
    """What a compaction would do. Nothing has changed."""

    session: str
    turn_id: str  # the head it stands on
    strategy: str
    trigger: Trigger
    budget: int
    tokens_before: int
    tokens_after: int  # with a summary as long as it may be
    turns_summarized: int
    turns_kept: int
    summarized_through_turn_id: str
    first_kept_turn_id: str | None = None
    kept_turn_ids: tuple[str, ...] = ()  # single turns before the first kept one
    summary_tokens_max: int = 0  # 0: nobody summarises
    summary_turn_id: str | None = None  # whose summary is shown now; it goes on to hold
