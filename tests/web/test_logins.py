"""Logins of browsers: what lets one in, and what ends it."""

from __future__ import annotations

import http.client
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from agents_ledger import Ledger
from agents_ledger.cli.servers.server import Serving
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.model.ids import now_ms
from agents_ledger.web.logins import LoginLimits, Logins
from tests.waiting import PATIENCE_S, until
from tests.web.conftest import Running

STREAM_ENDS_S = 10  # promised within two seconds; the machine may be busy


def path_of(running: Running, address: str) -> str:
    return "/" + address.removeprefix(running.server.address)


def test_a_cookie_is_not_the_token_and_ends_with_the_browser(running: Running) -> None:
    made, named = Tokens(running.ledger._core).create("a browser", ["read"])
    for secret in (running.server.secret, named):
        cookie = running.ask(f"/?token={secret}", token=None).headers["set-cookie"]

        assert secret not in cookie
        assert "Max-Age" not in cookie
        assert "Expires" not in cookie
    Tokens(running.ledger._core).revoke(made.id)


def test_a_token_in_a_cookie_is_not_accepted(running: Running) -> None:
    cookie = {"Cookie": f"agents_ledger_{running.server.port}={running.server.secret}"}

    assert running.ask("/sessions", token=None, headers=cookie).status == 401


def test_a_code_logs_in_once(running: Running) -> None:
    path = path_of(running, running.server.address_with_code())

    assert running.server.secret not in path
    cookie = running.log_in(path)
    assert running.ask("/sessions", token=None, headers=cookie).status == 200
    again = running.ask(path, token=None)
    assert again.status == 401
    assert "set-cookie" not in again.headers


def test_a_browser_that_loads_its_code_twice_stays_logged_in(running: Running) -> None:
    path = path_of(running, running.server.address_with_code())
    cookie = running.log_in(path)

    again = running.ask(path, token=None, headers=cookie)

    assert (again.status, again.headers["location"]) == (303, "/")


def test_a_head_request_does_not_use_up_a_code(running: Running) -> None:
    path = path_of(running, running.server.address_with_code())

    assert running.ask(path, method="HEAD", token=None).status == 401
    assert running.log_in(path)


def test_a_code_expires(own_server: Callable[..., Running]) -> None:
    running = own_server(Serving(port=0, logins=LoginLimits(code_s=0.0)))
    path = path_of(running, running.server.address_with_code())

    assert running.ask(path, token=None).status == 401


def test_a_login_ends_with_its_token(running: Running) -> None:
    tokens = Tokens(running.ledger._core)
    made, secret = tokens.create("for a browser", ["read"])
    cookie = running.log_in(f"/?token={secret}")
    assert running.ask("/sessions", token=None, headers=cookie).status == 200

    tokens.revoke(made.id)

    assert running.ask("/sessions", token=None, headers=cookie).status == 401


def test_a_login_has_the_scopes_of_its_token(running: Running) -> None:
    _, secret = Tokens(running.ledger._core).create("reads in a browser", ["read"])
    cookie = running.log_in(f"/?token={secret}")

    assert running.ask("/api/v1/sessions", token=None, headers=cookie).status == 200
    assert running.ask("/api/v1/tokens", token=None, headers=cookie).status == 403


def test_a_login_expires(own_server: Callable[..., Running]) -> None:
    for limits in (LoginLimits(idle_s=0.0), LoginLimits(life_s=0.0)):
        running = own_server(Serving(port=0, logins=limits))
        cookie = running.log_in()

        assert running.ask("/sessions", token=None, headers=cookie).status == 401


def test_the_least_recently_used_login_ends_when_there_are_too_many() -> None:
    logins = Logins(LoginLimits(logins=2))
    first, second = logins.start("a"), logins.start("b")
    assert logins.use(first) == "a"

    third = logins.start("c")

    assert [logins.use(each) for each in (first, second, third)] == ["a", None, "c"]


def test_a_token_that_logs_in_often_ends_only_its_own_logins() -> None:
    logins = Logins(LoginLimits(logins=4, logins_per_token=2))
    other = logins.start("a")
    own = [logins.start("b") for _ in range(10)]

    assert logins.use(other) == "a"
    assert [logins.use(each) for each in own] == [None] * 8 + ["b", "b"]


def test_another_site_cannot_log_a_browser_in(running: Running) -> None:
    cross = {"Sec-Fetch-Site": "cross-site"}
    code = path_of(running, running.server.address_with_code())
    for path in (f"/?token={running.server.secret}", f"/sessions?token={running.server.secret}"):
        refused = running.ask(path, token=None, headers=cross)
        assert refused.status == 403
        assert "set-cookie" not in refused.headers

    refused = running.ask(code, token=None, headers=cross)

    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert running.log_in(code)  # it was not spent
    own = running.ask(
        f"/?token={running.server.secret}", token=None, headers={"Sec-Fetch-Site": "none"}
    )
    assert own.status == 303


def test_a_login_of_an_earlier_run_is_refused_with_a_hint(
    own_server: Callable[..., Running],
) -> None:
    running = own_server()
    cookie = {"Cookie": f"agents_ledger_{running.server.port}=of-an-earlier-run"}

    for _ in range(30):  # an open tab asks again and again, and must not lock its user out
        answer = running.ask("/sessions", token=None, headers=cookie)
        assert answer.status == 401
    assert "Open the address that <code>agents-ledger serve</code> printed" in answer.text
    assert 'autocomplete="current-password"' in answer.text
    assert 'name="token"' in answer.text


@pytest.mark.parametrize(
    "foreign",
    ['j={"a":1}', "a b=c", "=;;=", 'q="unclosed', "naïve=é", "[]", "x=" + "y" * 4000],
)
def test_cookies_of_other_programs_are_ignored(running: Running, foreign: str) -> None:
    own = running.log_in()["Cookie"]
    for cookies in (f"{foreign}; {own}", f"{own}; {foreign}", f"{foreign};{own};{foreign}"):
        connection = http.client.HTTPConnection(
            "127.0.0.1", running.server.port, timeout=PATIENCE_S
        )
        connection.request("GET", "/sessions", headers={"Cookie": cookies.encode("latin-1")})
        assert connection.getresponse().status == 200
        connection.close()


# -- streams ----------------------------------------------------------------------------------


@contextmanager
def following(running: Running, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", running.server.port, timeout=PATIENCE_S)
    connection.request("GET", "/api/v1/changes", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200
    yield answer
    connection.close()


def to_its_end(stream: http.client.HTTPResponse) -> bytes:
    """What a stream sends until the server ends it, which it must."""
    received, deadline = b"", time.monotonic() + STREAM_ENDS_S
    while line := stream.readline():
        assert time.monotonic() < deadline, "the stream goes on"
        received += line
    return received


def test_a_stream_ends_when_its_token_is_revoked(running: Running) -> None:
    tokens = Tokens(running.ledger._core)
    made, secret = tokens.create("follows", ["read"])
    by_header, by_cookie = (
        {"Authorization": f"Bearer {secret}"},
        running.log_in(f"/?token={secret}"),
    )
    with following(running, by_header) as first, following(running, by_cookie) as second:
        tokens.revoke(made.id)
        assert b"following" in to_its_end(first)
        assert b"following" in to_its_end(second)
        assert running.ask("/api/v1/changes", token=secret).status == 401


def test_nothing_is_streamed_to_a_token_that_has_expired(running: Running) -> None:
    _, secret = Tokens(running.ledger._core).create("soon", ["read"], expires_at=now_ms() + 500)
    with following(running, {"Authorization": f"Bearer {secret}"}) as stream:
        to_its_end(stream)


def test_streams_of_other_tokens_continue(running: Running) -> None:
    tokens = Tokens(running.ledger._core)
    made, secret = tokens.create("leaves", ["read"])
    own = {"Authorization": f"Bearer {running.server.secret}"}
    with following(running, own) as stays:
        with following(running, {"Authorization": f"Bearer {secret}"}) as ends:
            tokens.revoke(made.id)
            to_its_end(ends)
        running.ledger.record("still-followed", "q", "r")
        while b"still-followed" not in (line := stays.readline()):
            assert line


# -- the browser ------------------------------------------------------------------------------


def test_the_login_page_fits_a_narrow_screen(browser: Browser, running: Running) -> None:
    context = browser.new_context(viewport={"width": 380, "height": 800})
    page = context.new_page()
    page.goto(running.server.address)

    card = page.locator("main").bounding_box()

    assert card is not None
    assert card["x"] >= 8
    assert card["x"] + card["width"] <= 380 - 8
    context.close()


def test_serve_starts_the_browser_with_a_code_that_logs_in(
    browser: Browser, tmp_path: Path
) -> None:
    address = str(tmp_path / "ledger.db")
    with Ledger.open(address) as ledger:
        ledger.record("here", "Hello", "Good day")
    seen = tmp_path / "arguments"
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\nprintf %s "$*" > {seen}.new\nmv {seen}.new {seen}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    command = [sys.executable, "-m", "agents_ledger.cli.main", "serve", "--port", "0"]
    environment = {**os.environ, "BROWSER": f"{script} %s", "DISPLAY": ":0"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [*command, "--ledger", address], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            printed = process.stdout.readline().strip()
            until(seen.exists)
            opened = seen.read_text(encoding="utf-8")
            assert "code=" in opened
            assert printed.partition("token=")[2] not in opened

            page = browser.new_context().new_page()
            page.goto(opened)
            expect(page.get_by_role("link", name="Sessions").first).to_be_visible()
            assert "code" not in page.url
            again = browser.new_context().new_page()
            again.goto(opened)
            expect(again.get_by_text("you are not logged in")).to_be_visible()
            again.goto(printed)
            expect(again.get_by_role("link", name="Sessions").first).to_be_visible()
        finally:
            process.terminate()
