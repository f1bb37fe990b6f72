"""What was spent, and the way from a figure to the sessions behind it."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from agents_ledger import Usage
from agents_ledger.model.ids import now_ms
from agents_ledger.web.pages.charts import period_days
from tests.web.conftest import Running, Visitor, visits

DAY_MS = 86_400_000
MILLION = Usage(1_000_000, 0, 0, 0, 0, 1_000_000)


class Spender:
    def __init__(self, server: Running, visitor: Visitor) -> None:
        self.server, self.visitor = server, visitor


@pytest.fixture
def spender(own_server: Callable[..., Running], browser: Browser) -> Any:
    """$5 two days ago, $2 three weeks ago."""
    server = own_server()
    for label, days, model, project in (
        ("new", 2, "claude-opus-5", "/home/me/shop"),
        ("old", 21, "claude-sonnet-5", "=cmd()"),
    ):
        server.ledger.record(
            label, f"ask {label}", "done", model=model, provider="anthropic", usage=MILLION,
            workspace_path=project, started_at=now_ms() - days * DAY_MS,
        )  # fmt: skip
        server.ledger.annotate(label, title=f"The {label} one")
    visitors = visits(browser, server)
    yield Spender(server, next(visitors)())
    next(visitors, None)


def test_the_spend_of_the_last_week_is_one_click_away_from_every_page(spender: Spender) -> None:
    page = spender.visitor.open("/files")
    page.get_by_role("navigation").get_by_role("link", name="Usage").click()
    expect(page.get_by_role("link", name="Last 7 days")).to_contain_text("$5.00")
    page.get_by_role("link", name="Last 7 days").click()
    figures = page.locator(".figures")
    expect(figures).to_contain_text("$5.00")
    expect(figures).to_contain_text("none in the period before")
    page.locator(".plot a").first.click()
    expect(page.locator("td.key")).to_have_text(["The new one"])
    page.get_by_role("link", name="The new one").click()
    expect(page).to_have_url(spender.server.server.address.rstrip("/") + "/s/new")


def test_bars_lead_to_their_sessions_and_filters_apply_at_once(spender: Spender) -> None:
    page = spender.visitor.open("/usage?period=all&split=project")
    assert page.locator(".plot a").count() == 2
    expect(page.locator(".legend")).to_contain_text("shop")
    page.get_by_label("Model").select_option("claude-sonnet-5")
    expect(page.locator(".figures")).to_contain_text("$2.00")
    expect(page).to_have_url(re.compile("model=claude-sonnet-5"))
    page.locator(".plot a").first.click()
    expect(page.locator("td.key")).to_have_text(["The old one"])


def test_tiles_lead_to_the_sessions_behind_them(spender: Spender) -> None:
    page = spender.visitor.open("/usage?period=all")
    expect(page.locator(".treemap a")).to_have_count(2)
    page.get_by_role("link", name="shop: $5.00").click()
    expect(page.locator("td.key")).to_have_text(["The new one"])


def test_the_figures_of_the_first_page_lead_to_their_sessions(visitor: Visitor) -> None:
    page = visitor.open("/")
    page.locator(".figures dd a").first.click()
    expect(page.locator("nav.periods [aria-current]")).to_contain_text("Today")
    expect(page.locator("td.key").first).to_be_visible()
    page = visitor.open("/")
    page.locator(".spark a").last.click()
    expect(page).to_have_url(re.compile(r"by=session&first=(.*)&last=\1$"))
    expect(page.locator("td.key").first).to_be_visible()


def test_a_ledger_without_use_says_so(own_server: Callable[..., Running]) -> None:
    assert "Nothing is recorded yet" in own_server().ask("/usage").text


def test_turns_outside_the_chart_are_counted_below_it(spender: Spender) -> None:
    spender.server.ledger.record("first", "ask", "done", started_at=now_ms() - 300 * DAY_MS)

    page = spender.server.ask("/usage?period=all").text

    assert "The table also has 1 turn from days before or after the chart" in page
    assert "The table also has" not in spender.server.ask("/usage?period=30d").text


def test_prices_are_a_page(spender: Spender) -> None:
    page = spender.visitor.open("/usage")
    page.get_by_role("link", name="Prices").click()
    row = page.locator("tr", has=page.get_by_text("claude-opus-5", exact=True))
    expect(row.locator("td.n")).to_have_text(["5", "0.5", "6.25", "25", "10"])


def test_usage_is_downloaded_without_formulas(spender: Spender) -> None:
    answer = spender.server.ask("/usage.csv?by=project")
    assert answer.headers["content-disposition"] == 'attachment; filename="usage-by-project.csv"'
    rows = {row["project"]: row for row in csv.DictReader(io.StringIO(answer.text))}
    assert rows["/home/me/shop"]["cost_microdollars"] == "5000000"
    assert set(rows) == {"/home/me/shop", "'=cmd()"}


def test_a_period_has_a_first_and_a_last_day() -> None:
    assert period_days("2026-08-03") == ("2026-08-03", "2026-08-03")
    assert period_days("2026-W32") == ("2026-08-03", "2026-08-09")
    assert period_days("2024-02") == ("2024-02-01", "2024-02-29")
