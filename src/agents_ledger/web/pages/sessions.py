"""The list of sessions, and the history of one session's head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.reports.pages import SessionLine
from agents_ledger.model.reports.usage import SessionUsage
from agents_ledger.model.sessions import Session
from agents_ledger.web.pages.home import running_turns
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import ThisSite

PER_PAGE = 50
BESIDE_MAX = 40
DAY_MS = 86_400_000
DIGITS_MAX = 18
SORTED_MAX = 500  # the latest sessions: only these are read to be sorted
SORTS = ("name", "project", "turns", "tokens", "cost")
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
    sort: FromQuery[str] = "",
    after: FromQuery[str] = "",
) -> Response[str]:
    sort = sort if sort in SORTS else ""
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
        limit=SORTED_MAX if sort else PER_PAGE + 1,
        after=None if sort else _after(after),
    )
    # Costs are computed from the prices of today, so those of all lines are needed to sort by them.
    costs = site.session_usage.get([(line.session, line.depth) for line in lines]) if sort else {}
    if sort:
        lines = _sorted(lines, sort, costs)
    filters = {
        "q": q, "origin": origin, "project": project, "persona": persona, "model": model,
        "status": "" if status == "active" else status, "since": since or "",
        "days": days or "",
        "starred": "true" if starred else "", "subagents": "true" if subagents else "",
    }  # fmt: skip
    has_filters = any(filters.values())
    filters["sort"] = sort
    has_more = len(lines) > PER_PAGE and not sort
    lines = lines[:PER_PAGE]
    return site.page(
        "sessions.html",
        request,
        title="Sessions",
        lines=lines,
        running=running_turns(site, request),
        running_of="",
        commands=None,
        costs=costs or site.session_usage.get([(line.session, line.depth) for line in lines]),
        sorted_max=SORTED_MAX,
        has_filters=has_filters,
        filters=filters,
        after=after,
        choices=site.choices(),
        next_after=_cursor(lines[-1].session) if has_more else "",
    )


@get("/sessions/latest", sync_to_thread=True)
def latest_sessions(
    request: WebRequest, site: ThisSite, beside: FromQuery[str] = ""
) -> Response[str]:
    """The latest sessions, as a fragment beside the conversation of the session `beside`."""
    lines = site.session_lines(status="active", limit=BESIDE_MAX)
    return site.page("sessions_latest.html", request, lines=lines, beside=beside)


def _sorted(
    lines: tuple[SessionLine, ...], sort: str, costs: Mapping[str, SessionUsage]
) -> tuple[SessionLine, ...]:
    """The largest first, or by name; those of equal value stay in the order of their last turn."""

    def cost(line: SessionLine) -> int:
        usage = costs.get(line.session.label)
        return (usage.total.cost_microdollars or 0) if usage else 0

    keys: dict[str, Callable[[SessionLine], Any]] = {
        "name": lambda line: line.name.casefold(),
        "project": lambda line: (not line.workspace_path, line.workspace_path or ""),
        "turns": lambda line: -line.depth,
        "tokens": lambda line: -line.total_tokens,
        "cost": lambda line: -cost(line),
    }
    return tuple(sorted(lines, key=keys[sort]))


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
        title=f"History of {site.name_of(session)}",
        session=session,
        moves=moves[:PER_PAGE],
        older=moves[PER_PAGE - 1].cursor if len(moves) > PER_PAGE else None,
        before_last=moves[PER_PAGE].thread_id if len(moves) > PER_PAGE else None,
        headlines=headlines,
        aliases=site.ledger.aliases(session.label),
        imported=site.pages.imported_as(session.label),
    )


ROUTES = (sessions_page, latest_sessions, history_page)
