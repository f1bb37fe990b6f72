"""The Command Center on two ledgers of a million messages each: how long the server takes.

One has a year of four thousand sessions, and a session of 26,000 records; the other one thread of
100,000 turns with a session standing on every tenth.
"""

from __future__ import annotations

import http.client
import resource
import selectors
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.cli.servers.server import Server, Serving
from benchmarks.busy import busy
from benchmarks.growth import SIZES, grown
from benchmarks.measure import Clock, Goal, Line, duration, middle, spread, timed

ROUNDS = 7
CLOCKS: tuple[Clock, ...] = ("wall", "cpu")
GOAL_SECONDS = 0.1
BYTES_MAX = 300_000
OPEN_PAGES = 1_000
CLIENTS = 50
OPEN_PAGES_SECONDS = 1.0  # until a change has reached all of them
YEAR = {
    "home": "/",
    "list of sessions": "/sessions",
    "sessions by text": "/sessions?q=subject+39",
    "sessions that nothing fits": "/sessions?model=none",
    "sessions of a project": "/sessions?project=/home/user/project-3",
    "session of 26,000 records": "/s/long",
    "a turn in its middle": "/t/{middle}",
    "its tree, unfolded": "/s/long/tree?unfold=true",
    "what a turn did": "/t/{head}/inspect?tab=tools",
    "history": "/s/long/history",
    "search, rare word": "/search?q=word50000",
    "search, common word, newest": "/search?q=question",
    "search within a project": "/search?q=project:project-3+question",
    "search by tool": "/search?q=tool:Bash",
    "files": "/files",
    "one file": "/files/module_7.py",
    "tools": "/tools",
    "one tool": "/tools/Bash",
    "usage by day": "/usage",
    "usage by session": "/usage?by=session",
    "compare": "/compare?a=session-7&b=session-8",
    "export, long": "/share/long",
    "audit, unasked": "/audit",
    "imports": "/imports",
    "palette": "/palette?q=subject",
    "API: sessions": "/api/v1/sessions",
    "API: thread": "/api/v1/threads/long?limit=50",
    "API: tree": "/api/v1/threads/long/tree",
    "API: search": "/api/v1/search?q=question",
    "API: usage": "/api/v1/usage",
}
DEEP = {
    "100,000 turns: home": "/",
    "100,000 turns: head": "/s/main",
    "100,000 turns: middle": "/s/main?upto={middle_depth}",
    "100,000 turns: tree": "/s/main/tree",
    "100,000 turns: tree above": "/s/main/tree?upto={middle_depth}",
    "100,000 turns: a turn by its id": "/t/{middle}",
    "100,000 turns: a fork near the root": "/s/fork-10",
    "100,000 turns: history": "/s/main/history",
}


class Browsing:
    """One connection to a server in a thread."""

    def __init__(self, ledger: Ledger) -> None:
        self.server = Server(ledger, Serving(port=0))
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        self._connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)

    def get(self, path: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.server.secret}"}
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (path, answer.status)
        return body

    def stop(self) -> None:
        self._connection.close()
        self.server.stop()
        self._thread.join(20)


def web(folder: Path) -> Iterator[Line]:
    """Server times of the pages, the largest of which may hold 300 KB."""
    yield from _pages(busy(folder), "long", YEAR)
    yield from _pages(grown(folder)[SIZES[-1]], "main", DEEP)
    yield from _open_pages(grown(folder)[SIZES[0]])


def _pages(path: Path, label: str, pages: Mapping[str, str]) -> Iterator[Line]:
    with Ledger.open(str(path)) as ledger:
        ledger._core.index(least=1)  # searches are asked of a ledger at rest
        depth = ledger.thread(label, last=0).depth
        middle = ledger.ancestor_at(label, depth // 2)
        known = {"head": ledger.head(label), "middle": middle, "middle_depth": depth // 2}
        browsing = Browsing(ledger)
        try:
            for name, page in pages.items():
                yield _page(browsing, name, page.format(**known))
        finally:
            browsing.stop()


def _page(browsing: Browsing, name: str, path: str) -> Line:
    body = browsing.get(path)
    assert len(body) <= BYTES_MAX, (path, len(body))
    took = [timed(lambda: browsing.get(path), 1) for _ in range(ROUNDS)]
    wall, cpu = (duration(middle([one.by(clock) for one in took])) for clock in CLOCKS)
    said = f"{wall}, cpu {cpu}, {len(body) // 1024} KB"
    shares = [one.wall / GOAL_SECONDS for one in took]
    goal = duration(GOAL_SECONDS)
    return Line(name, said, goal, middle(shares), Goal("<=", 1), ROUNDS, spread(shares))


class OpenPages:
    """Connections that listen to the stream of changes, as open pages do."""

    def __init__(self, server: Server, count: int) -> None:
        request = (
            "GET /api/v1/changes?text=false HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.secret}\r\n\r\n"
        ).encode()
        self._received: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        for number in range(count):
            # The requests of one client are limited: the pages belong to many.
            client = f"127.0.0.{2 + number % CLIENTS}"
            page = socket.create_connection(("127.0.0.1", server.port), 60, (client, 0))
            page.sendall(request)
            self._received[page] = b""
            self._selector.register(page, selectors.EVENT_READ)
        self.wait_for(b"following")

    def wait_for(self, text: bytes) -> None:
        """Read until every page has received a text."""
        waiting = {page for page, received in self._received.items() if text not in received}
        while waiting:
            for key, _ in self._selector.select(60):
                page = key.fileobj
                assert isinstance(page, socket.socket)
                part = page.recv(65536)
                assert part, "the server closed a stream"
                self._received[page] += part
                if text in self._received[page]:
                    waiting.discard(page)

    def close(self) -> None:
        self._selector.close()
        for page in self._received:
            page.close()


def _open_pages(path: Path) -> Iterator[Line]:
    """Each page needs a descriptor at both ends, which are this process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, most), most))
    with Ledger.open(str(path)) as ledger:
        browsing = Browsing(ledger)
        pages = OpenPages(browsing.server, OPEN_PAGES)
        try:
            took = [timed(lambda: _change(ledger, pages), 1) for _ in range(ROUNDS)]
            loaded = [timed(lambda: browsing.get("/sessions"), 1) for _ in range(ROUNDS)]
        finally:
            pages.close()
            browsing.stop()
    wall, cpu = (duration(middle([one.by(clock) for one in took])) for clock in CLOCKS)
    shares = [one.wall / OPEN_PAGES_SECONDS for one in took]
    name, goal = f"a change to {OPEN_PAGES:,} open pages", duration(OPEN_PAGES_SECONDS)
    said = f"{wall}, cpu {cpu}"
    yield Line(name, said, goal, middle(shares), Goal("<=", 1), ROUNDS, spread(shares))
    shares = [one.wall / GOAL_SECONDS for one in loaded]
    wall = duration(middle([one.wall for one in loaded]))
    name, goal = f"list of sessions beside {OPEN_PAGES:,} open pages", duration(GOAL_SECONDS)
    yield Line(name, wall, goal, middle(shares), Goal("<=", 1), ROUNDS, spread(shares))


def _change(ledger: Ledger, pages: OpenPages) -> None:
    """Record a turn, and wait until all pages know it."""
    turn = ledger.record("watched", "What changed?", "This.")
    pages.wait_for(turn.id.encode())
