"""Abilities of sessions: list, resolve, fork, move, archive, aliases, history."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents_ledger.bus.ability import Ability, Count, Input, Limit, Name, Target, Time
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


class SessionInput(Input):
    key: Annotated[Name, Meta(description="A label or an alias.")]
    exact: Annotated[bool, Meta(description="Do not follow merges.")] = False


class SessionsInput(Input):
    status: SessionStatus | None = "active"
    persona_id: str | None = None
    origin: str | None = None
    parent: str | None = None
    limit: Limit = 50
    after: Annotated[str | None, Meta(description="The `after` of the previous page.")] = None


class ForkInput(Input):
    target: Target
    label: Name | None = None
    before: Annotated[bool, Meta(description="Fork at the parent of the turn.")] = False
    persona_id: Name | None = None


class SmartForkInput(Input):
    text: Annotated[str, Meta(min_length=1, max_length=2000)]
    label: Name | None = None
    persona_id: Name | None = None
    budget: Annotated[Count | None, Meta(description="Maximum number of tokens of context.")] = None


class HistoryInput(Input):
    key: Name
    limit: Limit = 50
    before: Annotated[
        str | Count | None, Meta(description="The `before` of the previous page.")
    ] = None


class HeadInput(Input):
    key: Name
    at: Time | None = None


class AliasInput(Input):
    alias: Name
    key: Name
    reason: AliasReason = "manual"


class RemoveAliasInput(Input):
    alias: Name


class RenameInput(Input):
    key: Annotated[Name, Meta(description="A label or an alias.")]
    label: Annotated[Name, Meta(description="The new label; the former one becomes an alias.")]


class UnmergeInput(Input):
    label: Annotated[Name, Meta(description="The label of the session that was merged.")]


class MergeInput(Input):
    """Two sessions that become one; aliases lead to the one with the longer history."""

    first: Annotated[Name, Meta(description="A label or an alias.")]
    second: Annotated[Name, Meta(description="A label or an alias.")]
    reason: AliasReason = "identity_merge"


class PromoteInput(Input):
    """A channel whose user is known now."""

    channel: Annotated[Name, Meta(description="The key of a channel, such as `telegram:42`.")]
    entity: Annotated[Name, Meta(description="The key of an entity, such as `person:ada`.")]


class MoveInput(Input):
    key: Name
    target: Target
    expected: Annotated[
        str | None, Meta(description="The expected head; a conflict if it has moved.")
    ] = None


class ArchiveInput(Input):
    key: Name
    status: SessionStatus = "archived"


class SessionOutput(Struct):
    session: Session


class SessionsOutput(Struct):
    sessions: tuple[Session, ...]
    after: str | None  # of the next page


class HeadOutput(Struct):
    turn_id: str | None


class HistoryOutput(Struct):
    moves: tuple[Move, ...]
    before: str | None  # of the next page


class AliasOutput(Struct):
    alias: Alias


class AliasesOutput(Struct):
    aliases: tuple[Alias, ...]


def _resolve(ledger: Ledger, params: SessionInput) -> SessionOutput:
    return SessionOutput(ledger.session(params.key, exact=params.exact))


def _list(ledger: Ledger, params: SessionsInput) -> SessionsOutput:
    after = None if params.after is None else ledger.session(params.after, exact=True)
    sessions = ledger.sessions(
        status=params.status,
        persona_id=params.persona_id,
        origin=params.origin,
        parent=params.parent,
        limit=params.limit,
        after=after,
    )
    return SessionsOutput(sessions, sessions[-1].label if len(sessions) == params.limit else None)


def _head(ledger: Ledger, params: HeadInput) -> HeadOutput:
    return HeadOutput(ledger.head(params.key, at=params.at))


def _fork(ledger: Ledger, params: ForkInput) -> SessionOutput:
    return SessionOutput(
        ledger.fork(
            params.target, label=params.label, before=params.before, persona_id=params.persona_id
        )
    )


def _fork_scope(ledger: Ledger, params: ForkInput) -> Scope:
    # The policy grants tools by persona, so choosing another persona requires admin.
    if params.persona_id is None:
        return "write"
    return "write" if params.persona_id == persona_at(ledger, params.target) else "admin"


def persona_at(ledger: Ledger, target: str) -> str:
    """The default persona of a fork of a session or a turn."""
    try:
        return ledger.session(target).persona_id
    except NotFound:
        return ledger.thread(target, last=0).persona_id or DEFAULT_PERSONA


def _smart_fork_scope(ledger: Ledger, params: SmartForkInput) -> Scope:
    return "write" if params.persona_id is None else "admin"


def _smart_fork(ledger: Ledger, params: SmartForkInput) -> routing.SmartFork:
    return ledger.smart_fork(
        params.text, label=params.label, persona_id=params.persona_id, budget=params.budget
    )


def _history(ledger: Ledger, params: HistoryInput) -> HistoryOutput:
    moves = ledger.history(params.key, limit=params.limit, before=params.before)
    return HistoryOutput(moves, moves[-1].cursor if len(moves) == params.limit else None)


def _alias(ledger: Ledger, params: AliasInput) -> AliasOutput:
    return AliasOutput(ledger.alias(params.alias, params.key, reason=params.reason))


def _aliases(ledger: Ledger, params: SessionInput) -> AliasesOutput:
    return AliasesOutput(ledger.aliases(ledger.session(params.key, exact=params.exact).label))


def _remove_alias(ledger: Ledger, params: RemoveAliasInput) -> AliasOutput:
    return AliasOutput(ledger.remove_alias(params.alias))


def _rename(ledger: Ledger, params: RenameInput) -> SessionOutput:
    return SessionOutput(ledger.rename(params.key, params.label))


def _unmerge(ledger: Ledger, params: UnmergeInput) -> SessionOutput:
    return SessionOutput(ledger.unmerge(params.label))


def _merge(ledger: Ledger, params: MergeInput) -> SessionOutput:
    return SessionOutput(ledger.merge(params.first, params.second, reason=params.reason))


def _promote(ledger: Ledger, params: PromoteInput) -> SessionOutput:
    return SessionOutput(ledger.promote(params.channel, params.entity))


def _move(ledger: Ledger, params: MoveInput) -> SessionOutput:
    expected = ... if params.expected is None else params.expected
    return SessionOutput(ledger.move(params.key, params.target, expected=expected))


def _archive(ledger: Ledger, params: ArchiveInput) -> SessionOutput:
    return SessionOutput(ledger.archive(params.key, params.status))


ABILITIES = (
    Ability(
        id="ldg:session:resolve",
        description="Get a session by its label or an alias.",
        input=SessionInput,
        output=SessionOutput,
        function=_resolve,
    ),
    Ability(
        id="ldg:session:list",
        description="List sessions, most recent first.",
        input=SessionsInput,
        output=SessionsOutput,
        function=_list,
    ),
    Ability(
        id="ldg:session:head",
        description="Get the head of a session, now or at a time.",
        input=HeadInput,
        output=HeadOutput,
        function=_head,
    ),
    Ability(
        id="ldg:session:history",
        description="List the moves of a session's head, most recent first, and imported turns.",
        input=HistoryInput,
        output=HistoryOutput,
        function=_history,
    ),
    Ability(
        id="ldg:session:fork",
        description="Create a session at a turn. No turn is copied.",
        input=ForkInput,
        output=SessionOutput,
        function=_fork,
        writes=True,
        scope_of=_fork_scope,
    ),
    Ability(
        id="ldg:session:smart_fork",
        description="Fork at the turn whose context fits a text best, or propose turns.",
        input=SmartForkInput,
        output=routing.SmartFork,
        function=_smart_fork,
        writes=True,
        scope_of=_smart_fork_scope,
    ),
    Ability(
        id="ldg:session:move",
        description="Move the head of a session to any sealed turn.",
        input=MoveInput,
        output=SessionOutput,
        function=_move,
        writes=True,
    ),
    Ability(
        id="ldg:session:archive",
        description="Archive a session, mark it as deleted, or make it active again.",
        input=ArchiveInput,
        output=SessionOutput,
        function=_archive,
        writes=True,
    ),
    Ability(
        id="ldg:session:alias",
        description="Add an alias to a session.",
        input=AliasInput,
        output=AliasOutput,
        function=_alias,
        writes=True,
    ),
    Ability(
        id="ldg:session:aliases",
        description="List the aliases of a session.",
        input=SessionInput,
        output=AliasesOutput,
        function=_aliases,
    ),
    Ability(
        id="ldg:session:remove_alias",
        description="Remove an alias of a session.",
        input=RemoveAliasInput,
        output=AliasOutput,
        function=_remove_alias,
        writes=True,
    ),
    Ability(
        id="ldg:session:rename",
        description="Give a session another label; the former one becomes an alias.",
        input=RenameInput,
        output=SessionOutput,
        function=_rename,
        writes=True,
    ),
    Ability(
        id="ldg:session:unmerge",
        description="Reverse a merge: the session of a label and its aliases are its own again.",
        input=UnmergeInput,
        output=SessionOutput,
        function=_unmerge,
        writes=True,
    ),
    Ability(
        id="ldg:session:merge",
        description="Merge two sessions into the one with the longer history. No turn is lost.",
        input=MergeInput,
        output=SessionOutput,
        function=_merge,
        writes=True,
    ),
    Ability(
        id="ldg:session:promote",
        description="Make a channel's key and an entity's lead to one session.",
        input=PromoteInput,
        output=SessionOutput,
        function=_promote,
        writes=True,
    ),
)
