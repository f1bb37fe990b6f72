"""Many HTTP clients in one process, each sending its next request when the last was answered.

It speaks just enough HTTP to cost little: server and clients share the machine's cores. A plan
comes in as JSON, the latencies by kind of request go out as JSON.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from http.client import HTTPConnection

import msgspec
from msgspec import Struct, field

POPULAR = 40  # sessions that half of all requests are about: people look at what is recent
END = b"\r\n\r\n"


class Plan(Struct, frozen=True):
    """Who asks what, and for how long."""

    port: int
    people: list[str]  # tokens that browsers log in with
    agents: list[str]  # tokens sent in a header
    admin: str
    labels: list[str]  # most recent last
    turns: list[str]
    words: list[str]
    readers: int = 200
    writers: int = 20
    seconds: float = 30.0
    seed: int = 7
    steady: bool = False  # nobody writes: the ledger stays as it is


class Outcome(Struct):
    """Seconds by kind of request, and what went wrong."""

    seconds: float
    cpu_seconds: float
    latencies: dict[str, list[float]]
    errors: list[str] = field(default_factory=list)


class Asked(Struct, frozen=True):
    """One request."""

    kind: str
    head: str
    body: bytes = b""


class Connection(asyncio.Protocol):
    """Keeps one connection and hands over whole answers."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(END)
        if end < 0 or self._answer is None:
            return
        head = bytes(self._buffer[:end]).lower()
        at = head.index(b"content-length:") + 15
        length = int(head[at:].partition(b"\r\n")[0])
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 :])
        self._buffer.clear()
        if not self._answer.done():
            self._answer.set_result((int(head[9:12]), body))

    async def send(self, request: Asked) -> tuple[int, bytes]:
        """The status and the body of the answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request.head.encode() + request.body)
        return await self._answer


def log_in(port: int, secret: str) -> str:
    """The cookie of a browser that opened the address with a token."""
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", f"/?token={secret}")
    cookie = connection.getresponse().headers["set-cookie"]
    connection.close()
    return cookie.partition(";")[0]


class Crowd:
    """All clients of a run."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._latencies: dict[str, list[float]] = defaultdict(list)
        self._errors: list[str] = []
        self._until = 0.0
        self._recent = plan.labels[-POPULAR:]
        self._cookies = [log_in(plan.port, secret) for secret in plan.people]

    async def run(self) -> Outcome:
        """Everybody at once, until the time is over and the last request is answered."""
        plan = self._plan
        began, cpu = time.monotonic(), time.process_time()
        self._until = began + plan.seconds
        clients = [self._client(number, self._read) for number in range(plan.readers)]
        if not plan.steady:
            clients += [
                self._client(plan.readers + number, self._write) for number in range(plan.writers)
            ]
        await asyncio.gather(*clients)
        took = time.monotonic() - began
        return Outcome(took, time.process_time() - cpu, dict(self._latencies), self._errors)

    async def _client(
        self, number: int, request: Callable[[random.Random, int, int], Asked]
    ) -> None:
        chance = random.Random(self._plan.seed * 100_003 + number)
        # An address of its own: the server limits the rate of each.
        address = f"127.0.{1 + number // 250}.{1 + number % 250}"
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            Connection, "127.0.0.1", self._plan.port, local_addr=(address, 0)
        )
        sent = 0
        while time.monotonic() < self._until:
            asked = request(chance, number, sent)
            began = time.monotonic()
            try:
                status, body = await connection.send(asked)
            except OSError as error:
                self._errors.append(f"{asked.kind}: {error}")
                return
            self._latencies[asked.kind].append(time.monotonic() - began)
            if status != 200 or (asked.body and b'"success"' not in body[:40]):
                self._errors.append(f"{asked.kind}: {status} {body[:200]!r}")
            sent += 1

    def _read(self, chance: random.Random, number: int, _: int) -> Asked:
        """People read pages, agents the API: half of the readers each."""
        plan = self._plan
        label = chance.choice(self._recent if chance.random() < 0.5 else plan.labels)
        turn, word = chance.choice(plan.turns), chance.choice(plan.words)
        kinds = PAGES if number % 2 else API
        kind = chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
        path = kinds[kind][1].format(label=label, turn=turn, word=word)
        host = f"127.0.0.1:{plan.port}"
        if number % 2:
            who = f"Cookie: {self._cookies[number // 2 % len(self._cookies)]}"
        else:
            who = f"Authorization: Bearer {plan.agents[number // 2 % len(plan.agents)]}"
        return Asked(kind, f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{who}\r\n\r\n")

    def _write(self, _: random.Random, number: int, sent: int) -> Asked:
        """A turn of a session that only this writer writes."""
        plan = self._plan
        query = f"question {sent} of writer {number}: " + "what is to be done? " * 20
        call = {"tool_name": "Bash", "params": {"command": "make test"}, "result": "ok\n" * 200}
        turn = {
            "session": f"writer-{number}",
            "query": query,
            "response": "This is the answer to it. " * 40,
            "tool_calls": [call, call],
            "usage": {"input_tokens": 1200, "output_tokens": 300},
            "model": "claude-opus-5",
            "provider": "anthropic",
        }
        body = msgspec.json.encode(turn)
        head = (
            f"POST /api/v1/bus/ldg:turn:record HTTP/1.1\r\nHost: 127.0.0.1:{plan.port}\r\n"
            f"Authorization: Bearer {plan.admin}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return Asked("record a turn", head, body)


PAGES = {
    "page: home": (20, "/"),
    "page: sessions": (10, "/sessions"),
    "page: thread": (40, "/s/{label}"),
    "page: tree": (10, "/s/{label}/tree"),
    "page: search": (10, "/search?q={word}"),
    "page: usage": (5, "/usage"),
    "page: inspector": (5, "/t/{turn}/inspect?tab=tools"),
}
API = {
    "API: sessions": (20, "/api/v1/sessions?limit=20"),
    "API: session": (15, "/api/v1/sessions/{label}"),
    "API: thread": (10, "/api/v1/threads/{label}?limit=5"),
    "API: turn": (25, "/api/v1/turns/{turn}"),
    "API: context": (15, "/api/v1/context/{label}"),
    "API: search": (10, "/api/v1/search?q={word}"),
    "API: usage": (5, "/api/v1/usage"),
}


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(Crowd(given).run())))
