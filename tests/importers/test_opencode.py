from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.opencode.source import OpenCode
from tests.importers.helping import import_paths, packed_result, result

AT = 1764265577000
SESSION = {"id": "ses_1", "version": "1.0", "projectID": "p", "directory": "/w/app", "title": "Fix"}
SESSION["time"] = {"created": AT, "updated": AT + 9000}  # type: ignore[assignment]


def user(name: str, second: int, session: str = "ses_1", **more: Any) -> dict[str, Any]:
    made = {"id": name, "sessionID": session, "role": "user"}
    return {**made, "time": {"created": AT + second * 1000}, **more}


def agent(
    name: str, second: int, parent: str, session: str = "ses_1", **more: Any
) -> dict[str, Any]:
    made = {"id": name, "sessionID": session, "role": "assistant", "parentID": parent}
    times = {"created": AT + second * 1000, "completed": AT + second * 1000 + 500}
    tokens = {"input": 2, "output": 10, "reasoning": 1, "cache": {"read": 100, "write": 5}}
    made |= {"modelID": "model-x", "providerID": "anthropic", "path": {"cwd": "/w/app"}}  # type: ignore[dict-item]
    return {**made, "time": times, "tokens": tokens, "cost": 0.5, **more}


def part(name: str, message: str, kind: str, session: str = "ses_1", **more: Any) -> dict[str, Any]:
    return {"id": name, "sessionID": session, "messageID": message, "type": kind, **more}


READ = {
    "status": "completed",
    "input": {"filePath": "/w/app/a.py"},
    "output": "x = 1",
    "title": "a.py",
    "metadata": {"preview": "x"},
    "time": {"start": AT + 2100, "end": AT + 2200},
}
MESSAGES = [user("msg_1", 1, agent="build"), agent("msg_2", 2, "msg_1"), agent("msg_3", 3, "msg_1")]
PARTS = [
    part("prt_1", "msg_1", "text", text="Read it"),
    part("prt_2", "msg_1", "text", text="<file>", synthetic=True),
    part("prt_3", "msg_1", "file", mime="text/plain", filename="b.txt", url="file:///w/app/b.txt"),
    part("prt_4", "msg_2", "step-start", snapshot="s"),
    part("prt_5", "msg_2", "reasoning", text="I read."),
    part("prt_6", "msg_2", "tool", callID="call_1", tool="read", state=READ),
    part("prt_7", "msg_2", "step-finish", reason="tool", tokens={"input": 2}),
    part("prt_8", "msg_3", "text", text="It says x."),
    part("prt_9", "msg_3", "patch", hash="h", files=["/w/app/c.py"]),
]
Records = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]
SAMPLE: Records = ([SESSION], MESSAGES, PARTS)


def storage(root: Path, records: Records) -> Path:
    sessions, messages, parts = records
    for each in sessions:
        _write(root / "storage" / "session" / each["projectID"] / f"{each['id']}.json", each)
    for each in messages:
        _write(root / "storage" / "message" / each["sessionID"] / f"{each['id']}.json", each)
    for each in parts:
        _write(root / "storage" / "part" / each["messageID"] / f"{each['id']}.json", each)
    return root


def _write(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def database(path: Path, records: Records) -> Path:
    sessions, messages, parts = records
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.executescript(
            """
            CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, project_id TEXT,
                parent_id TEXT, directory TEXT, title TEXT, version TEXT, revert TEXT,
                time_created INTEGER, time_updated INTEGER);
            CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id TEXT,
                time_created INTEGER, time_updated INTEGER, data TEXT);
            CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, message_id TEXT,
                session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
            CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, token TEXT);
            CREATE TABLE IF NOT EXISTS control_account (id TEXT PRIMARY KEY, token TEXT);
            CREATE TABLE IF NOT EXISTS credential (id TEXT PRIMARY KEY, token TEXT);
            CREATE TABLE IF NOT EXISTS session_share (id TEXT PRIMARY KEY, token TEXT);
            """
        )
        for table in ("account", "control_account", "credential", "session_share"):
            made.execute(f"INSERT OR REPLACE INTO {table} VALUES ('1', 'do-not-keep')")
        for each in sessions:
            times = each["time"]
            revert = json.dumps(each["revert"]) if each.get("revert") else None
            row: tuple[Any, ...] = (each["id"], each["projectID"], each.get("parentID"))
            row += (each["directory"],)
            row += (each["title"], each["version"], revert, times["created"], times["updated"])
            made.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET revert = excluded.revert,"
                " time_updated = excluded.time_updated",
                row,
            )
        for each in messages:
            data = {k: v for k, v in each.items() if k not in ("id", "sessionID")}
            _upsert(made, "message", (each["id"], each["sessionID"]), data)
        for each in parts:
            data = {k: v for k, v in each.items() if k not in ("id", "sessionID", "messageID")}
            _upsert(made, "part", (each["id"], each["messageID"], each["sessionID"]), data)
        made.commit()
    return path


def _upsert(made: sqlite3.Connection, table: str, ids: tuple[str, ...], data: object) -> None:
    values = (*ids, AT, AT, json.dumps(data))
    places = ", ".join("?" for _ in values)
    made.execute(
        f"INSERT INTO {table} VALUES ({places})"
        " ON CONFLICT (id) DO UPDATE SET data = excluded.data",
        values,
    )


def export(path: Path, records: Records) -> Path:
    (session,), messages, parts = records
    listed = [
        {"info": m, "parts": [p for p in parts if p["messageID"] == m["id"]]} for m in messages
    ]
    path.write_text(json.dumps({"info": session, "messages": listed}, indent=2))
    return path


def shown(ledger: Ledger) -> dict[str, Any]:
    """The rows, without what may differ between the formats."""
    rows = result(ledger)
    rows["turns"] = [row[:-1] for row in rows["turns"]]
    rows["sessions"] = [row[:2] for row in rows["sessions"]]
    return rows


def test_a_database_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, database(tmp_path / "opencode.db", SAMPLE))

    (turn,) = ledger.thread("opencode:ses_1").turns

    query, working, response = turn.messages
    assert (turn.id, turn.model, turn.provider) == ("msg_1", "model-x", "anthropic")
    assert turn.workspace_path == "/w/app"
    assert (turn.input_tokens, turn.output_tokens, turn.cached_input_tokens) == (4, 20, 200)
    assert (turn.cache_write_tokens, turn.reasoning_tokens, turn.total_tokens) == (10, 2, 236)
    assert (query.content, response.content, working.thinking) == (
        "Read it",
        "It says x.",
        "I read.",
    )
    assert json.loads(query.context_json or "") == {"synthetic": ["<file>"]}
    assert [(f.kind, f.file_path) for m in turn.messages for f in m.files] == [
        ("attached", "/w/app/b.txt"),
        ("read", "/w/app/a.py"),
        ("written", "/w/app/c.py"),
    ]
    (call,) = turn.tool_calls
    assert (call.id, call.tool_name, call.status, call.message_id) == (
        "call_1",
        "read",
        "completed",
        "msg_2",
    )
    assert (call.started_at, call.completed_at) == (AT + 2100, AT + 2200)
    assert json.loads(call.result_json or "")["output"] == "x = 1"
    session = ledger.session("opencode:ses_1")
    assert (session.title, session.origin, session.origin_session_id) == (
        "Fix",
        "opencode",
        "ses_1",
    )


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("New session - 2026-03-01T10:00:00.123Z", None),
        ("Child session - 2026-03-01T10:00:00.123Z", None),
        ("New session - 2026-03-01T10:00:00.123Z (fork #2)", None),
        ("New session - as I call it", "New session - as I call it"),
    ],
)
def test_placeholder_titles_are_not_imported(
    ledger: Ledger, tmp_path: Path, said: str, title: str | None
) -> None:
    import_paths(ledger, storage(tmp_path, ([{**SESSION, "title": said}], MESSAGES, PARTS)))

    assert ledger.session("opencode:ses_1").title == title


def test_all_generations_give_the_same_rows(new_address: Callable[[], str], tmp_path: Path) -> None:
    places = (
        storage(tmp_path / "tree", SAMPLE),
        database(tmp_path / "db" / "opencode.db", SAMPLE),
        export(tmp_path / "export.json", SAMPLE),
        export(tmp_path / "full.jsonl", SAMPLE),  # so others keep it
    )
    found = []
    for place in places:
        with Ledger.open(new_address()) as ledger:
            report = import_paths(ledger, place)
            assert (report.faults, ledger.audit()) == ([], ())
            found.append(shown(ledger))

    assert all(each == found[0] for each in found)
    assert len(found[0]["messages"]) == 3


def test_records_with_unreadable_ids_are_identified_by_position(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = export(tmp_path / "export.json", SAMPLE)
    said = json.loads(path.read_text())
    for each in said["messages"]:
        for part in each["parts"]:
            part["messageID"] = "REDACTED"
            if part["type"] == "tool":
                part["callID"] = part["id"] = "REDACTED"
        each["info"]["id"] = "REDACTED"
    tool = next(p for each in said["messages"] for p in each["parts"] if p["type"] == "tool")
    said["messages"][-1]["parts"].append(tool)
    path.write_text(json.dumps(said))

    import_paths(ledger, path)

    (turn,) = ledger.thread("opencode:ses_1").turns
    assert [m.content for m in turn.messages] == ["Read it", "", "It says x."]
    assert turn.total_tokens == 236
    assert [call.tool_name for call in turn.tool_calls] == ["read", "read"]
    assert not ledger.audit()


def test_files_in_a_renamed_folder_are_recognised(ledger: Ledger, tmp_path: Path) -> None:
    root = storage(tmp_path / "opencode", SAMPLE)
    (root / "storage").rename(root / "my-backup")

    report = import_paths(ledger, root)

    assert report.counts.imported == 1
    (turn,) = ledger.thread("opencode:ses_1").turns
    assert [m.content for m in turn.messages if m.role == "user"] == ["Read it"]
    assert len(turn.tool_calls) == 1


def test_all_files_of_a_renamed_folder_are_one_family() -> None:
    root = Path("/data/my-backup")
    told = ("session/p/ses_1", "message/ses_1/msg_1", "part/msg_1/prt_1", "todo/ses_1")
    older = ("session/info/s", "session/message/s/m", "session/part/s/m/p")

    for names in (told, older):
        assert {OpenCode().family(root / f"{name}.json") for name in names} == {
            "opencode:/data/my-backup"
        }


def test_files_next_to_their_database_are_merged_by_id(ledger: Ledger, tmp_path: Path) -> None:
    storage(tmp_path, SAMPLE)
    later = (user("msg_4", 5), agent("msg_5", 6, "msg_4"))
    words = (part("prt_a", "msg_4", "text", text="And?"), part("prt_b", "msg_5", "text", text="!"))
    database(tmp_path / "opencode.db", ([SESSION], [*MESSAGES, *later], [*PARTS, *words]))

    import_paths(ledger, tmp_path)

    assert [turn.id for turn in ledger.thread("opencode:ses_1").turns] == ["msg_1", "msg_4"]
    assert len(ledger.query("SELECT id FROM messages")[1]) == 5
    assert ledger.audit() == ()


def test_secrets_are_never_read(ledger: Ledger, tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", SAMPLE)
    import_paths(ledger, path)

    (made,) = export_source(ledger, "opencode:ses_1", tmp_path / "out.db")

    assert b"do-not-keep" in path.read_bytes()
    assert b"do-not-keep" not in made.read_bytes()


def test_rows_changed_in_place_are_imported_again(ledger: Ledger, tmp_path: Path) -> None:
    running = {**READ, "status": "running", "output": None}
    parts = [{**each, "state": running} if "state" in each else each for each in PARTS]
    path = database(tmp_path / "opencode.db", ([SESSION], MESSAGES, parts))
    import_paths(ledger, path)
    assert ledger.query("SELECT status FROM tool_calls")[1] == [("cancelled",)]

    database(path, SAMPLE)
    report = import_paths(ledger, path)
    again = import_paths(ledger, path)

    assert ledger.query("SELECT status FROM tool_calls")[1] == [("completed",)]
    assert 0 < report.read_bytes < 1000
    assert (again.read_bytes, again.derived_records, again.written_turns) == (0, 0, 0)


def test_a_subagent_is_linked_from_both_sides(ledger: Ledger, tmp_path: Path) -> None:
    state = {
        "status": "completed",
        "input": {"description": "Look", "prompt": "Look there"},
        "output": "Found",
        "metadata": {"sessionId": "ses_0"},
    }
    child = {**SESSION, "id": "ses_0", "parentID": "ses_1", "title": "Look"}
    messages = [*MESSAGES, user("msg_8", 2, "ses_0"), agent("msg_9", 3, "msg_8", "ses_0")]
    parts = [
        *PARTS,
        part("prt_c", "msg_3", "tool", callID="call_2", tool="task", state=state),
        part("prt_d", "msg_8", "text", "ses_0", text="Look there"),
    ]
    import_paths(ledger, database(tmp_path / "opencode.db", ([SESSION, child], messages, parts)))

    names, rows = ledger.query("SELECT * FROM agent_sessions WHERE parent_session_id = 'ses_1'")
    session = dict(zip(names, rows[0], strict=True))

    assert {
        "id": "ses_0",
        "tool_call_id": "call_2",
        "task_description": "Look",
        "task_status": "completed",
        "parent_message_id": "msg_3",
    }.items() <= session.items()
    asked = "SELECT source FROM messages WHERE role = 'user' ORDER BY id"
    assert ledger.query(asked)[1] == [("human",), ("agent",)]
    assert ledger.audit() == ()


def test_a_summary_is_a_compaction(ledger: Ledger, tmp_path: Path) -> None:
    messages = [*MESSAGES, user("msg_4", 5), agent("msg_5", 6, "msg_4", summary=True)]
    parts = [
        *PARTS,
        part("prt_a", "msg_4", "compaction", auto=True),
        part("prt_b", "msg_5", "text", text="In short."),
    ]
    import_paths(ledger, database(tmp_path / "opencode.db", ([SESSION], messages, parts)))

    compaction = ledger.thread("opencode:ses_1").turns[-1].compaction

    assert compaction is not None
    assert (compaction.summary, compaction.trigger) == ("In short.", "context_limit")
    assert compaction.summarized_through_turn_id == "msg_1"


def test_reverted_messages_are_a_branch(new_address: Callable[[], str], tmp_path: Path) -> None:
    second = [user("msg_4", 5), agent("msg_5", 6, "msg_4")]
    third = [user("msg_6", 20), agent("msg_7", 21, "msg_6")]
    back = {**SESSION, "revert": {"messageID": "msg_4"}}
    path = database(tmp_path / "opencode.db", ([back], [*MESSAGES, *second], PARTS))
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, path)
        assert ledger.session("opencode:ses_1").thread_id == "msg_1"
        with closing(sqlite3.connect(path)) as made:
            made.execute("DELETE FROM message WHERE id IN ('msg_4', 'msg_5')")
            made.commit()
        later = {**SESSION, "time": {"created": AT, "updated": AT + 30000}}
        database(path, ([later], third, []))

        import_paths(ledger, path)

        parents = dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])
        assert parents == {"msg_1": None, "msg_4": "msg_1", "msg_6": "msg_1"}
        assert ledger.session("opencode:ses_1").thread_id == "msg_6"
        assert ledger.audit() == ()


def test_broken_files_are_reported_and_the_rest_imported(ledger: Ledger, tmp_path: Path) -> None:
    root = storage(tmp_path / "data", SAMPLE)
    folder = root / "storage" / "part" / "msg_3"
    (folder / "prt_torn.json").write_text('{"id": "prt_torn", "messageID": "msg_3", "type": "te')
    (folder / "prt_odd.json").write_text('{"id": 7, "messageID": [], "type": "text", "text": {}}')
    _write(root / "storage" / "session_diff" / "ses_1.json", [])

    report = import_paths(ledger, root)

    assert [Path(fault.path).name for fault in report.faults] == ["prt_torn.json"]
    assert len(ledger.thread("opencode:ses_1").turns) == 1
    kept = sum(number for (source, _, _), number in report.records.items() if source == "opencode")
    assert kept == len(list(root.rglob("*.json")))


def test_an_export_contains_the_original_files(ledger: Ledger, tmp_path: Path) -> None:
    root = storage(tmp_path / "data", SAMPLE)
    import_paths(ledger, root)

    made = export_source(ledger, "opencode:ses_1", tmp_path / "out")

    assert len(made) == 1 + len(MESSAGES) + len(PARTS)
    for path in made:
        given = root / "storage" / path.relative_to(tmp_path / "out")
        assert path.read_bytes() == given.read_bytes()


def test_a_part_without_a_message_is_counted_as_unmapped(ledger: Ledger, tmp_path: Path) -> None:
    lost = part("prt_z", "msg_lost", "text", "ses_9", text="Where?")
    report = import_paths(ledger, storage(tmp_path, ([SESSION], MESSAGES, [*PARTS, lost])))

    assert report.records["opencode", "part", "unmapped"] == 1
    assert report.records["opencode", "part", "derived"] == len(PARTS)


def test_the_data_folder_may_be_configured_and_an_empty_variable_is_ignored() -> None:
    def roots(**environment: str) -> list[Path]:
        return list(OpenCode().roots(Home(Path("/home/dev"), environment, "win32")))

    usual = Path("/home/dev/.local/share/opencode")
    assert roots() == roots(XDG_DATA_HOME="") == [usual]
    assert roots(XDG_DATA_HOME="/data") == [Path("/data/opencode")]


def test_packed_records_give_the_same_rows(ledger: Ledger, tmp_path: Path) -> None:
    data = tmp_path / "data"
    state = {**READ, "metadata": {"sessionId": "ses_0"}}
    child = {**SESSION, "id": "ses_0", "parentID": "ses_1"}
    revert = {**SESSION, "revert": {"messageID": "msg_4"}}
    asked = [user("msg_8", 2, "ses_0"), agent("msg_9", 3, "msg_8", "ses_0")]
    later = [user("msg_4", 5), agent("msg_5", 6, "msg_4", summary=True), user("msg_6", 5)]
    parts = [
        part("prt_b", "msg_5", "text", text="second"),
        part("prt_a", "msg_5", "text", text="first"),
        part("prt_c", "msg_3", "tool", callID="call_2", tool="task", state=state),
        part("prt_z", "msg_z", "text", text="of no message"),
    ]
    storage(data, SAMPLE)
    database(data / "opencode.db", ([revert, child], [*later, *asked], parts))
    export(data / "export.json", ([SESSION], [user("msg_0", 0), *MESSAGES], PARTS))
    import_paths(ledger, data)
    before = result(ledger)

    assert packed_result(tmp_path, data) == before
    assert [turn[0] for turn in before["turns"]] == ["msg_0", "msg_4", "msg_8"]
    assert "first\n\nsecond" in [message[3] for message in before["messages"]]
