"""opencode 2: sessions in `session_v2`, messages in `session_message`."""

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
from agents_ledger.importers import discovery, pipeline
from agents_ledger.importers.port.homes import Home
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers import test_exclusion as exclusion
from tests.importers import test_opencode as first
from tests.importers.helping import import_paths, packed_result, result
from tests.importers.test_opencode import AT

TABLES = """
    CREATE TABLE IF NOT EXISTS `project` (`id` text PRIMARY KEY, `worktree` text);
    CREATE TABLE IF NOT EXISTS `session_v2` (`id` text PRIMARY KEY, `project_id` text,
        `parent_id` text, `fork_session_id` text, `fork_boundary` text, `directory` text,
        `title` text, `version` text, `cost` real, `revert` text, `model` text,
        `time_created` integer, `time_updated` integer);
    CREATE TABLE IF NOT EXISTS `session_message` (`id` text PRIMARY KEY, `session_id` text,
        `type` text, `seq` integer, `time_created` integer, `time_updated` integer, `data` text);
    CREATE TABLE IF NOT EXISTS `session_inbox` (`id` text PRIMARY KEY, `session_id` text,
        `payload` text);
    CREATE TABLE IF NOT EXISTS `account` (`id` text PRIMARY KEY, `token` text);
    CREATE TABLE IF NOT EXISTS `credential` (`id` text PRIMARY KEY, `token` text);
    INSERT OR REPLACE INTO `account` VALUES ('1', 'do-not-keep');
    INSERT OR REPLACE INTO `credential` VALUES ('1', 'do-not-keep');
"""
Message = tuple[str, str, str, int, dict[str, Any]]  # id, session, type, second, data


def session(name: str = "ses_1", **more: Any) -> dict[str, Any]:
    made = {"id": name, "project_id": "p", "directory": "/w/app", "title": "Fix", "version": "2.0"}
    return {**made, "time_created": AT, "time_updated": AT + 9000, **more}


def said(
    name: str, type_: str, second: int, session: str = "ses_1", **data: Any
) -> tuple[str, str, str, int, dict[str, Any]]:
    return name, session, type_, second, {"time": {"created": AT + second * 1000}, **data}


def user(name: str, second: int, text: str, session: str = "ses_1", **more: Any) -> Message:
    return said(name, "user", second, session, text=text, **more)


def agent(name: str, second: int, *content: Any, session: str = "ses_1", **more: Any) -> Message:
    tokens = {"input": 2, "output": 10, "reasoning": 1, "cache": {"read": 100, "write": 5}}
    times = {"created": AT + second * 1000, "completed": AT + second * 1000 + 500}
    made = {"agent": "build", "model": {"id": "model-x", "providerID": "anthropic"}, "cost": 0.5}
    more = {**made, "tokens": tokens, "content": list(content), "time": times, **more}
    return said(name, "assistant", second, session, **more)


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(name: str, tool: str, **state: Any) -> dict[str, Any]:
    times = {"created": AT + 2000, "ran": AT + 2100, "completed": AT + 2200}
    return {"type": "tool", "id": name, "name": tool, "state": state, "time": times}


READ = call(
    "call_1",
    "read",
    status="completed",
    input={"path": "/w/app/a.py"},
    content=[words("x = 1"), {"type": "file", "uri": "data:image/png;base64,AAAA", "mime": "x"}],
    metadata={"lines": 1},
)
FILES = [
    {"data": "QUJD", "mime": "text/plain", "source": {"type": "uri", "uri": "file:///w/app/b.txt"}}
]
MESSAGES = [
    user("msg_1", 1, "Read it", files=FILES, skills=[{"id": "s", "name": "s", "text": "<skill>"}]),
    agent("msg_2", 2, {"type": "reasoning", "text": "I read."}, READ),
    agent("msg_3", 3, words("It says x."), snapshot={"start": "h", "files": ["c.py"]}),
]


def database(
    path: Path, sessions: list[dict[str, Any]], messages: list[Message], start: int = 0
) -> Path:
    """A database with these rows; existing rows are changed in place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.executescript(TABLES)
        for each in sessions:
            row = {k: json.dumps(v) if isinstance(v, dict) else v for k, v in each.items()}
            names = ", ".join(row)
            places = ", ".join("?" for _ in row)
            made.execute("DELETE FROM session_v2 WHERE id = ?", (row["id"],))
            made.execute(f"INSERT INTO session_v2 ({names}) VALUES ({places})", tuple(row.values()))
        for seq, (name, session_id, type_, second, data) in enumerate(messages, start):
            at = AT + second * 1000
            made.execute(
                "INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET data = excluded.data, seq = excluded.seq",
                (name, session_id, type_, seq, at, at, json.dumps(data)),
            )
        made.commit()
    return path


def tree(ledger: Ledger) -> dict[str, str | None]:
    return dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])


def test_a_session_of_the_second_format_is_imported(ledger: Ledger, tmp_path: Path) -> None:
    path = database(tmp_path / "opencode.db", [session(cost=1.5)], MESSAGES)
    report = import_paths(ledger, path)

    (turn,) = ledger.thread("opencode:ses_1").turns

    query, working, response = turn.messages
    assert (turn.id, turn.model, turn.provider) == ("msg_1", "model-x", "anthropic")
    assert (turn.workspace_path, turn.status) == ("/w/app", "completed")
    assert (turn.input_tokens, turn.output_tokens, turn.cached_input_tokens) == (4, 20, 200)
    assert (turn.cache_write_tokens, turn.reasoning_tokens, turn.total_tokens) == (10, 2, 236)
    assert (query.content, query.source) == ("Read it", "human")
    assert json.loads(query.context_json or "") == {"synthetic": ["<skill>"]}
    assert (working.thinking, response.content) == ("I read.", "It says x.")
    assert json.loads(response.metadata_json or "")["cost"] == 0.5
    assert [(f.kind, f.file_path) for m in turn.messages for f in m.files] == [
        ("attached", "/w/app/b.txt"),
        ("read", "/w/app/a.py"),
        ("written", "c.py"),
    ]
    (made,) = turn.tool_calls
    assert (made.id, made.tool_name, made.status) == ("call_1", "read", "completed")
    assert (made.message_id, made.started_at, made.completed_at) == (
        "msg_2",
        AT + 2100,
        AT + 2200,
    )
    outcome = json.loads(made.result_json or "")
    assert (outcome["output"], outcome["metadata"]) == ("x = 1", {"lines": 1})
    assert "AAAA" not in (made.result_json or "")
    found = ledger.session("opencode:ses_1")
    assert (found.title, found.origin_session_id) == ("Fix", "ses_1")
    assert report.records["opencode", "session_message", "derived"] == len(MESSAGES)
    assert (report.faults, ledger.audit()) == ([], ())


def test_the_database_is_recognised_by_location_name_and_tables(
    ledger: Ledger, tmp_path: Path
) -> None:
    data = tmp_path / ".local" / "share" / "opencode"
    own = database(data / "opencode-beta.db", [session()], MESSAGES)
    other = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(other)) as made:
        for number in range(40):  # so that no first bytes tell what else there is
            made.execute(f"CREATE TABLE t{number} (x TEXT, {'y' * 2000} TEXT)")
        made.commit()
    database(other, [session("ses_2")], [user("msg_8", 1, "Hi", "ses_2")])

    found = discovery.find(Home(tmp_path, {}, "linux"))
    import_paths(ledger, own, other)

    assert [(each.path, each.source.name) for each in found] == [(own, "opencode")]
    assert b"session_v2" not in other.read_bytes()[: 64 << 10]
    labels = ledger.query("SELECT label FROM sessions ORDER BY label")[1]
    assert labels == [("opencode:ses_1",), ("opencode:ses_2",)]


def test_a_second_import_reads_nothing_and_deriving_again_changes_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = database(tmp_path / "opencode.db", [session()], MESSAGES)
    import_paths(ledger, path)
    before = result(ledger)

    again = import_paths(ledger, path)
    pipeline.rederive(ledger)

    assert (again.read_bytes, again.derived_records, again.written_turns) == (0, 0, 0)
    assert result(ledger) == before
    assert packed_result(tmp_path, path) == before


def test_rows_changed_in_place_give_the_same_as_the_last_state_alone(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    begun = call("call_1", "read", status="streaming", input='{"path": "/w/a')
    half = agent("msg_2", 2, begun, time={"created": AT + 2000}, tokens=None)
    running = said("msg_4", "compaction", 4, status="running", reason="auto", summary="")
    done = said("msg_4", "compaction", 4, status="completed", reason="auto", summary="In short.")
    path = tmp_path / "opencode.db"
    states = [MESSAGES[:1], [MESSAGES[0], half], [*MESSAGES, running], [*MESSAGES, done]]
    with Ledger.open(new_address()) as ledger:
        for number, state in enumerate(states):
            database(path, [session(title=f"Title {number}")], state)
            import_paths(ledger, path)
        grown = result(ledger)

    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, path)
        assert result(ledger) == grown
        assert ledger.session("opencode:ses_1").title == "Title 3"
    assert [row[:3] for row in grown["turns"]] == [
        ("msg_1", None, "normal"),
        ("msg_4", "msg_1", "compaction"),
    ]


def test_an_export_of_the_database_has_the_same_rows_and_no_secrets(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = database(tmp_path / "opencode.db", [session()], MESSAGES)
    with closing(sqlite3.connect(path)) as given:
        given.execute("INSERT INTO session_inbox VALUES ('msg_9', 'ses_1', 'queued')")
        given.commit()
    import_paths(ledger, path)

    (made,) = export_source(ledger, "opencode:ses_1", tmp_path / "out.db")

    with closing(sqlite3.connect(path)) as given, closing(sqlite3.connect(made)) as got:
        for table in ("session_v2", "session_message", "session_inbox"):
            rows = f"SELECT * FROM {table} ORDER BY id"
            assert got.execute(rows).fetchall() == given.execute(rows).fetchall()
    assert b"do-not-keep" in path.read_bytes()
    assert b"do-not-keep" not in made.read_bytes()


def test_a_compaction_is_a_turn_and_the_agent_may_continue_after_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    wrong = {"type": "unknown", "message": "no"}
    messages = [
        *MESSAGES,
        said("msg_4", "compaction", 4, status="failed", reason="auto", error=wrong),
        said("msg_5", "compaction", 5, status="completed", reason="auto", summary="In short."),
        agent("msg_6", 6, words("I go on.")),
    ]
    path = database(tmp_path / "opencode.db", [session()], messages)
    report = import_paths(ledger, path)

    before, compacted, after = ledger.thread("opencode:ses_1").turns

    assert [before.id, compacted.id, after.id] == ["msg_1", "msg_5", "msg_6"]
    assert compacted.compaction is not None
    assert compacted.compaction.summary == "In short."
    assert compacted.compaction.trigger == "context_limit"
    assert compacted.compaction.summarized_through_turn_id == "msg_1"
    assert (after.turn_type, after.messages[0].content) == ("normal", "I go on.")
    assert report.records["opencode", "session_message", "unmapped"] == 1
    assert ledger.audit() == ()


def test_system_synthetic_skill_and_shell_messages_are_imported(
    ledger: Ledger, tmp_path: Path
) -> None:
    messages = [
        said("msg_0", "model-switched", 0, model={"id": "model-x"}),
        *MESSAGES,
        said(
            "msg_4",
            "shell",
            4,
            shellID="sh_1",
            command="ls",
            status="exited",
            exit=0,
            output={"output": "a.py", "truncated": False},
        ),
        said("msg_5", "synthetic", 5, text="A worker is done."),
        said("msg_6", "skill", 6, skill="s", text="Do it so."),
        said("msg_7", "system", 7, text="Instructions changed"),
        agent("msg_8", 8, words("I see."), error={"type": "aborted", "message": "stopped"}),
        said("msg_9", "idle", 9),
    ]
    report = import_paths(ledger, database(tmp_path / "opencode.db", [session()], messages))

    _, ran, told = ledger.thread("opencode:ses_1").turns

    (made,) = ran.tool_calls
    assert (ran.id, ran.status, ran.messages[0].content) == ("msg_4", "completed", "ls")
    assert (made.id, made.tool_name, made.status) == ("sh_1", "shell", "completed")
    assert json.loads(made.result_json or "")["output"] == "a.py"
    assert (told.status, told.error) == ("failed", "stopped")
    assert [(m.role, m.source, m.content) for m in told.messages] == [
        ("user", "event", "A worker is done."),
        ("user", "event", "Do it so."),
        ("system", None, "Instructions changed"),
        ("assistant", None, "I see."),
    ]
    assert report.records["opencode", "session_message", "unmapped"] == 2
    assert ledger.audit() == ()


def test_a_subagent_of_the_second_format_is_linked_from_both_sides(
    ledger: Ledger, tmp_path: Path
) -> None:
    given = {"agent": "explore", "description": "Look", "prompt": "Look there"}
    told = {"sessionID": "ses_0", "status": "completed"}
    started = call(
        "call_2",
        "subagent",
        status="completed",
        input=given,
        content=[words("Found")],
        metadata=told,
    )
    messages = [
        *MESSAGES,
        agent("msg_4", 4, started),
        user("msg_8", 2, "Look there", "ses_0"),
        agent("msg_9", 3, words("Found"), session="ses_0"),
    ]
    sessions = [session(), session("ses_0", parent_id="ses_1", title="Look")]
    import_paths(ledger, database(tmp_path / "opencode.db", sessions, messages))

    names, rows = ledger.query("SELECT * FROM agent_sessions WHERE parent_session_id = 'ses_1'")

    assert {
        "id": "ses_0",
        "tool_call_id": "call_2",
        "task_description": "Look",
        "task_status": "completed",
        "parent_message_id": "msg_4",
    }.items() <= dict(zip(names, rows[0], strict=True)).items()
    assert ledger.thread("opencode:ses_0").turns[0].messages[0].source == "agent"
    assert ledger.audit() == ()


def upgraded(path: Path) -> list[Message]:
    """A session of the first format with a compaction, and what an upgrade makes of it."""
    now = [first.user("msg_4", 5), first.agent("msg_5", 6, "msg_4", summary=True)]
    parts = [
        first.part("prt_a", "msg_4", "compaction", auto=True),
        first.part("prt_b", "msg_5", "text", text="In short."),
    ]
    asked = [{**first.MESSAGES[0], "id": PROMPT}, *first.MESSAGES[1:]]
    own = [{**p, "messageID": PROMPT} if p["messageID"] == "msg_1" else p for p in first.PARTS]
    first.database(path, ([first.SESSION], [*asked, *now], [*own, *parts]))
    return [
        user(PROMPT, 1, "Read it"),
        said(PROMPT[:16] + "Added000000000", "synthetic", 1, text="<file>"),
        agent("msg_2", 2, {"type": "reasoning", "text": "I read."}, READ),
        agent("msg_3", 3, words("It says x.")),
        said("msg_4", "compaction", 5, status="completed", reason="auto", summary="In short."),
    ]


PROMPT = "msg_0198f00dbeef0000000000000a"


def test_an_upgraded_session_is_imported_once(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    path = tmp_path / "opencode.db"
    later = [user("msg_6", 20, "And?"), agent("msg_7", 21, words("!"))]
    with Ledger.open(new_address()) as ledger:
        migrated = upgraded(path)
        import_paths(ledger, path)
        before = {row[0]: row for row in result(ledger)["messages"]}
        with closing(sqlite3.connect(path)) as made:  # as what was not changed since
            made.execute("UPDATE message SET time_updated = json_extract(data, '$.time.created')")
            made.commit()
        database(path, [session(title="Later")], [*migrated, *later])
        import_paths(ledger, path)
        grown = result(ledger)

        assert tree(ledger) == {PROMPT: None, "msg_4": PROMPT, "msg_6": "msg_4"}
        assert ledger.session("opencode:ses_1").title == "Later"
        assert ledger.query("SELECT count(*), sum(total_tokens) FROM turns")[1] == [(3, 472)]
        assert {row[0]: row for row in grown["messages"]}.items() >= before.items()
        assert len(grown["messages"]) == len(before) + 2
        assert len(grown["compactions"]) == 1
        assert ledger.audit() == ()
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, path)
        assert result(ledger) == grown


def test_the_later_state_of_a_message_in_both_formats_prevails(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = first.database(tmp_path / "opencode.db", first.SAMPLE)
    import_paths(ledger, path)
    with closing(sqlite3.connect(path)) as made:
        for table in ("session", "message", "part"):
            made.execute(f"DROP TABLE {table}")
        made.commit()
    database(path, [session()], [*MESSAGES[:2], agent("msg_3", 3, words("It says y."))])

    import_paths(ledger, path)

    (turn,) = ledger.thread("opencode:ses_1").turns
    assert [m.content for m in turn.messages] == ["Read it", "", "It says y."]
    assert (turn.total_tokens, len(turn.tool_calls)) == (236, 1)
    assert ledger.audit() == ()


def test_before_version_2_session_message_only_repeats_messages(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = first.database(tmp_path / "opencode.db", first.SAMPLE)
    database(path, [], [user("msg_a", 1, "Read it"), agent("msg_b", 2, READ)])

    report = import_paths(ledger, path)

    assert tree(ledger) == {"msg_1": None}
    assert report.records["opencode", "session_message", "unmapped"] == 2
    assert report.records["opencode", "session_message", "derived"] == 0


def test_a_later_repeated_message_prevails_only_after_an_upgrade(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    path = first.database(tmp_path / "opencode.db", first.SAMPLE)
    repeated = [MESSAGES[0], agent("msg_3", 3, words("It says y."))]
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, database(path, [], repeated))

        (turn,) = ledger.thread("opencode:ses_1").turns
        assert [m.content for m in turn.messages] == ["Read it", "", "It says x."]
        assert (turn.total_tokens, len(turn.tool_calls)) == (236, 1)
        assert ledger.audit() == ()

        import_paths(ledger, database(path, [session()], []))  # its row comes behind theirs

        (turn,) = ledger.thread("opencode:ses_1").turns
        assert [m.content for m in turn.messages] == ["Read it", "", "It says y."]
        grown = result(ledger)
        pipeline.rederive(ledger)
        assert result(ledger) == grown
    with Ledger.open(new_address()) as ledger:
        import_paths(ledger, path)
        assert result(ledger) == grown


def test_reverted_messages_of_the_second_format_are_a_branch(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "opencode.db"
    second = [user("msg_4", 5, "Wrong"), agent("msg_5", 6, words("So"))]
    back = session(revert={"messageID": "msg_4"}, time_updated=AT + 10_000)
    database(path, [back], [*MESSAGES, *second])
    import_paths(ledger, path)
    assert ledger.session("opencode:ses_1").thread_id == "msg_1"
    with closing(sqlite3.connect(path)) as made:
        made.execute("DELETE FROM session_message WHERE id IN ('msg_4', 'msg_5')")
        made.commit()
    third = [user("msg_6", 20, "Right"), agent("msg_7", 21, words("So"))]
    database(path, [session(time_updated=AT + 30_000)], third, start=5)

    import_paths(ledger, path)

    assert tree(ledger) == {"msg_1": None, "msg_4": "msg_1", "msg_6": "msg_1"}
    assert ledger.session("opencode:ses_1").thread_id == "msg_6"
    assert ledger.audit() == ()


def test_messages_are_ordered_by_number(ledger: Ledger, tmp_path: Path) -> None:
    messages = [*MESSAGES, user("msg_5", 0, "Back"), agent("msg_4", 0, words("Then"))]
    import_paths(ledger, database(tmp_path / "opencode.db", [session()], messages))

    assert tree(ledger) == {"msg_1": None, "msg_5": "msg_1"}
    assert [m.id for m in ledger.thread("opencode:ses_1").turns[-1].messages] == ["msg_5", "msg_4"]


def test_invalid_values_do_not_affect_other_messages(ledger: Ledger, tmp_path: Path) -> None:
    odd: list[Any] = [
        agent("msg_a", 4, 7, None, {"type": "tool", "name": ["task"], "state": "x", "time": 3}),
        agent("msg_b", 5, call("c", "subagent", status=[], input="{", content="x", error={})),
        said("msg_c", "assistant", 6, content={"type": "text"}, model="m", tokens=[], error=4),
        said("msg_d", "user", 7, text=["x"], files={}, skills=[4], time="?"),
        said("msg_e", "shell", 8, command=None, output=3, status={}),
        said("msg_f", "compaction", 9, summary=5),
        said("msg_g", "", 9),
    ]
    path = database(tmp_path / "opencode.db", [session(fork_session_id="ses_1")], [*MESSAGES, *odd])
    with closing(sqlite3.connect(path)) as made:
        made.execute("UPDATE session_message SET seq = -3 WHERE id = 'msg_a'")
        made.execute("UPDATE session_message SET seq = 'x' WHERE id = 'msg_b'")
        values = ("msg_h", "ses_1", "user", 1 << 60, None, None, '{"text": "tor')
        made.execute("INSERT INTO session_message VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        made.execute("INSERT INTO session_message (id, type, data) VALUES ('msg_i', 4, '{}')")
        made.commit()

    report = import_paths(ledger, path)

    assert [fault.what for fault in report.faults] == [
        "session_message msg_h is not what it should be"
    ]
    assert ledger.thread("opencode:ses_1").turns[0].messages[0].content == "Read it"
    assert len(ledger.query("SELECT id FROM messages")[1]) == len(MESSAGES) + 6
    assert ledger.audit() == ()


def test_an_export_of_the_second_format_gives_the_same_rows(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    info = {
        "id": "ses_1",
        "projectID": "p",
        "title": "Fix",
        "location": {"directory": "/w/app"},
        "time": {"created": AT, "updated": AT + 9000},
    }
    messages = [{"id": name, "type": type_, **data} for name, _, type_, _, data in MESSAGES]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"info": info, "messages": messages}))
    found = []
    for place in (path, database(tmp_path / "db" / "opencode.db", [session()], MESSAGES)):
        with Ledger.open(new_address()) as ledger:
            import_paths(ledger, place)
            found.append(first.shown(ledger))
            assert ledger.session("opencode:ses_1").title == "Fix"
            assert ledger.audit() == ()

    assert found[0] == found[1]


@pytest.mark.parametrize("mask", ["REDACTED", "ses_REDACTED", "ses_xxxx"])
def test_exports_with_unreadable_ids_are_separate_sessions(
    ledger: Ledger, tmp_path: Path, mask: str
) -> None:
    for name, second in (("one", 0), ("two", 100)):
        asked = first.user("REDACTED", second, mask)
        answered = first.agent("REDACTED", second + 1, "REDACTED", mask)
        listed = [
            {"info": asked, "parts": [first.part("REDACTED", "REDACTED", "text", text=name)]},
            {"info": answered, "parts": []},
        ]
        times = {"created": AT + second, "updated": AT}
        info = {**first.SESSION, "id": mask, "parentID": mask, "title": name, "time": times}
        (tmp_path / f"{name}.json").write_text(json.dumps({"info": info, "messages": listed}))
    import_paths(ledger, tmp_path)
    other = tmp_path / "elsewhere" / "copy.json"
    other.parent.mkdir()
    other.write_text(json.dumps(json.loads((tmp_path / "one.json").read_text()), indent=3))

    import_paths(ledger, other)

    rows = ledger.query("SELECT source_title, is_subagent FROM sessions ORDER BY source_title")[1]
    assert [tuple(map(str, row)) for row in rows] in (
        [("one", "0"), ("two", "0")],
        [("one", "False"), ("two", "False")],
    )
    said = ledger.query("SELECT content FROM messages WHERE role = 'user' ORDER BY content")[1]
    assert said == [("one",), ("two",)]
    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(2 * 118,)]
    assert ledger.audit() == ()


def test_sessions_of_an_excluded_project_are_not_imported(ledger: Ledger, tmp_path: Path) -> None:
    for words, folder, tail in (
        (exclusion.SECRET, f"{exclusion.LEFT}/deep", "a"),
        (exclusion.PLAIN, exclusion.KEPT, "b"),
    ):
        names = (f"ses_{tail}", f"ses_{tail}c")
        above = session(names[0], directory=folder, title=words)
        below = session(names[1], directory="", parent_id=names[0])
        asked = [user(f"msg_{name}", 1, words, name) for name in names]
        database(tmp_path / "opencode" / "opencode.db", [above, below], asked)

    exclusion.import_without(ledger, tmp_path)

    sources = Sources(ledger._core)
    held = b"".join(b"".join(sources.stream(file.id)) for file in sources.all_files())
    assert exclusion.PLAIN.encode() in held
    assert exclusion.SECRET.encode() not in held
    assert b"ses_a" not in held
    said = ledger.query("SELECT content FROM messages")[1]
    assert said == [(exclusion.PLAIN,), (exclusion.PLAIN,)]
