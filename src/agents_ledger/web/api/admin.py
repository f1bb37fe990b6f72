"""The HTTP API of administration: tokens, the audit and the Agent Bus."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response, post
from litestar.exceptions import PermissionDeniedException
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from agents_ledger.bus.bus import ScopeMissing
from agents_ledger.model.access import SCOPES, Scope, Token
from agents_ledger.model.sessions import Finding
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.responses import (
    ERRORS,
    NUMBER_MAX,
    OK,
    TURN_BODY_MAX,
    answer,
    as_json,
    creates,
    reads,
    removes,
)
from agents_ledger.web.site import ThisSite


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to create."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)] = ("read",)
    expires_at: Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | None = None


class CreatedToken(Struct, frozen=True):
    """A new token. Its secret is shown only here."""

    token: Token
    secret: str


class AuditFindings(Struct, frozen=True):
    """Everything that breaks a rule; empty if all rules hold."""

    findings: list[Finding]


@reads("/audit")
def get_audit(request: WebRequest, site: ThisSite) -> Response[AuditFindings]:
    """Everything that breaks a rule of the ledger. The check reads the whole ledger."""
    return answer(AuditFindings(list(site.ledger.audit())), request)


@post(
    "/bus/{ability:str}",
    sync_to_thread=True,
    responses=ERRORS,
    status_code=OK,
    request_max_body_size=TURN_BODY_MAX,
    opt={"scopes": SCOPES},
)
def invoke(
    request: WebRequest, site: ThisSite, ability: FromPath[str], data: JSONBody[dict[str, Any]]
) -> Response[dict[str, Any]]:
    """Invoke an ability of the Agent Bus; it needs the scope of the ability. The response reports
    success or failure."""
    token: Token = request.scope["state"]["token"]
    result = site.bus.try_invoke(decode_part(ability), as_json(data), may=token.may)
    if result.error and result.error["details"].get("kind") == ScopeMissing.__name__:
        raise PermissionDeniedException(result.message or "")
    return answer(msgspec.to_builtins(result))


@reads("/tokens", opt={"scope": "admin"})
def list_tokens(site: ThisSite) -> Response[list[Token]]:
    """Every token, without its secret."""
    return answer(list(site.ledger.tokens.all()))


@creates("/tokens", scope="admin")
def create_token(site: ThisSite, data: JSONBody[NewToken]) -> Response[CreatedToken]:
    """Create a token."""
    token, secret = site.ledger.tokens.create(data.name, data.scopes, expires_at=data.expires_at)
    return answer(CreatedToken(token, secret))


@removes("/tokens/{token:str}", scope="admin")
def revoke_token(site: ThisSite, token: FromPath[str]) -> Response[Token]:
    """Revoke a token. This cannot be undone."""
    return answer(site.ledger.tokens.revoke(decode_part(token)))


ROUTES = (get_audit, invoke, list_tokens, create_token, revoke_token)
