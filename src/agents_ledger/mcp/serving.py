"""Serve MCP on standard input and output, or over HTTP with access tokens."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agents_ledger.asgi.bodies import read_body, replay
from agents_ledger.asgi.limits import ClientBuckets, RateLimits
from agents_ledger.asgi.read_timeouts import TimedH11Protocol
from agents_ledger.asgi.revocation import RevocableExchange, StreamLease, StreamWatch
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.mcp.server import build
from agents_ledger.model.access import Token
from agents_ledger.model.text.json_limits import JsonLimits, JsonTooLarge, check_json

PATH = "/mcp"
BODY_MAX = 4 << 20
DEFAULT_RATES = RateLimits()
DEFAULT_JSON_LIMITS = JsonLimits()
TOKEN_KEY = "agents_ledger.token"  # noqa: S105 - a key, not a secret


def serve_stdio(ledger: Ledger, *, write: bool, every: bool = False) -> None:
    """Serve the program that started us until it closes stdin."""

    async def serve() -> None:
        server = build(ledger, write=write, every=every)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve)


class _HttpRefusal(NamedTuple):
    status: int
    message: str


_NO_TOKEN = _HttpRefusal(401, "a valid token is required: Authorization: Bearer ...")
_NO_READ = _HttpRefusal(403, "this token lacks the scope read")
_TOO_MANY_REQUESTS = _HttpRefusal(429, "too many requests: retry in a second")
_TOO_MANY_TOKENS = _HttpRefusal(429, "too many invalid tokens: retry in a second")
_TOO_LARGE = _HttpRefusal(413, f"the request exceeds {BODY_MAX:,} bytes")


class _TokenGuard:
    """ASGI middleware that requires a valid token and stores it in the scope of the request."""

    def __init__(
        self, app: ASGIApp, tokens: Tokens, rates: RateLimits, json_limits: JsonLimits
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._json_limits = json_limits
        self._rate = ClientBuckets(rates.burst, rates.per_second)
        self._invalid = ClientBuckets(rates.wrong_tokens, 1.0)
        self._streams = StreamWatch(tokens.valid_ids)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        admitted = await self._admit(Request(scope))
        if isinstance(admitted, Token):
            await self._pass(admitted, scope, receive, send)
        else:
            await _refuse(admitted, scope, receive, send)

    async def _admit(self, request: Request) -> Token | _HttpRefusal:
        client = request.client.host if request.client else "?"
        if not self._rate.take(client):
            return _TOO_MANY_REQUESTS
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            return _NO_TOKEN
        # Looked up for every request: a revoked token is refused from the next one on.
        token = await anyio.to_thread.run_sync(self._tokens.find, secret.strip())
        if token is None:
            return _NO_TOKEN if self._invalid.take(client) else _TOO_MANY_TOKENS
        return token if token.may("read") else _NO_READ

    async def _pass(self, token: Token, scope: Scope, receive: Receive, send: Send) -> None:
        scope[TOKEN_KEY] = token
        if scope["method"] == "POST":
            # Read before the SDK sees it: size and JSON are limited as on the web server.
            body, _ = await read_body(receive, BODY_MAX)
            refusal = await self._check_body(body)
            if refusal is not None:
                await _refuse(refusal, scope, receive, send)
                return
            receive = replay(body, receive)
        exchange = RevocableExchange(
            self._streams, StreamLease(token.id, lambda: True), receive, send
        )
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            await exchange.close()

    async def _check_body(self, body: bytes) -> _HttpRefusal | None:
        if len(body) > BODY_MAX:
            return _TOO_LARGE
        try:
            await anyio.to_thread.run_sync(check_json, body, self._json_limits)
        except JsonTooLarge as error:
            return _HttpRefusal(413, f"{error}. {error.hint}")
        return None


async def _refuse(refusal: _HttpRefusal, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status in (401, 403) else {}
    if refusal in (_TOO_MANY_REQUESTS, _TOO_MANY_TOKENS):
        headers = {"Retry-After": "1"}
    response = PlainTextResponse(f"{refusal.message}\n", refusal.status, headers)
    await response(scope, receive, send)


def token_of(ctx: Any) -> Token | None:
    """The token that the guard stored for a request."""
    token = ctx.request.scope.get(TOKEN_KEY) if ctx.request is not None else None
    return token if isinstance(token, Token) else None


def serve_http(
    ledger: Ledger, sock: socket.socket, *, write: bool, every: bool = False, hosts: Sequence[str]
) -> None:
    """Serve clients with a token until interrupted."""
    config = uvicorn.Config(
        http_app(ledger, write=write, every=every, hosts=hosts),
        http=TimedH11Protocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[sock])


def http_app(
    ledger: Ledger,
    *,
    write: bool,
    every: bool = False,
    hosts: Sequence[str],
    rates: RateLimits = DEFAULT_RATES,
    json_limits: JsonLimits = DEFAULT_JSON_LIMITS,
) -> ASGIApp:
    """The server as an ASGI application at /mcp, for requests to one of the hosts."""
    server = build(ledger, write=write, every=every, token_of=token_of)
    allowed = [f"{host}:*" for host in hosts] + list(hosts)
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=True,
            allowed_hosts=allowed,
            allowed_origins=[
                f"{scheme}://{host}" for scheme in ("http", "https") for host in allowed
            ],
        ),
    )
    return _TokenGuard(app, ledger.tokens, rates, json_limits)
