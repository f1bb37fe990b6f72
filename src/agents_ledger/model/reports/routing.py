"""Where a message goes, as values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from agents_ledger.model.sessions import Session

TargetKind = Literal["thread", "session", "persona", "smart", "thread_key", "routing_key"]


class Target(Struct, frozen=True):
    """What somebody named; kind None: a session, a turn or a key, whichever there is."""

    kind: TargetKind | None
    value: str


class Reason(Struct, frozen=True):
    """A turn on the thread that has to do with the text."""

    turn_id: str
    terms: tuple[str, ...]
    files: tuple[str, ...]


class Proposal(Struct, frozen=True):
    """A turn to go on from, whose context fits a text."""

    turn_id: str
    session_label: str | None
    session_title: str | None
    depth: int
    score: float  # the higher the better; to be compared within one answer alone
    coverage: float  # the part of the text's weight that the context speaks of, 0 to 1
    context_tokens: int  # an estimate of what a model is shown there
    reasons: tuple[Reason, ...]  # the best first


class Route(Struct, frozen=True):
    """The turn a target leads to; None: the session is empty."""

    kind: TargetKind
    turn_id: str | None
    session_label: str | None = None
    confidence: float = 1.0
    proposals: tuple[Proposal, ...] = ()  # of a smart target


class SmartFork(Struct, frozen=True):
    """What became of a smart fork: a session, or proposals where nothing fits well enough."""

    session: Session | None
    confidence: float
    proposals: tuple[Proposal, ...]
