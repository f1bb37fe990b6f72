"""Turns as lists and trees show them, as values."""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Turn


class Headline(Struct, frozen=True):
    """A turn in one line."""

    turn: Turn  # without its messages
    short_id: str  # the first letters of its id, enough to name it alone
    text: str | None  # how its first message begins


class Subagent(Struct, frozen=True):
    """A session that a tool call of a turn spawned, with the size of its thread."""

    session: Session
    depth: int  # 0: its log was not imported
    total_tokens: int
    params_json: str | None = None  # of the call, its beginning
    head_status: str | None = None
    call_status: str | None = None
    answer: str | None = None  # how the last message of its head begins
    result_json: str | None = None  # of the call, its beginning


class Node(Struct, frozen=True):
    """A turn that stands out in its tree, and what hangs on it."""

    headline: Headline
    above_id: str | None  # the next node up; None at the top
    folded: int  # turns between that node and this one
    heads: tuple[Session, ...] = ()  # the sessions that point here
    subagents: tuple[Subagent, ...] = ()


class Tree(Struct, frozen=True):
    """A turn with what stands below it: ends of runs, forks, heads, compactions and turns that
    did not complete are nodes, longer runs between them are folded."""

    nodes: tuple[Node, ...]  # each after the one above it
    turn_count: int
    left_out: int = 0  # nodes folded too, the oldest ones, because there were too many
