"""Atomicity: whichever statement fails, the ledger is as it was before."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agents_ledger import Compaction, Ledger, Session
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Database, Transaction
from tests.builders import A_USAGE, a_call, a_detailed_message, a_full_turn, chain
from tests.raw import Raw
from tests.statements import Meddled, fail_each_statement


@pytest.fixture
def meddled(db: Database) -> Iterator[tuple[Meddled, Ledger]]:
    """A ledger whose statements can be made to fail."""
    meddled, database = Meddled.over(db)
    with Ledger(Core(database)) as ledger:
        yield meddled, ledger


def unchanged(raw: Raw) -> Callable[[str], None]:
    """Asserts that the tables are as they are now."""
    before = raw.dump()

    def check(failed: str) -> None:
        assert raw.dump() == before, failed

    return check


@pytest.mark.parametrize("error", [None, ZeroDivisionError()], ids=["the engine's", "our own"])
def test_a_turn_whose_recording_fails_at_any_statement_leaves_nothing(
    meddled: tuple[Meddled, Ledger], raw: Raw, error: Exception | None
) -> None:
    statements, ledger = meddled
    statements.error = error
    first, second, _ = chain(ledger, "main", 3)
    said = a_full_turn(
        compaction=Compaction("short", first, second),
        thread_key="key",
        steps=[*a_full_turn()["steps"], a_call("Task", spawned_session_label="child")],
    )

    ran = fail_each_statement(statements, lambda: ledger.record("main", **said), unchanged(raw))

    assert ran[-1] == "COMMIT"
    assert {name for name in ran if name.startswith("insert_")} == {
        "insert_compaction",
        "insert_system_prompt",
        "insert_turn",
        "insert_message",
        "insert_message_file",
        "insert_message_lint",
        "insert_message_codeblock",
        "insert_session",
        "insert_name",
        "insert_tool_call",
        "insert_place",
        "insert_evidence",
    }
    assert {"mark_native_parent", "await_index", "move_head", "log_move"} < set(ran)


def test_a_first_turn_that_fails_at_any_statement_leaves_no_session(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled

    ran = fail_each_statement(statements, lambda: ledger.record("main", "q", "r"), unchanged(raw))

    assert {"insert_session", "insert_name", "open_root_segment"} < set(ran)


def test_a_turn_beside_another_that_fails_at_any_statement_leaves_no_segment(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled
    first, _ = chain(ledger, "main", 2)
    ledger.fork(first, label="other")

    ran = fail_each_statement(statements, lambda: ledger.record("other", "q", "r"), unchanged(raw))

    assert "open_segment" in ran


def test_a_live_turn_that_fails_to_begin_leaves_nothing(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled
    chain(ledger, "main", 1)

    ran = fail_each_statement(statements, lambda: ledger.turn("main", "q"), unchanged(raw))

    assert {"insert_turn", "insert_live_turn", "insert_writer"} < set(ran)
    [turn_id] = ledger.live_turns()
    assert ledger.get_turn(turn_id).status == "pending"


def test_a_live_turn_stays_as_it_was_when_one_of_its_verbs_fails(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        call = turn.tool_call("Task")

        for act in (
            lambda: turn.message(a_detailed_message(role="assistant")),
            lambda: turn.tool_call("Read"),
            lambda: turn.stream("text"),
            lambda: call.spawn("child"),
            lambda: call.complete({"ok": True}),
        ):
            assert fail_each_statement(statements, act, unchanged(raw))[-1] == "COMMIT"

        turn.respond("r")

    stored = ledger.get_turn("main")
    assert [call.status for call in stored.tool_calls] == ["completed", "cancelled"]
    assert [message.role for message in stored.messages] == ["user", "assistant", "assistant"]


def test_a_live_turn_can_respond_again_after_any_statement_of_it_failed(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled
    chain(ledger, "main", 1)
    with ledger.turn("main", "q") as turn:
        turn.tool_call("Read")
        turn.stream("partial")

        ran = fail_each_statement(
            statements, lambda: turn.respond("r", usage=A_USAGE), unchanged(raw)
        )

    assert {"seal_turn", "close_tool_calls", "delete_partials", "move_head", "log_move"} < set(ran)
    assert ledger.head("main") == turn.id


def test_a_live_turn_can_fail_again_after_any_statement_of_it_failed(
    meddled: tuple[Meddled, Ledger], raw: Raw
) -> None:
    statements, ledger = meddled
    with ledger.turn("main", "q") as turn:
        turn.stream("partial")

        fail_each_statement(statements, lambda: turn.fail("no"), unchanged(raw))

    assert ledger.get_turn(turn.id).status == "failed"


@pytest.mark.parametrize(
    "act",
    [
        lambda ledger, first: ledger.fork(first, label="fork"),
        lambda ledger, first: ledger.create_session(Session("new", first, title="a title")),
        lambda ledger, first: ledger.move("main", first),
        lambda ledger, first: ledger.roll_back("main", first),
        lambda ledger, first: ledger.undo("main"),
        lambda ledger, first: ledger.clear("main"),
        lambda ledger, first: ledger.merge("main", "other"),
        lambda ledger, first: ledger.alias("nick", "main"),
        lambda ledger, first: ledger.annotate("main", title="t"),
        lambda ledger, first: ledger.update_session("main", agent_id="a"),
        lambda ledger, first: ledger.archive("main"),
    ],
    ids=lambda act: act.__code__.co_names[0],
)
def test_a_change_of_sessions_that_fails_at_any_statement_changes_nothing(
    meddled: tuple[Meddled, Ledger], raw: Raw, act: Callable[[Ledger, str], object]
) -> None:
    statements, ledger = meddled
    first, _ = chain(ledger, "main", 2)
    chain(ledger, "other", 1)
    ledger.alias("older", "other")

    assert fail_each_statement(statements, lambda: act(ledger, first), unchanged(raw))


def test_a_restore_that_fails_leaves_the_guards_as_they_were(
    ledger: Ledger, db: Database, raw: Raw
) -> None:
    chain(ledger, "main", 1)
    before = raw.dump()

    def fail(tx: Transaction) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.restore(fail)

    assert raw.dump() == before
    assert ledger.audit() == ()
