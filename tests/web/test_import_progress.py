"""A page that is open during an import shows how far it is, and what is there already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, expect

from agents_ledger import Ledger
from agents_ledger.importers.background_import import BackgroundImport, ImportJob
from agents_ledger.importers.discovery import FileSelection, find
from agents_ledger.importers.pipeline import Progress, Report
from agents_ledger.importers.port.homes import Home
from agents_ledger.model.errors import DiskFull
from tests.importers.claude_log import Log, text
from tests.waiting import PATIENCE_S
from tests.web.conftest import Running, visits


class Gate:
    """Progress of an import, which waits until it is opened."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.failure: Exception | None = None

    def open(self) -> None:
        self._open.set()

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        yield self._tick

    def _tick(self, _: float) -> None:
        assert self._open.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure


def test_the_first_page_follows_an_import(
    own_server: Callable[..., Running], browser: Browser, tmp_path: Path
) -> None:
    log = Log(tmp_path / ".claude" / "projects" / "shop")
    log.user("a", "Where are the shoes?")
    log.assistant("b", text("In the shop."))
    log.save()
    home, gate = Home(tmp_path, {}, "linux"), Gate()

    def imports(ledger: Ledger) -> BackgroundImport:
        importing = BackgroundImport(ledger, home, FileSelection())
        files = find(home)
        importing.start(ImportJob(files=files, report=Report(), progress=gate.progress()))
        return importing

    running = own_server(imports=imports)
    for new in visits(browser, running):
        visitor = new(viewport={"width": 380, "height": 800})
        for path in ("/imports", "/"):
            page = visitor.open(path)
            expect(page.locator(".importing")).to_contain_text("Importing claude-code")
            expect(page.locator(".importing progress")).to_be_visible()
        width = page.evaluate("document.documentElement.scrollWidth")
        page.get_by_role("searchbox").fill("shoes")
        gate.open()

        expect(page.locator(".importing")).to_have_count(0)
        expect(page.locator("#overview")).to_contain_text("Where are the shoes?")
        # Only the part with the progress was loaded again.
        expect(page.get_by_role("searchbox")).to_have_value("shoes")
        assert width == 380


def test_an_import_that_fails_says_why_on_the_page(
    own_server: Callable[..., Running], tmp_path: Path
) -> None:
    Log(tmp_path / ".claude" / "projects" / "shop").save()
    home, gate, reported = Home(tmp_path, {}, "linux"), Gate(), threading.Event()
    gate.failure = DiskFull("the disk is full")
    gate.open()

    def imports(ledger: Ledger) -> BackgroundImport:
        importing = BackgroundImport(ledger, home, FileSelection())
        job = ImportJob(
            files=find(home),
            report=Report(),
            progress=gate.progress(),
            on_error=lambda _: reported.set(),
        )
        importing.start(job)
        return importing

    running = own_server(imports=imports)
    assert reported.wait(PATIENCE_S)

    assert "The import failed: the disk is full" in running.ask("/imports").text


def test_after_an_unexpected_error_the_next_import_can_start(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path / ".claude" / "projects" / "shop")
    log.user("a", "Where are the shoes?")
    log.assistant("b", text("In the shop."))
    log.save()
    home, gate, reported = Home(tmp_path, {}, "linux"), Gate(), threading.Event()
    gate.failure = BrokenPipeError("the terminal is gone")
    gate.open()
    importing = BackgroundImport(ledger, home, FileSelection())
    job = ImportJob(
        files=find(home),
        report=Report(),
        progress=gate.progress(),
        on_error=lambda _: reported.set(),
    )
    importing.start(job)
    assert reported.wait(PATIENCE_S)
    assert importing.status is None
    assert str(importing.failure) == "BrokenPipeError: the terminal is gone"

    ended = threading.Event()
    importing.on_end.append(ended.set)
    importing.start_all()

    assert ended.wait(PATIENCE_S)
    assert importing.failure is None
    assert [session.origin for session in ledger.sessions()] == ["claude-code"]
    importing.stop()
