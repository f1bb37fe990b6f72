"""The pages that read: each handler parses, asks the ledger, and renders."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery

from agents_ledger.ledger.context.contexts import Context
from agents_ledger.ledger.maintenance import audit
from agents_ledger.model.errors import LedgerError, NotFound
from agents_ledger.model.files.file_tools import decoded
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import SEALED, ToolCall, Turn
from agents_ledger.render import bodies
from agents_ledger.web.pages.thread import Card, Cards, card_of, cards_upto
from agents_ledger.web.pages.tree import rail
from agents_ledger.web.site import Asked, Here, Site, named

PER_PAGE = 50
DAY_MS = 86_400_000
BELOW = 10  # turns shown below the one asked for
STATUSES = ("active", "archived", "deleted")
TABS = ("overview", "tools", "files", "context", "raw")

# -- sessions ---------------------------------------------------------------------------------


@get("/sessions", sync_to_thread=True)
def sessions(
    request: Asked,
    site: Here,
    *,
    q: FromQuery[str] = "",
    origin: FromQuery[str] = "",
    project: FromQuery[str] = "",
    persona: FromQuery[str] = "",
    model: FromQuery[str] = "",
    status: FromQuery[str] = "active",
    since: FromQuery[int] = 0,
    days: FromQuery[int] = 0,
    starred: FromQuery[bool] = False,
    subagents: FromQuery[bool] = False,
    after: FromQuery[str] = "",
) -> Response[str]:
    """Every session, filtered by what stands in the address."""
    wanted = status if status in STATUSES else None
    lines = site.session_lines(
        status=wanted,
        origin=origin or None,
        persona_id=persona or None,
        model=model or None,
        project=project or None,
        text=q or None,
        since=max(0, since, site.now() - days * DAY_MS if days > 0 else 0),
        starred=starred,
        subagents=subagents,
        limit=PER_PAGE + 1,
        after=_after(after),
    )
    asked = {
        "q": q, "origin": origin, "project": project, "persona": persona, "model": model,
        "status": "" if status == "active" else status, "since": since or "",
        "days": days or "",
        "starred": "true" if starred else "", "subagents": "true" if subagents else "",
    }  # fmt: skip
    more = len(lines) > PER_PAGE
    lines = lines[:PER_PAGE]
    return site.page(
        "sessions.html",
        request,
        title="Sessions",
        lines=lines,
        commands=None,
        asked=asked,
        choices=site.choices(),
        next_after=_cursor(lines[-1].session) if more else "",
    )


def _after(text: str) -> Session | None:
    """The session a page comes after, from `updated_at:label`."""
    at, _, label = text.partition(":")
    if not at.isdecimal() or len(at) > 18:  # noqa: PLR2004
        return None
    return Session(label, updated_at=int(at))


def _cursor(session: Session) -> str:
    return f"{session.updated_at}:{session.label}"


# -- threads ----------------------------------------------------------------------------------


@get("/s/{label:str}", sync_to_thread=True)
def session_page(
    request: Asked,
    site: Here,
    *,
    label: FromPath[str],
    upto: FromQuery[int | None] = None,
    turn: FromQuery[str] = "",
    tab: FromQuery[str] = "overview",
    at: FromQuery[str] = "",
    forked: FromQuery[bool] = False,
) -> Response[str]:
    """A session's thread, its newest turns first to be seen."""
    with site.pages.snapshot():
        session = site.ledger.session(named(label))
        target = session.label
        if at.isdecimal():
            target = site.ledger.head(session.label, at=int(at[:18])) or ""
            if not target:
                raise NotFound(f"session {session.label!r} was empty then", "See its history.")
        shown = Shown(upto=upto, chosen=turn, tab=tab, at=at, forked=forked)
        values = _thread_values(site, session, target, shown)
    return _thread_page(site, request, values)


@get("/t/{turn:str}", sync_to_thread=True)
def turn_page(
    request: Asked,
    site: Here,
    *,
    turn: FromPath[str],
    tab: FromQuery[str] = "overview",
    alone: FromQuery[bool] = False,
    whole: FromQuery[bool] = False,
) -> Response[str]:
    """A turn within the thread of a session that holds it, or at the end of its own."""
    with site.pages.snapshot():
        found = site.ledger.get_turn(named(turn))
        session = None if alone else site.session_of(found)
        shown = Shown(chosen=found.id, tab=tab, whole=whole)
        if session is None:
            values = _thread_values(site, None, found.id, shown)
        else:
            shown = shown._replace(upto=found.depth + BELOW)
            values = _thread_values(site, session, session.label, shown)
    return _thread_page(site, request, values)


class Shown(NamedTuple):
    """Which part of a thread is asked for."""

    upto: int | None = None  # the depth it ends at; None: the head's
    chosen: str = ""
    tab: str = "overview"
    at: str = ""
    forked: bool = False
    whole: bool = False


def _thread_page(site: Site, request: Asked, values: dict[str, Any]) -> Response[str]:
    can_chat = site.broker is not None and request.scope["state"]["token"].may("chat")
    return site.page("thread.html", request, can_chat=can_chat, **values)


def _thread_values(
    site: Site, session: Session | None, target: str, shown: Shown
) -> dict[str, Any]:
    """What the page of a thread shows."""
    thread = site.ledger.thread(target, last=0)
    cards = cards_upto(site.pages, target, thread.depth, shown.upto or thread.depth)
    live = live_cards(site, session) if session and cards.last_depth == thread.depth else ()
    card = _chosen(cards, shown.chosen)
    inspected = card.turn if card else None
    return dict(
        title=site.name_of(session, thread) if session else f"Turn {thread.turn_id}",
        session=session,
        thread=thread,
        window=cards,
        live=live,
        rows=rail(site, thread),
        chosen=inspected,
        inspector=inspect(site, inspected, shown.tab, whole=shown.whole) if inspected else None,
        imported=site.pages.imported_as(session.label) if session else (),
        aliases=site.ledger.aliases(session.label) if session else (),
        at=shown.at,
        forked=shown.forked,
        commands=commands_of(session, site.head_of(thread)) if session else (),
        is_tail=cards.last_depth >= thread.depth,
    )


def commands_of(session: Session, turn: Turn | None) -> list[tuple[str, str]]:
    """What to type to go on with a session: here, and in the agent it came from."""
    here = command_here(session)
    there = command_there(session, turn.workspace_path if turn else None)
    # Its own agent does not know what was said here since.
    if there is None or turn is None or not turn.projected:
        return [("the command", here)]
    return [("the command", there), ("the command for here", here)]


def _chosen(cards: Cards, chosen: str) -> Card | None:
    found = [card for card in cards.cards if chosen and card.turn.id.startswith(chosen.upper())]
    found = found or [card for card in cards.cards if card.turn.id == chosen]
    return found[0] if found else (cards.cards[-1] if cards.cards else None)


def live_cards(site: Site, session: Session) -> tuple[tuple[Card, str], ...]:
    """The turns being written on a session, with what they have said so far."""
    made = []
    for turn_id in site.ledger.live_turns(session.label):
        try:
            turn = site.ledger.get_turn(turn_id)
            partial = site.ledger.partial_text(turn_id)
        except LedgerError:  # it ended meanwhile
            continue
        if turn.status not in SEALED:
            made.append((card_of(turn), partial))
    return tuple(made)


@get("/s/{label:str}/cards", sync_to_thread=True)
def cards_fragment(
    request: Asked, site: Here, label: FromPath[str], upto: FromQuery[int]
) -> Response[str]:
    """Cards further up a thread, for a page that is open."""
    session = site.ledger.session(named(label))
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.pages, session.label, thread.depth, upto)
    return site.page(
        "cards.html", request, session=session, thread=thread, window=window, live=(), at=""
    )


@get("/s/{label:str}/news", sync_to_thread=True)
def news_fragment(
    request: Asked, site: Here, label: FromPath[str], after: FromQuery[int]
) -> Response[str]:
    """The cards below a depth, and the turns being written: what a live page lacks."""
    session = site.ledger.session(named(label))
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.pages, session.label, thread.depth, thread.depth)
    fresh = tuple(card for card in window.cards if card.turn.depth > after)
    return site.page(
        "cards.html",
        request,
        session=session,
        thread=thread,
        window=window._replace(cards=fresh),
        live=live_cards(site, session),
        at="",
    )


# -- one turn ---------------------------------------------------------------------------------


def inspect(site: Site, turn: Turn, tab: str, *, whole: bool = False) -> dict[str, Any]:
    """What the inspector says of a turn; `whole`: its context too, however large."""
    tab = tab if tab in TABS else "overview"
    known: dict[str, Any] = {"tab": tab, "tabs": TABS, "turn": turn}
    if tab in ("tools", "files"):
        known["turn"] = site.ledger.get_turn(turn.id)
    if tab == "files":
        known["files"] = _files(known["turn"])
    if tab == "context":
        known["config"] = site.ledger.effective_config(turn.id)
        known["system_prompt"] = site.ledger.system_prompt(turn.id)
        known["place"] = site.ledger.thread(turn.id, last=0)
        known["context"] = _context(site, turn, whole=whole)
    if tab == "raw":
        known["sources"] = site.pages.files_of_turn(turn.id)
    return known


def _context(site: Site, turn: Turn, *, whole: bool) -> Context | None:
    """What a model sees at a turn; None if that is more than is read unasked."""
    if not whole and site.pages.is_long(turn.id, visible=True):
        return None
    return site.ledger.context(turn.id)


def _files(turn: Turn) -> list[tuple[str, str]]:
    """The files of a turn: how, and which."""
    found = {(file.kind, file.file_path) for message in turn.messages for file in message.files}
    return sorted(found, key=lambda pair: (pair[1], pair[0]))


@get("/t/{turn:str}/inspect", sync_to_thread=True)
def inspector_fragment(
    request: Asked, site: Here, turn: FromPath[str], tab: FromQuery[str] = "overview"
) -> Response[str]:
    """The inspector alone, for a page that is open."""
    found = site.ledger.get_turn(named(turn))
    return site.page("inspector.html", request, inspector=inspect(site, found, tab), session=None)


@get("/t/{turn:str}/call/{call:str}", sync_to_thread=True)
def call_page(
    request: Asked,
    site: Here,
    turn: FromPath[str],
    call: FromPath[str],
    part: FromQuery[bool] = False,
) -> Response[str]:
    """A tool call with all of its parameters and its result; `part`: for a page that is open."""
    found = site.ledger.get_turn(named(turn))
    wanted = _call(found, named(call))
    image_url = f"{request.scope['path']}/image"
    return site.page(
        "call_part.html" if part else "call.html",
        request,
        title=wanted.tool_name,
        turn=found,
        call=wanted,
        parameters=bodies.parameters(wanted.params_json),
        result=bodies.result(wanted.result_json, image_url),
    )


def _call(turn: Turn, call_id: str) -> ToolCall:
    for call in turn.tool_calls:
        if call.id == call_id:
            return call
    raise NotFound(f"turn {turn.id} has no call {call_id!r}")


@get("/t/{turn:str}/call/{call:str}/image/{number:int}", sync_to_thread=True)
def image(
    site: Here, turn: FromPath[str], call: FromPath[str], number: FromPath[int]
) -> Response[bytes]:
    """A picture in a result. Only what cannot hold a script is served."""
    import base64
    import binascii

    wanted = _call(site.ledger.get_turn(named(turn)), named(call))
    found = list(bodies.images(decoded(wanted.result_json)))
    if not 0 <= number < len(found):
        raise NotFoundException("there is no such image")
    kind, data = found[number]
    try:
        content = base64.b64decode(data, validate=False)
    except binascii.Error as error:
        raise NotFoundException("the image is damaged") from error
    return Response(content, media_type=kind)


@get("/t/{turn:str}/message/{message:str}", sync_to_thread=True)
def message_page(
    request: Asked,
    site: Here,
    turn: FromPath[str],
    message: FromPath[str],
    part: FromQuery[bool] = False,
) -> Response[str]:
    """A message in full."""
    found = site.ledger.get_turn(named(turn))
    wanted = next((each for each in found.messages if each.id == named(message)), None)
    if wanted is None:
        raise NotFound(f"turn {found.id} has no message {named(message)!r}")
    return site.page(
        "message_part.html" if part else "message.html",
        request,
        title=f"{wanted.role} message",
        turn=found,
        message=wanted,
        body=bodies.markdown((wanted.content or "")[: bodies.SHOWN_MAX]),
    )


@get("/t/{turn:str}/steps", sync_to_thread=True)
def steps_page(
    request: Asked, site: Here, turn: FromPath[str], after: FromQuery[int] = -1
) -> Response[str]:
    """The steps of a long turn, a page at a time."""
    found = site.ledger.get_turn(named(turn))
    steps = [step for step in found.steps if step.sequence > after]
    shown = msgspec.structs.replace(
        found,
        messages=tuple(s for s in steps[:PER_PAGE] if not isinstance(s, ToolCall)),
        tool_calls=tuple(s for s in steps[:PER_PAGE] if isinstance(s, ToolCall)),
    )
    return site.page(
        "steps.html",
        request,
        title=f"Steps of turn {found.depth}",
        turn=found,
        card=card_of(shown),
        last=steps[PER_PAGE - 1].sequence if len(steps) > PER_PAGE else None,
    )


# -- history, audit, imports, raw -------------------------------------------------------------


@get("/s/{label:str}/history", sync_to_thread=True)
def history_page(
    request: Asked, site: Here, label: FromPath[str], before: FromQuery[int | None] = None
) -> Response[str]:
    """Every move of a session's head."""
    session = site.ledger.session(named(label))
    moves = site.ledger.history(session.label, limit=PER_PAGE + 1, before=before)
    heads = [move.thread_id for move in moves if move.thread_id]
    headlines = {line.turn.id: line for line in site.ledger.headlines(dict.fromkeys(heads))}
    return site.page(
        "history.html",
        request,
        title=f"History of {site.name_of(session, site.ledger.thread(session.label, last=0))}",
        session=session,
        moves=moves[:PER_PAGE],
        older=moves[PER_PAGE - 1].id if len(moves) > PER_PAGE else None,
        before_last=moves[PER_PAGE].thread_id if len(moves) > PER_PAGE else None,
        headlines=headlines,
        aliases=site.ledger.aliases(session.label),
        imported=site.pages.imported_as(session.label),
    )


@get("/audit", sync_to_thread=True)
def audit_page(request: Asked, site: Here, run: FromQuery[bool] = False) -> Response[str]:
    """What breaks a rule. A large ledger is checked when asked for."""
    report = site.audit_report(run=run)
    return site.page(
        "audit.html",
        request,
        title="Audit",
        report=report,
        meanings=audit.meanings(),
        running=site.auditing,
        permissions=report.permissions if report is not None else None,
        failed=site.pages.failed_turns(limit=PER_PAGE),
    )


@get("/imports", sync_to_thread=True)
def imports_page(request: Asked, site: Here, before: FromQuery[str] = "") -> Response[str]:
    """What imports did, and what could not be understood."""
    runs = site.pages.import_runs(limit=PER_PAGE + 1, before=before or None)
    return site.page(
        "imports.html",
        request,
        title="Imports",
        runs=runs[:PER_PAGE],
        older=runs[PER_PAGE - 1].id if len(runs) > PER_PAGE else None,
        faults=site.pages.source_faults(limit=PER_PAGE),
        sources=site.sources(),
        importing=site.importing,
    )


@get("/imports/{run:str}", sync_to_thread=True)
def import_page(request: Asked, site: Here, run: FromPath[str]) -> Response[str]:
    """What one import did."""
    found = site.pages.import_run(named(run))
    return site.page(
        "import.html",
        request,
        title=f"Import {found.id}",
        run=found,
        report=bodies.parameters(found.report_json or "{}"),
    )


@get("/raw/{kind:str}/{key:str}", sync_to_thread=True)
def raw_page(
    request: Asked, site: Here, kind: FromPath[str], key: FromPath[str], start: FromQuery[int] = 0
) -> Response[str]:
    """A record as it is stored."""
    record = site.raw(named(kind), named(key), max(0, start))
    return site.page("raw.html", request, title=f"Raw {named(kind)}", record=record, kind=kind)


ROUTES = (
    sessions,
    session_page,
    turn_page,
    cards_fragment,
    news_fragment,
    inspector_fragment,
    call_page,
    image,
    message_page,
    steps_page,
    history_page,
    audit_page,
    imports_page,
    import_page,
    raw_page,
)
