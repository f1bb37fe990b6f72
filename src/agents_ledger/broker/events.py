"""The events of a run, in the order they happen.

Between `Started` and the end come the events of the engine: parts of text and thinking, tool calls
and their results. `Completed` or `Failed` is the last. An interrupted entry is answered again,
together with the message that interrupted it: `Interrupted`, then another `Started`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from agents_ledger.model.agents.engine import CallBegun, CallFinished, TextPiece, ThinkingPiece
from agents_ledger.model.turns import Usage


class Queued(Struct, frozen=True, tag="queued"):
    """The message is in the queue of its session."""

    type: ClassVar[Literal["queued"]] = "queued"
    entry_id: str
    session_label: str


class Started(Struct, frozen=True, tag="started"):
    """A turn has begun that answers the message, perhaps with others."""

    type: ClassVar[Literal["started"]] = "started"
    turn_id: str
    session_label: str
    entry_ids: tuple[str, ...] = ()
    model: str | None = None


class Compacted(Struct, frozen=True, tag="compacted"):
    """The context was too long and was compacted first."""

    type: ClassVar[Literal["compacted"]] = "compacted"
    turn_id: str
    trigger: str
    tokens_before: int | None = None
    tokens_after: int | None = None


class Steered(Struct, frozen=True, tag="steered"):
    """A message joined the running turn."""

    type: ClassVar[Literal["steered"]] = "steered"
    turn_id: str
    entry_id: str
    text: str


class Interrupted(Struct, frozen=True, tag="interrupted"):
    """A later message stopped the turn, which is recorded as failed."""

    type: ClassVar[Literal["interrupted"]] = "interrupted"
    turn_id: str


class Completed(Struct, frozen=True, tag="completed"):
    """The answer is recorded. `beside`: the session had moved, so the turn is off its head."""

    type: ClassVar[Literal["completed"]] = "completed"
    turn_id: str
    text: str
    usage: Usage = Usage()
    model: str | None = None
    stop_reason: str = "end"
    beside: bool = False


class Failed(Struct, frozen=True, tag="failed"):
    """The message was not answered. `kept` is the recorded text; without a turn, none began."""

    type: ClassVar[Literal["failed"]] = "failed"
    turn_id: str | None
    error: str
    kind: str = "error"  # cancelled, timeout, dropped, or an engine's kind of fault
    kept: str = ""


RunEvent = (
    Queued
    | Started
    | Compacted
    | Steered
    | TextPiece
    | ThinkingPiece
    | CallBegun
    | CallFinished
    | Interrupted
    | Completed
    | Failed
)
LAST = (Completed, Failed)
