"""Find within a session, also in what is folded; searches that are kept."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from agents_ledger.model.turns import ToolCall
from tests.web.conftest import Running, Visitor

IN_SIGHT = """mark => {
  const box = mark.getBoundingClientRect();
  return document.elementFromPoint(box.x + 4, box.y + 4) === mark;
}"""


def test_matches_are_stepped_through_across_folded_content(
    visitor: Visitor, running: Running
) -> None:
    far = "\n".join(["other line"] * 400 + ["the heliotrope is here"] + ["more"] * 400)
    call = ToolCall.of("Read", {"path": "NOTES"}, {"text": far})
    running.ledger.record("find", "Plant a heliotrope", "Where?")
    running.ledger.record("find", "See the notes", "I read them.", steps=(call,))
    long = "word " * 900 + "heliotrope at the end"
    running.ledger.record("find", long, "Planted.")
    page = visitor.open("/s/find")
    page.keyboard.press("/")
    page.keyboard.type("heliotrope")
    count = page.locator(".find-bar output")
    expect(count).to_have_text("3 of 3")  # of the turn that is shown first
    expect(page.locator("article.card").last.locator("mark")).to_be_in_viewport()
    page.keyboard.press("Tab")
    page.keyboard.press("n")
    expect(count).to_have_text("1 of 3")
    page.keyboard.press("n")
    expect(count).to_have_text("2 of 3")
    mark = page.locator("details.call[open] mark")
    expect(mark).to_have_text("heliotrope")
    expect(mark).to_be_in_viewport()
    page.keyboard.press("N")
    expect(count).to_have_text("1 of 3")
    expect(page.locator("article.card").first.locator("mark")).to_be_in_viewport()


def test_a_match_above_the_loaded_turns_opens_there(visitor: Visitor, running: Running) -> None:
    running.ledger.record("find-far", "Plant a jacaranda", "Yes.")
    for number in range(60):
        running.ledger.record("find-far", f"Question {number}", "Answer")
    page = visitor.open("/s/find-far")
    expect(page.locator("article.card")).to_have_count(50)
    page.get_by_role("button", name="Find", exact=True).click()
    page.keyboard.type("jacaranda")
    page.wait_for_url(re.compile("find=jacaranda"))
    mark = page.locator("article.card mark").first
    expect(mark).to_have_text("jacaranda")
    assert mark.evaluate(IN_SIGHT)  # not below the header or the search
    expect(page.locator(".find-bar output")).to_have_text("1 of 1")


def saved(page: Page) -> list[str]:
    return page.locator("[data-searches] a").all_inner_texts()


def test_searches_are_remembered_and_can_be_saved(visitor: Visitor) -> None:
    page = visitor.open("/search?q=seconds")
    page.get_by_role("button", name="Save this search").click()
    page = visitor.open("/search?q=durations")
    assert saved(page) == ["seconds"]
    page = visitor.open("/search")
    expect(page.get_by_role("heading", name="Recent")).to_be_visible()
    assert saved(page) == ["seconds", "durations", "seconds"]
    page.locator("[data-searches]").get_by_role("link", name="seconds").first.click()
    page.get_by_role("button", name="Remove from saved").click()
    assert saved(page) == []
