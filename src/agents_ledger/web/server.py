"""The web application: routes, error handling and start-up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import ModuleType
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
    SerializationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.serialization import decode_json
from litestar.types import ASGIApp, ControllerRouterHandler

from agents_ledger.asgi.limits import AuditLimits
from agents_ledger.broker.broker import Broker
from agents_ledger.bus.live_turns import LiveLimits
from agents_ledger.importers.background_import import BackgroundImport
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.text.json_limits import JsonLimits, check_json
from agents_ledger.model.text.unpaired_json import decode_unpaired
from agents_ledger.web import static_files
from agents_ledger.web.admission import Admission, read_slots
from agents_ledger.web.api import (
    admin,
    changes,
    chat,
    imports,
    live_turns,
    redactions,
    reports,
    sessions,
    turns,
)
from agents_ledger.web.errors import SERVER_FAULT, problem_of
from agents_ledger.web.pages import (
    audit,
    compare,
    export,
    files,
    forms,
    home,
    search,
    thread,
    tree,
    turn,
    usage,
)
from agents_ledger.web.pages import imports as import_pages
from agents_ledger.web.pages import sessions as session_pages
from agents_ledger.web.security import SAFE, AccessPolicy, TokenDoor, WebGuard
from agents_ledger.web.site import Site

BODY_MAX = 1 << 20
JSON_LIMITS = JsonLimits()
THREADS = 64
# Bodies checked or decoded at once. Large ones took every worker thread, so that revoking a token
# had to wait.
JSON_SLOTS = 2
_log = logging.getLogger("agents_ledger.web")


def _routes(*modules: ModuleType) -> list[ControllerRouterHandler]:
    return [route for module in modules for route in module.ROUTES]


API = _routes(sessions, turns, live_turns, reports, imports, admin, redactions, chat, changes)
PAGES = _routes(
    home,
    session_pages,
    thread,
    turn,
    tree,
    compare,
    search,
    usage,
    audit,
    import_pages,
    export,
    files,
    forms,
    static_files,
)


class LimitedRequest(Request[Any, Any, State]):
    """A request whose JSON is checked before it is decoded, and decoded off the event loop."""

    async def body(self) -> bytes:
        """The body. A client that disconnects, or is too slow, is not an error of the server."""
        try:
            return await super().body()
        except InternalServerException as error:
            raise ClientException("the request is incomplete") from error

    async def json(self) -> Any:
        return await to_thread.run_sync(
            _decode,
            await self.body(),
            self.app.state["json_limits"],
            limiter=self.app.state["json_slots"],
        )


def _decode(body: bytes, limits: JsonLimits) -> Any:
    # Before decoding: 60 MB of empty lists took 1.5 GB and 9 seconds in the decoder.
    check_json(body, limits)
    try:
        return decode_json(body)
    except UnicodeDecodeError as error:
        raise ClientException("the body is not UTF-8") from error
    except SerializationException as error:
        try:
            return decode_unpaired(body)
        except ValueError:
            raise error from None


def make(
    ledger: Ledger,
    door: TokenDoor,
    policy: AccessPolicy,
    *,
    with_broker: bool = False,
    json_limits: JsonLimits = JSON_LIMITS,
    audits: AuditLimits | None = None,
    imports: BackgroundImport | None = None,
    on_start: Callable[[], None] = lambda: None,
    live: LiveLimits | None = None,
) -> ASGIApp:
    site = Site(ledger, audits, imports, live)

    @asynccontextmanager
    async def broker(_: Litestar) -> AsyncIterator[None]:
        async with Broker.open(ledger.address) as opened:
            site.broker = opened
            yield

    @asynccontextmanager
    async def background(_: Litestar) -> AsyncIterator[None]:
        # Far more than cores: most threads wait for a write lock or a slow query.
        threads = ThreadPoolExecutor(THREADS, "agents-ledger-web")
        asyncio.get_running_loop().set_default_executor(threads)
        site.start()
        on_start()
        yield
        await asyncio.to_thread(site.stop)

    site.warm_up()
    app = Litestar(
        route_handlers=[
            Router("/", route_handlers=PAGES, include_in_schema=False),
            Router("/api/v1", route_handlers=API),
        ],
        dependencies={"site": Provide(lambda: site, sync_to_thread=False)},
        guards=[_has_scope],
        exception_handlers={Exception: _fail},
        # Routes that accept more, such as imports, override this.
        request_max_body_size=BODY_MAX,
        openapi_config=OpenAPIConfig(
            title="Agents Ledger",
            version="1",
            path="/api/openapi",
            render_plugins=[JsonRenderPlugin(path="/v1.json")],
            use_handler_docstrings=True,
            components=Components(
                security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}
            ),
            security=[{"token": []}],
        ),
        lifespan=[background, broker] if with_broker else [background],
        # Litestar would replace the handlers of the root logger.
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
    admission = Admission(app, read_slots(ledger.backend))
    # The guard is outermost: a refused request takes no slot.
    return WebGuard(admission, door, policy)


async def _has_scope(
    connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
) -> None:
    """Refuse a request whose token lacks the scope of the route.

    It awaits nothing, but Litestar would run a plain function in a thread, for every request.
    """
    if handler.opt.get("public"):
        return
    method = connection.scope.get("method", "GET")
    needed = handler.opt.get("scope") or ("read" if method in SAFE else "write")
    sufficient = handler.opt.get("scopes") or (needed,)
    token = connection.scope["state"].get("token")
    if token is None or not any(map(token.may, sufficient)):
        names = " or ".join(map(repr, sufficient))
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
