"""What every request must pass: host, rate, token, origin. And the headers of every answer.

A page of another site may send requests to this machine, or be given its address by a forged name
server. So only known hosts are answered, a token is asked for reading too, and what changes
something must come from our own pages or carry its token in a header.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from anyio import to_thread
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec import Struct

from agents_ledger.model.access import SCOPES, Token
from agents_ledger.model.errors import Locked
from agents_ledger.web.errors import answer_plainly

SAFE = ("GET", "HEAD", "OPTIONS")
FORM = "application/x-www-form-urlencoded"
FORM_MAX = 256 * 1024
CLIENTS_MAX = 1024
TOKEN_LIVES_S = 30 * 86400  # of the cookie

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self';"
        b" connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: browsers then hide the origin of our own forms from us.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class Policy(Struct, frozen=True, kw_only=True):
    """How careful a server is."""

    hosts: frozenset[str]  # as they stand in a Host header, port included
    is_https: bool = False
    cookie: str = "agents_ledger"
    burst: int = 600  # requests at once, per client
    per_second: float = 200.0
    wrong_tokens: int = 20  # at once, per client; then one a second

    @property
    def origins(self) -> frozenset[str]:
        """The origins of our own pages."""
        scheme = "https" if self.is_https else "http"
        return frozenset(f"{scheme}://{host}" for host in self.hosts)


class Buckets:
    """A leaky bucket per client."""

    def __init__(self, size: int, per_second: float) -> None:
        self._size = size
        self._per_second = per_second
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> bool:
        """Whether the client may go on."""
        now = time.monotonic()
        level, at = self._levels.pop(client, (0.0, now))
        level = max(0.0, level - (now - at) * self._per_second)
        allowed = level < self._size
        self._levels[client] = (level + allowed, now)
        while len(self._levels) > CLIENTS_MAX:
            self._levels.popitem(last=False)
        return allowed


class Request:
    """What is asked, as far as safety goes."""

    def __init__(self, scope: Any) -> None:
        self.method: str = scope["method"]
        self.path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.path = self.path.partition("?")[0]
        self.query: str = scope["query_string"].decode("latin-1")
        self.client = str((scope.get("client") or ["?"])[0])
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.is_api = self.path.startswith("/api/")

    def cookie(self, name: str) -> str:
        """The value of a cookie, or nothing."""
        try:
            found = SimpleCookie(self.headers.get("cookie", "")).get(name)
        except CookieError:
            return ""
        return found.value if found else ""

    @property
    def bearer(self) -> str:
        """The token in the header."""
        scheme, _, secret = self.headers.get("authorization", "").partition(" ")
        return secret.strip() if scheme.lower() == "bearer" else ""

    def token_in_query(self) -> tuple[str, str]:
        """The token in the address, and the address without it."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        secret = next((value for name, value in pairs if name == "token"), "")
        rest = urlencode([pair for pair in pairs if pair[0] != "token"])
        return secret, f"{self.path}?{rest}" if rest else self.path


class Door:
    """Knows who holds which token: the one of this run, or one of the ledger's."""

    def __init__(
        self,
        run_secret: str,
        find: Callable[[str], Token | None],
        find_at_once: Callable[[str], Token | None],
    ) -> None:
        self._run_secret = run_secret
        self._find = find
        self._find_at_once = find_at_once
        self._run_token = Token("run", "this run", SCOPES, 0)

    async def token(self, secret: str) -> Token | None:
        """The token of a secret, if it is valid."""
        if not secret:
            return None
        if hmac.compare_digest(secret.encode(), self._run_secret.encode()):
            return self._run_token
        try:
            return self._find_at_once(secret)  # quicker than to ask a thread for it
        except Locked:
            return await to_thread.run_sync(self._find, secret)


def csrf_of(secret: str) -> str:
    """What our own forms carry: known to who holds the token, and useless without it."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


class Guard:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, door: Door, policy: Policy) -> None:
        self._app = app
        self._door = door
        self._policy = policy
        self._rate = Buckets(policy.burst, policy.per_second)
        self._wrong = Buckets(policy.wrong_tokens, 1.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let it pass."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        send = with_headers(send)
        refusal = self._refused_at_once(request)
        if refusal is None and request.path.startswith("/static/"):
            await self._pass(scope, receive, send, request)
        elif refusal is not None:
            await answer_plainly(send, request.is_api, *refusal)
        else:
            await self._admit(scope, receive, send, request)

    def _refused_at_once(self, request: Request) -> tuple[int, str, str] | None:
        if request.headers.get("host", "").lower() not in self._policy.hosts:
            return 421, "this server does not answer to that host", "Use the address it printed."
        if not self._rate.take(request.client):
            return 429, "too many requests", "Wait a second."
        origin = request.headers.get("origin")
        if origin is not None and origin not in self._policy.origins:
            return 403, "requests from other sites are refused", ""
        if request.method not in SAFE and request.headers.get("sec-fetch-site") == "cross-site":
            return 403, "requests from other sites are refused", ""
        return None

    async def _admit(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        if request.method == "GET" and not request.is_api and "token=" in request.query:
            await self._let_in(send, request)
            return
        secret = request.bearer or request.cookie(self._policy.cookie)
        token = await self._door.token(secret)
        if token is None:
            wrong = bool(secret) and not self._wrong.take(request.client)
            await answer_plainly(send, request.is_api, *(_TOO_MANY if wrong else _NO_TOKEN))
            return
        if request.method not in SAFE and not request.bearer:
            receive, matches = await _csrf(receive, request, csrf_of(secret))
            if not matches:
                await answer_plainly(send, request.is_api, *_NO_CSRF)
                return
        scope["state"].update(token=token, csrf=csrf_of(secret))
        await self._pass(scope, receive, send, request)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, request: Request) -> None:
        # Labels may hold a slash: routes see the path as it was sent.
        scope["path"] = request.path
        await self._app(scope, receive, send)

    async def _let_in(self, send: Send, request: Request) -> None:
        """Turn the token of an address into a cookie, and leave it out of the address."""
        secret, clean = request.token_in_query()
        if await self._door.token(secret) is None:
            refusal = _NO_TOKEN if self._wrong.take(request.client) else _TOO_MANY
            await answer_plainly(send, False, *refusal)
            return
        cookie = f"{self._policy.cookie}={secret}; Path=/; HttpOnly; SameSite=Strict"
        cookie += f"; Max-Age={TOKEN_LIVES_S}" + ("; Secure" if self._policy.is_https else "")
        # One slash only: two would lead to another host.
        where = "/" + clean.lstrip("/")
        headers = [
            (b"location", where.encode("latin-1")),
            (b"set-cookie", cookie.encode("latin-1")),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": 303, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


_NO_TOKEN = (401, "a token is needed", "Open the address that `agents-ledger serve` printed.")
_TOO_MANY = (429, "too many wrong tokens", "Wait a minute.")
_NO_CSRF = (403, "this request does not come from our own page", "Load the page again.")


async def _csrf(receive: Receive, request: Request, wanted: str) -> tuple[Receive, bool]:
    """Whether a request carries what only our own pages know. A form has it in its body."""
    given = request.headers.get("x-csrf-token", "")
    if given or not request.headers.get("content-type", "").startswith(FORM):
        return receive, hmac.compare_digest(given, wanted)
    body = b""
    more = True
    while more and len(body) <= FORM_MAX:
        message: Any = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if more:
        return receive, False
    given = dict(parse_qsl(body.decode("utf-8", "replace"))).get("csrf", "")
    sent = False

    async def again() -> Any:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again, hmac.compare_digest(given.encode(), wanted.encode())


def with_headers(send: Send) -> Send:
    """Send every answer with the headers that make it harmless."""

    async def careful(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _ in given}
            given += [header for header in HEADERS if header[0] not in names]
            if b"cache-control" not in names:
                given.append((b"cache-control", b"private, no-cache"))
            message["headers"] = given
        await send(message)

    return careful
