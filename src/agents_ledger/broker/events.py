"""What a caller sees of a run, as it happens.

Between `Started` and the end come the engine's own events: pieces of text and thinking, tool calls
and their results. `Completed` or `Failed` is the last. An interrupted entry is asked again together
with what interrupted it: `Interrupted`, then `Started` anew.
"""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.agents.engine import CallBegun, CallFinished, TextPiece, ThinkingPiece
from agents_ledger.model.turns import Usage


class Queued(Struct, frozen=True, tag="queued"):
    """The message stands in its session's line."""

    entry_id: str
    session_label: str


class Started(Struct, frozen=True, tag="started"):
    """A turn has begun that answers it, perhaps together with others."""

    turn_id: str
    session_label: str
    entry_ids: tuple[str, ...] = ()
    model: str | None = None


class Compacted(Struct, frozen=True, tag="compacted"):
    """The context was too long: it was compacted first."""

    turn_id: str
    trigger: str
    tokens_before: int | None = None
    tokens_after: int | None = None


class Steered(Struct, frozen=True, tag="steered"):
    """A message joined the turn that runs."""

    turn_id: str
    entry_id: str
    text: str


class Interrupted(Struct, frozen=True, tag="interrupted"):
    """The turn was stopped by a later message; it is failed, with what was recorded."""

    turn_id: str


class Completed(Struct, frozen=True, tag="completed"):
    """The answer is recorded. `beside`: the session moved meanwhile, the turn is kept beside it."""

    turn_id: str
    text: str
    usage: Usage = Usage()
    model: str | None = None
    stop_reason: str = "end"
    beside: bool = False


class Failed(Struct, frozen=True, tag="failed"):
    """It was not answered. `kept`: the text recorded so far; no turn: it could not begin."""

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
