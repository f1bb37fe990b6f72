"""Large histories: what a page shows and reads is bounded, however much there is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from agents_ledger import Ledger, Message, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.web.pages.cards import cards_upto
from agents_ledger.web.pages.tree import TREE_ROWS, TreeView, rail, tree_rows
from agents_ledger.web.site import Site
from tests.web.conftest import Running, visits

TURNS = 260
STEPS = 49  # a message and a call each: with query and response 26,000 records
BYTES_MAX = 300_000
NODES_MAX = 5000
STEP = 100  # instructions of SQLite

Work = Callable[[Transaction], object]


def a_turn(label: str, query: str, **fields: Any) -> Work:
    prepared = recording.recording(label, query, "Answer. " * 40, fields)
    return partial(recording.record, prepared=prepared)


def write(ledger: Ledger, works: list[Work]) -> None:
    def all_of_it(tx: Transaction) -> None:
        for work in works:
            work(tx)

    ledger._core.db.write(all_of_it)


def long_works() -> Iterator[Work]:
    for turn in range(TURNS):
        steps: list[Message | ToolCall] = []
        for step in range(STEPS):
            said = Message("assistant", f"I look at *part* {step}. " * 12, thinking="Hm. " * 20)
            call = ToolCall.of("Bash", {"command": f"sed -n {step}p notes.txt"}, "line\n" * 30)
            steps += [said, call]
        yield a_turn("long", f"Question {turn}", steps=steps)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(str(tmp_path_factory.mktemp("large") / "ledger.db"))
    write(running.ledger, list(long_works()))
    yield running
    running.stop()


def test_a_session_of_26000_records_opens_with_few_nodes(browser: Browser, large: Running) -> None:
    head = large.ledger.head("long")
    for new in visits(browser, large):
        visitor = new()
        for path in (
            "/s/long",
            "/s/long?upto=60",
            f"/t/{head}",
            f"/t/{head}?tab=tools",
            f"/t/{head}?tab=context",
            f"/t/{head}/steps",
            "/s/long/tree",
            "/s/long/tree?unfold=true",
            "/s/long/history",
            "/share/long",
            "/search?q=question",
            "/tools/Bash",
            f"/compare?a={head}&b={large.ledger.ancestor_at('long', 1)}",
        ):
            page = visitor.open(path)
            assert page.evaluate("document.querySelectorAll('*').length") < NODES_MAX, path
            assert page.locator("article.card").count() <= 50, path


def test_responses_about_a_long_session_stay_small(large: Running) -> None:
    head = large.ledger.head("long")
    for path in (
        "/s/long",
        "/s/long?upto=60",
        "/s/long/cards?upto=200",
        "/s/long/news?after=0",
        f"/t/{head}?tab=tools",
        f"/t/{head}?tab=context",
        f"/t/{head}/inspect?tab=tools",
        "/s/long/tree?unfold=true",
        "/s/long/history",
        "/raw/calls/" + str(head),
        "/api/v1/threads/long?limit=50",
        "/api/v1/threads/long/tree",
        "/api/v1/sessions/long/history?limit=200",
        f"/api/v1/turns/{head}",
        f"/api/v1/compare?a=long&b={head}",
    ):
        answer = large.ask(path)
        assert answer.status == 200, path
        assert len(answer.body) <= BYTES_MAX, path


def test_earlier_turns_load_until_the_root(large: Running) -> None:
    seen: list[int] = []
    at = TURNS
    while at:
        turns = large.ask(f"/api/v1/threads/long?limit=50&to_depth={at}").json["turns"]
        seen = [turn["depth"] for turn in turns] + seen
        at = seen[0] - 1
        if len(seen) > 30:  # the rest would be the same again
            break

    assert seen == list(range(seen[0], TURNS + 1))


def test_long_threads_are_read_only_on_request(browser: Browser, large: Running) -> None:
    for new in visits(browser, large):
        page = new().open(f"/t/{large.ledger.head('long')}?tab=context")
        page.get_by_role("link", name="Assemble it").click()
        assert "about" in page.locator("#inspector").inner_text()
        page = new().open("/share/long")
        page.get_by_text("Check this long thread for secrets").click()
        page.get_by_text("No secret was found.").wait_for()


# -- what is read does not grow ---------------------------------------------------------------


class Counted:
    """A ledger on SQLite, and how many instructions a question takes it."""

    def __init__(self, path: Path) -> None:
        self._steps = 0
        self.ledger = Ledger(Core(SqliteDatabase(str(path), connect=self._connect)))
        self.site = Site(self.ledger)

    def _connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        connection.set_progress_handler(self._stepped, STEP)
        return connection

    def _stepped(self) -> None:
        self._steps += 1

    def cost(self, ask: Callable[[], object]) -> int:
        self._steps = 0
        ask()
        return self._steps


def grown(path: Path, turns: int) -> Counted:
    """A thread with a fork at every fourth turn, and as many threads beside it."""
    counted = Counted(path)
    works: list[Work] = []
    for number in range(turns):
        step = ToolCall.of("Bash", {"command": "ls"}, "x")
        works.append(a_turn("main", f"Question {number}", steps=[step]))
        if number % 4 == 0:
            works += [
                partial(heads.fork, target="main", label=f"fork-{number}"),
                a_turn(f"fork-{number}", "Differently"),
                a_turn(f"other-{number}", "Something else"),
            ]
    write(counted.ledger, works)
    counted.ledger._core.index(least=1)
    return counted


def test_pages_read_no_more_of_a_large_ledger_than_of_a_small_one(tmp_path: Path) -> None:
    small, large = (grown(tmp_path / f"{turns}.db", turns) for turns in (1500, 4500))

    def questions(counted: Counted) -> dict[str, int]:
        site = counted.site
        thread = counted.ledger.thread("main", last=0)
        middle = str(counted.ledger.ancestor_at("main", 1000))
        asked: dict[str, Callable[[], object]] = {
            "sessions": lambda: site.pages.session_lines(limit=50),
            "cards": lambda: cards_upto(site.ledger, "main", thread.depth, thread.depth),
            "rail": lambda: rail(site, thread),
            "tree": lambda: tree_rows(site, thread, TreeView(unfold=True), TREE_ROWS),
            "tree above": lambda: tree_rows(site, thread, TreeView(upto=1200), TREE_ROWS),
            "calls of a tool": lambda: site.pages.tool_examples("Bash"),
            "failed turns": site.pages.failed_turns,
            "aliases": lambda: counted.ledger.aliases("main"),
            "branches": lambda: site.pages.branches(middle),
            "compare": lambda: counted.ledger.compare("main", f"fork-{thread.depth - 100}"),
        }
        return {name: counted.cost(ask) for name, ask in asked.items()}

    before, after = questions(small), questions(large)

    grew = {
        name: (before[name], after[name]) for name in before if after[name] > 1.3 * before[name] + 5
    }
    assert not grew
    for counted in (small, large):
        counted.ledger.close()


def test_every_row_of_a_long_tree_can_be_reached(tmp_path: Path) -> None:
    counted = grown(tmp_path / "ledger.db", 1300)
    thread = counted.ledger.thread("main", last=0)
    seen: set[int] = set()
    upto: int | None = None
    while upto != 0:
        rows = tree_rows(counted.site, thread, TreeView(unfold=True, upto=upto), TREE_ROWS)
        assert len(rows) <= TREE_ROWS + 2
        seen |= {row.node.headline.turn.depth for row in rows if row.node and row.on_path}
        above = rows[0].turns if rows[0].kind == "above" else 0
        assert above < (upto or thread.depth)  # each page leads further up
        upto = above

    assert seen == set(range(1, 1301))
    counted.ledger.close()


def test_a_turn_with_very_many_branches_is_shown_in_pages(
    browser: Browser, own_server: Callable[[], Running]
) -> None:
    running = own_server()
    root = running.ledger.record("main", "Begin", "Yes").id
    works: list[Work] = []
    for number in range(300):
        works.append(partial(heads.fork, target=root, label=f"f{number}"))
        works.append(a_turn(f"f{number}", f"Way {number}"))
    write(running.ledger, works)
    for new in visits(browser, running):
        page = new().open("/s/f7")
        assert page.evaluate("document.querySelectorAll('*').length") < 1500
        page.get_by_text("8 of 300").click()
        page.get_by_role("link", name="All 300").click()
        assert page.locator(".lines li").count() == 50
        page.get_by_role("link", name="More branches").click()
        assert "Way 50" in page.locator("main").inner_text()
