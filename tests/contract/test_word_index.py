"""The word index: filled in steps, asked together with what waits for it, made anew on request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from agents_ledger import Found, Ledger
from agents_ledger.ledger.search import index, index_queue
from agents_ledger.model.reports.search import Ranking
from agents_ledger.store.database import Row, Transaction
from tests.builders import chain
from tests.raw import Raw

Limited = Callable[..., Ledger]


def ids(found: Found) -> list[str]:
    return [hit.turn_id for hit in found.hits]


def let_wait(raw: Raw, every: int = 1) -> None:
    """As after a copy that was cut short: turns wait for the index."""
    turns = [row[0] for row in raw.execute("SELECT id FROM turns ORDER BY id")]
    for turn_id in turns[::every]:
        raw.execute(
            "INSERT INTO search_waiting (turn_id) VALUES (?) ON CONFLICT DO NOTHING", (turn_id,)
        )


def leave_waiting(ledger: Ledger, raw: Raw) -> None:
    """40 turns that others left."""
    chain(ledger, "main", 40)
    ledger._core.index(least=1)
    let_wait(raw)


def indexers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "agents-ledger-index"]


def waits(raw: Raw) -> int:
    return int(raw.one("SELECT count(*) FROM search_waiting"))


def pages(ledger: Ledger, text: str, limit: int, order: Ranking = "newest") -> list[Found]:
    found = [ledger.search(text, limit=limit, order=order)]
    while (after := found[-1].next) is not None:
        found.append(ledger.search(text, limit=limit, order=order, after=after))
        assert len(found) < 50
    return found


@pytest.mark.parametrize("every", [1, 2])
def test_many_that_wait_are_looked_through_page_by_page(
    limited: Limited, raw: Raw, every: int
) -> None:
    ledger = limited(waiting_turns=6, waiting_read_turns=3)
    first = ledger.record("main", "question zero rare", "r", started_at=1).id
    turns = [first]
    turns += [ledger.record("main", f"question {n}", "r", started_at=n).id for n in range(2, 22)]
    ledger._core.index(least=1)
    let_wait(raw, every)

    found = pages(ledger, "question", limit=4)
    rare = pages(ledger, "rare", limit=4)

    assert [turn_id for page in found for turn_id in ids(page)] == turns[::-1]
    assert [turn_id for page in rare for turn_id in ids(page)] == [first]
    assert len(rare) > 1
    assert rare[0].capped
    assert not rare[-1].capped
    for text in ("question", "the question"):
        ranked = pages(ledger, text, limit=4, order="relevance")
        assert sorted(turn_id for page in ranked for turn_id in ids(page)) == turns
        assert [ranked[0].capped, ranked[-1].capped] == [True, False]
    assert {page.matched for page in pages(ledger, "rare question", limit=4)} == {"all"}


def test_long_texts_that_wait_end_a_page_sooner(limited: Limited, raw: Raw) -> None:
    ledger = limited(waiting_chars=1000, waiting_read_turns=1)
    turns = [ledger.record("main", "word " * 100, "r").id for _ in range(6)]
    let_wait(raw)

    found = pages(ledger, "word", limit=100)

    assert [len(page.hits) for page in found] == [2, 2, 2]
    assert [turn_id for page in found for turn_id in ids(page)] == turns[::-1]


def test_many_turns_of_one_moment_are_found_while_they_wait(ledger: Ledger, raw: Raw) -> None:
    turns = [ledger.record("main", "word", "r", started_at=5).id for _ in range(40)]
    let_wait(raw)

    found = pages(ledger, "word", limit=15)

    assert sorted(turn_id for page in found for turn_id in ids(page)) == sorted(turns)


def test_turns_of_one_moment_are_put_in_beside_those_that_are_there(
    ledger: Ledger, raw: Raw
) -> None:
    turns = []
    for _ in range(3):
        turns += [ledger.record("main", "word", "r", started_at=5).id for _ in range(7)]
        ledger._core.index(least=1)

    assert sorted(ids(ledger.search("word", limit=100))) == sorted(turns)
    assert raw.one("SELECT count(DISTINCT turn_id) FROM search_docs") == len(turns)


class Asked:
    """A transaction that counts what it is asked."""

    def __init__(self, tx: Transaction, asked: list[str]) -> None:
        self._tx = tx
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def run(self, name: str, /, **values: object) -> list[Row]:
        self._asked.append(name)
        return self._tx.run(name, **values)


def test_each_of_many_turns_of_one_moment_is_numbered_at_once(ledger: Ledger) -> None:
    turns = [ledger.record("main", "word", "r", started_at=5).id for _ in range(300)]
    ledger._core.index(least=1)
    asked: list[str] = []

    def put_again(tx: Transaction) -> None:
        index.put_again(cast("Transaction", Asked(tx, asked)), turns[1::2])

    ledger._core.db.write(put_again)

    # A server is asked once for all that are left; nearly all find a number at each try.
    assert 150 <= asked.count("new_doc") <= 3 * 150 or 1 <= asked.count("new_docs") <= 60


def test_a_backlog_is_put_in_a_few_batches_at_a_time(limited: Limited, raw: Raw) -> None:
    ledger = limited(index_turns=5)
    leave_waiting(ledger, raw)

    ledger._core.index(least=1, steps=2)
    assert waits(raw) == 30
    ledger._core.index(least=1)
    assert waits(raw) == 0


def test_a_writer_is_not_kept_by_what_others_left_waiting(
    ledger: Ledger, limited: Limited, raw: Raw
) -> None:
    leave_waiting(ledger, raw)
    ledger = limited(index_turns=4, index_writes=2)

    chain(ledger, "other", 10)

    put_in = 2 * 10  # its own, and as many of those
    assert waits(raw) == 40 + 10 - put_in
    assert len(ledger.search("question", limit=100).hits) == 50


def test_a_server_puts_in_what_others_left_while_others_write(limited: Limited, raw: Raw) -> None:
    ledger = limited(index_turns=4)
    leave_waiting(ledger, raw)

    ledger.index_in_background()
    chain(ledger, "other", 10)
    for _ in range(2):
        for thread in indexers():
            thread.join()
        ledger.index_in_background()
    ledger.close()

    assert waits(raw) == 0
    assert indexers() == []


def test_a_batch_ends_where_its_texts_are_long(limited: Limited, raw: Raw) -> None:
    ledger = limited(index_chars=1000, index_read_turns=1)
    for _ in range(6):
        ledger.record("main", "word " * 100, "r")
    let_wait(raw)

    assert ledger._core.db.write(index_queue.put_in)
    assert waits(raw) == 4
    ledger._core.index(least=1)
    assert waits(raw) == 0
    assert len(ledger.search("word").hits) == 6


def test_the_index_is_made_anew(ledger: Ledger, raw: Raw) -> None:
    turns = chain(ledger, "main", 5)
    ledger._core.index(least=1)
    let_wait(raw)
    ledger._core.index(least=1)  # on SQLite what was there before stays, and leads nowhere
    raw.execute("DELETE FROM search_docs WHERE turn_id = ?", (turns[2],))
    assert len(ledger.search("question").hits) == 4

    assert ledger.rebuild_index() == 5

    assert ids(ledger.search("question")) == turns[::-1]
    assert raw.one("SELECT count(*) FROM search_docs") == 5
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    "limits", [{}, {"holder_sessions": 1}, {"holder_sessions": 1, "holder_turns": 0}]
)
def test_holders_are_the_same_in_whichever_way_they_are_found(
    limited: Limited, limits: dict[str, int]
) -> None:
    ledger = limited(**limits)
    first, second, third = chain(ledger, "main", 3)
    ledger.fork(second, label="beside")
    beside = ledger.record("beside", "question", "r").id
    ledger.fork(beside, label="again")
    ledger.fork(first, label="early")
    ledger.annotate("beside", title="A title")

    def held() -> dict[str, tuple[str | None, str | None, int]]:
        found = ledger.search("question").hits
        return {hit.turn_id: (hit.session_label, hit.session_title, hit.also_in) for hit in found}

    assert held() == {
        first: ("main", None, 3),
        second: ("main", None, 2),
        third: ("main", None, 0),
        beside: ("beside", "A title", 1),
    }
    ledger.archive("again")
    ledger.fork(third, label="late")
    assert held()[third] == ("main", None, 1)  # seen at once


def test_words_are_found_together_however_often_each_was_said_before(ledger: Ledger) -> None:
    said = " ".join(f"git status {number}" for number in range(1000))
    ledger.record("main", f"{said} git fetch head {said}", "fine")
    ledger._core.index(least=1)

    assert len(ledger.search('"git fetch head"').hits) == 1
    for number in range(1, 999):  # also where one piece of the index ends and the next begins
        assert len(ledger.search(f'"{number} git status {number + 1} git"').hits) == 1
    assert ledger.audit() == ()
