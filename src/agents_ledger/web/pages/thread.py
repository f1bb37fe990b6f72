"""The page of a thread: its cards, its tree and the inspector."""

from __future__ import annotations

from typing import Any, NamedTuple

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import LedgerError, NotFound
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import SEALED, Turn
from agents_ledger.web.pages.cards import Card, CardWindow, card_of, cards_upto
from agents_ledger.web.pages.tree import rail
from agents_ledger.web.pages.turn import inspect
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

BELOW = 10  # turns below the requested one


class ThreadView(NamedTuple):
    """Which part of a thread is requested."""

    upto: int | None = None  # the depth it ends at; None: the head's
    chosen: str = ""
    tab: str = "overview"
    at: str = ""
    forked: bool = False
    whole: bool = False


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
        values = _thread_values(site, session, target, view)
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
    with site.pages.snapshot():
        chosen = site.ledger.get_turn(decode_part(turn))
        session = None if alone else site.session_of(chosen)
        view = ThreadView(chosen=chosen.id, tab=tab, whole=whole)
        if session is None:
            values = _thread_values(site, None, chosen.id, view)
        else:
            view = view._replace(upto=chosen.depth + BELOW)
            values = _thread_values(site, session, session.label, view)
    return _thread_page(site, request, values)


def _thread_page(site: Site, request: WebRequest, values: dict[str, Any]) -> Response[str]:
    can_chat = site.broker is not None and request.scope["state"]["token"].may("chat")
    return site.page("thread.html", request, can_chat=can_chat, **values)


def _thread_values(
    site: Site, session: Session | None, target: str, view: ThreadView
) -> dict[str, Any]:
    thread = site.ledger.thread(target, last=0)
    window = cards_upto(site.pages, target, thread.depth, view.upto or thread.depth)
    live = live_cards(site, session) if session and window.last_depth == thread.depth else ()
    card = _chosen(window, view.chosen)
    inspector = inspect(site, card.turn, view.tab, whole=view.whole) if card else None
    return dict(
        title=site.name_of(session, thread) if session else f"Turn {thread.turn_id}",
        session=session,
        thread=thread,
        window=window,
        live=live,
        rows=rail(site, thread),
        inspector=inspector,
        at=view.at,
        forked=view.forked,
        commands=commands_of(session, site.head_of(thread)) if session else (),
        is_tail=window.last_depth >= thread.depth,
    )


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


def live_cards(site: Site, session: Session) -> tuple[tuple[Card, str], ...]:
    """The turns that are being written on a session, with their text so far."""
    cards = []
    for turn_id in site.ledger.live_turns(session.label):
        try:
            turn = site.ledger.get_turn(turn_id)
            partial = site.ledger.partial_text(turn_id)
        except LedgerError:  # it has just ended
            continue
        if turn.status not in SEALED:
            cards.append((card_of(turn), partial))
    return tuple(cards)


@get("/s/{label:str}/cards", sync_to_thread=True)
def cards_fragment(
    request: WebRequest, site: ThisSite, label: FromPath[str], upto: FromQuery[int]
) -> Response[str]:
    session = site.ledger.session(decode_part(label))
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.pages, session.label, thread.depth, upto)
    return site.page("cards.html", request, window=window, live=())


@get("/s/{label:str}/news", sync_to_thread=True)
def news_fragment(
    request: WebRequest, site: ThisSite, label: FromPath[str], after: FromQuery[int]
) -> Response[str]:
    session = site.ledger.session(decode_part(label))
    thread = site.ledger.thread(session.label, last=0)
    window = cards_upto(site.pages, session.label, thread.depth, thread.depth)
    new = tuple(card for card in window.cards if card.turn.depth > after)
    window = window._replace(cards=new)
    return site.page("cards.html", request, window=window, live=live_cards(site, session))


ROUTES = (session_page, turn_page, cards_fragment, news_fragment)
