"""One server for each worker, one browser for each module; pages that complain fail their test."""

from __future__ import annotations

import json
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from agents_ledger import Ledger
from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.cli.servers.server import Server, Serving
from agents_ledger.importers.background_import import BackgroundImport
from tests.conftest import ticking_clock
from tests.waiting import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Answer(NamedTuple):
    """What a server said."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Running:
    """A server in a thread of this process."""

    def __init__(
        self,
        address: str,
        serving: Serving | None = None,
        imports: Callable[[Ledger], BackgroundImport] | None = None,
    ) -> None:
        self.ledger = Ledger.open(address)
        importing = imports(self.ledger) if imports else None
        self.server = Server(self.ledger, serving or Serving(port=0), importing)
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        self._opener = urllib.request.build_opener(_NoRedirect)
        self.ask("/static/app.css")

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(PATIENCE_S)
        self.ledger.close()

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: object = None,
        token: str | None = "",
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Ask the server; with its own token unless another or none is given."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token or self.server.secret}"
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.server.address.rstrip("/") + path, data, sent, method=method
        )
        try:
            with self._opener.open(request, timeout=PATIENCE_S) as answer:
                return Answer(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, _lower(error.headers), error.read())

    def log_in(self, path: str = "") -> dict[str, str]:
        """The cookie that opening an address gives: by default the one that the server prints."""
        answer = self.ask(path or f"/?token={self.server.secret}", token=None)
        assert answer.status == 303, answer
        return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server on the demonstration. Tests that change it use labels of their own."""
    address = str(tmp_path_factory.mktemp("web") / "ledger.db")
    with ticking_clock(), Ledger.open(address) as ledger:
        Demonstration(ledger).record()
    found = Running(address)
    yield found
    found.stop()


@pytest.fixture
def own_server(tmp_path: Any) -> Iterator[Callable[..., Running]]:
    """A server of the test's own, on an empty ledger."""
    made: list[Running] = []

    def start(
        serving: Serving | None = None,
        imports: Callable[[Ledger], BackgroundImport] | None = None,
    ) -> Running:
        made.append(Running(str(tmp_path / f"own-{len(made)}.db"), serving, imports))
        return made[-1]

    yield start
    for each in made:
        each.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, if there is one: `.ci/run` installs it.

    While Playwright is there, an event loop runs in this thread, and tests that want one of their
    own fail. It is gone before the first test of another module begins.
    """
    if CHROMIUM is None:
        pytest.skip("NO CHROMIUM: the pages are not tested; install it, or run .ci/run")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


class Visitor:
    """Somebody with a browser and a token, and a list of what the browser complained about."""

    def __init__(self, context: BrowserContext, running: Running) -> None:
        self.context = context
        self.running = running
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self.page = self.tab()
        self.page.goto(running.server.address_with_token.replace("/?", "/sessions?"))

    def tab(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self._asked(request.url))
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.running.server.address, "data:", "blob:", "about:")):
            self.foreign.append(url)

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.running.server.address.rstrip("/") + path)
        assert answer is not None
        assert answer.status == 200, (path, answer.status)
        return self.page


@pytest.fixture
def visit(browser: Browser, running: Running) -> Iterator[Callable[..., Visitor]]:
    """Visitors of the shared server; nothing may complain while they look around."""
    yield from visits(browser, running)


def visits(browser: Browser, running: Running) -> Iterator[Callable[..., Visitor]]:
    made: list[Visitor] = []

    def new(**options: Any) -> Visitor:
        options = {"viewport": {"width": 1280, "height": 800}, **options}
        made.append(Visitor(browser.new_context(**options), running))
        return made[-1]

    yield new
    complaints = [text for visitor in made for text in (*visitor.complaints, *visitor.foreign)]
    for visitor in made:
        visitor.context.close()
    assert not complaints


@pytest.fixture
def visitor(visit: Callable[..., Visitor]) -> Visitor:
    """One visitor at a desk."""
    return visit()
