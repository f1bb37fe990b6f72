"""How the server is reached: over standard input and output, or over HTTP with a token."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from agents_ledger.ledger.access import Tokens
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.mcp.server import build
from agents_ledger.model.access import Token

PATH = "/mcp"
TOKEN = "agents_ledger.token"  # noqa: S105 - a key, not a secret


def serve_stdio(ledger: Ledger, *, write: bool) -> None:
    """Serve the program that started us, until it closes our input."""

    async def serve() -> None:
        server = build(ledger, write=write)
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve)


class _Guard:
    """Lets only requests with a valid token through, and remembers which."""

    def __init__(self, app: ASGIApp, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind, _, secret = Request(scope).headers.get("authorization", "").partition(" ")
        token = None
        if kind.lower() == "bearer" and secret:
            token = await anyio.to_thread.run_sync(self._tokens.find, secret.strip())
        if token is None or not token.may("read"):
            refusal = PlainTextResponse(
                "a valid token is needed: Authorization: Bearer ...\n"
                if token is None
                else "this token may not read\n",
                401 if token is None else 403,
                {"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        scope[TOKEN] = token
        await self._app(scope, receive, send)


def may_write(ctx: Any) -> bool:
    """Whether the token of a request allows changes."""
    token = ctx.request.scope.get(TOKEN) if ctx.request is not None else None
    return isinstance(token, Token) and token.may("write")


def serve_http(ledger: Ledger, sock: socket.socket, *, write: bool, hosts: Sequence[str]) -> None:
    """Serve whoever connects with a token, until interrupted."""
    config = uvicorn.Config(
        http_app(ledger, write=write, hosts=hosts),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )
    uvicorn.Server(config).run(sockets=[sock])


def http_app(ledger: Ledger, *, write: bool, hosts: Sequence[str]) -> ASGIApp:
    """The server as an ASGI application at /mcp, for requests that name one of these hosts."""
    server = build(ledger, write=write, may_write=may_write)
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
    return _Guard(app, Tokens(ledger._core))
