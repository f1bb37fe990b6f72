"""The jobs that people open the Command Center for, in a browser, counting the clicks."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.model.turns import ToolCall
from tests.waiting import until
from tests.web.conftest import Running, Visitor, visits

DAY_MS = 86_400_000
SECRET = "sk-ant-api03-" + "Ab3dE" * 12  # the format of a key; it opens nothing


class Clicks:
    """Clicks on a page, counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.count = 0

    def __call__(self, selector: str, **options: Any) -> None:
        self.page.locator(selector, **options).first.click()
        self.count += 1


def test_a_conversation_is_previewed_and_shared_with_two_clicks(
    visitor: Visitor, running: Running, tmp_path: Path, browser: Browser
) -> None:
    running.ledger.record("job-share", f"Use the key {SECRET} please", "I used it.")
    page = visitor.open("/s/job-share")
    click = Clicks(page)
    click(".tools a", has_text="Share")
    preview = page.frame_locator("iframe.preview")
    expect(preview.locator("body")).to_contain_text("I used it.")
    expect(preview.locator("body")).not_to_contain_text(SECRET)
    expect(page.locator(".share table .shown").first).to_be_visible()
    with page.expect_download() as download:
        click("button", has_text="Download")
    assert click.count == 2
    file = tmp_path / "shared.html"
    download.value.save_as(file)
    assert SECRET not in file.read_text()
    with browser.new_context(offline=True) as context:
        offline = context.new_page()
        asked: list[str] = []
        offline.on("request", lambda request: asked.append(request.url))
        offline.goto(file.as_uri())
        expect(offline.locator("main")).to_contain_text("I used it.")
        assert asked == [file.as_uri()]


def test_a_long_conversation_is_previewed_and_shared_with_two_clicks(
    visitor: Visitor, running: Running
) -> None:
    for number in range(120):
        running.ledger.record("job-share-long", f"Question {number} {SECRET}", "Answer.")
    page = visitor.open("/s/job-share-long")
    click = Clicks(page)
    click(".tools a", has_text="Share")
    preview = page.frame_locator("iframe.preview")
    expect(preview.locator("body")).to_contain_text("Question 119")
    expect(preview.locator("body")).not_to_contain_text(SECRET)
    expect(page.locator(".share table .shown").first).to_be_visible()
    with page.expect_download():
        click("button", has_text="Download")
    assert click.count == 2


def test_the_preview_follows_the_options(visitor: Visitor, running: Running) -> None:
    running.ledger.record("job-preview", f"Use the key {SECRET} please", "I used it.")
    page = visitor.open("/share/job-preview")
    page.locator("select[name=mask]").select_option("false")
    expect(page.frame_locator("iframe.preview").locator("body")).to_contain_text(SECRET)


def test_a_decision_inside_a_tool_result_is_found_with_one_click(
    visitor: Visitor, running: Running
) -> None:
    noise = [
        ToolCall.of("Bash", {"command": f"echo {n}"}, {"stdout": "nothing"}) for n in range(90)
    ]
    notes = "\n".join(["other line"] * 300 + ["We decided for zebracrossing."] + ["more"] * 300)
    steps = (*noise[:45], ToolCall.of("Read", {"path": "NOTES"}, {"text": notes}), *noise[45:])
    running.ledger.record("job-decision", "What did we choose?", "See the notes.", steps=steps)
    page = visitor.open("/search?q=zebracrossing")
    click = Clicks(page)
    click(".snippet a")
    mark = page.locator("article.card details.call[open] mark", has_text="zebracrossing")
    expect(mark.first).to_be_in_viewport()
    assert click.count == 1


def test_two_branches_are_compared_with_two_clicks(visitor: Visitor) -> None:
    page = visitor.open("/s/demo")
    click = Clicks(page)
    click(".tools a", has_text="Compare")
    click('.choices a[title="demo-strict"]')
    expect(page.locator("details.written[open] .diff").first).to_be_visible()
    assert click.count == 2


def test_failed_calls_of_a_tool_are_listed(visitor: Visitor, running: Running) -> None:
    good = [ToolCall.of("Weigh", {"n": n}, {"kg": n}) for n in range(3)]
    bad = ToolCall.of("Weigh", {"n": "feather"}, error="too light")
    running.ledger.record("job-weigh", "Weigh these", "Done.", steps=(*good, bad))
    page = visitor.open("/tools/Weigh")
    expect(page.locator("tbody tr")).to_have_count(4)
    page.get_by_role("link", name="1 failed").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("too light")


def test_calls_of_a_tool_are_listed_latest_first_with_what_was_asked(
    own_server: Callable[..., Running],
) -> None:
    server = own_server()
    for label, day in (("b", 2), ("a", 3), ("gone", 4), ("c", 1)):  # ids say nothing about times
        at = day * DAY_MS
        call = ToolCall("Weigh", f'{{"day": {day}}}', "{}", started_at=at)
        asked = f"Weigh on day {day}"
        server.ledger.record(label, asked, "Done.", steps=[call], started_at=at, completed_at=at)
    server.ledger.archive("gone", "deleted")
    page = server.ask("/tools/Weigh").text
    prompts = re.findall(r"Weigh on day \d", page)
    assert prompts == ["Weigh on day 3", "Weigh on day 2", "Weigh on day 1"]


def test_pages_of_calls_follow_each_other(own_server: Callable[..., Running]) -> None:
    server = own_server()
    calls = [
        ToolCall("Weigh", f'{{"n": {n}}}', "{}", started_at=(1 + n // 4) * DAY_MS)
        for n in range(130)
    ]
    server.ledger.record("main", "Weigh all", "Done.", steps=calls)
    seen, path = [], "/tools/Weigh"
    while path:
        page = server.ask(path).text
        seen += re.findall(r"n (\d+)</code>", page)
        found = re.search(r'rel="next" href="([^"]*)"', page)
        path = unescape(found[1]) if found else ""
    assert seen == [str(n) for n in range(129, -1, -1)]


def test_sessions_are_shown_by_name_with_the_label_in_the_tooltip(
    visitor: Visitor, running: Running
) -> None:
    for label, title in (("job-name-a", "Choose a queue"), ("job-name-b", "Choose a cache")):
        running.ledger.record(label, "Compare them", "Done.")
        running.ledger.annotate(label, title=title)
    page = visitor.open("/usage?by=session&period=all")
    link = page.locator("td.key a", has_text="Choose a queue")
    expect(link).to_have_attribute("title", "job-name-a")
    page = visitor.open("/compare?a=job-name-a&b=job-name-b")
    expect(page.locator("thead a", has_text="Choose a queue")).to_have_attribute(
        "title", "job-name-a"
    )
    expect(page.locator("main h2", has_text="Choose a cache")).to_be_visible()


def test_the_palette_keeps_the_ends_of_paths_and_one_escape_closes_it(
    visitor: Visitor, running: Running
) -> None:
    path = "/" + "/".join(f"a-rather-long-folder-{n}" for n in range(6)) + "/needle_of_palette.py"
    read = ToolCall.of("Read", {"file_path": path}, {"text": "x"})
    running.ledger.record("job-palette", "Read it", "Done.", steps=(read,))
    page = visitor.open("/sessions")
    page.keyboard.press("Control+k")
    page.locator("#palette input").fill("needle_of_palette")
    file = page.locator("#palette-list a[href^='/files/'] .what")
    expect(file).to_contain_text("needle_of_palette.py")
    assert file.evaluate("element => element.scrollWidth <= element.clientWidth")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def test_why_a_turn_failed_is_one_click_away_and_interruptions_are_no_failures(
    visitor: Visitor, running: Running
) -> None:
    reasons = {"job-failed": "quota exceeded", "job-stopped": "[Request interrupted by user]"}
    turns = [
        running.ledger.record(label, f"Deploy {label}", None, status="failed", error=reason)
        for label, reason in reasons.items()
    ]
    page = visitor.open("/")
    expect(page.locator(".look")).not_to_contain_text("interrupted")
    click = Clicks(page)
    click(".look a", has_text="Deploy job-failed")
    expect(page.locator("article.card .error", has_text="quota exceeded")).to_be_in_viewport()
    assert click.count == 1
    page = visitor.open(f"/t/{turns[1].id}")
    expect(page.locator("article.card header")).to_contain_text("interrupted")
    expect(page.locator("article.card.failed, article.card .error")).to_have_count(0)


def test_what_an_agent_will_delete_soon_is_one_click_away(
    own_server: Callable[..., Running],
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = tmp_path / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True)
    for name, days in (("old", 28), ("new", 1)):
        file = folder / f"{name}.jsonl"
        common = {"sessionId": name, "timestamp": "2026-01-01T00:00:00Z"}
        prompt = {"role": "user", "content": f"The {name} one"}
        answer = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}
        records = (
            {"type": "user", "uuid": "1", "message": prompt, **common},
            {"type": "assistant", "uuid": "2", "parentUuid": "1", "message": answer, **common},
        )
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        at = time.time() - days * 86_400
        os.utime(file, (at, at))
    server = own_server()
    server.ledger.record("something", "Ask", "Answer")
    for visit in visits(browser, server):
        visitor = visit()
        page = visitor.open("/")
        click = Clicks(page)
        click(".look a", has_text="will soon be deleted")
        row = page.locator("tr", has_text="old.jsonl")
        expect(row).to_contain_text("not imported")
        expect(row.locator(".left")).to_have_text("2")
        expect(page.locator("tr", has_text="new.jsonl")).to_have_count(0)
        assert click.count == 1
        page.get_by_role("button", name="Import new files").click()
        expect(page.locator("tr", has_text="old.jsonl")).to_contain_text("kept")
        expect(page.locator("tr", has_text="old.jsonl").locator("a")).to_have_text("The old one")
        (folder / "old.jsonl").unlink()
        label = next(s.label for s in server.ledger.sessions() if "old" in s.label)
        page = visitor.open(f"/s/{label}")
        expect(page.locator(".session-head")).to_contain_text("kept here, gone at the source")


def test_sessions_are_sorted_by_their_columns(visitor: Visitor, running: Running) -> None:
    for number in range(9):
        running.ledger.record("job-sort-b", f"Turn {number}", "Done.")
    running.ledger.record("job-sort-a", "One turn", "Done.")
    page = visitor.open("/sessions?q=job-sort")
    names = page.locator(".sessions .what a")
    expect(names.first).to_have_attribute("href", "/s/job-sort-a")
    page.locator("th a", has_text="Turns").click()
    expect(names.first).to_have_attribute("href", "/s/job-sort-b")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Turns")
    expect(page).to_have_url(re.compile("sort=turns"))


def test_the_demonstration_says_so_and_an_empty_list_says_what_to_do(
    own_server: Callable[..., Running], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    server = own_server()
    assert "No session is recorded yet" in server.ask("/sessions").text
    assert "No session matches these filters" in server.ask("/sessions?q=x").text
    Demonstration(server.ledger).record()
    assert "This is a demonstration" in server.ask("/").text
    server.ledger.record("mine", "Ask", "Answer")
    assert "This is a demonstration" not in server.ask("/").text


def test_without_tokens_the_first_page_counts_turns(own_server: Callable[..., Running]) -> None:
    server = own_server()
    server.ledger.record("main", "Ask", "Yes, all of it")
    server.ledger.annotate("main", title="Ask")
    until(lambda: "Today</a>" in server.ask("/").text)  # days are counted in the background
    page = server.ask("/").text
    today = page.partition("Today</a>")[2].partition("</div>")[0]
    assert "1 turn</a>" in today
    assert "no tokens recorded" in today
    assert "Turns by day" in page
    assert '<span class="second">Yes, all of it</span>' in page  # the prompt is the name


def test_lists_and_forms_work_without_scripts(
    visit: Callable[..., Visitor], running: Running
) -> None:
    running.ledger.record("job-plain-a", f"Use {SECRET}", "Yes")
    running.ledger.record("job-plain-b", "Ask", "Yes")
    visitor = visit(java_script_enabled=False)
    page = visitor.open("/sessions")
    page.get_by_label("Contains").fill("job-plain-b")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator(".sessions tbody tr")).to_have_count(1)
    page.locator(".sessions .what a").click()
    page.locator(".tools a", has_text="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "job-plain-b.html"
    page = visitor.open("/search?q=seconds")
    page.locator(".snippet a").first.click()
    expect(page.locator("article.card").first).to_be_visible()
    page = visitor.open("/usage")
    page.get_by_label("Show").select_option("tokens")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("metric=tokens"))
    page = visitor.open("/s/demo/tree")
    page.locator(".tree a").first.click()
    expect(page).to_have_url(re.compile("/t/"))
