"""The HTTP API of sessions, turns and threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from agents_ledger.bus.abilities.sessions import persona_at
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.pages import SessionLine
from agents_ledger.model.reports.trees import Headline, Tree
from agents_ledger.model.sessions import (
    DEFAULT_PERSONA,
    Alias,
    AliasReason,
    Move,
    Session,
    SessionStatus,
    Thread,
)
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.web.responses import (
    PER_PAGE,
    Limit,
    Number,
    Page,
    Text,
    answer,
    as_json,
    changes,
    makes,
    reads,
)
from agents_ledger.web.site import Asked, Here, Site, check_persona, named

TURNS_MAX = 50
BYTES_MAX = 250_000  # of several turns
READ_AT_ONCE = 10
NODES_MAX = 150
REACH = 1000

Key = Annotated[str, Meta(min_length=1, max_length=512)]


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    """A session to make: empty, or pointing to a turn. Its persona is the turn's, or `main`, unless
    an administrator names another."""

    label: Key
    turn: str | None = None
    persona_id: Key | None = None
    title: Text | None = None
    routing_key: Key | None = None


class SessionChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be said of a session from now on. What is left out stays. Another persona needs
    the scope `admin`."""

    title: Text | UnsetType | None = UNSET
    note: Text | UnsetType | None = UNSET
    starred: bool | UnsetType = UNSET
    status: SessionStatus | UnsetType = UNSET
    persona_id: Key | UnsetType = UNSET
    routing_key: Key | UnsetType | None = UNSET


class NewFork(Struct, frozen=True, forbid_unknown_fields=True):
    """A fork to make. `before`: at the parent of the turn, to ask its query differently. Another
    persona than the turn's needs the scope `admin`."""

    target: Key
    label: Key | None = None
    before: bool = False
    persona_id: Key | None = None


class NewMove(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a session is to point. With `expected`, only from there."""

    target: Key
    expected: Key | UnsetType | None = UNSET
    only_back: bool = False  # refuse a turn that is no ancestor of the head


class NewAlias(Struct, frozen=True, forbid_unknown_fields=True):
    """Another key for a session."""

    alias: Key
    reason: AliasReason = "manual"


class Head(Struct, frozen=True):
    """The turn a session points to; none while it is empty."""

    turn_id: str | None


class Resolved(Struct, frozen=True):
    """What a target means."""

    turn_id: str | None
    session: Session | None


# -- sessions ---------------------------------------------------------------------------------


@reads("/sessions")
def list_sessions(
    request: Asked,
    site: Here,
    *,
    q: FromQuery[str] = "",
    origin: FromQuery[str] = "",
    project: FromQuery[str] = "",
    persona: FromQuery[str] = "",
    model: FromQuery[str] = "",
    status: FromQuery[SessionStatus | None] = None,
    since: Number = 0,
    starred: FromQuery[bool] = False,
    subagents: FromQuery[bool] = False,
    limit: Limit = PER_PAGE,
    after: FromQuery[str] = "",
) -> Response[Page[SessionLine]]:
    """Sessions, latest first, each with the size of its thread."""
    lines = site.session_lines(
        status=status,
        origin=origin or None,
        persona_id=persona or None,
        model=model or None,
        project=project or None,
        text=q or None,
        since=since,
        starred=starred,
        subagents=subagents,
        limit=limit + 1,
        after=_after(after),
    )
    cursor = None
    if len(lines) > limit:
        last = lines[limit - 1].session
        cursor = f"{last.updated_at}:{last.label}"
    return answer(Page(list(lines[:limit]), cursor), request)


def _after(text: str) -> Session | None:
    if not text:
        return None
    at, _, label = text.partition(":")
    if not at.isdecimal() or len(at) > 16:  # noqa: PLR2004
        raise Refused(f"{text!r} is no place in the list", "Pass the `next` of the page before.")
    return Session(label, updated_at=int(at))


@makes("/sessions")
def create_session(request: Asked, site: Here, data: JSONBody[NewSession]) -> Response[Session]:
    """Make a session."""
    own = persona_at(site.ledger, data.turn) if data.turn is not None else DEFAULT_PERSONA
    check_persona(request, data.persona_id or own, own)
    new = Session(
        data.label,
        data.turn,
        persona_id=data.persona_id or own,
        title=data.title,
        routing_key=data.routing_key,
    )
    return answer(site.ledger.create_session(new))


@reads("/sessions/{key:str}")
def get_session(
    request: Asked, site: Here, key: FromPath[str], exact: FromQuery[bool] = False
) -> Response[Session]:
    """A session by its label or an alias; `exact` reaches one that was merged away."""
    return answer(site.ledger.session(named(key), exact=exact), request)


@changes("/sessions/{key:str}")
def change_session(
    request: Asked, site: Here, key: FromPath[str], data: JSONBody[SessionChanges]
) -> Response[Session]:
    """Change what is said of a session."""
    session = site.ledger.session(named(key))
    wanted = session.label
    if data.persona_id is not UNSET:
        check_persona(request, data.persona_id, session.persona_id)
    said = {name: value for name, value in structs.asdict(data).items() if value is not UNSET}
    notes = {name: said.pop(name) for name in ("title", "note", "starred") if name in said}
    status = said.pop("status", None)
    if said:
        site.ledger.update_session(wanted, **said)
    if notes:
        site.ledger.annotate(wanted, **notes)
    if status:
        site.ledger.archive(wanted, status)
    return answer(site.ledger.session(wanted, exact=True))


@makes("/forks")
def create_fork(request: Asked, site: Here, data: JSONBody[NewFork]) -> Response[Session]:
    """A new session at a turn; nothing is copied."""
    if data.persona_id is not None:
        check_persona(request, data.persona_id, persona_at(site.ledger, data.target))
    return answer(
        site.ledger.fork(
            data.target, label=data.label, before=data.before, persona_id=data.persona_id
        )
    )


@makes("/sessions/{key:str}/moves")
def move_session(site: Here, key: FromPath[str], data: JSONBody[NewMove]) -> Response[Session]:
    """Point a session to another turn."""
    expected: Any = ... if data.expected is UNSET else data.expected
    move = site.ledger.roll_back if data.only_back else site.ledger.move
    return answer(move(named(key), data.target, expected=expected))


@makes("/sessions/{key:str}/undo")
def undo_move(site: Here, key: FromPath[str]) -> Response[Session]:
    """Point a session to where it was before its last move."""
    return answer(site.ledger.undo(named(key)))


@makes("/sessions/{key:str}/clear")
def clear_session(site: Here, key: FromPath[str]) -> Response[Session]:
    """Make a session empty; its turns stay."""
    return answer(site.ledger.clear(named(key)))


@reads("/sessions/{key:str}/aliases")
def list_aliases(request: Asked, site: Here, key: FromPath[str]) -> Response[list[Alias]]:
    """The aliases of a session."""
    return answer(list(site.ledger.aliases(named(key))), request)


@makes("/sessions/{key:str}/aliases")
def create_alias(site: Here, key: FromPath[str], data: JSONBody[NewAlias]) -> Response[Alias]:
    """Let a session answer to another key."""
    return answer(site.ledger.alias(data.alias, named(key), reason=data.reason))


@reads("/sessions/{key:str}/history")
def get_history(
    request: Asked,
    site: Here,
    *,
    key: FromPath[str],
    limit: Limit = PER_PAGE,
    before: Annotated[int | None, QueryParameter(ge=0, le=2**53)] = None,
) -> Response[Page[Move]]:
    """The moves of a session's head, latest first."""
    moves = site.ledger.history(named(key), limit=limit + 1, before=before)
    cursor = str(moves[limit - 1].id) if len(moves) > limit else None
    return answer(Page(list(moves[:limit]), cursor), request)


@reads("/sessions/{key:str}/head")
def get_head(
    request: Asked,
    site: Here,
    key: FromPath[str],
    at: Annotated[int | None, QueryParameter(ge=0, le=2**53)] = None,
) -> Response[Head]:
    """Where a session points, now or at a time in Unix milliseconds."""
    return answer(Head(site.ledger.head(named(key), at=at)), request)


@reads("/resolve/{target:str}")
def resolve(request: Asked, site: Here, target: FromPath[str]) -> Response[Resolved]:
    """What a label, an alias, a turn's id or the first letters of one means."""
    wanted = named(target)
    try:
        session = site.ledger.session(wanted)
    except NotFound:
        return answer(Resolved(site.ledger.get_turn(wanted).id, None), request)
    return answer(Resolved(session.thread_id, session), request)


# -- turns and threads ------------------------------------------------------------------------


@reads("/turns/{turn:str}")
def get_turn(request: Asked, site: Here, turn: FromPath[str]) -> Response[Turn]:
    """A turn with all it consists of."""
    return answer(site.ledger.get_turn(named(turn)), request)


@reads("/turns/{turn:str}/children")
def get_children(
    request: Asked,
    site: Here,
    *,
    turn: FromPath[str],
    limit: Limit = PER_PAGE,
    after: FromQuery[str] = "",
) -> Response[Page[Headline]]:
    """The turns that hang on a turn, in a line each, by id."""
    wanted = site.ledger.get_turn(named(turn)).id
    if after:
        _check_child(site, after, wanted)
    lines = site.pages.branches(wanted, limit=limit + 1, after=after or None)
    cursor = lines[limit - 1].turn.id if len(lines) > limit else None
    return answer(Page(list(lines[:limit]), cursor), request)


def _check_child(site: Site, after: str, parent_id: str) -> None:
    with suppress(NotFound):
        found = site.ledger.get_turn(after)
        if (found.id, found.parent_turn_id) == (after, parent_id):
            return
    raise Refused(f"{after!r} is no place in the list", "Pass the `next` of the page before.")


@reads("/turns/{turn:str}/messages")
def get_messages(request: Asked, site: Here, turn: FromPath[str]) -> Response[list[Message]]:
    """The messages of a turn."""
    return answer(list(site.ledger.get_turn(named(turn)).messages), request)


@reads("/turns/{turn:str}/tool-calls")
def get_tool_calls(request: Asked, site: Here, turn: FromPath[str]) -> Response[list[ToolCall]]:
    """The tool calls of a turn."""
    return answer(list(site.ledger.get_turn(named(turn)).tool_calls), request)


@reads("/threads/{target:str}")
def get_thread(
    request: Asked,
    site: Here,
    *,
    target: FromPath[str],
    to_depth: Annotated[int | None, QueryParameter(ge=0, le=2**53)] = None,
    limit: Annotated[int, QueryParameter(ge=0, le=TURNS_MAX)] = 20,
) -> Response[Thread]:
    """A thread's metrics, and its last turns, or those that end at a depth; root first.

    If they are long, fewer than `limit`, but one at least; ask for those above by their depth.
    """
    wanted = named(target)
    thread = site.ledger.thread(wanted, last=0)
    last = thread.depth if to_depth is None else min(to_depth, thread.depth)
    turns: list[Turn] = []
    room = BYTES_MAX
    for turn in itertools.islice(_upwards(site, thread, last), limit):
        room -= len(as_json(turn))
        if turns and room < 0:
            break
        turns.append(turn)
    return answer(structs.replace(thread, turns=tuple(turns[::-1])), request)


def _upwards(site: Site, thread: Thread, depth: int) -> Iterator[Turn]:
    """The turns of a thread from a depth up, a few at a time."""
    while thread.turn_id is not None and depth > 0:
        first = max(1, depth - READ_AT_ONCE + 1)
        found = site.ledger.thread(thread.turn_id, from_depth=first, to_depth=depth)
        yield from reversed(found.turns)
        depth = first - 1


@reads("/threads/{target:str}/tree")
def get_tree(
    request: Asked,
    site: Here,
    target: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=NODES_MAX)] = NODES_MAX,
    upto: Annotated[int | None, QueryParameter(ge=1, le=2**53)] = None,
) -> Response[Tree]:
    """The tree that a turn stands in, long runs folded, from a thousand turns above it on; `upto`:
    instead, of the thread down to this depth."""
    thread = site.ledger.thread(named(target), last=0)
    if thread.turn_id is None:
        raise Refused(f"session {named(target)!r} is empty")
    last = min(upto or thread.depth, thread.depth)
    top = site.ledger.ancestor_at(thread.turn_id, max(1, last - REACH + 1))
    below = last if upto else last + REACH
    return answer(site.ledger.tree(top or thread.turn_id, limit=limit, to_depth=below), request)


ROUTES = (
    list_sessions,
    create_session,
    get_session,
    change_session,
    create_fork,
    move_session,
    undo_move,
    clear_session,
    list_aliases,
    create_alias,
    get_history,
    get_head,
    resolve,
    get_turn,
    get_children,
    get_messages,
    get_tool_calls,
    get_thread,
    get_tree,
)
