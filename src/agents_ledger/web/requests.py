"""What every handler needs of a request."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from litestar import Request
from litestar.datastructures import State
from litestar.exceptions import PermissionDeniedException

from agents_ledger.ledger.search.routing import parse
from agents_ledger.model.access import Scope
from agents_ledger.model.sessions import DEFAULT_PERSONA

WebRequest = Request[Any, Any, State]


def decode_part(part: str) -> str:
    """A percent-decoded part of a path. The guard leaves paths encoded: labels may hold a slash."""
    try:
        return unquote(part, errors="surrogatepass")
    except UnicodeDecodeError:
        return unquote(part, errors="replace")


def check_persona(request: WebRequest, persona_id: str, own: str | None) -> None:
    """Refuse a persona that a session does not have already, except to an administrator: the
    policy grants tools by persona."""
    token = request.scope["state"]["token"]
    if persona_id != own and not token.may("admin"):
        raise _persona_denied(persona_id)


def check_turn_scope(request: WebRequest, scope: Scope, persona_id: str | None) -> None:
    """Refuse to write a turn of this persona if that needs a scope that the token lacks."""
    if not request.scope["state"]["token"].may(scope):
        raise _persona_denied(persona_id)


def _persona_denied(persona_id: str | None) -> PermissionDeniedException:
    return PermissionDeniedException(
        f"choosing the persona {persona_id!r} needs a token with the scope 'admin'"
    )


def check_target(request: WebRequest, target: str) -> None:
    """Refuse to choose a persona: a chat with `persona:NAME` creates a session with it."""
    parsed = parse(target)
    if parsed.kind == "persona":
        check_persona(request, parsed.value, DEFAULT_PERSONA)
