"""Who may do what over MCP: tokens, their scopes and limits, and what a program without one may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import Client

from agents_ledger import Ledger, Session
from agents_ledger.asgi.limits import RateLimits
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.mcp.serving import TOKEN_KEY, http_app, token_of
from tests.builders import chain
from tests.mcp.test_mcp import call, connected, refusal, run
from tests.waiting import PATIENCE_S, until

HOST = "127.0.0.1"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
JSON = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def told(ledger: Ledger) -> Iterator[Ledger]:
    """A ledger with a session of each of two personas."""
    chain(ledger, "main", 2)
    ledger.create_session(Session("guests", persona_id="guest"))
    chain(ledger, "guests", 2)
    yield ledger
    assert ledger.audit() == ()


@contextmanager
def serving(ledger: Ledger, rates: RateLimits | None = None) -> Iterator[str]:
    """The server in a thread of this process; where it answers."""
    app = http_app(ledger, write=True, every=True, hosts=(HOST,), rates=rates or RateLimits())
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield f"http://{HOST}:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(PATIENCE_S)


def token(ledger: Ledger, *scopes: Any) -> str:
    return Tokens(ledger._core).create("+".join(scopes), scopes)[1]


def talk(url: str, secret: str, work: Callable[[Client], Awaitable[None]]) -> None:
    async def connect() -> None:
        async with connected(url, secret) as client:
            await work(client)

    asyncio.run(connect())


def request(persona: str | None = None) -> dict[str, Any]:
    named = {} if persona is None else {"personaId": persona}
    return {"source": "aix", "mode": "tail", "idempotencyKey": "k", "items": [{}], **named}


def test_importing_needs_its_scope(told: Ledger) -> None:
    async def refused(client: Client) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "ldg_turn_record" in names
        assert "ldg_session_import" not in names
        assert "'import'" in await refusal(client, "ldg_session_import", request=request())

    async def done(client: Client) -> None:
        answer = await call(client, "ldg_session_import", request=request())
        assert answer["response"]["failed"] == 1  # it came through: an item without an id
        assert "'admin'" in await refusal(client, "ldg_session_import", request=request("root"))
        assert "'write'" in await refusal(client, "fork", target="main")

    with serving(told) as url:
        talk(url, token(told, "read", "write"), refused)
        talk(url, token(told, "read", "import"), done)


def test_choosing_another_persona_requires_admin(told: Ledger) -> None:
    async def refused(client: Client) -> None:
        for ability, given in (
            ("ldg_session_fork", {"target": "main", "persona_id": "root"}),
            ("ldg_session_fork", {"target": "guests", "persona_id": "main"}),
            ("ldg_session_smart_fork", {"text": "answer", "persona_id": "root"}),
        ):
            said = await refusal(client, ability, **given)
            assert said.startswith(f"{ability} with this input requires the scope 'admin'")
            assert "token create" not in said
        made = await call(client, "ldg_session_fork", target="guests", persona_id="guest")
        assert made["session"]["persona_id"] == "guest"

    async def done(client: Client) -> None:
        made = await call(client, "ldg_session_fork", target="main", persona_id="root")
        assert made["session"]["persona_id"] == "root"

    run(
        refused, told, write=True, every=True
    )  # as a program that started the server, and has no token
    with serving(told) as url:
        talk(url, token(told, "read", "write", "import", "chat"), refused)
        assert {session.persona_id for session in told.sessions()} == {"main", "guest"}
        talk(url, token(told, "read", "admin"), done)


def test_a_summary_by_the_engine_needs_the_scope_chat(told: Ledger) -> None:
    async def refused(client: Client) -> None:
        given = {"session": "main", "strategy": "summary", "budget": 1000}
        assert "'chat'" in await refusal(client, "ldg_compaction_run", **given)

    with serving(told) as url:
        talk(url, token(told, "read", "write"), refused)


def test_too_many_requests_and_wrong_tokens_are_refused(told: Ledger) -> None:
    right = {"Authorization": f"Bearer {token(told, 'read')}"}
    wrong = {"Authorization": "Bearer wrong"}
    with serving(told, RateLimits(wrong_tokens=3)) as url, httpx2.Client() as http:
        answers = [http.post(url, headers=wrong, json=PING).status_code for _ in range(8)]
        assert answers[:3] == [401, 401, 401]
        assert 429 in answers
        assert http.post(url, headers=right, json=PING).status_code not in (401, 429)
    with serving(told, RateLimits(burst=5, per_second=0.0)) as url, httpx2.Client() as http:
        answers = [http.post(url, headers=right, json=PING).status_code for _ in range(6)]
        assert answers[-1] == 429
        assert 429 not in answers[:5]


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"[" + b"[]," * 1_100_000 + b"1]", b'"' + b"x" * (5 << 20)]
)
def test_a_body_that_is_too_large_is_refused(told: Ledger, body: bytes) -> None:
    headers = {"Authorization": f"Bearer {token(told, 'read')}", **JSON}
    with serving(told) as url, httpx2.Client() as http:
        assert http.post(url, headers=headers, content=body).status_code == 413


def test_a_stream_ends_when_its_token_is_revoked(told: Ledger) -> None:
    tokens = Tokens(told._core)
    made, secret = tokens.create("follows", ["read"])
    headers = {"Authorization": f"Bearer {secret}", **JSON}
    with serving(told) as url, httpx2.Client(timeout=PATIENCE_S) as http:
        started = http.post(url, headers=headers, json=START)
        headers["Mcp-Session-Id"] = started.headers["mcp-session-id"]
        with http.stream("GET", url, headers=headers) as stream:
            assert stream.status_code == 200
            tokens.revoke(made.id)
            deadline = time.monotonic() + PATIENCE_S / 2
            for _ in stream.iter_raw():
                assert time.monotonic() < deadline, "the stream goes on"
        assert http.post(url, headers=headers, json=PING).status_code == 401


def test_only_a_token_counts_as_the_token_of_a_request(ledger: Ledger) -> None:
    token, _ = Tokens(ledger._core).create("reader", ("read",))

    def stored(value: object) -> Any:
        return SimpleNamespace(request=SimpleNamespace(scope={TOKEN_KEY: value}))

    assert token_of(stored(token)) is token
    assert token_of(stored("admin")) is None
    assert token_of(SimpleNamespace(request=None)) is None
