"""The page of a thread: its header, the turn on screen, subagents, forks, times, timeline."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from playwright.sync_api import expect

from agents_ledger import Session
from tests.web.conftest import Running, Visitor

QUESTIONS = 8


def test_the_header_stays_and_the_inspector_follows_the_turn_on_screen(
    visitor: Visitor, running: Running
) -> None:
    for number in range(1, QUESTIONS + 1):
        running.ledger.record("scrolled", f"Question {number}", "A line.\n\n" * 40)
    page = visitor.open("/s/scrolled")
    bar = page.locator(".thread-bar")
    expect(bar).to_be_in_viewport()
    expect(bar.get_by_role("heading")).to_have_text("scrolled")
    expect(page.locator("#inspector h2")).to_have_text(f"Turn {QUESTIONS}")

    third = page.locator("article.card").nth(2)
    third.evaluate("card => card.scrollIntoView({behavior: 'instant'})")
    expect(page.locator("#inspector h2")).to_have_text("Turn 3")
    expect(page.locator(".rail a.chosen")).to_contain_text("Question 1")  # it is folded below this
    expect(bar).to_be_in_viewport()
    page.keyboard.press("j")
    expect(page.locator("article.card.at")).to_have_attribute("data-depth", "4")


def test_the_header_leads_to_the_other_sessions_of_the_tree(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    menu = page.locator(".branch-menu")
    menu.locator("summary").click()
    expect(menu.locator("[aria-current]")).to_have_attribute("title", "demo")
    menu.locator('a[title="demo-strict"]').click()
    expect(page.locator(".facts code").first).to_have_text("demo-strict")


def test_the_work_of_a_subagent_is_one_click_away(visitor: Visitor, running: Running) -> None:
    ledger = running.ledger
    with ledger.turn("delegating", "Check the tests") as turn:
        with turn.tool_call("Agent", {"description": "Read the tests", "prompt": "Read"}) as call:
            child = call.spawn(Session("agent-1f2e3d4c"))
            ledger.record(child.label, "Read", "All 12 tests are sound.")
            call.complete("All 12 tests are sound.")
        turn.respond("They are sound")
    page = visitor.open("/s/delegating")
    subagent = page.locator("details.subagent")
    expect(subagent.locator("b")).to_have_text("Read the tests")
    expect(subagent.locator("summary")).to_contain_text("All 12 tests are sound.")
    expect(subagent.locator("summary")).to_contain_text("1 turn")
    expect(page.locator(".rail .row.subagent")).to_contain_text("Read the tests")
    subagent.locator("summary").click()
    expect(subagent.locator("article.card .msg.response")).to_be_visible()
    subagent.get_by_role("link", name="Open Read the tests").click()
    expect(page.locator("h1")).to_contain_text("Read")


def test_a_label_in_use_is_reported_in_the_form(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    card = page.locator("article.card").nth(1)
    card.get_by_text("Fork", exact=True).click()
    card.get_by_label("New session").fill("demo")
    card.get_by_role("button", name="After this turn").click()
    form = page.locator("details.fork[open] form")
    expect(form.locator(".error")).to_be_in_viewport()
    expect(form.locator(".error")).to_contain_text("demo")
    expect(form.get_by_label("New session")).to_have_value("demo")
    visitor.complaints.clear()  # the browser logs the status of the page
    form.get_by_label("New session").fill("demo-after-all")
    form.get_by_role("button", name="After this turn").click()
    expect(page.locator(".toast")).to_contain_text("Forked as demo-after-all")


def test_times_are_those_of_the_reader(visit: Callable[..., Visitor]) -> None:
    page = visit(timezone_id="Asia/Tokyo", locale="en-GB").open("/s/demo")
    utc = page.locator("article.card time.clock").first.get_attribute("datetime")
    local = page.locator("article.card time.clock").first.inner_text()
    assert utc is not None
    assert int(local[:2]) == (int(utc[11:13]) + 9) % 24
    assert page.locator(".cards > .day").count() >= 1
    page = visit(java_script_enabled=False).open("/s/demo")
    assert page.locator("article.card time.clock").first.inner_text().endswith("UTC")


def test_a_bar_of_the_timeline_opens_its_call(visitor: Visitor, running: Running) -> None:
    with running.ledger.turn("timed", "Build it") as turn:
        for command in ("make", "make test"):
            with turn.tool_call("Bash", {"command": command}) as call:
                time.sleep(0.002)  # a bar needs a length
                call.complete(f"{command} is done")
        turn.respond("Built")
    page = visitor.open("/s/timed")
    page.locator("[data-tab=tools]").click()
    bars = page.locator("svg.timeline a")
    expect(bars).to_have_count(2)
    bars.last.click()
    call_fold = page.locator("details.call").last
    expect(call_fold).to_have_attribute("open", "")
    expect(call_fold).to_contain_text("make test is done")


def test_the_latest_sessions_stay_beside_the_conversation(
    visitor: Visitor, running: Running
) -> None:
    for label in ("beside-a", "beside-b"):
        running.ledger.record(label, f"Ask {label}", "Answer")
    page = visitor.open("/s/beside-a")
    others = page.locator(".rail .others")
    expect(others.locator("[aria-current]")).to_contain_text("beside-a")
    others.get_by_role("link", name="beside-b").click()
    page.wait_for_url(re.compile("/s/beside-b"))
    expect(others.locator("[aria-current]")).to_contain_text("beside-b")
    running.ledger.record("beside-b", "More", "Answer")  # a change of the tree leaves it open
    expect(page.locator(".rail .tree a[data-turn]")).to_have_count(2)
    expect(others.get_by_role("link", name="beside-a")).to_be_visible()
    page.locator(".rail summary", has_text="Sessions").click()
    page = visitor.open("/s/beside-a")
    expect(page.locator("article.card").first).to_be_visible()
    expect(others).not_to_have_attribute("open", "")  # it was closed
    page.set_viewport_size({"width": 380, "height": 800})
    page.evaluate("localStorage.clear()")
    page = visitor.open("/s/beside-a")
    expect(page.locator("article.card").first).to_be_visible()
    expect(others).not_to_have_attribute("open", "")  # there is no room
