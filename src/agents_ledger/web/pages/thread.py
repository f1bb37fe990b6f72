"""The page of a thread: its cards, its tree and the inspector."""

from __future__ import annotations

from typing import Any, NamedTuple

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery
from litestar.response import Redirect

from agents_ledger.importers.discovery import this_home
from agents_ledger.importers.survey import is_gone
from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.errors import Conflict, LedgerError, NotFound, Refused
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.reports.pages import NamedSession
from agents_ledger.model.sessions import Session, Thread
from agents_ledger.model.turns import SEALED, Turn
from agents_ledger.render.tree_layout import TreeRow
from agents_ledger.web.errors import problem_of
from agents_ledger.web.formats import session_url
from agents_ledger.web.pages.cards import Card, CardWindow, card_of, cards_upto, with_running_calls
from agents_ledger.web.pages.forms import SEE_OTHER, Form, can_open_terminal
from agents_ledger.web.pages.home import running_turns
from agents_ledger.web.pages.tree import heads_of, rail
from agents_ledger.web.pages.turn import inspect
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

SWITCHER_MAX = 40
BELOW = 10  # turns below the requested one


class ThreadView(NamedTuple):
    """Which part of a thread is requested."""

    upto: int | None = None  # the depth it ends at; None: the head's
    chosen: str = ""
    tab: str = "overview"
    at: str = ""
    forked: bool = False
    whole: bool = False


class RefusedFork(NamedTuple):
    """A fork that was not made, for the form that asked for it."""

    turn_id: str
    label: str
    error: LedgerError


@get("/s/{label:str}", sync_to_thread=True)
def session_page(
    request: WebRequest,
    site: ThisSite,
    *,
    label: FromPath[str],
    upto: FromQuery[int | None] = None,
    turn: FromQuery[str] = "",
    tab: FromQuery[str] = "overview",
    at: FromQuery[str] = "",
    forked: FromQuery[bool] = False,
) -> Response[str]:
    with site.pages.snapshot():
        session = site.ledger.session(decode_part(label))
        target = session.label
        if at.isdecimal():
            target = site.ledger.head(session.label, at=int(at[:18])) or ""
            if not target:
                raise NotFound(
                    f"session {session.label!r} had no turns at that time", "See its history."
                )
        view = ThreadView(upto=upto, chosen=turn, tab=tab, at=at, forked=forked)
        values = _thread_values(site, request, session, target, view)
    return _thread_page(site, request, values)


@get("/t/{turn:str}", sync_to_thread=True)
def turn_page(
    request: WebRequest,
    site: ThisSite,
    *,
    turn: FromPath[str],
    tab: FromQuery[str] = "overview",
    alone: FromQuery[bool] = False,
    whole: FromQuery[bool] = False,
) -> Response[str]:
    view = ThreadView(tab=tab, whole=whole)
    return _thread_page(site, request, _around(site, request, decode_part(turn), view, alone=alone))


@post("/t/{turn:str}/fork", sync_to_thread=True, status_code=SEE_OTHER)
def fork(
    request: WebRequest, site: ThisSite, turn: FromPath[str], data: Form
) -> Response[Any] | Redirect:
    """Fork at a turn. If the ledger refuses, the form is shown again with the reason."""
    turn_id, label = decode_part(turn), data.get("label", "").strip()
    try:
        session = site.ledger.fork(
            turn_id, label=label or None, before=data.get("before") == "true"
        )
    except (Conflict, Refused) as error:
        values = _around(site, request, turn_id, ThreadView())
        refused = RefusedFork(values["inspector"]["turn"].id, label, error)
        status, _ = problem_of(error)
        return _thread_page(site, request, values, status=status, refused_fork=refused)
    return Redirect(session_url(session.label, forked="true"), status_code=SEE_OTHER)


def _around(
    site: Site, request: WebRequest, turn_id: str, view: ThreadView, *, alone: bool = False
) -> dict[str, Any]:
    """The page of a turn, in the latest session that contains it."""
    with site.pages.snapshot():
        chosen = site.ledger.get_turn(turn_id)
        session = None if alone else site.session_of(chosen)
        view = view._replace(chosen=chosen.id)
        if session is None:
            return _thread_values(site, request, None, chosen.id, view)
        view = view._replace(upto=chosen.depth + BELOW)
        values = _thread_values(site, request, session, session.label, view)
        # Large turns below may leave no room for it.
        if values["window"].first_depth > chosen.depth:
            view = view._replace(upto=chosen.depth)
            values = _thread_values(site, request, session, session.label, view)
        return values


def _thread_page(
    site: Site,
    request: WebRequest,
    values: dict[str, Any],
    *,
    status: int = 200,
    refused_fork: RefusedFork | None = None,
) -> Response[str]:
    can_chat = site.broker is not None and request.scope["state"]["token"].may("chat")
    values |= {"can_chat": can_chat, "refused_fork": refused_fork}
    return site.page("thread.html", request, status=status, **values)


def _thread_values(
    site: Site, request: WebRequest, session: Session | None, target: str, view: ThreadView
) -> dict[str, Any]:
    site.ledger.check_shown(session.label if session else target)
    thread = site.ledger.thread(target, last=0)
    window = cards_upto(site.ledger, target, thread.depth, view.upto or thread.depth)
    running = running_turns(site, request, session.label) if session else []
    window = with_running_calls(window, [line.turn for line in running])
    is_tail = window.last_depth == thread.depth
    live = tail_cards(site, session, window) if session and is_tail and not view.at else ()
    card = _chosen(window, view.chosen)
    inspector = inspect(site, card.turn, view.tab, whole=view.whole) if card else None
    rows = rail(site, thread)
    return dict(
        session=session,
        thread=thread,
        window=window,
        live=live,
        running=running,
        running_of=session.label if session else "",
        rows=rows,
        inspector=inspector,
        at=view.at,
        forked=view.forked,
        is_tail=window.last_depth >= thread.depth,
        **_head_values(site, request, session, thread, rows),
    )


def _head_values(
    site: Site, request: WebRequest, session: Session | None, thread: Thread, rows: list[TreeRow]
) -> dict[str, Any]:
    tree_sessions = _tree_sessions(rows, session)
    names = _names(site, session, tree_sessions)
    commands = commands_of(session, site.head_of(thread)) if session else []
    return dict(
        title=names[session.label].name if session else _title_of_turn(site, thread),
        tree_sessions=tree_sessions,
        names=names,
        usage=site.session_usage.get([(session, thread.depth)]).get(session.label)
        if session
        else None,
        commands=commands,
        can_open_terminal=len(commands) > 1 and can_open_terminal(request),
        is_gone=bool(session and session.created_as == "import" and _is_gone(site, thread.turn_id)),
    )


def _is_gone(site: Site, turn_id: str | None) -> bool:
    files = site.pages.files_of_turn(turn_id) if turn_id else ()
    return bool(files) and all(is_gone(this_home(), file) for file in files)


def _names(
    site: Site, session: Session | None, tree_sessions: list[Session]
) -> dict[str, NamedSession]:
    """The names of the sessions in the header of a thread."""
    labels = [other.label for other in tree_sessions[:SWITCHER_MAX]]
    if session:
        labels += [session.label, *filter(None, [session.parent_session_label])]
    return site.pages.session_names(labels) if labels else {}


def _title_of_turn(site: Site, thread: Thread) -> str:
    text = site.ledger.headlines([str(thread.turn_id)])[0].text
    return text or f"Turn {thread.depth}"


def _tree_sessions(rows: list[TreeRow], session: Session | None) -> list[Session]:
    """The sessions of a tree, latest first: a thread can be left for another from its header."""
    heads = {head.session.label: head.session for head in heads_of(rows)}
    if session:
        heads[session.label] = session
    present = [head for head in heads.values() if head.status != "deleted"]
    return sorted(present, key=lambda head: (-head.updated_at, head.label))


def commands_of(session: Session, turn: Turn | None) -> list[tuple[str, str]]:
    """The commands that continue a session, here and in the agent it came from."""
    here = command_here(session)
    there = command_there(session, turn.workspace_path if turn else None)
    # The other agent has not seen the turns that were recorded here.
    if there is None or turn is None or not turn.projected:
        return [("the command", here)]
    return [("the command", there), ("the command for Agents Ledger", here)]


def _chosen(window: CardWindow, turn_id: str) -> Card | None:
    """The card of a turn, by the first characters of its id; otherwise the last card."""
    matches = [c for c in window.cards if turn_id and c.turn.id.startswith(turn_id.upper())]
    matches = matches or [card for card in window.cards if card.turn.id == turn_id]
    return matches[0] if matches else (window.cards[-1] if window.cards else None)


def tail_cards(
    site: Site, session: Session, window: CardWindow
) -> tuple[tuple[Card, str | None], ...]:
    """What stands below the thread of a session: an attempt to continue it that failed, and the
    turns being written, with their text so far."""
    failed = _failed_attempt(site, session, window)
    cards: list[tuple[Card, str | None]] = []
    if failed:
        cards.append((card_of(site.ledger, site.ledger.get_turn(failed)), None))
    for turn_id in site.ledger.live_turns(session.label):
        try:
            turn = site.ledger.get_turn(turn_id)
            partial = site.ledger.partial_text(turn_id)
        except LedgerError:  # it has just ended
            continue
        if turn.status not in SEALED:
            cards.append((card_of(site.ledger, turn), partial))
    return tuple(cards)


def _shown(site: Site, label: str) -> Session:
    session = site.ledger.session(decode_part(label))
    site.ledger.check_shown(session.label)
    return session


def _failed_attempt(site: Site, session: Session, window: CardWindow) -> str | None:
    """The latest turn below the head of a session, if it failed. A head does not move to it, and
    what was asked would be out of sight."""
    if window.cards:
        below = [line.turn for line in window.cards[-1].continues]
        latest = max(below, key=lambda turn: turn.started_at, default=None)
        is_attempt = latest and latest.status == "failed" and not latest.projected
        return latest.id if latest and is_attempt else None
    if site.broker is None or session.thread_id:
        return None
    entries = Queue(site.ledger).entries(session.label, everything=True)
    return entries[-1].turn_id if entries and entries[-1].status == "failed" else None


@get("/s/{label:str}/head", sync_to_thread=True)
def head_fragment(request: WebRequest, site: ThisSite, label: FromPath[str]) -> Response[str]:
    """The header and the tree of a thread's page, as they are now."""
    with site.pages.snapshot():
        session = _shown(site, label)
        thread = site.ledger.thread(session.label, last=0)
        rows = rail(site, thread)
        values = _head_values(site, request, session, thread, rows)
    return site.page(
        "thread_head.html", request, rows=rows, session=session, thread=thread, **values
    )


@get("/s/{label:str}/cards", sync_to_thread=True)
def cards_fragment(
    request: WebRequest, site: ThisSite, label: FromPath[str], upto: FromQuery[int | None] = None
) -> Response[str]:
    """Cards of a thread up to a depth, for its own page or that of the session that spawned it."""
    session = _shown(site, label)
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.ledger, session.label, thread.depth, upto or thread.depth)
    return site.page("cards.html", request, window=window, live=())


@get("/s/{label:str}/news", sync_to_thread=True)
def news_fragment(
    request: WebRequest, site: ThisSite, label: FromPath[str], after: FromQuery[int]
) -> Response[str]:
    session = _shown(site, label)
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.ledger, session.label, thread.depth, thread.depth, below=max(0, after))
    running = [line.turn for line in running_turns(site, request, session.label)]
    return site.page(
        "cards.html",
        request,
        window=with_running_calls(window, running),
        live=tail_cards(site, session, window),
    )


ROUTES = (session_page, turn_page, fork, head_fragment, cards_fragment, news_fragment)
