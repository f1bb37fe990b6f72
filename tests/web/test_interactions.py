"""What pages do: keys, palette, folds, marks, live turns, replay."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from agents_ledger import ToolCall
from tests.web.conftest import Running, Visitor, visits


def at(page: Page) -> str:
    return str(page.locator("article.card.at").get_attribute("data-depth"))


def test_keys_move_from_turn_to_turn(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert at(page) == "3"
    page.keyboard.press("j")
    assert at(page) == "4"
    expect(page.locator("#inspector h2")).to_have_text("Turn 4")
    page.keyboard.press("K")
    assert at(page) == "3"
    page.keyboard.press("J")
    assert at(page) == "5"


def test_a_key_changes_the_level_of_detail_and_a_cookie_keeps_it(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("1")
    expect(page.locator("details.call").first).to_be_hidden()
    expect(page.locator(".msg.response").first).to_be_hidden()
    expect(page.locator(".msg.query").first).to_be_visible()
    page.keyboard.press("2")
    expect(page.locator(".msg.response").first).to_be_visible()
    page.keyboard.press("4")
    expect(page.locator("details.thinking").first).to_be_visible()

    page = visitor.open("/s/demo")
    expect(page.locator("details.thinking").first).to_be_visible()
    page.get_by_role("button", name="Tools", exact=True).click()
    expect(page.locator("details.thinking").first).to_be_hidden()


def test_a_tool_row_loads_its_body_when_it_is_opened(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    row = page.locator("details.call", has_text="pytest -q tests/test_durations.py")
    assert "14 passed" not in row.inner_text()
    row.locator("summary").click()
    expect(row).to_contain_text("14 passed")
    edit = page.locator("details.call", has_text="Edit").first
    edit.locator("summary").click()
    expect(edit.locator(".ins")).to_have_text('+unit or "s"')
    expect(edit.locator(".del")).to_have_text('-unit or "h"')


def test_help_lists_the_keys_and_escape_closes_it(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_two_keys_open_a_page(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url(re.compile("/sessions$"))
    page.locator("body").click(position={"x": 5, "y": 300})
    page.keyboard.press("g")
    page.keyboard.press("u")
    page.wait_for_url(re.compile("/usage$"))


def test_brackets_open_the_next_and_previous_session(visitor: Visitor) -> None:
    page = visitor.open("/sessions?q=demo")
    first, second = page.locator(".sessions .what a").evaluate_all(
        "links => links.slice(0, 2).map((link) => link.pathname)"
    )
    page.locator(".sessions .what a").first.click()
    page.wait_for_url(re.compile(re.escape(first) + "$"))
    page.keyboard.press("]")
    page.wait_for_url(re.compile(re.escape(second) + "$"))
    page.keyboard.press("[")
    page.wait_for_url(re.compile(re.escape(first) + "$"))


def test_two_marked_turns_are_compared(visitor: Visitor, running: Running) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.locator("article.card.picked")).to_have_count(1)
    page = visitor.open("/s/demo-strict")
    page.locator("article.card").last.get_by_role("button", name="to compare").click()
    page.wait_for_url(re.compile("/compare"))
    assert "They part after turn 1" in page.locator("main").inner_text()


def test_the_branch_switcher_leads_to_the_sibling(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.get_by_text("1 of 2").click()
    page.get_by_role("link", name="Refuse numbers without a unit.").last.click()
    page.wait_for_url(re.compile("/t/"))
    assert page.locator("article.card").count() == 2
    assert "Refuse numbers" in page.locator("article.card.at").inner_text()


def test_arrows_lead_from_branch_to_branch(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.get_by_role("link", name="Next branch").first.click()
    page.wait_for_url(re.compile("/t/"))
    assert "Refuse numbers" in page.locator("article.card.at").inner_text()
    page.get_by_role("link", name="Previous branch").click()
    expect(page.locator("article.card.at")).to_contain_text("Fix it")


def test_a_link_to_a_call_or_a_message_opens_it_in_its_turn(
    visitor: Visitor, running: Running
) -> None:
    long = "So it begins. " + "more " * 400 + "the end" + " more" * 400
    call = ToolCall.of("Bash", {"command": "make"}, "all is built")
    turn = running.ledger.record("linked", long, "Done", steps=[call])
    page = visitor.open("/s/linked")
    page.locator("details.call summary").click()
    page.get_by_role("link", name="In its turn").click()
    page.reload()
    expect(page.locator("details.call")).to_have_attribute("open", "")
    expect(page.locator("details.call")).to_contain_text("all is built")
    page.locator("a.who").first.click()
    assert page.url.endswith(f"#m-{turn.messages[0].id}")
    page = visitor.open(f"/t/{turn.id}?mark=end")
    expect(page.locator("details.rest")).to_have_attribute("open", "")
    expect(page.locator("details.rest mark")).to_have_text("end")


def test_a_link_from_a_search_marks_the_words(visitor: Visitor, running: Running) -> None:
    turn = running.ledger.ancestor_at("demo", 2)
    page = visitor.open(f"/t/{turn}?mark=seconds")
    assert at(page) == "2"
    assert page.locator("article.card.at mark").first.inner_text() == "seconds"


def test_the_theme_is_changed_and_remembered(visitor: Visitor) -> None:
    page = visitor.open("/sessions")
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.get_by_role("button", name="Light or dark").click()
    after = page.evaluate(colour)
    assert before != after
    visitor.open("/sessions")
    assert page.evaluate(colour) == after
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_the_inspector_is_switched_off_and_on(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press(".")
    expect(page.locator("#inspector")).to_be_hidden()
    page.keyboard.press(".")
    expect(page.locator("#inspector")).to_be_visible()
    page.locator("[data-tab=tools]").click()
    expect(page.locator("#inspector .calls")).to_contain_text("Edit")
    page.locator("[data-tab=context]").click()
    expect(page.locator("#inspector")).to_contain_text("None was recorded")


def test_a_live_turn_appears_without_moving_the_page(visitor: Visitor, running: Running) -> None:
    for number in range(12):
        running.ledger.record("live", f"Question {number}", "Answer\n\n" * 30)
    page = visitor.open("/s/live")
    expect(page.locator("body[data-live=on]")).to_be_attached()
    page.evaluate("scrollTo({top: 100, behavior: 'instant'})")
    where = page.evaluate("scrollY")

    with running.ledger.turn("live", "What now?") as turn:
        expect(page.locator("article.card.live")).to_have_count(1)
        turn.stream("So far")
        expect(page.locator("[data-partial]")).to_have_text("So far")
        with turn.tool_call("Read", {"path": "a.py"}) as call:
            call.complete("x")
        expect(page.locator("article.card.live details.call")).to_have_count(1)
        turn.respond("All of it")

    expect(page.locator("article.card.live")).to_have_count(0)
    expect(page.locator("article.card").last).to_contain_text("All of it")
    expect(page.locator("#running li")).to_have_count(0)
    assert page.evaluate("scrollY") == where
    expect(page.locator(".pill")).to_have_text("1 new")
    expect(page.locator(".unread")).to_have_count(1)
    page.locator(".pill").click()
    expect(page.locator(".pill")).to_have_count(0)


def test_a_filter_applies_as_it_changes_and_back_restores_the_list(
    visitor: Visitor, running: Running
) -> None:
    running.ledger.record("filter-pear", "Hello", "Good day")
    page = visitor.open("/sessions")
    before = page.locator(".sessions tbody tr").count()
    page.evaluate("window.isSamePage = true")
    page.get_by_label("Contains").fill("filter-pear")
    expect(page.locator(".sessions tbody tr")).to_have_count(1)
    page.wait_for_url(re.compile(r"q=filter-pear"))
    expect(page.get_by_label("Contains")).to_be_focused()
    page.get_by_label("Status").select_option("archived")
    expect(page.locator(".sessions tbody tr")).to_have_count(0)
    page.go_back()
    expect(page.locator(".sessions tbody tr")).to_have_count(1)
    expect(page.get_by_label("Status")).to_have_value("active")
    page.go_back()
    expect(page.locator(".sessions tbody tr")).to_have_count(before)
    expect(page.get_by_label("Contains")).to_have_value("")
    assert page.evaluate("window.isSamePage")


def test_a_refresh_does_not_cancel_what_a_person_asked_for(
    visitor: Visitor, running: Running
) -> None:
    running.ledger.record("slow-b", "First", "Done.")
    running.ledger.record("slow-a", "First", "Done.")
    page = visitor.open("/sessions?q=slow-")
    names = page.locator(".sessions .what a")
    expect(names.first).to_have_attribute("href", "/s/slow-a")
    expect(page.locator("body[data-live=on]")).to_be_attached()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile("sort=name"), hold)
    page.locator("th a", has_text="Session").click()
    running.ledger.record("slow-b", "Second", "Done.")
    page.wait_for_timeout(600)  # longer than a refresh waits
    held[0].continue_()
    page.wait_for_url(re.compile("sort=name"))
    expect(names.first).to_have_attribute("href", "/s/slow-a")


def test_an_update_keeps_focus_scroll_and_open_folds(visitor: Visitor, running: Running) -> None:
    for number in range(3):
        running.ledger.record("kept", f"Question {number}", "Answer\n\n" * 30)
    page = visitor.open("/s/kept")
    expect(page.locator("body[data-live=on]")).to_be_attached()
    with running.ledger.turn("kept", "What now?") as turn:
        with turn.tool_call("Bash", {"command": "make"}) as call:
            row = page.locator("article.card.live details.call")
            expect(row).to_have_class(re.compile("pending|running"))
            row.locator("summary").click()
            row.locator("summary").focus()
            before = row.locator("summary").bounding_box()
            call.complete("all is built")
        expect(row).to_have_class(re.compile("completed"))
        expect(row).to_contain_text("all is built")
        turn.stream("It is **bold**")
        expect(page.locator("[data-partial] strong")).to_have_text("bold")
        expect(row).to_have_attribute("open", "")
        expect(row.locator("summary")).to_be_focused()
        after = row.locator("summary").bounding_box()
        # In the window: what grows above the row moves the scroll position with it.
        assert before
        assert after
        assert abs(after["y"] - before["y"]) <= 1


def test_an_update_keeps_what_is_selected(visitor: Visitor, running: Running) -> None:
    with running.ledger.turn("selected", "Read this sentence") as turn:
        page = visitor.open("/s/selected")
        expect(page.locator("body[data-live=on]")).to_be_attached()
        page.evaluate(
            "getSelection().selectAllChildren(document.querySelector('.msg.query .text-body'))"
        )
        selected = page.evaluate("getSelection().toString().trim()")
        assert selected == "Read this sentence"
        turn.stream("It is **bold**")
        expect(page.locator("[data-partial] strong")).to_have_text("bold")
        assert page.evaluate("getSelection().toString().trim()") == selected
        turn.respond("Done")


@pytest.mark.parametrize(
    "path", ["/sessions", "/files", "/tools", "/usage", "/compare", "/search?q=seconds"]
)
def test_every_list_is_walked_with_keys(visitor: Visitor, path: str) -> None:
    page = visitor.open(path)
    page.locator("h1").click()
    texts = []
    for key in ("j", "n", "k"):
        page.keyboard.press(key)
        texts.append(page.evaluate("document.activeElement.href"))
    assert texts[0]
    assert texts[2] == texts[0]
    page.keyboard.press("Enter")
    page.wait_for_url(texts[0])


def test_a_thread_is_printed_without_controls(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.emulate_media(media="print")
    for hidden in (".bar", ".rail", ".inspector", ".tools", ".acts"):
        expect(page.locator(hidden).first).to_be_hidden()
    expect(page.locator("article.card")).to_have_count(5)
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.thread-bar')).position")
        == "static"
    )


def test_home_and_sessions_show_what_is_running_now(visitor: Visitor, running: Running) -> None:
    for path in ("/", "/sessions"):
        page = visitor.open(path)
        expect(page.locator("body[data-live=on]")).to_be_attached()
        strip = page.locator("#running")
        with running.ledger.turn("busy", "Build it all") as turn:
            with turn.tool_call("Bash", {"command": "make"}) as call:
                expect(strip).to_contain_text("Build it all")
                expect(strip).to_contain_text("Bash")
                call.complete("built")
            expect(strip).not_to_contain_text("Bash")
            turn.respond("Done")
        expect(strip).not_to_contain_text("Build it all")


def test_a_reader_who_follows_stays_at_the_end(visitor: Visitor, running: Running) -> None:
    with running.ledger.turn("followed", "Tell me") as turn:
        page = visitor.open("/s/followed#follow")
        follow = page.get_by_role("button", name="Follow")
        expect(follow).to_have_attribute("aria-pressed", "true")
        turn.stream("A line\n\n" * 100)
        expect(page.locator("#tail")).to_be_in_viewport()
        expect(page.locator("[data-partial] p")).to_have_count(100)
        expect(page.locator("#tail")).to_be_in_viewport()
        follow.click()
        expect(follow).to_have_attribute("aria-pressed", "false")
        turn.respond("Done")


def test_replay_steps_through_messages_and_calls(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.locator("h1").click()
    page.keyboard.press("Space")
    expect(page.locator(".replay")).to_be_visible()
    expect(page.locator("article.card.future")).to_have_count(4)
    page.get_by_label("Speed").select_option("8")
    expect(page.locator("article.card.future")).to_have_count(0)
    expect(page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    page.locator(".scrub input").fill("2")
    expect(page.locator("article.card.future")).to_have_count(4)
    expect(page.locator(".replay .where")).to_contain_text("turn 1, step 2 of")
    expect(page.locator("article.card").first.locator(".msg.query.future")).to_have_count(0)
    expect(page.locator("article.card").first.locator(".msg.response.future")).to_have_count(1)
    assert page.locator(".scrub .compaction").count() >= 1
    page.locator("h1").click()
    page.keyboard.press("Escape")
    expect(page.locator(".replay")).to_have_count(0)
    expect(page.locator("article.card.future")).to_have_count(0)


def test_text_is_copied(visit: Callable[..., Visitor]) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    page = visitor.open("/s/demo")
    page.get_by_role("button", name="Copy label").click()
    expect(page.locator("#status")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "demo"


def test_everything_can_be_done_without_a_mouse(visitor: Visitor, running: Running) -> None:
    page = visitor.open("/")
    page.keyboard.type("strict numbers unit")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/search"))
    reach(page, "Refuse numbers without a unit.")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/t/"))
    assert at(page) == "2"
    page.keyboard.press("x")
    page.keyboard.press("f")
    page.keyboard.type("by-hand")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/s/by-hand"))
    page.keyboard.press("k")
    page.keyboard.press("o")
    expect(page.locator("article.card.at details.call").first).to_contain_text("durations.py:14")
    page.keyboard.press("x")
    page.wait_for_url(re.compile("/compare"))
    reach(page, "Tools")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/tools"))
    assert running.ledger.session("by-hand").thread_id == running.ledger.head("demo-strict")


def reach(page: Page, name: str) -> None:
    """Press Tab until a link of this name has the focus, which is to be seen."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == name:
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"
            return
    raise AssertionError(f"{name} cannot be reached")


def test_the_messages_of_a_turn_can_be_copied(visit: Callable[..., Visitor]) -> None:
    visitor = visit(permissions=["clipboard-read", "clipboard-write"])
    page = visitor.open("/s/demo-strict")
    page.keyboard.press("c")
    expect(page.locator("#status")).to_have_text("Copied")
    said = page.evaluate("navigator.clipboard.readText()")
    assert said.startswith("user: Refuse numbers without a unit.")
    assert "raises ValueError" in said
    page = visitor.open("/")
    page.get_by_role("button", name="Copy the command").first.click()
    expect(page.locator("#status")).to_have_text("Copied")
    assert "agents-ledger chat" in page.evaluate("navigator.clipboard.readText()")


def test_the_palette_offers_the_commands_of_the_page(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    page.keyboard.press("Control+k")
    page.keyboard.type("prompts only")
    command = page.locator("#palette [id^=command]", has_text="Prompts only")
    expect(command).to_be_visible()
    command.click()
    expect(page.locator("body")).to_have_attribute("data-zoom", "1")
    page.keyboard.press("Control+k")
    page.keyboard.type("fork from")
    page.locator("#palette [id^=command]", has_text="Fork from this turn").click()
    expect(page.locator("details.fork[open] input[name=label]")).to_be_focused()
    page.keyboard.press("Escape")


def test_the_palette_finds_sessions_turns_and_pages(visitor: Visitor) -> None:
    page = visitor.open("/usage")
    page.keyboard.press("/")
    options = page.locator("#palette [role=option]")
    expect(options.first).to_be_visible()
    page.keyboard.type("usag")
    expect(page.locator("#palette")).to_contain_text("Usage")
    page.locator("#palette input").fill("strict")
    expect(options.first).to_contain_text("demo-strict")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/s/demo-strict"))
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_a_search_result_leads_to_the_turn_with_the_words_marked(visitor: Visitor) -> None:
    page = visitor.open("/")
    expect(page.locator(".big-find input")).to_be_focused()
    page.keyboard.type("seconds")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search\?q=seconds"))
    assert page.locator(".snippet mark").first.inner_text() == "seconds"
    page.locator(".hit .asked").last.click()
    page.wait_for_url(re.compile(r"/t/.*mark=seconds"))
    expect(page.locator("article.card.at mark").first).to_have_text("seconds")
    visitor.open("/search?q=before:nonsense")


def test_a_link_narrows_a_search(visitor: Visitor) -> None:
    page = visitor.open("/search?q=seconds")
    found = page.locator(".hit").count()
    page.locator(".facets").get_by_role("link", name="Tool calls").click()
    expect(page.locator(".chips")).to_contain_text("Tool calls")
    assert 0 < page.locator(".hit").count() < found
    page.locator(".chips a").click()
    expect(page.locator(".hit")).to_have_count(found)


def test_a_message_typed_on_the_page_continues_the_session(
    browser: Browser, tmp_path: Path, own_server: Callable[[], Running]
) -> None:
    (tmp_path / "own-0.policy.toml").write_text('[engine]\nname = "echo"\n', encoding="utf-8")
    running = own_server()
    running.ledger.record("talk", "Hello", "Good day")
    for new in visits(browser, running):
        page = new().open("/s/talk")
        page.get_by_label("Message to talk").fill("What did I say?")
        page.get_by_role("button", name="Send").click()
        expect(page.locator("article.card")).to_have_count(2)
        expect(page.locator("article.card").last).to_contain_text("What did I say?")
        expect(page.locator("article.card").last.locator(".msg.response")).to_be_visible()
    assert running.ledger.thread("talk").depth == 2
