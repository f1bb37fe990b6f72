"""The list of sessions, and the history of one session's head."""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.sessions import Session
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import ThisSite

PER_PAGE = 50
DAY_MS = 86_400_000
DIGITS_MAX = 18
STATUSES = ("active", "archived", "deleted")


@get("/sessions", sync_to_thread=True)
def sessions_page(
    request: WebRequest,
    site: ThisSite,
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
    lines = site.session_lines(
        status=status if status in STATUSES else None,
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
    filters = {
        "q": q, "origin": origin, "project": project, "persona": persona, "model": model,
        "status": "" if status == "active" else status, "since": since or "",
        "days": days or "",
        "starred": "true" if starred else "", "subagents": "true" if subagents else "",
    }  # fmt: skip
    has_more = len(lines) > PER_PAGE
    lines = lines[:PER_PAGE]
    return site.page(
        "sessions.html",
        request,
        title="Sessions",
        lines=lines,
        commands=None,
        filters=filters,
        choices=site.choices(),
        next_after=_cursor(lines[-1].session) if has_more else "",
    )


def _after(cursor: str) -> Session | None:
    at, _, label = cursor.partition(":")
    if not at.isdecimal() or len(at) > DIGITS_MAX:
        return None
    return Session(label, updated_at=int(at))


def _cursor(session: Session) -> str:
    return f"{session.updated_at}:{session.label}"


@get("/s/{label:str}/history", sync_to_thread=True)
def history_page(
    request: WebRequest, site: ThisSite, label: FromPath[str], before: FromQuery[str | None] = None
) -> Response[str]:
    session = site.ledger.session(decode_part(label))
    moves = site.ledger.history(session.label, limit=PER_PAGE + 1, before=before)
    heads = [move.thread_id for move in moves if move.thread_id]
    headlines = {line.turn.id: line for line in site.ledger.headlines(dict.fromkeys(heads))}
    return site.page(
        "history.html",
        request,
        title=f"History of {site.name_of(session, site.ledger.thread(session.label, last=0))}",
        session=session,
        moves=moves[:PER_PAGE],
        older=moves[PER_PAGE - 1].cursor if len(moves) > PER_PAGE else None,
        before_last=moves[PER_PAGE].thread_id if len(moves) > PER_PAGE else None,
        headlines=headlines,
        aliases=site.ledger.aliases(session.label),
        imported=site.pages.imported_as(session.label),
    )


ROUTES = (sessions_page, history_page)
