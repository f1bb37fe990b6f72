"""Abilities about sessions: where they point, where they pointed, by which names they are known."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.inputs import Count, Input, Limit, Name, Target, Time
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.access import Scope
from agents_ledger.model.errors import NotFound
from agents_ledger.model.reports import routing
from agents_ledger.model.sessions import (
    DEFAULT_PERSONA,
    Alias,
    AliasReason,
    Move,
    Session,
    SessionStatus,
)


class Resolve(Input):
    """A key, and whether one that was merged away is wanted."""

    key: Annotated[Name, Meta(description="A label or an alias.")]
    exact: Annotated[bool, Meta(description="Also one that was merged away.")] = False


class Sessions(Input):
    """Which sessions, and how many."""

    status: SessionStatus | None = "active"
    persona_id: str | None = None
    origin: str | None = None
    parent: str | None = None
    limit: Limit = 50
    after: Annotated[str | None, Meta(description="The label of the last one seen.")] = None


class Fork(Input):
    """A turn to go on from, elsewhere."""

    target: Target
    label: Name | None = None
    before: Annotated[bool, Meta(description="At the turn's parent, to ask differently.")] = False
    persona_id: Name | None = None


class SmartFork(Input):
    """A text, to go on where the context fits it."""

    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    label: Name | None = None
    persona_id: Name | None = None
    budget: Annotated[Count | None, Meta(description="So many tokens of context at most.")] = None


class Moves(Input):
    """A session, and how much of its history."""

    key: Name
    limit: Limit = 50
    before: Annotated[Count | None, Meta(description="The id of the last move seen.")] = None


class HeadAt(Input):
    """A session, and when."""

    key: Name
    at: Time | None = None


class AddAlias(Input):
    """Another key for a session."""

    alias: Name
    key: Name
    reason: AliasReason = "manual"


class Point(Input):
    """A session, and the turn it shall point to."""

    key: Name
    target: Target
    expected: Annotated[
        str | None, Meta(description="The head you saw: refused if it moved meanwhile.")
    ] = None


class Archive(Input):
    """A session, and what it shall be."""

    key: Name
    status: SessionStatus = "archived"


class OneSession(Struct):
    """A session."""

    session: Session


class ManySessions(Struct):
    """Sessions; `after` asks for the next page, null when there is none."""

    sessions: tuple[Session, ...]
    after: str | None


class Head(Struct):
    """The turn a session points to, or pointed to."""

    turn_id: str | None


class History(Struct):
    """Moves, latest first; `before` asks for the next page, null when there is none."""

    moves: tuple[Move, ...]
    before: int | None


class OneAlias(Struct):
    """An alias."""

    alias: Alias


class Aliases(Struct):
    """The aliases of a session."""

    aliases: tuple[Alias, ...]


def _resolve(ledger: Ledger, asked: Resolve) -> OneSession:
    return OneSession(ledger.session(asked.key, exact=asked.exact))


def _list(ledger: Ledger, asked: Sessions) -> ManySessions:
    after = None if asked.after is None else ledger.session(asked.after, exact=True)
    found = ledger.sessions(
        status=asked.status,
        persona_id=asked.persona_id,
        origin=asked.origin,
        parent=asked.parent,
        limit=asked.limit,
        after=after,
    )
    return ManySessions(found, found[-1].label if len(found) == asked.limit else None)


def _head(ledger: Ledger, asked: HeadAt) -> Head:
    return Head(ledger.head(asked.key, at=asked.at))


def _fork(ledger: Ledger, asked: Fork) -> OneSession:
    return OneSession(
        ledger.fork(
            asked.target, label=asked.label, before=asked.before, persona_id=asked.persona_id
        )
    )


def _fork_scope(ledger: Ledger, asked: Fork) -> Scope:
    """The policy grants tools by persona: to choose another one is for administrators."""
    if asked.persona_id is None:
        return "write"
    return "write" if asked.persona_id == persona_at(ledger, asked.target) else "admin"


def persona_at(ledger: Ledger, target: str) -> str:
    """The persona that a fork of a session or a turn has unless another is named."""
    try:
        return ledger.session(target).persona_id
    except NotFound:
        return ledger.thread(target, last=0).persona_id or DEFAULT_PERSONA


def _smart_fork_scope(ledger: Ledger, asked: SmartFork) -> Scope:
    return "write" if asked.persona_id is None else "admin"


def _smart_fork(ledger: Ledger, asked: SmartFork) -> routing.SmartFork:
    return ledger.smart_fork(
        asked.text, label=asked.label, persona_id=asked.persona_id, budget=asked.budget
    )


def _history(ledger: Ledger, asked: Moves) -> History:
    found = ledger.history(asked.key, limit=asked.limit, before=asked.before)
    return History(found, found[-1].id if len(found) == asked.limit else None)


def _alias(ledger: Ledger, asked: AddAlias) -> OneAlias:
    return OneAlias(ledger.alias(asked.alias, asked.key, reason=asked.reason))


def _aliases(ledger: Ledger, asked: Resolve) -> Aliases:
    return Aliases(ledger.aliases(ledger.session(asked.key, exact=asked.exact).label))


def _move(ledger: Ledger, asked: Point) -> OneSession:
    expected = ... if asked.expected is None else asked.expected
    return OneSession(ledger.move(asked.key, asked.target, expected=expected))


def _archive(ledger: Ledger, asked: Archive) -> OneSession:
    return OneSession(ledger.archive(asked.key, asked.status))


ABILITIES = (
    Ability(
        id="ldg:session:resolve",
        description="Find a session by its label or an alias.",
        input=Resolve,
        output=OneSession,
        function=_resolve,
    ),
    Ability(
        id="ldg:session:list",
        description="List sessions, latest first.",
        input=Sessions,
        output=ManySessions,
        function=_list,
    ),
    Ability(
        id="ldg:session:head",
        description="The turn a session points to, now or at a time.",
        input=HeadAt,
        output=Head,
        function=_head,
    ),
    Ability(
        id="ldg:session:history",
        description="The moves of a session's head, latest first.",
        input=Moves,
        output=History,
        function=_history,
    ),
    Ability(
        id="ldg:session:fork",
        description="Make a new session at a turn; nothing is copied.",
        input=Fork,
        output=OneSession,
        function=_fork,
        writes=True,
        scope_of=_fork_scope,
    ),
    Ability(
        id="ldg:session:smart_fork",
        description="Fork where the context fits a text best; else only propose turns.",
        input=SmartFork,
        output=routing.SmartFork,
        function=_smart_fork,
        writes=True,
        scope_of=_smart_fork_scope,
    ),
    Ability(
        id="ldg:session:move",
        description="Point a session to any sealed turn.",
        input=Point,
        output=OneSession,
        function=_move,
        writes=True,
    ),
    Ability(
        id="ldg:session:archive",
        description="Archive a session, mark it deleted, or make it active again.",
        input=Archive,
        output=OneSession,
        function=_archive,
        writes=True,
    ),
    Ability(
        id="ldg:session:alias",
        description="Let a session answer to another key.",
        input=AddAlias,
        output=OneAlias,
        function=_alias,
        writes=True,
    ),
    Ability(
        id="ldg:session:aliases",
        description="The other keys a session answers to.",
        input=Resolve,
        output=Aliases,
        function=_aliases,
    ),
)
