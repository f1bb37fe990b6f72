"""The SELECTs of the specification run unchanged, on the ledger's SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger, Message, Session, ToolCall, Usage
from tests.builders import a_call, chain
from tests.raw import Raw

CONVERSATION = """
SELECT * FROM agent_messages
WHERE session_id = ?
ORDER BY sequence;
"""
TURN_TREE = """
WITH RECURSIVE turn_tree AS (
  SELECT * FROM agent_turns WHERE id = ?  -- start from turn
  UNION ALL
  SELECT t.* FROM agent_turns t
  JOIN turn_tree tt ON t.id = tt.parent_turn_id
)
SELECT * FROM turn_tree ORDER BY timestamp;
"""
SUBAGENTS = """
SELECT * FROM agent_sessions
WHERE parent_session_id = ?;
"""
TOOL_USE = """
SELECT tool_name, COUNT(*) as uses, 
       SUM(CASE WHEN status='completed' THEN 1 ELSE 0 END) as success
FROM agent_tool_calls
WHERE session_id = ?
GROUP BY tool_name
ORDER BY uses DESC;
"""  # noqa: W291


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A ledger file."""
    return str(tmp_path / "ledger.db")


@pytest.fixture
def here(file: str) -> Iterator[Ledger]:
    """The ledger in that file: the specification writes SQL for SQLite."""
    with Ledger.open(file) as ledger:
        yield ledger
        assert ledger.audit() == ()


@pytest.fixture
def connection(file: str, here: Ledger) -> Iterator[sqlite3.Connection]:
    """Somebody else's plain connection to the file."""
    other = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    other.row_factory = sqlite3.Row
    yield other
    other.close()


def test_the_full_conversation_of_a_session(here: Ledger, connection: sqlite3.Connection) -> None:
    first = here.record("main", [Message("system", "rules"), "one"], "r1")
    second = here.record("main", "two", "r2", steps=[Message("assistant", "hm", thinking="t")])
    here.fork(first.id, label="other")
    beside = here.record("other", "beside", "r3")

    rows = connection.execute(CONVERSATION, ("main",)).fetchall()

    assert [(row["sequence"], row["content"]) for row in rows] == list(
        enumerate(["rules", "one", "r1", "two", "hm", "r2"])
    )
    assert {row["session_id"] for row in rows} == {"main"}
    assert [row["id"] for row in rows] == [m.id for t in (first, second) for m in t.messages]
    assert rows[4]["thinking"] == "t"
    assert rows[0]["timestamp"] == first.messages[0].created_at
    other = connection.execute(CONVERSATION, ("other",)).fetchall()
    assert [row["turn_id"] for row in other] == [first.id] * 3 + [beside.id] * 2


def test_a_long_conversation_keeps_its_order(here: Ledger, connection: sqlite3.Connection) -> None:
    chain(here, "main", 12)
    here.fork(here.ancestry("main")[5], label="other")
    chain(here, "other", 3)

    rows = connection.execute(CONVERSATION, ("other",)).fetchall()

    assert [row["sequence"] for row in rows] == list(range(18))
    assert [row["turn_id"] for row in rows[::2]] == list(here.ancestry("other"))


def test_the_conversation_is_found_without_reading_every_session(
    here: Ledger, connection: sqlite3.Connection
) -> None:
    for number in range(20):
        chain(here, f"s{number}", 2)

    # Subagents are found by the id their parent has in its source, among the sessions alone.
    for query in (CONVERSATION, TOOL_USE):
        plan = [row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", ("s1",))]
        assert not [step for step in plan if step.startswith(("SCAN s", "SCAN m", "SCAN c "))], plan
        assert any("SEARCH s USING" in step for step in plan), plan


def test_the_turn_tree_leads_from_a_turn_to_its_root(
    here: Ledger, connection: sqlite3.Connection
) -> None:
    turns = []
    for number in range(3):
        turns.append(
            here.record(
                "main",
                "q",
                "r",
                started_at=1000 * number + 1,
                completed_at=1000 * number + 2,
                usage=Usage(1, 2),
                model="m",
                steps=[a_call()],
            )
        )
    for number in range(30):  # a turn of many sessions is still one row
        here.fork(turns[-1].id, label=f"fork {number}")

    rows = connection.execute(TURN_TREE, (turns[-1].id,)).fetchall()

    assert [row["id"] for row in rows] == [turn.id for turn in turns]
    last = dict(rows[-1])
    assert (
        last.items()
        >= {
            "id": turns[2].id,
            "session_id": "main",
            "parent_turn_id": turns[1].id,
            "query_message_ids": turns[2].query_message_ids,
            "response_message_id": turns[2].response_message_id,
            "model": "m",
            "token_count": 3,
            "timestamp": 2002,
            "has_children": 0,
            "tool_call_count": 1,
        }.items()
    )


def test_all_subagents_of_a_session(here: Ledger, connection: sqlite3.Connection) -> None:
    here.create_session(Session("unrelated"))
    with here.turn("main", "q") as turn:
        turn.message("I delegate.")
        for name in ("a", "b"):
            call = turn.tool_call("Task", id=f"call-{name}")
            call.spawn(Session(name, task_description=f"do {name}", origin="cursor"))
        turn.respond("r")
    here.record("a", "q", "r", model="small", usage=Usage(5, 6), workspace_path="/w")
    here.update_session("a", task_status="completed")

    rows = connection.execute(SUBAGENTS, ("main",)).fetchall()

    assert {row["id"] for row in rows} == {"a", "b"}
    [a] = [dict(row) for row in rows if row["id"] == "a"]
    assert (
        a.items()
        >= {
            "id": "a",
            "source": "cursor",
            "model": "small",
            "created_at": here.session("a").created_at,
            "message_count": 2,
            "parent_session_id": "main",
            "parent_message_id": here.get_turn("main").messages[1].id,
            "tool_call_id": "call-a",
            "task_description": "do a",
            "task_status": "completed",
            "is_subagent": 1,
            "context_tokens_used": 11,
            "workspace_path": "/w",
        }.items()
    )


def test_the_tool_use_of_a_session(here: Ledger, connection: sqlite3.Connection) -> None:
    failed = ToolCall("Bash", status="failed", error="no")
    here.record("main", "q", "r", steps=[a_call("Read"), a_call("Read"), failed])
    here.record("main", "q", "r", steps=[a_call("Read"), a_call("Bash")])
    here.record("other", "q", "r", steps=[a_call("Grep")])

    rows = connection.execute(TOOL_USE, ("main",)).fetchall()

    assert [tuple(row) for row in rows] == [("Read", 3, 3), ("Bash", 2, 1)]


def test_the_views_answer_alike_on_both_engines(ledger: Ledger, raw: Raw) -> None:
    first = ledger.record("main", "one", "r1", steps=[a_call("Read"), a_call("Bash")])
    second = ledger.record("main", "two", "r2", usage=Usage(1, 2))
    ledger.fork(first.id, label="other")
    ledger.record("other", "q", "r", steps=[a_call("Task", spawned_session_label="child")])

    messages = raw.execute(CONVERSATION.replace("*", "sequence, content, turn_id"), ("main",))
    tree = raw.execute(
        TURN_TREE.replace("-- start from turn", "").replace(
            "SELECT * FROM turn_tree", "SELECT id, session_id, token_count FROM turn_tree"
        ),
        (second.id,),
    )
    children = raw.execute(SUBAGENTS.replace("*", "id, message_count, is_subagent"), ("other",))
    tools = raw.execute(TOOL_USE.replace("uses DESC", "tool_name"), ("main",))

    assert messages == [
        (0, "one", first.id),
        (1, "r1", first.id),
        (2, "two", second.id),
        (3, "r2", second.id),
    ]
    assert tree == [(first.id, "main", None), (second.id, "main", 3)]
    assert children == [("child", 0, 1)]
    assert tools == [("Bash", 1, 1), ("Read", 1, 1)]
    assert raw.execute("SELECT id, message_count FROM agent_sessions ORDER BY id") == [
        ("child", 0),
        ("main", 4),
        ("other", 4),
    ]
