"""A session is continued in a terminal by its own agent, for who started the server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation import terminal
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.helping import import_paths
from tests.waiting import until
from tests.web.conftest import Running, visits
from tests.web.test_jobs import Clicks

LABEL = f"claude-code:{SESSION}"
PATHS = {name: f"/bin/{name}" for name in ("xterm", "konsole", "osascript", "mine")}


@pytest.fixture
def desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A desktop whose terminal writes its arguments into a file."""
    opened, program = tmp_path / "opened", tmp_path / "terminal"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {opened}.part && mv {opened}.part {opened}\n'
    )
    program.chmod(0o700)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("TERMINAL", str(program))
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("DISPLAY", ":99")
    return opened


def imported(server: Running, folder: Path) -> None:
    log = Log(folder)
    log.user("a1", "Build the shop", cwd="/home/me/my shop")
    log.assistant("a2", text("Done."), cwd="/home/me/my shop")
    import_paths(server.ledger, log.save())


def test_an_imported_session_is_continued_with_two_clicks(
    own_server: Callable[..., Running], browser: Browser, desktop: Path, tmp_path: Path
) -> None:
    server = own_server()
    imported(server, tmp_path)
    for visit in visits(browser, server):
        page = visit().open(f"/s/{LABEL}")
        click = Clicks(page)
        click(".continue-menu summary")
        click("button", has_text="Open in a terminal")
        until(desktop.exists)
        assert click.count == 2
        expect(page.locator("h1")).to_have_text("Build the shop")
    command = f"cd '/home/me/my shop' && claude --resume {SESSION}; exec /bin/sh"
    assert desktop.read_text().splitlines() == ["-e", "/bin/sh", "-c", command]


def test_only_who_started_the_server_here_opens_a_terminal(
    own_server: Callable[..., Running],
    desktop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = own_server()
    imported(server, tmp_path)
    server.ledger.record("native", "Hello", "Good day")
    _, other = server.ledger.tokens.create("other", ["admin"])

    def is_offered(label: str = LABEL, token: str = "", **headers: str) -> bool:
        path = f"/s/{quote(label)}"
        page = server.ask(path, token=token, headers=headers).text
        answer = server.ask(f"{path}/terminal", method="POST", token=token, headers=headers)
        assert ("Open in a terminal" in page) == (answer.status == 303)
        return answer.status == 303

    assert is_offered()
    assert not is_offered("native")
    assert not is_offered(token=other)
    assert not is_offered(**{"X-Forwarded-For": "10.0.0.1"})
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not is_offered()


def test_the_terminal_of_the_platform_is_chosen() -> None:
    def command(platform: str, **environment: str) -> list[str] | None:
        return terminal.terminal_command("run it", platform, environment, PATHS.get)

    shown = {"DISPLAY": ":0", "SHELL": "/bin/zsh"}
    run = ["/bin/zsh", "-c", "run it; exec /bin/zsh"]
    assert command("linux", **shown) == ["/bin/konsole", "-e", *run]
    assert command("linux", **shown, TERMINAL="mine") == ["/bin/mine", "-e", *run]
    assert command("linux", **shown, TERMINAL="gone") == ["/bin/konsole", "-e", *run]
    assert command("linux", SHELL="/bin/zsh") is None
    assert command("win32") is None
    script = command("darwin")
    assert script is not None
    assert (script[0], script[-1]) == ("osascript", "run it")


def test_a_terminal_that_fails_is_reported(desktop: Path, tmp_path: Path) -> None:
    (tmp_path / "terminal").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(Refused, match="status 3"):
        terminal.open_terminal("true")
