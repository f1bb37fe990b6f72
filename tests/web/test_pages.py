"""Pages in a real browser: each is opened, read, used; nothing may complain."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ViewportSize, expect

from agents_ledger import Session, ToolCall
from agents_ledger.asgi.limits import AuditLimits
from agents_ledger.cli.servers.server import Serving
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths
from tests.web.conftest import Running, Visitor, visits

# What does not depend on colours is checked once.
RULES: dict[Literal["light", "dark"], list[str]] = {
    "light": ["wcag2a", "wcag2aa", "wcag21aa"],
    "dark": ["color-contrast"],
}
WIDTHS = (380, 640, 2560)  # 640 is what a window of 1280 has left at 200 %
WINDOW: ViewportSize = {"width": 1280, "height": 800}
PAGES = (
    "/",
    "/sessions",
    "/s/demo",
    "/s/demo/tree",
    "/s/demo/tree?unfold=true",
    "/s/demo/history",
    "/s/demo-search",
    "/search",
    "/search?q=seconds",
    "/files",
    "/files/durations.py",
    "/tools",
    "/tools/Bash",
    "/usage",
    "/usage?by=model",
    "/compare",
    "/compare?a=demo&b=demo-strict",
    "/audit",
    "/imports",
    "/raw/session/demo",
    "/share/demo",
)


def head(running: Running, label: str = "demo") -> str:
    found = running.ledger.head(label)
    assert found
    return found


def every_page(running: Running) -> list[str]:
    turn = running.ledger.get_turn(head(running))
    first = running.ledger.ancestor_at("demo", 2)
    call = turn.tool_calls[0].id
    return [
        *PAGES,
        f"/t/{turn.id}",
        f"/t/{first}?alone=true",
        *(f"/t/{turn.id}?tab={tab}" for tab in ("tools", "files", "context", "raw")),
        f"/t/{turn.id}/call/{call}",
        f"/t/{turn.id}/message/{turn.messages[0].id}",
        f"/t/{turn.id}/steps",
        f"/t/{first}/branches",
        f"/raw/turn/{turn.id}",
        f"/raw/calls/{turn.id}",
    ]


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.exhaustive)])
def test_every_page_opens_and_is_accessible(
    visitor: Visitor, running: Running, scheme: Literal["light", "dark"]
) -> None:
    axe = Axe()
    visitor.page.emulate_media(color_scheme=scheme)
    for path in every_page(running):
        page = visitor.open(path)
        assert page.locator("h1").count() == 1, path
        found = axe.run(page, options={"runOnly": RULES[scheme], "resultTypes": ["violations"]})
        assert found.violations_count == 0, (path, scheme, found.generate_report())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)
        page.set_viewport_size(WINDOW)


def test_imports_and_failures_fit_a_phone(
    own_server: Callable[[], Running], browser: Browser, tmp_path: Path
) -> None:
    running = own_server()
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    import_paths(running.ledger, log.save())
    said = '400 {"type":"error","error":{"type":"invalid_request_error","message":"too_long"}}'
    running.ledger.record("main", "Go on.", status="failed", error=said)
    for new in visits(browser, running):
        visitor = new(viewport={"width": 360, "height": 740})
        for path in ("/imports", "/audit"):
            page = visitor.open(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        run = visitor.open("/imports").locator("td.run a").first.bounding_box()
        assert run
        assert run["height"] < 30  # in one line


def test_a_search_can_be_read_on_a_phone(visit: Callable[..., Visitor]) -> None:
    page = visit(viewport={"width": 380, "height": 800}).open("/search?q=durations")

    words = page.get_by_role("searchbox", name="Search all turns").bounding_box()
    assert words
    assert words["width"] > 300


def test_nothing_is_said_of_permissions_that_could_not_be_checked(
    own_server: Callable[[], Running],
) -> None:
    running = own_server()
    running.ledger.record("main", "Look", "Done", steps=[ToolCall.of("Bash", {}, "ok")])

    page = running.ask("/audit").text

    assert "1 call could not be checked" in page
    assert "No tool was used without permission" not in page


def test_a_search_without_a_result_says_what_to_try(running: Running) -> None:
    page = running.ask("/search?q=zzzqq").text
    assert "Nothing was found for “zzzqq”." in page
    assert "Use fewer or shorter words" in page


def test_names_of_tools_are_not_broken_within_words(own_server: Callable[[], Running]) -> None:
    running = own_server()
    call = ToolCall.of("mcp__github_server__get_commit_status", {}, "ok")
    running.ledger.record("main", "Look", "Done", steps=[call, ToolCall.of("exec_command", {}, "")])
    text = running.ask("/tools").text
    assert "mcp__<wbr>github_<wbr>server__<wbr>get_<wbr>commit_<wbr>status" in text


def test_pages_can_be_read_without_scripts(visit: Callable[..., Visitor], running: Running) -> None:
    visitor = visit(java_script_enabled=False)

    page = visitor.open("/s/demo")
    page.get_by_text("pytest -q tests/test_durations.py").click()
    page.get_by_role("link", name="Open this call").first.click()
    assert "14 passed" in page.locator("main").inner_text()
    page = visitor.open("/s/demo")
    page.locator("article.card").nth(1).get_by_role("link", name="Inspect").click()
    assert "Fix it" not in page.locator("#inspector").inner_text()
    assert "Turn 2" in page.locator("#inspector").inner_text()


def test_title_star_and_note_can_be_edited(visitor: Visitor, running: Running) -> None:
    running.ledger.record("noted", "One", "1")
    page = visitor.open("/s/noted")

    page.get_by_role("button", name="Star", exact=True).click()
    page.get_by_text("Edit", exact=True).click()
    page.get_by_label("Title").fill("<b>A name</b>")
    page.get_by_label("Note").fill("Remember this")
    page.get_by_role("button", name="Save").click()

    assert page.locator("h1").inner_text() == "<b>A name</b>"
    session = running.ledger.session("noted")
    assert (session.title, session.starred, session.note) == (
        "<b>A name</b>",
        True,
        "Remember this",
    )
    visitor.open("/sessions?starred=true")
    assert page.locator(".sessions tbody tr").count() == 1


def test_sessions_are_filtered_by_the_address(visitor: Visitor) -> None:
    page = visitor.open("/sessions?q=strict")
    assert page.locator(".sessions tbody .what a").all_inner_texts() == ["demo-strict"]
    page.get_by_label("subagents").check()
    page.get_by_label("Contains").fill("demo-s")
    page.keyboard.press("Enter")

    expect(page.locator(".sessions tbody tr")).to_have_count(2)
    page.wait_for_url(re.compile("subagents=true"))
    page.get_by_label("Updated").select_option("last week")
    page.wait_for_url(re.compile("days=7"))
    expect(page.locator(".sessions tbody tr")).to_have_count(2)


def test_the_tree_has_its_forks_compaction_subagent_and_labels(visitor: Visitor) -> None:
    page = visitor.open("/s/demo/tree")
    rows = page.locator(".tree .row")

    kinds = rows.evaluate_all("rows => rows.map((row) => row.className.split(' ')[2])")
    assert kinds.count("compaction") == 1
    assert kinds.count("subagent") == 1
    assert kinds.count("failed") == 1
    assert kinds.count("fork") == 2
    flags = page.locator(".flag").all_inner_texts()
    # Other tests fork the demonstration too.
    assert [flag for flag in flags if flag in ("demo", "demo-strict")] == ["demo-strict", "demo"]
    assert "compacted 2 turns" in page.locator(".row.compaction").inner_text()


def test_two_branches_are_compared_file_by_file(visitor: Visitor) -> None:
    page = visitor.open("/compare?a=demo&b=demo-strict")
    known = page.locator("details.written", has_text="durations.py")
    assert known.locator(".del").inner_text().endswith('UNITS[unit or "s"]')
    assert "raise ValueError" in known.locator(".ins").nth(1).inner_text()
    unknown = page.locator("details.written", has_text="CHANGELOG.md")
    assert "## Unreleased" in unknown.locator("section").first.inner_text()
    assert "did not write" in unknown.locator("section").last.inner_text()


def test_a_session_without_a_title_is_shown_by_its_first_prompt(
    visitor: Visitor, running: Running
) -> None:
    label = "some-agent:0a1b2c3d-0000-4000-8000-000000000000"
    running.ledger.create_session(Session(label, created_as="import"))
    running.ledger.record(
        label, ["<context>made by a program</context>", "Sort the shelves"], "Yes"
    )
    running.ledger.record(label, "And the drawers", "Yes")
    page = visitor.open("/sessions?q=0a1b2c3d")
    row = page.locator(".sessions tbody tr")
    assert row.locator("a").inner_text() == "Sort the shelves"
    assert row.locator(".second").inner_text() == "And the drawers"
    assert row.locator("a").get_attribute("title") == label


def test_a_large_ledger_is_audited_in_the_background(
    browser: Browser, own_server: Callable[..., Running]
) -> None:
    running = own_server(Serving(port=0, audits=AuditLimits(quick_turns=0, wait_s=0)))
    running.ledger.record("main", "q", "a")
    for new in visits(browser, running):
        page = new().open("/audit")
        assert page.get_by_text("Every rule holds.").count() == 0
        page.get_by_role("button", name="Check every rule now").click()
        expect(page.get_by_text("Every rule holds.")).to_be_visible()


def test_arrow_keys_move_in_the_tree(visitor: Visitor) -> None:
    page = visitor.open("/s/demo/tree")
    page.locator("[role=treeitem]").first.focus()
    texts = []
    for key in ("ArrowDown", "ArrowDown", "End", "Home"):
        page.keyboard.press(key)
        texts.append(page.evaluate("document.activeElement.textContent").strip())
    assert "Refuse numbers" in texts[0]
    assert "Fix it" in texts[1]
    assert "demo" in texts[2]
    assert "Why does" in texts[3]
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/t/"))


def test_history_lists_every_move_and_links_to_the_past(visitor: Visitor, running: Running) -> None:
    page = visitor.open("/s/demo/history")
    assert page.locator(".moves tbody tr").count() == 5
    page.get_by_role("link", name="the thread at that time").nth(2).click()

    assert "As of " in page.locator(".notice").inner_text()
    assert page.locator("article.card").count() == 3


def test_a_fork_is_created_from_a_turn(visitor: Visitor, running: Running) -> None:
    page = visitor.open("/s/demo")
    card = page.locator("article.card").nth(1)
    card.get_by_text("Fork", exact=True).click()
    card.get_by_label("New session").fill("tried / again")
    card.get_by_role("button", name="After this turn").click()

    expect(page.locator(".toast")).to_be_in_viewport()
    expect(page.locator(".toast")).to_contain_text("Forked as tried / again at turn 2")
    assert page.locator(".toast .command code").inner_text().endswith("'tried / again'")
    fork = running.ledger.session("tried / again")
    assert fork.thread_id == running.ledger.ancestor_at("demo", 2)
    assert page.url.endswith("/s/tried%20%2F%20again?forked=true")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("article.card.at")).to_have_attribute("data-turn", str(fork.thread_id))
    assert running.ledger.session("tried / again").status == "archived"


def test_invalid_requests_show_an_error_page(visitor: Visitor) -> None:
    page = visitor.page
    answers: list[Any] = [
        page.goto(visitor.running.server.address.rstrip("/") + path)
        for path in (
            "/s/nobody",
            "/t/nothing-like-it",
            "/raw/secret/x",
            "/nowhere",
            "/usage?by=sun",
        )
    ]

    assert [answer.status for answer in answers] == [404, 404, 404, 404, 422]
    visitor.complaints.clear()  # the browser tells of every 404


def test_a_large_turn_is_paged(visitor: Visitor, running: Running) -> None:
    steps = [ToolCall.of("Bash", {"command": f"echo {n}"}, "x" * 500) for n in range(300)]
    running.ledger.record("long-turn", "Do much", "Done", steps=steps)
    answer = running.ask("/s/long-turn")
    page = visitor.open("/s/long-turn")

    assert len(answer.body) < 300_000
    assert page.locator("details.call").count() == 58
    page.get_by_role("link", name="242 more steps").click()
    assert page.locator("details.call").count() == 49
    page.get_by_role("link", name="More steps").click()
    assert "echo 60" in page.locator("main").inner_text()


def test_a_long_thread_is_paged(visitor: Visitor, running: Running) -> None:
    for number in range(120):
        running.ledger.record("long", f"Question {number} " + "y" * 3000, "Answer " + "x" * 6000)
    answer = running.ask("/s/long")
    assert len(answer.body) < 300_000
    page = visitor.open("/s/long")
    shown = page.locator("article.card").count()
    assert 5 < shown <= 50
    assert page.evaluate("document.querySelectorAll('*').length") < 5000

    before = page.locator("article.card").first.bounding_box()
    page.locator("a.older").click()
    expect(page.locator("article.card")).not_to_have_count(shown)
    assert before
    assert page.locator("article.card").count() > shown
    assert "120 turns" not in page.locator(".rail").inner_text()
    assert "118 turns" in page.locator(".rail").inner_text()


def test_an_empty_ledger_offers_to_import_histories(
    browser: Browser,
    own_server: Callable[[], Running],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".claude" / "projects" / "-home-user-shelves"
    folder.mkdir(parents=True)
    log = Log(folder)
    log.user("u1", "Sort the shelves")
    log.assistant("a1", text("By colour."))
    log.save()
    running = own_server()
    for new in visits(browser, running):
        page = new().open("/")
        assert "claude-code 1 file" in page.locator(".start").inner_text()
        page.get_by_role("button", name="Import everything").click()
        page.wait_for_url(re.compile("/imports"))
        expect(page.locator("table", has_text="Updated")).to_contain_text("1")
        page.get_by_role("link", name="Agents Ledger, home").click()
        expect(page.locator(".sessions")).to_contain_text("Sort the shelves")


def test_an_empty_ledger_without_histories_explains_imports(
    browser: Browser,
    own_server: Callable[[], Running],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for new in visits(browser, own_server()):
        page = new().open("/")
        assert "No history of an agent was found" in page.locator(".start").inner_text()
        assert "agents-ledger import" in page.locator(".start").inner_text()
        page = new().open("/imports")
        assert "Nothing was imported yet" in page.locator("main").inner_text()
