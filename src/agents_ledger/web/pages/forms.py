"""What pages change: each is a form that works without scripts, and leads back to a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from litestar import get, post
from litestar.params import FromPath, FromQuery, URLEncodedBody
from litestar.response import Redirect

from agents_ledger.model.errors import Refused
from agents_ledger.web.formats import session_url
from agents_ledger.web.site import Here, named

TEXT_MAX = 20_000
SEE_OTHER: Final = 303

Form = URLEncodedBody[dict[str, str]]


@post("/s/{label:str}/annotate", sync_to_thread=True, status_code=SEE_OTHER)
def annotate(site: Here, label: FromPath[str], data: Form) -> Redirect:
    """Change a session's title, note or star."""
    changes: dict[str, Any] = {
        name: data[name].strip()[:TEXT_MAX] or None for name in ("title", "note") if name in data
    }
    if "starred" in data:
        changes["starred"] = data["starred"] == "true"
    session = site.ledger.annotate(named(label), **changes)
    return Redirect(session_url(session.label), status_code=SEE_OTHER)


@post("/s/{label:str}/status", sync_to_thread=True, status_code=SEE_OTHER)
def set_status(site: Here, label: FromPath[str], data: Form) -> Redirect:
    """Archive a session, or make it active again."""
    status = data.get("status", "")
    if status not in ("active", "archived"):
        raise Refused(f"a session is made active or archived, not {status!r}")
    session = site.ledger.archive(named(label), status)  # type: ignore[arg-type]
    return Redirect(session_url(session.label), status_code=SEE_OTHER)


@post("/t/{turn:str}/fork", sync_to_thread=True, status_code=SEE_OTHER)
def fork(site: Here, turn: FromPath[str], data: Form) -> Redirect:
    """A new session at a turn, or before it."""
    label = data.get("label", "").strip() or None
    before = data.get("before") == "true"
    session = site.ledger.fork(named(turn), label=label, before=before)
    return Redirect(session_url(session.label, forked="true"), status_code=SEE_OTHER)


@post("/s/{label:str}/undo", sync_to_thread=True, status_code=SEE_OTHER)
def undo(site: Here, label: FromPath[str], data: Form) -> Redirect:
    """Point a session to where it was before its last move."""
    session = site.ledger.undo(named(label))
    return Redirect(session_url(session.label, "history"), status_code=SEE_OTHER)


@get("/s/{label:str}/as-of", sync_to_thread=False)
def as_of(label: FromPath[str], when: FromQuery[str]) -> Redirect:
    """The page of a session as it was at a time."""
    try:
        moment = datetime.fromisoformat(when)
    except ValueError as error:
        raise Refused(f"{when!r} is no time", "Write 2026-03-01T12:30.") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    at = max(0, int(moment.timestamp() * 1000))
    return Redirect(session_url(named(label), at=at), status_code=SEE_OTHER)


@post("/imports/run", sync_to_thread=True, status_code=SEE_OTHER, opt={"scope": "import"})
def run_import(site: Here, data: Form) -> Redirect:
    """Import what agents left on this machine, without making the page wait."""
    site.start_import()
    return Redirect("/imports", status_code=SEE_OTHER)


ROUTES = (annotate, set_status, fork, undo, as_of, run_import)
