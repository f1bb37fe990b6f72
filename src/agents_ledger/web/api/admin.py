"""The HTTP API of administration: tokens, the audit and the Agent Bus."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from agents_ledger.model.access import Scope, Token
from agents_ledger.model.sessions import Finding
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.responses import NUMBER_MAX, answer, creates, reads, removes
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


@creates("/bus/{ability:str}", scope="admin", status_code=200)
def invoke(
    site: ThisSite, ability: FromPath[str], data: JSONBody[dict[str, Any]]
) -> Response[dict[str, Any]]:
    """Invoke an ability of the Agent Bus. The response reports success or failure."""
    result = site.bus.try_invoke(decode_part(ability), msgspec.json.encode(data))
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
