"""The checks that every request passes: host, rate, origin, token, CSRF. And security headers.

A page of another site can send requests to this machine, also under a forged host name (DNS
rebinding). So only known hosts are answered, reading needs a token too, and a request that changes
something must come from our own pages or carry its token in a header.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode

from anyio import to_thread
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from msgspec import Struct

from agents_ledger.asgi.bodies import read_body, replay
from agents_ledger.asgi.limits import ClientBuckets, RateLimits
from agents_ledger.asgi.revocation import IsAlive, RevocableExchange, StreamLease, StreamWatch
from agents_ledger.model.access import RUN_TOKEN, Token
from agents_ledger.model.errors import Locked
from agents_ledger.web.errors import send_error
from agents_ledger.web.logins import Logins

SAFE = ("GET", "HEAD", "OPTIONS")
FORM = "application/x-www-form-urlencoded"
FORM_MAX = 256 * 1024
LOGIN = "/login"
_PORT = re.compile(r":[0-9]{1,5}\Z")

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self';"
        b" connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none';"
        b" frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: browsers then hide the origin of our own forms from us.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class AccessPolicy(Struct, frozen=True, kw_only=True):
    hosts: frozenset[str]  # values of the Host header, with the port
    names: frozenset[str] = frozenset()  # host names with any port: that of a proxy, or none
    is_https: bool = False
    insecure: bool = False  # a proxy may serve a name without TLS
    cookie: str = "agents_ledger"
    rates: RateLimits = RateLimits()

    @property
    def origins(self) -> frozenset[str]:
        scheme = "https" if self.is_https else "http"
        return frozenset(f"{scheme}://{host}" for host in self.hosts)

    def answers_to(self, host: str) -> bool:
        return host in self.hosts or self._is_named(host)

    def accepts_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may send requests to a host that is answered to."""
        if origin in self.origins:
            return True
        schemes = ("https", "http") if self.insecure else ("https",)
        return self._is_named(host) and origin in {f"{scheme}://{host}" for scheme in schemes}

    def is_secure(self, host: str) -> bool:
        """Whether browsers reach a host by HTTPS: this server's, or that of a proxy."""
        return self.is_https or not (self.insecure or host in self.hosts)

    def _is_named(self, host: str) -> bool:
        return _PORT.sub("", host) in self.names


class RequestHead:
    """The parts of a request that the checks need."""

    def __init__(self, scope: Any) -> None:
        self.method: str = scope["method"]
        self.path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        self.path = self.path.partition("?")[0]
        self.query: str = scope["query_string"].decode("latin-1")
        # Proxies are not trusted: the address is that of the connection.
        self.client = str((scope.get("client") or ["?"])[0])
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.is_api = self.path.startswith("/api/")

    def cookies(self, name: str) -> Iterator[str]:
        """The values of the cookies with a name. Cookies of other programs on this host are sent
        to us too, and need not be well-formed."""
        for pair in self.headers.get("cookie", "").split(";"):
            cookie, _, value = pair.strip().partition("=")
            if cookie == name:
                yield value

    @property
    def host(self) -> str:
        return self.headers.get("host", "").lower()

    @property
    def bearer(self) -> str:
        scheme, _, secret = self.headers.get("authorization", "").partition(" ")
        return secret.strip() if scheme.lower() == "bearer" else ""

    def in_query(self, name: str) -> str:
        """The first value of a query parameter."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        return next((value for key, value in pairs if key == name), "")

    def address_without(self, name: str) -> str:
        """The path and query without a parameter."""
        pairs = parse_qsl(self.query, keep_blank_values=True)
        rest = urlencode([pair for pair in pairs if pair[0] != name])
        return f"{self.path}?{rest}" if rest else self.path


class TokenLookUp(Protocol):
    def __call__(self, key: str, /, *, wait: bool = True) -> Token | None:
        """The token, or None. Without `wait`, raises Locked instead of waiting."""


class TokenStore(Protocol):
    def find(self, secret: str, /, *, wait: bool = True) -> Token | None:
        """The valid token of a secret."""

    def get(self, token_id: str, /, *, wait: bool = True) -> Token | None:
        """The valid token of an id."""

    def valid_ids(self, ids: Collection[str]) -> set[str]:
        """The ids whose tokens are valid."""


class Caller(NamedTuple):
    """The sender of a request: a token, and the secret that proved it."""

    token: Token
    secret: str
    is_alive: IsAlive


class TokenDoor:
    """Identifies callers by the token of this run, a token of the ledger, or a login. Nothing is
    cached: a revoked token is refused from the next request on."""

    def __init__(self, run_secret: str, tokens: TokenStore, logins: Logins) -> None:
        self._run_secret = run_secret
        self._tokens = tokens
        self.logins = logins

    async def by_secret(self, secret: str) -> Token | None:
        if not secret:
            return None
        # compare_digest takes the same time for every wrong secret.
        if hmac.compare_digest(secret.encode(), self._run_secret.encode()):
            return RUN_TOKEN
        return await self._ask(self._tokens.find, secret)

    async def by_id(self, token_id: str) -> Token | None:
        if token_id == RUN_TOKEN.id:
            return RUN_TOKEN
        return await self._ask(self._tokens.get, token_id)

    @staticmethod
    async def _ask(look_up: TokenLookUp, key: str) -> Token | None:
        try:
            return look_up(key, wait=False)  # faster than a thread
        except Locked:
            return await to_thread.run_sync(look_up, key)

    async def admit(self, request: RequestHead, cookie: str) -> Caller | None:
        """The caller, by the Authorization header or else by a cookie."""
        if request.bearer:
            token = await self.by_secret(request.bearer)
            return Caller(token, request.bearer, lambda: True) if token else None
        for secret in request.cookies(cookie):
            token_id = self.logins.use(secret)
            token = await self.by_id(token_id) if token_id else None
            if token:
                return Caller(token, secret, partial(self.logins.is_alive, secret))
        return None

    def valid_ids(self, ids: Collection[str]) -> set[str]:
        stored = set(ids) - {RUN_TOKEN.id}
        valid = self._tokens.valid_ids(stored) if stored else set()
        return valid | {RUN_TOKEN.id}


def csrf_of(secret: str) -> str:
    """The CSRF token of a login: only its own pages know it."""
    # Derived from the secret of the login: it needs no storage and ends with the login.
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


class WebGuard:
    def __init__(self, app: ASGIApp, door: TokenDoor, policy: AccessPolicy) -> None:
        self._app = app
        self._door = door
        self._policy = policy
        self._rate = ClientBuckets(policy.rates.burst, policy.rates.per_second)
        self._wrong = ClientBuckets(policy.rates.wrong_tokens, 1.0)
        self._streams = StreamWatch(door.valid_ids)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        request = RequestHead(scope)
        send = with_headers(send)
        refusal = self._refused_at_once(request)
        if refusal is None and request.path.startswith("/static/"):
            await self._pass(scope, receive, send, request)
        elif refusal is not None:
            await send_error(send, request.is_api, *refusal)
        else:
            await self._admit(scope, receive, send, request)

    def _refused_at_once(self, request: RequestHead) -> tuple[int, str, str] | None:
        # Before all else, against DNS rebinding: a page of another site can reach this machine
        # under a name of its own.
        host = request.host
        if not self._policy.answers_to(host):
            return 421, f"this server does not answer to the host {host[:80]!r}", _UNKNOWN_HOST
        if not self._rate.take(request.client):
            return 429, "too many requests", "Wait a second."
        origin = request.headers.get("origin")
        if origin is not None and not self._policy.accepts_origin(origin, host):
            return 403, "requests from other sites are refused", ""
        # Some browsers omit Origin in cross-site form posts, but send Sec-Fetch-Site.
        if request.method not in SAFE and request.headers.get("sec-fetch-site") == "cross-site":
            return 403, "requests from other sites are refused", ""
        return None

    async def _admit(
        self, scope: Scope, receive: Receive, send: Send, request: RequestHead
    ) -> None:
        log_in = self._login_of(request)
        if log_in is not None:
            # A link on another site could log the browser in as somebody else, who would then read
            # what its user does.
            if request.headers.get("sec-fetch-site") == "cross-site":
                await send_error(send, False, *_CROSS_LOGIN)
            else:
                await log_in(send, request)
            return
        caller = await self._door.admit(request, self._policy.cookie)
        if caller is None:
            # A request without a token is no attempt to guess one.
            wrong = bool(request.bearer) and not self._wrong.take(request.client)
            missing = _NO_API_TOKEN if request.is_api else _NO_TOKEN
            await send_error(send, request.is_api, *(_TOO_MANY if wrong else missing))
            return
        csrf = csrf_of(caller.secret)
        # A browser sends cookies on its own, but never an Authorization header.
        if request.method not in SAFE and not request.bearer:
            receive, matches = await _csrf(receive, request, csrf)
            if not matches:
                await send_error(send, request.is_api, *_NO_CSRF)
                return
        scope["state"].update(token=caller.token, csrf=csrf)
        await self._pass_until_revoked(scope, receive, send, request, caller)

    def _login_of(
        self, request: RequestHead
    ) -> Callable[[Send, RequestHead], Awaitable[None]] | None:
        if request.method != "GET" or request.is_api:
            return None
        if request.path == LOGIN:
            return self._redeem_code
        has_token = "token=" in request.query and request.in_query("token")
        return self._exchange_token if has_token else None

    async def _pass_until_revoked(
        self, scope: Scope, receive: Receive, send: Send, request: RequestHead, caller: Caller
    ) -> None:
        lease = StreamLease(caller.token.id, caller.is_alive)
        exchange: Any = RevocableExchange(self._streams, lease, receive, send)  # type: ignore[arg-type]
        try:
            await self._pass(scope, exchange.receive, exchange.send, request)
        finally:
            await exchange.close()

    async def _pass(self, scope: Scope, receive: Receive, send: Send, request: RequestHead) -> None:
        # Labels may contain a slash: routes match the path before percent-decoding.
        scope["path"] = request.path
        await self._app(scope, receive, send)

    async def _exchange_token(self, send: Send, request: RequestHead) -> None:
        """Turn the token of an address into a login, and redirect to the address without it."""
        token = await self._door.by_secret(request.in_query("token"))
        if token is None:
            await self._refuse_wrong(send, request)
            return
        await self._log_in(send, request, token.id, request.address_without("token"))

    async def _redeem_code(self, send: Send, request: RequestHead) -> None:
        """Turn a code into a login. A browser that loads the address a second time is admitted by
        its cookie."""
        token_id = self._door.logins.redeem(request.in_query("code"))
        if token_id is not None and await self._door.by_id(token_id) is not None:
            await self._log_in(send, request, token_id, "/")
        elif await self._door.admit(request, self._policy.cookie) is not None:
            await _redirect(send, "/")
        else:
            await self._refuse_wrong(send, request)

    async def _refuse_wrong(self, send: Send, request: RequestHead) -> None:
        refusal = _NO_TOKEN if self._wrong.take(request.client) else _TOO_MANY
        await send_error(send, False, *refusal)

    async def _log_in(self, send: Send, request: RequestHead, token_id: str, where: str) -> None:
        # Without Max-Age the cookie ends with the browser; the login may end earlier.
        cookie = f"{self._policy.cookie}={self._door.logins.start(token_id)}"
        # SameSite=Strict: links from other sites open the login page, not a session.
        cookie += "; Path=/; HttpOnly; SameSite=Strict"
        cookie += "; Secure" * self._policy.is_secure(request.host)
        await _redirect(send, where, (b"set-cookie", cookie.encode("latin-1")))


_NO_TOKEN = (
    401,
    "you are not logged in",
    "Open the address that `agents-ledger serve` printed, or enter a token. A login ends when the"
    " server does, when its token is revoked, and after a day without use.",
)
_NO_API_TOKEN = (
    401,
    "the token is missing, wrong, expired or revoked",
    "Send the header Authorization: Bearer SECRET. `agents-ledger token create NAME --scope read`"
    " creates a token and prints its secret.",
)
_UNKNOWN_HOST = (
    "Use the address that the server printed, or start it with --allow-host NAME for another name."
)
_TOO_MANY = (429, "too many wrong tokens", "Wait a second.")
_CROSS_LOGIN = (
    403,
    "a link on another site cannot log you in",
    "It could log you in as somebody else. Paste the address into the browser, or enter a token.",
)
_NO_CSRF = (403, "the CSRF token is missing or wrong", "Reload the page and try again.")


async def _redirect(send: Send, where: str, *headers: tuple[bytes, bytes]) -> None:
    # Exactly one slash: two would name another host.
    location = "/" + where.lstrip("/")
    sent = [(b"location", location.encode("latin-1")), (b"cache-control", b"no-store"), *headers]
    await send({"type": "http.response.start", "status": 303, "headers": sent})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _csrf(receive: Any, request: RequestHead, expected: str) -> tuple[Receive, bool]:
    """Whether a request carries the CSRF token: in a header, or in the body of a form."""
    token = request.headers.get("x-csrf-token", "")
    if not token and request.headers.get("content-type", "").startswith(FORM):
        body, is_whole = await read_body(receive, FORM_MAX)
        if not is_whole:
            return receive, False
        token = dict(parse_qsl(body.decode("utf-8", "replace"))).get("csrf", "")
        receive = replay(body, receive)
    return receive, hmac.compare_digest(token.encode(), expected.encode())


def with_headers(send: Send) -> Send:
    """A `send` that adds the security headers."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            headers += [header for header in HEADERS if header[0] not in names]
            # Conversations are private: no shared cache keeps them, and a browser asks before it
            # shows one.
            if b"cache-control" not in names:
                headers.append((b"cache-control", b"private, no-cache"))
            message["headers"] = headers
        await send(message)

    return send_with_headers
