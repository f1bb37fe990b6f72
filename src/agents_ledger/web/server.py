"""The application: its routes, and what happens when one fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from anyio import CapacityLimiter, to_thread
from litestar import Litestar, Request, Response, Router
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import (
    ClientException,
    InternalServerException,
    PermissionDeniedException,
)
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.serialization import decode_json
from litestar.types import ASGIApp

from agents_ledger.broker.broker import Broker
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.text.json_limits import JsonLimits, check_json
from agents_ledger.web import chat, static_files
from agents_ledger.web.admission import Admission, reads_at_once
from agents_ledger.web.api import changes, reports, sessions
from agents_ledger.web.errors import SERVER_FAULT, problem_of
from agents_ledger.web.pages import export, forms, home, pages, search, tree, usage
from agents_ledger.web.security import SAFE, Door, Guard, Policy
from agents_ledger.web.site import Site

BODY_MAX = 1 << 20
JSON_LIMITS = JsonLimits()
THREADS = 64
JSON_SLOTS = 2  # bodies checked or decoded at once: they must not take every thread
API = (*sessions.ROUTES, *reports.ROUTES, *changes.ROUTES, *chat.ROUTES)
HTML = (
    *pages.ROUTES,
    *home.ROUTES,
    *tree.ROUTES,
    *usage.ROUTES,
    *search.ROUTES,
    *export.ROUTES,
    *forms.ROUTES,
    *chat.PAGES,
    *static_files.ROUTES,
)

_log = logging.getLogger("agents_ledger.web")


class LimitedRequest(Request[Any, Any, State]):
    """A request whose JSON is checked before it is decoded, and decoded off the event loop."""

    async def body(self) -> bytes:
        """The body. A client that leaves, or is too slow, is no failure of the server."""
        try:
            return await super().body()
        except InternalServerException as error:
            raise ClientException("the request was not sent whole") from error

    async def json(self) -> Any:
        """The body as plain values."""
        return await to_thread.run_sync(
            _decode,
            await self.body(),
            self.app.state["json_limits"],
            limiter=self.app.state["json_slots"],
        )


def _decode(body: bytes, limits: JsonLimits) -> Any:
    check_json(body, limits)
    return decode_json(body)


def make(
    ledger: Ledger,
    door: Door,
    policy: Policy,
    *,
    with_broker: bool = False,
    json_limits: JsonLimits = JSON_LIMITS,
) -> ASGIApp:
    """The server's application, with its guard before it."""
    site = Site(ledger)

    @asynccontextmanager
    async def broker(_: Litestar) -> AsyncIterator[None]:
        async with Broker.open(ledger.address) as opened:
            site.broker = opened
            yield

    @asynccontextmanager
    async def keeping(_: Litestar) -> AsyncIterator[None]:
        # Mostly they wait: for their turn to write, or for a slow question to be answered.
        threads = ThreadPoolExecutor(THREADS, "agents-ledger-web")
        asyncio.get_running_loop().set_default_executor(threads)
        site.start()
        yield
        await asyncio.to_thread(site.keeper.stop)

    site.warm_up()
    app = Litestar(
        route_handlers=[
            Router("/", route_handlers=HTML, include_in_schema=False),
            Router("/api/v1", route_handlers=API),
        ],
        dependencies={"site": Provide(lambda: site, sync_to_thread=False)},
        guards=[_has_scope],
        exception_handlers={Exception: _fail},
        request_max_body_size=BODY_MAX,
        openapi_config=OpenAPIConfig(
            title="Agents Ledger",
            version="1",
            path="/api/openapi",
            render_plugins=[JsonRenderPlugin(path="/v1.json")],
        ),
        lifespan=[keeping, broker] if with_broker else [keeping],
        logging_config=None,
        request_class=LimitedRequest,
        state=State(
            {
                "site": site,
                "json_limits": json_limits,
                "json_slots": CapacityLimiter(JSON_SLOTS),
            }
        ),
    )
    admission = Admission(app, reads_at_once(ledger.backend))
    return Guard(admission, door, policy)


async def _has_scope(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Every request needs a token that allows what its route does.

    It awaits nothing, but a plain function would be run in a thread, for every request.
    """
    if handler.opt.get("public"):
        return
    method = connection.scope.get("method", "GET")
    needed = handler.opt.get("scope") or ("read" if method in SAFE else "write")
    enough = handler.opt.get("scopes") or (needed,)
    token = connection.scope["state"].get("token")
    if token is None or not any(map(token.may, enough)):
        names = " or ".join(map(repr, enough))
        raise PermissionDeniedException(f"this needs a token with the scope {names}")


def _fail(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    status, problem = problem_of(error)
    if status >= SERVER_FAULT:
        _log.error("%s %s failed", request.method, request.scope["path"], exc_info=error)
    if request.scope["path"].startswith("/api/"):
        return Response(msgspec.to_builtins(problem), status_code=status)
    site: Site | None = request.app.state.get("site")
    if site is None:
        return Response(problem.message, status_code=status, media_type="text/plain")
    return site.page("error.html", request, status=status, problem=problem, title="Error")
