"""The changelog of a file over all sessions, and the versions of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from agents_ledger import Ledger, Message, ToolCall
from tests.builders import a_message
from tests.web.conftest import Running, Visitor, visits

PATH = "/home/me/greet.py"


def _edit(call_id: str, old: str, new: str, **fields: Any) -> ToolCall:
    params = {"file_path": PATH, "old_string": old, "new_string": new}
    return ToolCall("Edit", json.dumps(params), id=call_id, **fields)


def _record(ledger: Ledger) -> None:
    """Two agents change one file; calls that were rejected or failed change nothing."""
    whole = json.dumps({"file_path": PATH, "content": "hello\nworld\n"})
    start = ledger.record(
        "first", "greet the world", "done", steps=[ToolCall("Write", whole, "{}", id="write")]
    )
    steps: list[Message | ToolCall] = [
        _edit("edit", "world", "everyone", result_json="{}"),
        _edit("failed", "hello", "bye", status="failed", error="not found"),
        _edit("rejected", "hello", "ciao", status="rejected"),
        ToolCall("Read", json.dumps({"file_path": PATH}), '"hello\\neveryone\\n"', id="read"),
    ]
    ledger.record("first", "greet everyone", "done", steps=steps)
    ledger.annotate("first", title="Write a greeting")
    ledger.fork(start.id, label="second")
    ledger.record(
        "second", "shout", "done", steps=[_edit("shout", "hello", "HELLO", result_json="{}")]
    )
    ledger.record(
        "third", a_message("patch it"), "done", steps=[_edit("blind", "a", "b", result_json="{}")]
    )


@pytest.fixture
def greetings(own_server: Callable[..., Running], browser: Browser) -> Any:
    server = own_server()
    _record(server.ledger)
    visitors = visits(browser, server)
    yield next(visitors)()
    next(visitors, None)


def test_a_file_with_its_diffs_is_two_clicks_away(greetings: Visitor) -> None:
    page = greetings.page
    page.get_by_role("navigation").first.get_by_role("link", name="Files").click()
    page.get_by_role("link", name=PATH).click()
    expect(page.locator(".change[open] .diff").first).to_be_visible()
    expect(page.locator(".changes header > a")).to_have_text(
        ["patch it", "shout", "greet everyone", "greet the world"]
    )
    expect(page.locator(".change")).to_have_count(4)
    expect(page.get_by_text("bye")).to_have_count(0)
    expect(page.get_by_text("ciao")).to_have_count(0)
    everyone = page.locator(".changes", has_text="greet everyone")
    expect(everyone.get_by_role("link", name="Write a greeting")).to_be_visible()
    expect(everyone.locator(".ins")).to_have_text("+everyone")
    expect(everyone.locator(".added")).to_have_text("+1")
    expect(everyone.locator(".removed")).to_have_text("-1")
    everyone.get_by_role("link", name="This call", exact=True).click()
    expect(page.get_by_role("heading", name="Edit")).to_be_visible()


def test_a_version_is_the_file_on_its_own_branch(greetings: Visitor) -> None:
    page = greetings.open(f"/files/{quote(PATH, safe='')}")
    page.locator(".changes", has_text="shout").get_by_role(
        "link", name="File after this call"
    ).click()
    expect(page.locator("pre.text")).to_have_text("HELLO\nworld\n", use_inner_text=True)
    page.get_by_role("link", name="All changes").click()
    blind = page.locator(".changes", has_text="patch it")
    expect(blind.locator(".ins")).to_have_text("+b")
    expect(blind.get_by_role("link", name="File after this call")).to_have_count(0)


def test_reads_are_shown_on_request(greetings: Visitor) -> None:
    page = greetings.open(f"/files/{quote(PATH, safe='')}")
    page.get_by_role("link", name="Show 1 read").click()
    page.get_by_role("link", name="File as it was read").click()
    expect(page.locator("pre.text")).to_have_text("hello\neveryone\n", use_inner_text=True)
