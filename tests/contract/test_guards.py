"""Guards: what was recorded does not change, whoever writes."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest

from agents_ledger import Compaction, Ledger, Refused
from agents_ledger.store.database import Database
from tests.builders import a_full_turn, chain
from tests.engines import on_sqlite
from tests.raw import Raw
from tests.tasking import a_talk, calls

DATABASE_ERRORS = (sqlite3.Error, psycopg.Error)
GUARDED = (
    "turns",
    "messages",
    "tool_calls",
    "compactions",
    "message_files",
    "message_lints",
    "message_codeblocks",
    "session_history",
    "system_prompts",
)


@pytest.fixture
def recorded(ledger: Ledger) -> Ledger:
    """A ledger with a row in every guarded table."""
    first, second = chain(ledger, "main", 2)
    ledger.record("main", **a_full_turn(compaction=Compaction("s", first, second)))
    ledger.record("main", "q", status="failed", error="no")
    return ledger


def other_value(raw: Raw, table: str, column: str) -> Any:
    """Something else of the column's kind."""
    now = raw.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1")
    example = now[0][0] if now else ""
    return 77 if isinstance(example, int) else b"77" if isinstance(example, bytes) else "77"


@pytest.mark.parametrize("table", GUARDED)
def test_no_column_of_a_recorded_row_can_be_changed(recorded: Ledger, raw: Raw, table: str) -> None:
    before = raw.dump()
    assert before[table]

    for column in raw.columns(table):
        if (table, column) == ("turns", "has_children"):
            continue
        value = other_value(raw, table, column)
        with pytest.raises(DATABASE_ERRORS, match="guard: "):
            raw.execute(f"UPDATE {table} SET {column} = ?", (value,))

    assert raw.dump() == before


@pytest.mark.parametrize("table", [*GUARDED, "sessions"])
def test_no_recorded_row_can_be_deleted(recorded: Ledger, raw: Raw, table: str) -> None:
    before = raw.dump()

    with pytest.raises(DATABASE_ERRORS, match="guard: "):
        raw.execute(f"DELETE FROM {table}")

    assert raw.dump() == before


ADDED = {
    "messages": "INSERT INTO messages (id, turn_id, role, content, sequence, created_at)"
    " VALUES ('new', '{turn}', 'user', 'forged', 99, 1)",
    "tool_calls": "INSERT INTO tool_calls (id, turn_id, tool_name, params_json, status, started_at,"
    " sequence) VALUES ('new', '{turn}', 'Forged', '{{}}', 'completed', 1, 99)",
    "message_files": "INSERT INTO message_files (message_id, kind, file_path)"
    " VALUES ('{message}', 'read', 'forged')",
    "message_lints": "INSERT INTO message_lints (message_id, message) VALUES ('{message}', 'no')",
    "message_codeblocks": "INSERT INTO message_codeblocks (message_id, idx, content)"
    " VALUES ('{message}', 99, 'forged')",
}


@pytest.mark.parametrize("end", ["recorded", "failed", "responded"])
@pytest.mark.parametrize("table", ADDED)
def test_nothing_is_added_to_a_sealed_turn(ledger: Ledger, raw: Raw, table: str, end: str) -> None:
    if end == "responded":
        live = ledger.turn("main", "q")
        open_message = ADDED["messages"].replace("'new'", "'open'").replace("99", "50")
        raw.execute(open_message.format(turn=live.id))  # it is open as long as it is written
        live.respond("r")
        turn = ledger.get_turn(live.id)
    else:
        status: Any = "failed" if end == "failed" else "completed"
        error = "no" if end == "failed" else None
        turn = ledger.record("main", "q", status=status, error=error)
    before = raw.dump()

    with pytest.raises(DATABASE_ERRORS, match="guard: nothing is added to a sealed turn"):
        raw.execute(ADDED[table].format(turn=turn.id, message=turn.messages[0].id))

    assert raw.dump() == before


def test_a_turn_only_learns_that_it_has_children(recorded: Ledger, raw: Raw) -> None:
    parent = recorded.thread("main").turns[0].id

    with pytest.raises(DATABASE_ERRORS, match="guard: a turn does not lose its children"):
        raw.execute("UPDATE turns SET has_children = 0 WHERE id = ?", (parent,))

    raw.execute("UPDATE turns SET has_children = 1 WHERE id = ?", (parent,))


@pytest.mark.parametrize(
    ("table", "free"),
    [
        ("bus_tasks", {"completion_status", "updated_at", "head_turn_id"}),
        ("bus_messages", {"turn_id"}),
        (
            "bus_calls",
            {
                "status",
                "details",
                "updated_at",
                "end_message_id",
                "writer_id",
                "revision",
                "derived_revision",
            },
        ),
    ],
)
def test_of_what_a_bus_saved_only_what_may_change_can(
    ledger: Ledger, raw: Raw, table: str, free: set[str]
) -> None:
    a_talk(ledger).save(calls())
    before = raw.dump()

    for column in set(raw.columns(table)) - free:
        value = other_value(raw, table, column)
        with pytest.raises(DATABASE_ERRORS, match="guard: "):
            raw.execute(f"UPDATE {table} SET {column} = ?", (value,))
    with pytest.raises(DATABASE_ERRORS, match="guard: "):
        raw.execute(f"DELETE FROM {table}")

    assert raw.dump() == before


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("turns", "id"),
        ("messages", "id"),
        ("tool_calls", "turn_id, id"),
        ("compactions", "turn_id"),
        ("session_history", "id"),
        ("system_prompts", "hash"),
        ("sessions", "label"),
    ],
)
@on_sqlite
def test_replacing_a_row_does_not_slip_past_the_guards(
    recorded: Ledger, db: Database, raw: Raw, table: str, key: str
) -> None:
    before = raw.dump()

    def replace() -> None:
        db.write(
            lambda tx: tx.execute(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table} LIMIT 1")
        )

    with pytest.raises(Refused):
        replace()

    assert raw.dump() == before


def test_what_a_live_turn_said_does_not_change_either(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.turn("main", "q")
    turn.message("said")

    for statement in ("UPDATE messages SET content = 'x'", "DELETE FROM messages"):
        with pytest.raises(DATABASE_ERRORS, match="guard: messages"):
            raw.execute(statement)
    with pytest.raises(DATABASE_ERRORS, match="guard: turns are never deleted"):
        raw.execute("DELETE FROM turns")

    turn.respond("r")


def test_a_broken_guard_is_a_refusal_in_words(recorded: Ledger, db: Database) -> None:
    with pytest.raises(Refused, match=r"^a sealed turn does not change$"):
        db.write(lambda tx: tx.execute("UPDATE turns SET model = 'x'"))
    with pytest.raises(Refused, match=r"^session_history only grows$"):
        db.write(lambda tx: tx.execute("DELETE FROM session_history"))


def test_an_alias_of_an_alias_is_refused(recorded: Ledger, raw: Raw) -> None:
    recorded.create_session("other")
    recorded.alias("nick", "main")
    recorded.alias("nack", "other")
    before = raw.dump()

    for statement in (
        "INSERT INTO names (name, session_label, created_at) VALUES ('new', 'nick', 1)",
        "UPDATE names SET session_label = 'nick' WHERE name = 'nack'",
        "UPDATE names SET session_label = 'main' WHERE name = 'other'",
    ):
        with pytest.raises(DATABASE_ERRORS, match="guard: an alias must point at a canonical"):
            raw.execute(statement)

    assert raw.dump() == before


@pytest.mark.unsound  # it has no source
def test_a_projected_turn_may_be_derived_again_until_it_is_frozen(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r", workspace_path="/old")
    with raw.unguarded():
        raw.execute("UPDATE turns SET projected = 1")

    raw.execute("UPDATE turns SET workspace_path = '/new'")
    raw.execute("UPDATE messages SET thinking = 'new'")
    assert ledger.get_turn(turn.id).workspace_path == "/new"

    raw.execute("UPDATE segments SET frozen_depth = 1")
    with pytest.raises(DATABASE_ERRORS, match="guard: a sealed turn does not change"):
        raw.execute("UPDATE turns SET workspace_path = '/newer'")
    for statement in ("UPDATE messages SET thinking = 'newer'", "DELETE FROM messages"):
        with pytest.raises(DATABASE_ERRORS, match="guard: messages"):
            raw.execute(statement)
    with pytest.raises(DATABASE_ERRORS, match="guard: turns are never deleted"):
        raw.execute("DELETE FROM turns")


@pytest.mark.unsound  # it has no source
def test_a_line_of_history_may_follow_a_projected_turn_until_it_is_frozen(
    ledger: Ledger, raw: Raw
) -> None:
    first, second = chain(ledger, "main", 2)
    with raw.unguarded():
        raw.execute("UPDATE turns SET projected = 1")
    raw.execute("UPDATE session_history SET thread_id = ? WHERE thread_id = ?", (first, second))
    assert [move.thread_id for move in ledger.history("main")] == [first, first]

    for change in ("thread_id = NULL", "reason = 'move'", "changed_at = 1", "session_label = 'x'"):
        with pytest.raises(DATABASE_ERRORS, match="guard: session_history only grows"):
            raw.execute(f"UPDATE session_history SET {change}")
    raw.execute("UPDATE segments SET frozen_depth = 1")
    with pytest.raises(DATABASE_ERRORS, match="guard: session_history only grows"):
        raw.execute("UPDATE session_history SET thread_id = ?", (second,))


@pytest.mark.parametrize("table", ["messages", "tool_calls"])
def test_nothing_is_moved_into_a_sealed_turn(ledger: Ledger, raw: Raw, table: str) -> None:
    sealed = ledger.record("main", "q", "a").id
    with ledger.turn("main", "Go on.") as turn:
        with turn.tool_call("Read", {"path": "a"}) as call:
            call.complete("x")
        with pytest.raises(DATABASE_ERRORS, match="guard: "):
            raw.execute(f"UPDATE {table} SET turn_id = ? WHERE turn_id = ?", (sealed, turn.id))
        turn.respond("Done.")

    assert len(ledger.get_turn(turn.id).tool_calls) == 1
