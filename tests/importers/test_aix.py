from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.helping import import_paths, result
from tests.importers.test_requests import import_sessions, item, request

TABLES = {
    "sessions": "id TEXT PRIMARY KEY, source TEXT, project TEXT, model TEXT, created_at INTEGER,"
    " message_count INTEGER, summary TEXT, raw_json TEXT, parent_session_id TEXT,"
    " parent_message_id TEXT, tool_call_id TEXT, task_description TEXT, task_status TEXT,"
    " is_subagent INTEGER, context_token_limit INTEGER, context_tokens_used INTEGER,"
    " is_agentic INTEGER, force_mode TEXT, workspace_path TEXT, context_json TEXT,"
    " conversation_state TEXT",
    "messages": "id TEXT PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, sequence INTEGER,"
    " timestamp INTEGER, checkpoint_id TEXT, is_agentic INTEGER, is_plan_execution INTEGER,"
    " context_json TEXT, cursor_rules_json TEXT, UNIQUE (session_id, sequence)",
    "tool_calls": "id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, tool_name TEXT,"
    " tool_number INTEGER, params_json TEXT, result_json TEXT, status TEXT,"
    " child_session_id TEXT, started_at INTEGER, completed_at INTEGER",
    "turns": "id TEXT PRIMARY KEY, session_id TEXT, parent_turn_id TEXT, query_message_ids TEXT,"
    " response_message_id TEXT, model TEXT, token_count INTEGER, timestamp INTEGER,"
    " has_children INTEGER, tool_call_count INTEGER",
    "message_metadata": "message_id TEXT PRIMARY KEY, session_id TEXT, metadata_json TEXT",
    "message_lints": "id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT,"
    " file_path TEXT, message TEXT, source TEXT, start_line INTEGER, start_col INTEGER,"
    " end_line INTEGER, end_col INTEGER",
    "message_files": "id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT, session_id TEXT,"
    " kind TEXT, file_path TEXT, line_number INTEGER",
    "message_codeblocks": "id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,"
    " session_id TEXT, idx INTEGER, raw_json TEXT",
    "sync_state": "key TEXT PRIMARY KEY, value TEXT, updated_at INTEGER",
}
AT = 1769616537000


def aix_db(path: Path, **tables: list[dict[str, Any]]) -> Path:
    with closing(sqlite3.connect(path)) as made:
        for table, columns in TABLES.items():
            made.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        for table, rows in tables.items():
            for row in rows:
                names = ", ".join(row)
                places = ", ".join("?" for _ in row)
                values = [json.dumps(v) if isinstance(v, dict | list) else v for v in row.values()]
                made.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})", values)
        made.commit()
    return path


SESSIONS: list[dict[str, Any]] = [
    {
        "id": "s1",
        "source": "cursor",
        "project": "nexus",
        "model": "model-x",
        "created_at": AT,
        "is_agentic": 1,
        "force_mode": "edit",
        "context_token_limit": 176000,
        "context_tokens_used": 38191,
        "workspace_path": "/w/nexus",
        "is_subagent": 0,
        "raw_json": {"long": "story"},
    },
    {
        "id": "task-k1",
        "source": "cursor",
        "parent_session_id": "s1",
        "task_description": "Look",
        "task_status": "completed",
        "is_subagent": 1,
    },
]
CALL = {
    "id": "k1",
    "message_id": "a1",
    "session_id": "s1",
    "tool_name": "task_v2",
    "tool_number": 48,
    "params_json": {"description": "Look"},
    "result_json": {"ok": True},
    "status": "completed",
    "child_session_id": "task-k1",
}
RAW = {"bubbleId": "a2", "thinking": {"text": "Hm."}, "todos": []}


def message(
    name: str, session: str, role: str, content: str, at: int, **more: Any
) -> dict[str, Any]:
    made = {"id": name, "session_id": session, "role": role, "content": content}
    return {**made, "sequence": at, "timestamp": AT + at, **more}


def sample(path: Path) -> Path:
    """A session with a call that starts another, as Cursor's would be gathered."""
    rules = [{"name": "style"}]
    return aix_db(
        path,
        sessions=SESSIONS,
        messages=[
            message("q1", "s1", "user", "Please look", 0, checkpoint_id="cp", is_agentic=0)
            | {"cursor_rules_json": rules},
            message("a1", "s1", "assistant", "", 1),
            message("a2", "s1", "assistant", "Looked.", 2),
            message("t0", "task-k1", "user", "Look", 0),
            message("t1", "task-k1", "assistant", "!", 1),
        ],
        turns=[{"id": "a2", "session_id": "s1", "response_message_id": "a2", "model": "model-y"}],
        tool_calls=[CALL],
        message_metadata=[{"message_id": "a2", "session_id": "s1", "metadata_json": RAW}],
        message_lints=[{"message_id": "q1", "file_path": "a.py", "message": "unused"}],
        message_files=[{"message_id": "q1", "kind": "relevant", "file_path": "b.py"}],
        message_codeblocks=[
            {"message_id": "a2", "idx": 0, "raw_json": {"content": "x", "languageId": "python"}}
        ],
        sync_state=[{"key": "cursor:bubble_max_rowid", "value": "7"}],
    )


def shown(ledger: Ledger, view: str, name: str) -> dict[str, Any]:
    names, rows = ledger.query(f"SELECT * FROM {view} WHERE id = '{name}'")
    assert len(rows) == 1, rows
    return dict(zip(names, rows[0], strict=True))


def test_a_session_shows_all_that_aix_knows(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, sample(tmp_path / "aix.db"))

    assert {
        "source": "cursor",
        "model": "model-y",
        "project": "nexus",
        "message_count": 3,
        "is_agentic": 1,
        "force_mode": "edit",
        "context_token_limit": 176000,
        "context_tokens_used": 38191,
        "workspace_path": "/w/nexus",
    }.items() <= shown(ledger, "agent_sessions", "s1").items()
    assert {
        "parent_session_id": "s1",
        "tool_call_id": "k1",
        "task_description": "Look",
        "task_status": "completed",
        "is_subagent": 1,
    }.items() <= shown(ledger, "agent_sessions", "task-k1").items()
    assert ledger.audit() == ()


def test_a_turn_is_what_was_asked_and_all_that_was_answered(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, sample(tmp_path / "aix.db"))

    (turn,) = ledger.thread("aix:cursor:s1").turns

    query, _, response = turn.messages
    assert (turn.id, turn.model) == ("aix:q1", "model-y")
    assert [(m.role, m.content) for m in turn.messages] == [
        ("user", "Please look"),
        ("assistant", ""),
        ("assistant", "Looked."),
    ]
    assert response.thinking == "Hm."
    assert json.loads(response.metadata_json or "")["source_message_id"] == "a2"
    assert ([x.file_path for x in query.lints], [f.file_path for f in query.files]) == (
        ["a.py"],
        ["b.py"],
    )
    assert [block.language for block in response.codeblocks] == ["python"]
    message = shown(ledger, "agent_messages", "aix:q1")
    assert (message["checkpoint_id"], message["is_agentic"]) == ("cp", 0)
    call = turn.tool_calls[0]
    assert (call.tool_number, call.message_id, call.params_json) == (
        48,
        "aix:a1",
        '{"description": "Look"}',
    )


def test_the_same_chat_from_cursor_itself_stays_apart(ledger: Ledger, tmp_path: Path) -> None:
    own = chat("s1", bubble("q1", 1, "Please look", 1), bubble("a1", 2, "Yes", 2))
    cursor = state_db(tmp_path / "globalStorage" / "state.vscdb", own)
    aix = sample(tmp_path / "aix.db")

    import_paths(ledger, cursor)
    import_paths(ledger, aix)

    turns = {row[0] for row in ledger.query("SELECT id FROM turns")[1]}
    assert turns == {"q1", "aix:q1", "aix:t0"}
    assert ledger.audit() == ()


def test_rows_written_anew_with_other_numbers_are_the_same(ledger: Ledger, tmp_path: Path) -> None:
    path = sample(tmp_path / "aix.db")
    import_paths(ledger, path)
    before = result(ledger)
    with closing(sqlite3.connect(path)) as made:
        made.execute("DELETE FROM message_lints")
        made.commit()
    aix_db(path, message_lints=[{"message_id": "q1", "file_path": "a.py", "message": "unused"}])

    report = import_paths(ledger, path)
    again = import_paths(ledger, path)

    assert report.counts.failed == 0
    assert (again.read_bytes, again.derived_records) == (0, 0)
    after = result(ledger)
    assert {**after, "turns": None} == {**before, "turns": None}
    assert ledger.audit() == ()


def test_an_old_database_without_later_columns_is_read(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "aix.db"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, project TEXT)")
        made.execute("CREATE TABLE messages (id TEXT, session_id TEXT, role TEXT, content TEXT)")
        made.execute("INSERT INTO sessions VALUES ('s', 'codex', 'p')")
        made.execute("INSERT INTO messages VALUES ('m', 's', 'user', 'Hello')")
        made.commit()

    import_paths(ledger, path)

    assert ledger.session("aix:codex:s").origin == "codex"
    assert ledger.query("SELECT status FROM turns")[1] == [("pending",)]


@pytest.mark.parametrize("table", ["sessions", "messages", "message_lints"])
def test_an_export_has_the_same_rows(ledger: Ledger, tmp_path: Path, table: str) -> None:
    path = sample(tmp_path / "aix.db")
    import_paths(ledger, path)

    (made,) = export_source(ledger, "aix:cursor:s1", tmp_path / "out.db")

    rows = []
    for each in (path, made):
        with closing(sqlite3.connect(each)) as connection:
            found = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
            rows.append(([column[0] for column in found.description], found.fetchall()))
    assert rows[0] == rows[1]


def test_the_same_session_by_request_stays_apart(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, sample(tmp_path / "aix.db"))
    before = ledger.session("aix:cursor:s1").thread_id

    answer = import_sessions(ledger, request(item()))  # of source aix, provider cursor, session s1

    assert answer["imported"] == 1
    own, other = (
        ledger.session("aix:cursor:s1"),
        ledger.session(answer["results"][0]["sessionLabel"]),
    )
    assert own.origin_session_id == other.origin_session_id == "s1"
    assert (own.label != other.label, own.thread_id) == (True, before)
    assert ledger.audit() == ()


@pytest.mark.parametrize("spoken_by", ["a1", "a3"])
def test_of_two_calls_that_name_one_subagent_only_one_links(
    ledger: Ledger, tmp_path: Path, spoken_by: str
) -> None:
    path = sample(tmp_path / "aix.db")
    again = [message("q2", "s1", "user", "Again", 3), message("a3", "s1", "assistant", "Yes.", 4)]
    aix_db(path, messages=again, tool_calls=[{**CALL, "id": "k2", "message_id": spoken_by}])

    import_paths(ledger, path)

    calls = [call for turn in ledger.thread("aix:cursor:s1").turns for call in turn.tool_calls]
    assert {call.id: call.spawned_session_label for call in calls} == {
        "k1": "aix:cursor:task-k1",
        "k2": None,
    }
    assert ledger.session("aix:cursor:task-k1").spawn_tool_call_id == "k1"
    assert ledger.audit() == ()


def test_a_subagent_is_found_by_the_call_it_names(ledger: Ledger, tmp_path: Path) -> None:
    path = sample(tmp_path / "aix.db")
    aix_db(
        path,
        sessions=[{**SESSIONS[1], "tool_call_id": "k1"}],
        tool_calls=[{**CALL, "child_session_id": None}, {**CALL, "id": "k9", "message_id": "?"}],
    )
    report = import_paths(ledger, path)

    session = ledger.session("aix:cursor:task-k1")
    assert (session.spawn_tool_call_id, session.parent_turn_id) == ("k1", "aix:q1")
    asked = "SELECT source FROM messages WHERE role = 'user' ORDER BY id"
    assert ledger.query(asked)[1] == [("human",), ("agent",)]
    assert report.records["aix", "tool_calls", "unmapped"] == 1  # it is of no message


def test_a_new_subagent_changes_no_other_turn(ledger: Ledger, tmp_path: Path) -> None:
    path = sample(tmp_path / "aix.db")
    again = [message("q2", "s1", "user", "Again", 3), message("a3", "s1", "assistant", "Yes.", 4)]
    aix_db(path, messages=again)
    import_paths(ledger, path)

    aix_db(path, tool_calls=[{**CALL, "id": "k2", "message_id": "a3", "child_session_id": "new"}])
    assert import_paths(ledger, path).written_turns == 1
