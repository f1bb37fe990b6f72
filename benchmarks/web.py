"""The Command Center on a ledger of a million messages: how long the server takes for a page."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.app import Server, Serving
from benchmarks.growth import SIZES, grown
from benchmarks.measure import Goal, Line, duration, middle, spread, timed

ROUNDS = 7
GOAL_SECONDS = 0.1
BYTES_MAX = 300_000
PAGES = {
    "home": "/",
    "list of sessions": "/sessions",
    "sessions by text": "/sessions?q=fork-9",
    "sessions that nothing fits": "/sessions?model=none",
    "thread at its head": "/s/main",
    "thread in its middle": "/s/main?upto={middle}",
    "whole tree": "/s/main/tree",
    "history": "/s/main/history",
    "search, rare word": "/search?q={middle}",
    "search, common word, newest": "/search?q=question",
    "palette": "/palette?q=fork-99",
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


def web(folder: Path, size: int = SIZES[-1]) -> Iterator[Line]:
    """Server times of the pages, the largest of which may hold 300 KB."""
    with Ledger.open(str(grown(folder)[size])) as ledger:
        ledger._core.index(least=1)  # searches are asked of a ledger at rest
        browsing = Browsing(ledger)
        try:
            for name, path in PAGES.items():
                yield _page(browsing, name, path.format(middle=size // 2))
        finally:
            browsing.stop()


def _page(browsing: Browsing, name: str, path: str) -> Line:
    body = browsing.get(path)
    assert len(body) <= BYTES_MAX, (path, len(body))
    took = [timed(lambda: browsing.get(path), 1).wall for _ in range(ROUNDS)]
    said = f"{duration(middle(took))}, {len(body) // 1024} KB"
    shares = [seconds / GOAL_SECONDS for seconds in took]
    goal = duration(GOAL_SECONDS)
    return Line(name, said, goal, middle(shares), Goal("<=", 1), ROUNDS, spread(shares))
