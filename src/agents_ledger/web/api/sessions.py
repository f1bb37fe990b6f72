"""The HTTP API of sessions: their heads, forks, moves, aliases and history."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from agents_ledger.bus.abilities.sessions import MergeInput, PromoteInput, persona_at
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.pages import SessionLine
from agents_ledger.model.sessions import (
    DEFAULT_PERSONA,
    Alias,
    AliasReason,
    Move,
    Session,
    SessionStatus,
)
from agents_ledger.web.requests import WebRequest, check_persona, decode_part
from agents_ledger.web.responses import (
    PER_PAGE,
    Limit,
    Number,
    OptionalNumber,
    ResultPage,
    Text,
    answer,
    changes,
    creates,
    reads,
    removes,
)
from agents_ledger.web.site import ThisSite

Key = Annotated[str, Meta(min_length=1, max_length=512)]


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    """A new session: empty, or pointing to a turn. Its persona is that of the turn, or `main`,
    unless an administrator names another."""

    label: Key
    turn: str | None = None
    persona_id: Key | None = None
    title: Text | None = None
    routing_key: Key | None = None


class SessionChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a session to change; omitted fields stay. Another persona needs the scope
    `admin`."""

    title: Text | UnsetType | None = UNSET
    note: Text | UnsetType | None = UNSET
    starred: bool | UnsetType = UNSET
    status: SessionStatus | UnsetType = UNSET
    persona_id: Key | UnsetType = UNSET
    routing_key: Key | UnsetType | None = UNSET


class NewFork(Struct, frozen=True, forbid_unknown_fields=True):
    """A new fork. With `before` it starts at the parent of the turn, to ask its query differently.
    Another persona than that of the turn needs the scope `admin`."""

    target: Key
    label: Key | None = None
    before: bool = False
    persona_id: Key | None = None


class NewMove(Struct, frozen=True, forbid_unknown_fields=True):
    """The turn to move a session to. With `expected`, only if its head is there."""

    target: Key
    expected: Key | UnsetType | None = UNSET
    only_back: bool = False  # refuse a turn that is not an ancestor of the head


class NewAlias(Struct, frozen=True, forbid_unknown_fields=True):
    """Another key for a session."""

    alias: Key
    reason: AliasReason = "manual"


class NewLabel(Struct, frozen=True, forbid_unknown_fields=True):
    """Another label for a session."""

    label: Key


class HeadTurn(Struct, frozen=True):
    """The turn that a session points to; null while it is empty."""

    turn_id: str | None


class ResolvedTarget(Struct, frozen=True):
    """What a target refers to."""

    turn_id: str | None
    session: Session | None


@reads("/sessions")
def list_sessions(
    request: WebRequest,
    site: ThisSite,
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
) -> Response[ResultPage[SessionLine]]:
    """Sessions, most recently updated first, each with the size of its thread."""
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
    return answer(ResultPage(list(lines[:limit]), cursor), request)


def _after(text: str) -> Session | None:
    if not text:
        return None
    at, _, label = text.partition(":")
    if not at.isdecimal() or len(at) > 16:  # noqa: PLR2004
        raise Refused(f"{text!r} is not a valid page cursor", "Pass `next` of the previous page.")
    return Session(label, updated_at=int(at))


@creates("/sessions")
def create_session(
    request: WebRequest, site: ThisSite, data: JSONBody[NewSession]
) -> Response[Session]:
    """Create a session."""
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
    request: WebRequest, site: ThisSite, key: FromPath[str], exact: FromQuery[bool] = False
) -> Response[Session]:
    """A session by label or alias; `exact` returns one that was merged into another."""
    return answer(site.ledger.session(decode_part(key), exact=exact), request)


@changes("/sessions/{key:str}")
def change_session(
    request: WebRequest, site: ThisSite, key: FromPath[str], data: JSONBody[SessionChanges]
) -> Response[Session]:
    """Change the title, note, star, status, persona or routing key of a session."""
    session = site.ledger.session(decode_part(key))
    label = session.label
    if data.persona_id is not UNSET:
        check_persona(request, data.persona_id, session.persona_id)
    fields = {name: value for name, value in structs.asdict(data).items() if value is not UNSET}
    notes = {name: fields.pop(name) for name in ("title", "note", "starred") if name in fields}
    status = fields.pop("status", None)
    if fields:
        site.ledger.update_session(label, **fields)
    if notes:
        site.ledger.annotate(label, **notes)
    if status:
        site.ledger.archive(label, status)
    return answer(site.ledger.session(label, exact=True))


@creates("/forks")
def create_fork(request: WebRequest, site: ThisSite, data: JSONBody[NewFork]) -> Response[Session]:
    """Create a session at a turn; nothing is copied."""
    if data.persona_id is not None:
        check_persona(request, data.persona_id, persona_at(site.ledger, data.target))
    return answer(
        site.ledger.fork(
            data.target, label=data.label, before=data.before, persona_id=data.persona_id
        )
    )


@creates("/merges")
def merge_sessions(site: ThisSite, data: JSONBody[MergeInput]) -> Response[Session]:
    """Merge two sessions into the one with the longer history. No turn is lost."""
    return answer(site.ledger.merge(data.first, data.second, reason=data.reason))


@creates("/promotions")
def promote_channel(site: ThisSite, data: JSONBody[PromoteInput]) -> Response[Session]:
    """Make a channel's key and an entity's lead to one session."""
    return answer(site.ledger.promote(data.channel, data.entity))


@creates("/sessions/{key:str}/moves")
def move_session(site: ThisSite, key: FromPath[str], data: JSONBody[NewMove]) -> Response[Session]:
    """Move the head of a session to another turn."""
    expected: Any = ... if data.expected is UNSET else data.expected
    move = site.ledger.roll_back if data.only_back else site.ledger.move
    return answer(move(decode_part(key), data.target, expected=expected))


@creates("/sessions/{key:str}/undo")
def undo_move(site: ThisSite, key: FromPath[str]) -> Response[Session]:
    """Undo the last move of a session's head."""
    return answer(site.ledger.undo(decode_part(key)))


@creates("/sessions/{key:str}/clear")
def clear_session(site: ThisSite, key: FromPath[str]) -> Response[Session]:
    """Empty a session; its turns stay in the ledger."""
    return answer(site.ledger.clear(decode_part(key)))


@reads("/sessions/{key:str}/aliases")
def list_aliases(request: WebRequest, site: ThisSite, key: FromPath[str]) -> Response[list[Alias]]:
    """The aliases of a session."""
    return answer(list(site.ledger.aliases(decode_part(key))), request)


@creates("/sessions/{key:str}/aliases")
def create_alias(site: ThisSite, key: FromPath[str], data: JSONBody[NewAlias]) -> Response[Alias]:
    """Give a session another name."""
    return answer(site.ledger.alias(data.alias, decode_part(key), reason=data.reason))


@removes("/aliases/{alias:str}")
def remove_alias(site: ThisSite, alias: FromPath[str]) -> Response[Alias]:
    """Remove an alias. Labels, and names that the next import would add, are refused."""
    return answer(site.ledger.remove_alias(decode_part(alias)))


@creates("/sessions/{key:str}/rename")
def rename_session(
    site: ThisSite, key: FromPath[str], data: JSONBody[NewLabel]
) -> Response[Session]:
    """Give a session another label. The former label becomes an alias."""
    return answer(site.ledger.rename(decode_part(key), data.label))


@creates("/sessions/{key:str}/unmerge")
def unmerge_session(site: ThisSite, key: FromPath[str]) -> Response[Session]:
    """Reverse a merge: the session of this label and its aliases are its own again."""
    return answer(site.ledger.unmerge(decode_part(key)))


@reads("/sessions/{key:str}/history")
def get_history(
    request: WebRequest,
    site: ThisSite,
    *,
    key: FromPath[str],
    limit: Limit = PER_PAGE,
    before: FromQuery[str | None] = None,
) -> Response[ResultPage[Move]]:
    """The moves of a session's head, latest first; those of imported turns are computed."""
    moves = site.ledger.history(decode_part(key), limit=limit + 1, before=before)
    cursor = moves[limit - 1].cursor if len(moves) > limit else None
    return answer(ResultPage(list(moves[:limit]), cursor), request)


@reads("/sessions/{key:str}/head")
def get_head(
    request: WebRequest, site: ThisSite, key: FromPath[str], at: OptionalNumber = None
) -> Response[HeadTurn]:
    """The head of a session, now or at a time in Unix milliseconds."""
    return answer(HeadTurn(site.ledger.head(decode_part(key), at=at)), request)


@reads("/resolve/{target:str}")
def resolve(request: WebRequest, site: ThisSite, target: FromPath[str]) -> Response[ResolvedTarget]:
    """The session or turn that a label, an alias, a turn id or its first characters refer to."""
    key = decode_part(target)
    try:
        session = site.ledger.session(key)
    except NotFound:
        return answer(ResolvedTarget(site.ledger.get_turn(key).id, None), request)
    return answer(ResolvedTarget(session.thread_id, session), request)


ROUTES = (
    list_sessions,
    create_session,
    get_session,
    change_session,
    create_fork,
    merge_sessions,
    promote_channel,
    move_session,
    undo_move,
    clear_session,
    list_aliases,
    create_alias,
    remove_alias,
    rename_session,
    unmerge_session,
    get_history,
    get_head,
    resolve,
)
