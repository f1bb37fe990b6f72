"""What is running now: of the ledger's own turns, and of agents whose logs are imported."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Browser, expect

from agents_ledger import Session
from tests.importers.claude_log import SESSION, Log, text, tool
from tests.importers.helping import import_paths
from tests.web.conftest import Running, Visitor, visits
from tests.web.test_pages import every_page

LABEL = f"claude-code:{SESSION}"


def moment(minutes_ago: float = 0) -> dict[str, str]:
    at = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    return {"timestamp": at.strftime("%Y-%m-%dT%H:%M:%S.000Z")}


def test_an_agent_whose_log_grows_is_running_and_one_that_asks_waits(
    browser: Browser, own_server: Callable[[], Running], tmp_path: Path
) -> None:
    running, log = own_server(), Log(tmp_path)
    log.user("a1", "Build the shop", **moment())
    log.assistant("a2", tool("c1", "Bash", command="make shop"), **moment())
    import_paths(running.ledger, log.save())
    for new in visits(browser, running):
        page = new().open("/")
        strip = page.locator("#running li")
        expect(strip).to_contain_text("Running")
        expect(strip).to_contain_text("Build the shop")
        expect(strip).to_contain_text("make shop")
        strip.get_by_role("link", name="Follow").click()
        page.wait_for_url(re.compile("#follow$"))
        expect(page.locator("body[data-live=on]")).to_be_attached()
        expect(page.locator("article.card details.call .out")).to_have_text("running")

        log.result("a3", "c1", "built", **moment())
        log.assistant("a4", tool("c2", "AskUserQuestion", question="Which colour?"), **moment())
        import_paths(running.ledger, log.save())
        expect(page.locator("article.card details.call")).to_have_count(2)
        expect(page.locator("article.card details.call .out").first).not_to_have_text("running")
        expect(strip).to_contain_text("Waiting for a person")
        expect(strip).to_contain_text("Which colour?")


def test_an_old_log_without_an_answer_is_not_running(
    own_server: Callable[[], Running], tmp_path: Path
) -> None:
    running, log = own_server(), Log(tmp_path)
    log.user("a1", "Where is it?", **moment(minutes_ago=95))
    log.assistant("a2", text("Here."), **moment(minutes_ago=94))
    log.user("b1", "Build the shop", **moment(minutes_ago=90))
    import_paths(running.ledger, log.save())
    assert "Running now</h2>" not in running.ask("/").text
    thread = running.ask(f"/s/{LABEL}").text
    assert "no answer recorded" in thread
    assert ">pending<" not in thread
    assert "being written" not in running.ask(f"/s/{LABEL}/tree").text.partition("</p>\n<ul")[2]


def test_a_fork_and_a_moved_head_are_no_records_of_a_source(
    own_server: Callable[[], Running], tmp_path: Path
) -> None:
    running, log = own_server(), Log(tmp_path)
    log.user("a1", "Build the shop", **moment(minutes_ago=95))
    log.assistant("a2", text("Built."), **moment(minutes_ago=94))
    import_paths(running.ledger, log.save())
    running.ledger.fork(LABEL, label="t2")
    assert "Running now</h2>" not in running.ask("/").text
    running.ledger.undo(LABEL)
    running.ledger.undo(LABEL)
    assert "Running now</h2>" not in running.ask("/").text

    log.user("b1", "Paint it", **moment())
    log.assistant("b2", tool("c1", "Bash", command="paint"), **moment(minutes_ago=-0.1))
    import_paths(running.ledger, log.save())
    strip = running.ask("/").text.partition("Running now</h2>")[2].partition("</section>")[0]
    assert strip.count("<li") == 1
    assert "Paint it" in strip


def test_the_tree_the_header_and_local_times_follow_a_live_turn(
    visit: Callable[..., Visitor], running: Running
) -> None:
    running.ledger.record("followed-tree", "First question", "Answer")
    visitor = visit(timezone_id="Asia/Tokyo", locale="en-GB")
    page = visitor.open("/s/followed-tree")
    expect(page.locator("body[data-live=on]")).to_be_attached()
    expect(page.locator("#thread-bar .meta")).to_contain_text("1 turn")
    with running.ledger.turn("followed-tree", "Second question") as turn:
        expect(page.locator("#rail")).to_contain_text("Second question")
        expect(page.locator("#running")).to_contain_text("Second question")
        turn.respond("Done")
    expect(page.locator("#thread-bar .meta")).to_contain_text("2 turns")
    expect(page.locator("#running li")).to_have_count(0)
    clocks = page.locator("article.card time.clock")
    expect(clocks).to_have_count(2)
    for at in range(2):
        expect(clocks.nth(at)).not_to_contain_text("UTC")


def test_lines_of_a_list_are_reached_and_compared_by_keys(visitor: Visitor) -> None:
    page = visitor.open("/sessions?q=demo")
    links = page.locator(".sessions .what a")
    page.keyboard.press("j")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("x")
    expect(page.locator("tr.picked")).to_have_count(1)
    page.keyboard.press("j")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.wait_for_url(re.compile("/compare"))
    page = visitor.open("/search?q=seconds")
    page.locator("h1").click()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/t/"))


def test_targets_are_large_enough_for_fingers(
    visit: Callable[..., Visitor], running: Running
) -> None:
    visitor = visit(viewport={"width": 380, "height": 800})
    for path in every_page(running):
        page = visitor.open(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 380, path
        small = page.evaluate(SMALL)
        assert not small, (path, small)
    page = visitor.open("/s/demo")
    order = page.evaluate(
        "['h1', '#rail'].map((name) => document.querySelector(name).getBoundingClientRect().top)"
    )
    assert order == sorted(order)  # the title is above the tree


def test_a_turn_that_the_broker_runs_is_stopped_from_any_page(
    browser: Browser, own_server: Callable[[], Running], tmp_path: Path
) -> None:
    (tmp_path / "own-0.policy.toml").write_text('[engine]\nname = "echo"\n', encoding="utf-8")
    running = own_server()
    running.ledger.record("talk", "Hello", "Good day")
    for new in visits(browser, running):
        visitor = new()
        page = visitor.open("/s/talk")
        page.get_by_label("Message to talk").fill("/wait 600000")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("#running li")).to_contain_text("/wait 600000")
        page = visitor.open("/")
        page.locator("#running").get_by_role("button", name="Stop").click()
        expect(page.locator("#running li")).to_have_count(0)


def test_an_attempt_that_failed_stays_in_sight_and_says_why(
    browser: Browser, own_server: Callable[[], Running], tmp_path: Path
) -> None:
    (tmp_path / "own-0.policy.toml").write_text('[engine]\nname = "echo"\n', encoding="utf-8")
    running = own_server()
    running.ledger.record("talk", "Hello", "Good day")
    running.ledger.create_session(Session("new"))
    for new in visits(browser, running):
        visitor = new()
        for label in ("talk", "new"):
            page = visitor.open(f"/s/{label}")
            expect(page.locator("body[data-live=on]")).to_be_attached()
            page.get_by_label(f"Message to {label}").fill("/fail auth the key has expired")
            page.get_by_role("button", name="Send").click()
            failed = page.locator("article.card.failed")
            expect(failed.locator(".error")).to_contain_text("the key has expired")
            expect(page.locator("#running li")).to_have_count(0)
            page = visitor.open(f"/s/{label}")
            expect(failed.locator(".error")).to_be_in_viewport()
            page.get_by_label(f"Message to {label}").fill("Now it works")
            page.get_by_role("button", name="Send").click()
            answered = page.locator("article.card:not(.failed)", has_text="Now it works")
            expect(answered.locator(".msg.response")).to_be_visible()


def test_what_runs_is_seen_beside_the_turn_that_is_read(visitor: Visitor, running: Running) -> None:
    for number in range(4):
        running.ledger.record("beside-run", f"Question {number}", "A line.\n\n" * 40)
    with running.ledger.turn("beside-run", "Build it") as turn:
        page = visitor.open("/s/beside-run")
        expect(page.locator("#running li")).to_be_in_viewport(ratio=1)
        page.evaluate("scrollTo({top: 200, behavior: 'instant'})")
        expect(page.locator("#running li")).to_be_in_viewport(ratio=1)
        turn.respond("Done")


# Links within sentences may be as small as their text.
SMALL = """() => [...document.querySelectorAll("a[href], button, summary, input")]
  .filter((target) => target.closest("main"))
  .filter((target) => target.checkVisibility())
  .filter((target) => !target.closest("svg, .prose, .text-body, .seam p"))
  .map((target) => [target, target.getBoundingClientRect()])
  .filter(([target, box]) => box.width && (box.width < 24 || box.height < 23.9))
  .map(([target, box]) => `${target.outerHTML.slice(0, 80)} ${box.width} ${box.height}`)"""
