"""Sessions are pointers: they are made, moved, forked and put away without touching a turn."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from agents_ledger import HeadMoved, Ledger, NameTaken, NotFound, Refused, Session
from agents_ledger.ledger.sessions import heads
from agents_ledger.store.database import Transaction
from tests.builders import chain, grow
from tests.raw import Raw
from tests.waiting import until


def test_a_session_may_be_empty(ledger: Ledger) -> None:
    session = ledger.create_session("main")

    assert session == ledger.session("main")
    assert (session.thread_id, session.persona_id, session.status) == (None, "main", "active")
    assert ledger.head("main") is None
    assert ledger.thread("main").turns == ()
    assert ledger.history("main") == ()
    with pytest.raises(NotFound, match="session 'main' is empty"):
        ledger.get_turn("main")


def test_a_session_may_begin_at_a_turn(ledger: Ledger) -> None:
    first, _ = chain(ledger, "main", 2)

    session = ledger.create_session(Session("other", first))

    assert session.thread_id == first
    assert [(m.thread_id, m.reason) for m in ledger.history("other")] == [(first, "move")]


def test_only_writes_create_sessions(ledger: Ledger) -> None:
    for read in (ledger.session, ledger.head, ledger.thread, ledger.history, ledger.get_turn):
        with pytest.raises(NotFound, match="no session"):
            read("main")

    assert ledger.sessions() == ()


def test_a_label_is_taken_once(ledger: Ledger) -> None:
    ledger.create_session("main")
    ledger.alias("nick", "main")

    with pytest.raises(NameTaken, match="there is a session 'main' already"):
        ledger.create_session("main")
    with pytest.raises(NameTaken, match="'nick' is an alias already"):
        ledger.create_session("nick")

    assert [session.label for session in ledger.sessions()] == ["main"]


def test_a_session_cannot_claim_to_be_spawned(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    with pytest.raises(Refused, match="cannot name the call that spawned it"):
        ledger.create_session(Session("child", parent_turn_id=turn_id, spawn_tool_call_id="c"))


@pytest.mark.parametrize("depth", [1, 120])
def test_a_fork_writes_four_rows_at_any_depth_and_copies_nothing(
    ledger: Ledger, raw: Raw, depth: int
) -> None:
    turns = chain(ledger, "main", depth)
    before = raw.dump()

    ledger.fork(turns[depth // 2], label="other")

    after = raw.dump()
    new = {table: len(rows) - len(before[table]) for table, rows in after.items()}
    assert {table: count for table, count in new.items() if count} == {
        "sessions": 1,
        "names": 1,
        "session_history": 1,
        "evidence": 1,
    }
    assert all(set(before[table]) <= set(after[table]) for table in after)


def test_a_fork_goes_its_own_way(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    fork = ledger.fork(first, label="other")
    beside = ledger.record("other", "q", "r")

    assert (fork.thread_id, fork.created_as) == (first, "fork")
    assert ledger.ancestry("other") == (first, beside.id)
    assert ledger.ancestry("main") == (first, second)


def test_a_fork_without_a_label_is_given_one(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    labels = {ledger.fork(turn_id).label for _ in range(2)}

    assert len(labels) == 2
    assert all(label.startswith("fork-") for label in labels)


def test_a_fork_before_a_turn_asks_its_query_differently(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    assert ledger.fork(second, label="again", before=True).thread_id == first
    assert ledger.fork(first, label="anew", before=True).thread_id is None

    asked = ledger.record("again", "better question", "better answer")
    assert [turn.id for turn in ledger.siblings(second)] == [asked.id]


def test_a_fork_starts_from_a_session_or_the_first_letters_of_a_turn(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    assert ledger.fork("main", label="a").thread_id == turn_id
    assert ledger.fork(turn_id[:20].lower(), label="b").thread_id == turn_id


def test_a_fork_keeps_the_persona_unless_another_is_named(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", persona_id="atlas")

    assert ledger.fork(turn.id, label="same").persona_id == "atlas"
    assert ledger.fork(turn.id, label="other", persona_id="hermes").persona_id == "hermes"

    ledger.record("other", "q", "r")
    assert ledger.thread("other").persona_id == "hermes"


def test_a_fork_that_waits_for_its_session_begins_at_the_head_it_has_then(
    new_schema: Callable[[], str],
) -> None:
    address = new_schema()
    with Ledger.open(address) as ledger, Ledger.open(address) as other, Raw(address) as raw:
        first = ledger.record("main", "q", "r")
        second = ledger.record("main", "q", "r")

        def fork_while_it_moves(tx: Transaction) -> Future[Session]:
            heads.move(tx, "main", first.id, expected=..., reason="move")
            forking = pool.submit(other.fork, "main", label="fork")
            until(lambda: raw.execute("SELECT 1 FROM pg_locks WHERE NOT granted"))
            return forking

        with ThreadPoolExecutor(1) as pool:
            forked = ledger._core.db.write(fork_while_it_moves).result()

        assert forked.thread_id == first.id != second.id
        assert ledger.audit() == ()


def test_an_empty_session_cannot_be_forked(ledger: Ledger) -> None:
    ledger.create_session("main")

    with pytest.raises(Refused, match="session 'main' is empty"):
        ledger.fork("main")


def test_a_head_moves_to_any_sealed_turn(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3, 1-4")

    assert ledger.move("3", ids["4"]).thread_id == ids["4"]

    assert [(m.thread_id, m.reason) for m in ledger.history("3", limit=2)] == [
        (ids["4"], "move"),
        (ids["3"], "record"),
    ]


def test_a_head_moves_only_from_where_the_caller_saw_it(ledger: Ledger, raw: Raw) -> None:
    first, second = chain(ledger, "main", 2)
    before = raw.dump()

    for expected in (first, None):
        for verb in (ledger.move, ledger.roll_back):
            with pytest.raises(HeadMoved, match=f"is at {second}"):
                verb("main", first, expected=expected)

    assert raw.dump() == before
    assert ledger.move("main", first, expected=second).thread_id == first


def test_a_session_rolls_back_to_an_ancestor_only(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3, 1-4")

    with pytest.raises(Refused, match="not on the thread of session '3'"):
        ledger.roll_back("3", ids["4"])

    assert ledger.roll_back("3", ids["1"]).thread_id == ids["1"]
    assert ledger.history("3")[0].reason == "rollback"
    with pytest.raises(Refused, match="not on the thread"):
        ledger.roll_back("3", ids["3"])


def test_undo_returns_to_where_the_session_was_and_undoing_it_redoes(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    assert ledger.undo("main").thread_id == first
    assert ledger.undo("main").thread_id == second
    assert [m.reason for m in ledger.history("main")] == ["undo", "undo", "record", "record"]


def test_undo_of_the_first_turn_leaves_the_session_empty(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    assert ledger.undo("main").thread_id is None
    assert ledger.get_turn(turn_id).status == "completed"

    again = ledger.record("main", "anew", "r")
    assert again.parent_turn_id is None


def test_any_move_can_be_undone(ledger: Ledger) -> None:
    ids = chain(ledger, "main", 4)
    moves = {move.thread_id: move.id for move in ledger.history("main")}

    assert ledger.undo("main", moves[ids[2]]).thread_id == ids[1]
    assert ledger.undo("main", moves[ids[0]]).thread_id is None


def test_there_is_nothing_to_undo_in_a_session_that_never_moved(ledger: Ledger) -> None:
    ledger.create_session("main")
    chain(ledger, "other", 1)
    [move] = ledger.history("other")

    with pytest.raises(Refused, match="never moved"):
        ledger.undo("main")
    with pytest.raises(NotFound, match=f"'main' has no move {move.id}") as refused:
        ledger.undo("main", move.id)
    assert "agents-ledger history" in refused.value.hint


def test_a_cleared_session_is_empty_and_its_turns_stay(ledger: Ledger) -> None:
    _, second = chain(ledger, "main", 2)

    assert ledger.clear("main").thread_id is None

    assert ledger.thread("main").turns == ()
    assert len(ledger.thread(second).turns) == 2
    assert ledger.history("main")[0].reason == "clear"
    assert ledger.undo("main").thread_id == second


def test_an_archived_session_is_kept_and_takes_no_turns(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    ledger.archive("main")

    assert ledger.sessions() == ()
    assert [s.label for s in ledger.sessions(status="archived")] == ["main"]
    assert ledger.head("main") == turn_id
    with pytest.raises(Refused, match="session 'main' is archived") as caught:
        ledger.record("main", "q", "r")
    assert caught.value.hint
    with pytest.raises(Refused, match="is archived"):
        ledger.turn("main", "q")


def test_an_archived_session_can_be_made_active_again(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    ledger.archive("main", "deleted")
    assert ledger.session("main").status == "deleted"
    ledger.archive("main", "active")

    assert ledger.record("main", "q", "r").depth == 2


def test_titles_stars_and_notes_change_alone_and_are_no_part_of_the_record(
    ledger: Ledger, raw: Raw
) -> None:
    chain(ledger, "main", 1)
    before = raw.dump()

    ledger.annotate("main", title="Release", starred=True)
    session = ledger.annotate("main", note="look again")

    assert (session.title, session.starred, session.note) == ("Release", True, "look again")
    assert ledger.annotate("main", title=None).title is None
    after = raw.dump()
    assert {table for table in after if after[table] != before[table]} == {"annotations"}


def test_what_is_known_of_a_session_can_be_changed(ledger: Ledger) -> None:
    ledger.create_session(Session("main", origin="cursor", origin_session_id="c-1"))

    ledger.update_session("main", persona_id="atlas", agent_id="a", routing_key="r")
    session = ledger.update_session("main", task_description="look", task_status="running")

    assert (session.persona_id, session.agent_id, session.routing_key) == ("atlas", "a", "r")
    assert (session.task_description, session.task_status) == ("look", "running")
    assert (session.origin, session.origin_session_id) == ("cursor", "c-1")


def test_what_cannot_be_changed_of_a_session_is_refused(ledger: Ledger, raw: Raw) -> None:
    ledger.create_session("main")
    before = raw.dump()

    with pytest.raises(Refused, match="'thread_id' cannot be changed here"):
        ledger.update_session("main", thread_id="x")
    with pytest.raises(Refused, match="'colour' cannot be changed here"):
        ledger.annotate("main", colour="blue")  # type: ignore[call-arg]
    with pytest.raises(Refused, match="task_status is 'dreaming'"):
        ledger.update_session("main", task_status="dreaming")
    with pytest.raises(Refused):
        ledger.archive("main", "vanished")  # type: ignore[arg-type]

    assert raw.dump() == before


def test_sessions_are_listed_latest_first_in_pages(ledger: Ledger) -> None:
    for number in range(7):
        ledger.create_session(f"s{number}")
    everyone = ledger.sessions()

    pages, after = [], None
    while page := ledger.sessions(limit=3, after=after):
        pages.append(page)
        after = page[-1]

    assert [len(page) for page in pages] == [3, 3, 1]
    assert [session for page in pages for session in page] == list(everyone)
    assert list(everyone) == sorted(everyone, key=lambda s: (-s.updated_at, s.label))


def test_sessions_are_listed_by_what_they_are(ledger: Ledger) -> None:
    ledger.create_session(Session("a", persona_id="atlas"))
    ledger.create_session(Session("b", origin="cursor"))
    ledger.create_session(Session("c", parent_session_label="a"))

    assert [s.label for s in ledger.sessions(persona_id="atlas")] == ["a"]
    assert [s.label for s in ledger.sessions(origin="cursor")] == ["b"]
    assert [s.label for s in ledger.sessions(parent="a")] == ["c"]
    assert len(ledger.sessions(status=None)) == 3


def test_words_about_a_session_are_text(ledger: Ledger, raw: Raw) -> None:
    ledger.create_session("main")
    before = raw.dump()

    for changes, why in (
        ({"title": 5}, "title is 5"),
        ({"note": b"x"}, "note is b'x'"),
        ({"starred": "no"}, "starred is 'no'"),
    ):
        with pytest.raises(Refused, match=why):
            ledger.annotate("main", **changes)
    with pytest.raises(Refused, match="origin is 7"):
        ledger.update_session("main", origin=7)

    assert raw.dump() == before


@pytest.mark.parametrize("at", ["text", 1.5, -1, 10**30, True])
def test_a_head_is_asked_for_at_a_time(ledger: Ledger, at: Any) -> None:
    chain(ledger, "main", 1)

    with pytest.raises(Refused, match=f"at is {at!r}"):
        ledger.head("main", at=at)
