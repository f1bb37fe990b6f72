"""Forms of the pages. They work without scripts, and redirect to a page."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final

from litestar import get, post
from litestar.exceptions import ClientException
from litestar.params import FromPath, FromQuery, URLEncodedBody
from litestar.response import Redirect

from agents_ledger.model.access import RUN_TOKEN
from agents_ledger.model.errors import Refused
from agents_ledger.model.imports.resuming import command_there
from agents_ledger.model.installation import terminal
from agents_ledger.web.formats import session_url, turn_url
from agents_ledger.web.requests import WebRequest, check_target, decode_part
from agents_ledger.web.site import ThisSite

TEXT_MAX = 20_000
MESSAGE_MAX = 200_000
SEE_OTHER: Final = 303
FORWARDED = {"forwarded", "x-forwarded-for", "x-forwarded-host"}  # by a proxy, for somebody else

Form = URLEncodedBody[dict[str, str]]


@post("/s/{label:str}/annotate", sync_to_thread=True, status_code=SEE_OTHER)
def annotate(site: ThisSite, label: FromPath[str], data: Form) -> Redirect:
    changes: dict[str, Any] = {
        name: data[name].strip()[:TEXT_MAX] or None for name in ("title", "note") if name in data
    }
    if "starred" in data:
        changes["starred"] = data["starred"] == "true"
    session = site.ledger.annotate(decode_part(label), **changes)
    return Redirect(session_url(session.label), status_code=SEE_OTHER)


@post("/s/{label:str}/status", sync_to_thread=True, status_code=SEE_OTHER)
def set_status(site: ThisSite, label: FromPath[str], data: Form) -> Redirect:
    status = data.get("status", "")
    if status not in ("active", "archived"):
        raise Refused(f"unknown status {status!r}", "Choose active or archived.")
    session = site.ledger.archive(decode_part(label), status)  # type: ignore[arg-type]
    # Undoing a fork leads back to its turn, in the session that it was forked from.
    is_undone = "undo" in data and session.thread_id is not None
    place = turn_url(str(session.thread_id)) if is_undone else session_url(session.label)
    return Redirect(place, status_code=SEE_OTHER)


@post("/s/{label:str}/undo", sync_to_thread=True, status_code=SEE_OTHER)
def undo(site: ThisSite, label: FromPath[str], data: Form) -> Redirect:
    session = site.ledger.undo(decode_part(label))
    return Redirect(session_url(session.label, "history"), status_code=SEE_OTHER)


@get("/s/{label:str}/as-of", sync_to_thread=False)
def as_of(label: FromPath[str], when: FromQuery[str]) -> Redirect:
    try:
        moment = datetime.fromisoformat(when)
    except ValueError as error:
        raise Refused(f"{when!r} is not a valid time", "Write 2026-03-01T12:30.") from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    at = max(0, int(moment.timestamp() * 1000))
    return Redirect(session_url(decode_part(label), at=at), status_code=SEE_OTHER)


@post("/imports/run", sync_to_thread=True, status_code=SEE_OTHER, opt={"scope": "import"})
def run_import(site: ThisSite, data: Form) -> Redirect:
    site.imports.start_all()
    return Redirect("/imports", status_code=SEE_OTHER)


@post("/s/{label:str}/chat", status_code=SEE_OTHER, opt={"scope": "chat"})
async def send_message(
    request: WebRequest, site: ThisSite, label: FromPath[str], data: Form
) -> Redirect:
    """Send a message to a session. Its page shows the answer while it is written."""
    text = data.get("text", "").strip()
    if not text or len(text) > MESSAGE_MAX:
        raise ClientException(f"a message must have 1 to {MESSAGE_MAX:,} characters")
    key = decode_part(label)
    check_target(request, key)
    await site.required_broker().enqueue(key, text)
    return Redirect(session_url(key), status_code=SEE_OTHER)


@post("/s/{label:str}/stop", status_code=SEE_OTHER, opt={"scopes": ("write", "chat")})
async def stop_turn(site: ThisSite, label: FromPath[str], data: Form) -> Redirect:
    """Stop the turn that the broker runs on a session; the text so far is kept."""
    key = decode_part(label)
    await site.required_broker().cancel(key)
    return Redirect(session_url(key), status_code=SEE_OTHER)


def can_open_terminal(request: WebRequest) -> bool:
    """Whether the reader is the one who started the server, on this machine with a terminal."""
    if request.scope["state"]["token"] != RUN_TOKEN or FORWARDED & set(request.headers):
        return False
    try:
        is_here = ip_address(request.client.host if request.client else "").is_loopback
    except ValueError:
        is_here = False
    return is_here and terminal.can_open()


@post("/s/{label:str}/terminal", sync_to_thread=True, status_code=SEE_OTHER, opt={"scope": "admin"})
def open_terminal(
    request: WebRequest, site: ThisSite, label: FromPath[str], data: Form
) -> Redirect:
    """Open a terminal in which the agent of a session continues it."""
    session = site.ledger.session(decode_part(label))
    head = site.head_of(site.ledger.thread(session.label, last=0))
    line = command_there(session, head.workspace_path if head else None)
    if line is None or not can_open_terminal(request):
        raise Refused(
            "a terminal opens only for who started the server, on the same machine, and for a"
            " session that its agent can continue",
            "Copy the command, and run it in a terminal.",
        )
    terminal.open_terminal(line)
    return Redirect(session_url(session.label), status_code=SEE_OTHER)


ROUTES = (
    annotate, set_status, undo, as_of, run_import, send_message, stop_turn, open_terminal,
)  # fmt: skip
