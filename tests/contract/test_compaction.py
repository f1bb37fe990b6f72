"""Compaction records: a compaction turn and its record exist together, and name their thread."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest

from agents_ledger import Compaction, Ledger, Refused
from tests.builders import chain, grow
from tests.raw import Raw

DATABASE_ERRORS = (sqlite3.Error, psycopg.Error)
A_TURN = (
    "INSERT INTO turns (id, parent_turn_id, turn_type, status, started_at, completed_at,"
    " query_message_ids, request_hash) VALUES ('new', ?, ?, 'completed', 1, 1, '[]', ?)"
)
A_RECORD = (
    "INSERT INTO compactions (turn_id, summary, summarized_through_turn_id, model)"
    " VALUES (?, 's', ?, 'none')"
)


def test_a_compaction_is_a_turn_of_its_own_kind(ledger: Ledger) -> None:
    first, second, third = chain(ledger, "main", 3)

    turn = ledger.record("main", compaction=Compaction("short", first, second), model="haiku")

    assert (turn.turn_type, turn.parent_turn_id) == ("compaction", third)
    stored = ledger.get_turn("main")
    assert stored == turn
    assert stored.compaction is not None
    assert stored.compaction.turn_id == turn.id


def test_a_thread_counts_its_compactions_and_knows_the_latest(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    one = ledger.record("main", compaction=Compaction("1", first, second))
    after_one = chain(ledger, "main", 1)[0]
    two = ledger.record("main", compaction=Compaction("2", one.id, after_one))
    chain(ledger, "main", 1)
    ledger.fork(after_one, label="other")

    assert [c.turn_id for c in ledger.compactions("main")] == [two.id, one.id]
    assert [c.turn_id for c in ledger.compactions("other")] == [one.id]
    assert ledger.compactions(second) == ()
    thread = ledger.thread("main")
    assert (thread.compaction_count, thread.compaction_turn_id) == (2, two.id)


def test_history_stays_walkable_through_recursive_compactions(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 3)
    for _ in range(3):
        summary = Compaction("all so far", turns[-2], turns[-1])
        turns.append(ledger.record("main", compaction=summary).id)
        turns += chain(ledger, "main", 1)

    assert list(ledger.ancestry("main")) == turns
    walked = ledger.thread("main").turns
    assert [turn.id for turn in walked] == turns
    assert all(turn.query for turn in walked if turn.turn_type == "normal")


def test_what_a_compaction_names_must_lie_on_its_thread_in_order(ledger: Ledger, raw: Raw) -> None:
    ids = grow(ledger, "1-2-3, 1-4")
    before = raw.dump()

    for said, why in (
        (Compaction("s", ids["4"]), "summarized_through_turn_id: turn .* is not on the thread"),
        (Compaction("s", ids["1"], ids["4"]), "first_kept_turn_id: turn .* is not on the thread"),
        (Compaction("s", ids["2"], ids["2"]), "must come after the last summarised"),
        (Compaction("s", ids["2"], ids["1"]), "must come after the last summarised"),
        (Compaction("s", "nothing"), "summarized_through_turn_id: there is no turn nothing"),
        (Compaction("s", ids["1"], "nothing"), "first_kept_turn_id: there is no turn nothing"),
    ):
        with pytest.raises(Refused, match=why):
            ledger.record("3", compaction=said)

    assert raw.dump() == before


def test_an_empty_session_has_nothing_to_compact(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "other", 1)

    with pytest.raises(Refused, match="nothing to compact"):
        ledger.record("main", compaction=Compaction("s", turn_id))


def test_a_compaction_may_keep_nothing(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    turn = ledger.record("main", compaction=Compaction("s", second))

    assert turn.compaction is not None
    assert turn.compaction.first_kept_turn_id is None
    assert ledger.is_ancestor(first, turn.id)


def test_no_sql_makes_a_compaction_turn_without_its_record(ledger: Ledger, raw: Raw) -> None:
    [turn_id] = chain(ledger, "main", 1)
    before = raw.dump()

    with pytest.raises(DATABASE_ERRORS, match="a compaction turn, and no other, has"):
        raw.execute(A_TURN, (turn_id, "compaction", b"h"))

    assert raw.dump() == before


def test_no_sql_makes_a_record_without_its_compaction_turn(ledger: Ledger, raw: Raw) -> None:
    [turn_id] = chain(ledger, "main", 1)
    before = raw.dump()

    with pytest.raises(DATABASE_ERRORS, match="only a compaction turn"):
        raw.execute(A_RECORD, (turn_id, turn_id))
    with pytest.raises(DATABASE_ERRORS, match=r"FOREIGN KEY|foreign key"):
        raw.execute(A_RECORD, ("nowhere", turn_id))

    assert raw.dump() == before


def test_no_sql_makes_the_record_first_and_then_a_normal_turn(ledger: Ledger, raw: Raw) -> None:
    [turn_id] = chain(ledger, "main", 1)
    before = raw.dump()

    def make() -> None:
        with raw.transaction():
            raw.execute(A_RECORD, ("new", turn_id))
            raw.execute(A_TURN, (turn_id, "normal", b"h"))

    with pytest.raises(DATABASE_ERRORS, match="a compaction turn, and no other, has"):
        make()

    assert raw.dump() == before


def test_no_sql_turns_one_kind_of_turn_into_the_other(ledger: Ledger, raw: Raw) -> None:
    [turn_id] = chain(ledger, "main", 1)
    compaction = ledger.record("main", compaction=Compaction("s", turn_id))
    live = ledger.turn("main", "q")
    before = raw.dump()

    for changed, kind in (
        (turn_id, "compaction"),
        (compaction.id, "normal"),
        (live.id, "compaction"),
    ):
        with pytest.raises(DATABASE_ERRORS, match="guard:"):
            raw.execute("UPDATE turns SET turn_type = ? WHERE id = ?", (kind, changed))

    assert raw.dump() == before
    live.respond("r")
