from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.sources.cursor.rules import TABS
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers.cursor_made import bubble, chat, shown, state_db, tool
from tests.importers.helping import import_paths, result

GLOBAL = Path("Cursor/User/globalStorage/state.vscdb")
WORKSPACE = Path("Cursor/User/workspaceStorage/0a1b")

PAIR = (bubble("q1", 1, "What is new?", 1), bubble("a1", 2, "Two fixes.", 2))
NEXT = (bubble("q2", 1, "Which ones?", 3), bubble("a2", 2, "Those.", 4))


def only(ledger: Ledger, sql: str) -> Any:
    rows = ledger.query(sql)[1]
    assert len(rows) == 1, rows
    return rows[0][0] if len(rows[0]) == 1 else rows[0]


def column(ledger: Ledger, sql: str) -> list[Any]:
    return [row[0] for row in ledger.query(sql)[1]]


# -- generations ------------------------------------------------------------------------------


def test_tabs_of_the_first_generation_are_sessions(ledger: Ledger, tmp_path: Path) -> None:
    tab = {
        "tabId": "tab-1",
        "chatTitle": "First steps",
        "lastSendTime": 1731818231743,
        "bubbles": [
            {"type": "user", "id": "u1", "text": "Hello"},
            {"type": "ai", "id": "r1", "rawText": "Hi.", "modelType": "gpt-4o"},
        ],
    }
    items = {"workbench.panel.aichat.view.aichat.chatdata": {"tabs": [tab]}}
    import_paths(ledger, state_db(tmp_path / WORKSPACE / "state.vscdb", items=items))

    thread = ledger.thread("cursor:tab-1")

    assert [m.content for turn in thread.turns for m in turn.messages] == ["Hello", "Hi."]
    assert (thread.model, ledger.session("cursor:tab-1").title) == ("gpt-4o", "First steps")


def test_the_empty_box_for_the_next_prompt_of_a_tab_is_not_a_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    box = {"type": "user", "id": "u2", "rawText": "", "delegate": {"a": ""}}
    sent = [{"type": "user", "id": "u1", "initText": "Hello"}, {"type": "ai", "text": "Hi."}]
    tabs = {"t1": [*sent, box], "t2": [{**box, "id": "u3"}]}
    items = {TABS: {"tabs": [{"tabId": name, "bubbles": tabs[name]} for name in tabs]}}
    import_paths(ledger, state_db(tmp_path / GLOBAL, items=items))

    found = ledger.query("SELECT id, content FROM messages ORDER BY id")[1]
    assert found == [("t1:1", "Hi."), ("u1", "Hello")]
    assert ledger.query("SELECT label FROM sessions")[1] == [("cursor:t1",)]


def test_old_messages_without_ids_get_ids_with_that_of_their_chat(
    ledger: Ledger, tmp_path: Path
) -> None:
    tabs = [
        {
            "tabId": name,
            "bubbles": [
                {"type": "user", "initText": f"Ask {name}"},
                {"type": "ai", "text": "Yes."},
            ],
        }
        for name in ("t1", "t2")
    ]
    whole = {"conversation": [bubble("q1", 1, "Why?"), {"type": 2, "text": "So."}]}
    path = state_db(tmp_path / GLOBAL, {"composerData:c": whole}, {TABS: {"tabs": tabs}})
    report = import_paths(ledger, path)

    found = ledger.query("SELECT id, content FROM messages ORDER BY id")[1]
    assert found == [
        ("c:1", "So."),
        ("q1", "Why?"),
        ("t1:0", "Ask t1"),
        ("t1:1", "Yes."),
        ("t2:0", "Ask t2"),
        ("t2:1", "Yes."),
    ]
    assert report.records["cursor", "composerData", "derived"] == 1


def test_chats_inside_a_workspace_and_global_ones_are_merged(
    ledger: Ledger, tmp_path: Path
) -> None:
    old = {
        "composerId": "c",
        "name": "Old name",
        "createdAt": 1731818231743,
        "conversation": [{"type": 1, "bubbleId": "q1", "text": "What is new?"}],
    }
    new = chat("c", *PAIR, *NEXT, name="New name")
    (tmp_path / WORKSPACE).mkdir(parents=True)
    (tmp_path / WORKSPACE / "workspace.json").write_text(
        json.dumps({"folder": "file:///c%3A/Users/someone/work%20here"})
    )
    listed = {"composer.composerData": {"allComposers": [old]}}
    state_db(tmp_path / WORKSPACE / "state.vscdb", items=listed)
    state_db(tmp_path / GLOBAL, new)

    import_paths(ledger, tmp_path)

    assert column(ledger, "SELECT id FROM turns ORDER BY id") == ["q1", "q2"]
    session = shown(ledger, "agent_sessions", id="c")
    assert session["workspace_path"] == "c:/Users/someone/work here"
    assert session["project"] == "work here"
    assert ledger.session("cursor:c").title == "New name"
    assert ledger.audit() == ()


# -- trees ------------------------------------------------------------------------------------


def test_a_trailing_prompt_is_pending_and_not_a_head(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, chat("c", *PAIR, NEXT[0])))

    assert ledger.session("cursor:c").thread_id == "q1"
    assert only(ledger, "SELECT status FROM turns WHERE id = 'q2'") == "pending"


def test_a_bubble_without_an_id_in_its_key_is_harmless(ledger: Ledger, tmp_path: Path) -> None:
    rows = {**chat("c", *PAIR), "bubbleId:a": {"type": 2, "text": "Nobody's."}}

    report = import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    assert (report.faults, len(ledger.search("Nobody").hits)) == ([], 1)


def test_a_listed_message_that_is_missing_is_reported(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("c", *PAIR, NEXT[0])
    del rows["bubbleId:c:q2"]

    report = import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    assert [fault.what for fault in report.faults] == ["missing: 1 message that chat c lists"]


def test_bubbles_that_the_chat_no_longer_lists_are_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    again = (bubble("q3", 1, "And now?", 8), bubble("a3", 2, "Now this.", 9))
    rows = chat("c", *PAIR, *again)
    rows |= {f"bubbleId:c:{each['bubbleId']}": each for each in NEXT}
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])

    assert found == {"q1": None, "q2": "q1", "q3": "q1"}
    assert ledger.session("cursor:c").thread_id == "q3"


def test_a_copied_chat_shares_the_copied_turns(ledger: Ledger, tmp_path: Path) -> None:
    other = (bubble("q9", 1, "Another way?", 5), bubble("a9", 2, "Yes.", 6))
    rows = chat("c1", *PAIR, *NEXT) | chat("c2", *PAIR, *other)
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])

    assert found == {"q1": None, "q2": "q1", "q9": "q1"}
    assert [ledger.session(f"cursor:{c}").thread_id for c in ("c1", "c2")] == ["q2", "q9"]


def test_equal_ids_with_different_text_stay_separate(ledger: Ledger, tmp_path: Path) -> None:
    changed = (PAIR[0], bubble("a1", 2, "Three fixes.", 2))
    rows = chat("c1", *PAIR) | chat("c2", *changed)
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    assert column(ledger, "SELECT id FROM turns ORDER BY id") == ["c2:q1", "q1"]
    threads = [ledger.thread(f"cursor:{c}").turns[0].response for c in ("c1", "c2")]
    assert [m.content for m in threads if m] == ["Two fixes.", "Three fixes."]
    assert ledger.audit() == ()


def test_a_summary_is_a_compaction(ledger: Ledger, tmp_path: Path) -> None:
    said = {"summary": "They spoke of fixes.", "truncationLastBubbleIdInclusive": "a1"}
    rows = chat("c", *PAIR, *NEXT, latestConversationSummary={"summary": said})
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    turns = ledger.thread("cursor:c").turns

    assert [turn.turn_type for turn in turns] == ["normal", "compaction", "normal"]
    assert turns[1].compaction is not None
    assert turns[1].compaction.summary == "They spoke of fixes."


# -- subagents --------------------------------------------------------------------------------


def task_bubble(call_id: str, **extra: Any) -> dict[str, Any]:
    data = tool(
        call_id, "task", 48, rawArgs='{"description":"Look","prompt":"Look there"}', **extra
    )
    return bubble(f"b-{call_id[:4]}", 2, "", 2, toolFormerData=data)


def test_bubbles_without_a_chat_record_make_a_subagent_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    call_id = "call_1\nfc_2"  # two ids joined by a line end
    rows = chat("c", PAIR[0], task_bubble(call_id))
    rows |= {
        f"bubbleId:task-{call_id}:t1": bubble("t1", 2, "Found.", 4),
        f"bubbleId:task-{call_id}:t0": bubble("t0", 1, "Look there", 3),
    }
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    session = shown(ledger, "agent_sessions", id=f"task-{call_id}")

    assert (session["parent_session_id"], session["message_count"]) == ("c", 2)
    assert session["tool_call_id"] == call_id
    assert ledger.audit() == ()


def test_a_subagent_embedded_in_its_call_is_read(ledger: Ledger, tmp_path: Path) -> None:
    inside = {
        "composerId": "other",
        "conversation": [bubble("t0", 1, "Look"), bubble("t1", 2, "!")],
    }
    rows = chat(
        "c", PAIR[0], task_bubble("k1", additionalData={"composerData": json.dumps(inside)})
    )
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    assert [m.content for m in ledger.thread("cursor:task-k1").turns[0].messages] == ["Look", "!"]


def test_a_subagent_known_by_its_call_alone_is_an_empty_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    rows = chat("c", PAIR[0], task_bubble("k1", status="cancelled"))
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    session = shown(ledger, "agent_sessions", id="task-k1")

    assert (session["message_count"], session["task_description"]) == (0, "Look")
    assert (session["task_status"], session["parent_session_id"]) == ("cancelled", "c")


def test_chats_started_by_a_chat_are_its_children(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("c", *PAIR, subComposerIds=["d"])
    rows |= chat("d", *NEXT) | chat(
        "e", bubble("q7", 1), bubble("a7", 2), subagentInfo={"parentComposerId": "c"}
    )
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = ledger.query("SELECT id FROM agent_sessions WHERE parent_session_id = 'c' ORDER BY id")

    assert found[1] == [("d",), ("e",)]
    asked = "SELECT id, source FROM messages WHERE role = 'user' ORDER BY id"
    assert ledger.query(asked)[1] == [("q1", "human"), ("q2", "agent"), ("q7", "agent")]


def test_a_cycle_of_parent_chats_ends(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("c", *PAIR, subComposerIds=["c", "d"]) | chat("d", *NEXT, subComposerIds=["c"])
    path = state_db(tmp_path / GLOBAL, rows)
    for _ in range(2):
        import_paths(ledger, path)
        parents = "SELECT label, parent_session_label FROM sessions ORDER BY label"
        assert ledger.query(parents)[1] == [("cursor:c", None), ("cursor:d", "cursor:c")]
        state_db(path, {"composerData:d": rows["composerData:d"]})


# -- what hangs on messages -------------------------------------------------------------------


def test_the_context_of_a_prompt_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    start, end = {"line": 1, "column": 2}, {"line": 3, "column": 4}
    wrong = {
        "message": "unused",
        "source": "ruff",
        "range": {"startPosition": start, "endPosition": end},
    }
    asked = bubble(
        "q1",
        1,
        "See",
        1,
        relevantFiles=["b.py"],
        multiFileLinterErrors=[{"relativeWorkspacePath": "a.py", "errors": [wrong]}],
        context={"fileSelections": [{"uri": {"fsPath": "/w/c.py"}}], "quotes": []},
        checkpointId="k",
        todos=[],
    )
    rows = chat("c", asked)
    rows["messageRequestContext:c:q1"] = {"terminalFiles": [], "gitStatusRaw": "clean"}
    rows["checkpointId:c:k"] = {"files": [{"uri": {"fsPath": "/w/e.py"}, "content": "long"}]}
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    (query,) = ledger.get_turn("q1").messages

    assert [(file.kind, file.file_path) for file in query.files] == [
        ("referenced", "b.py"),
        ("attached", "/w/c.py"),
    ]
    assert [(x.file_path, x.message, x.start_line, x.end_col) for x in query.lints] == [
        ("a.py", "unused", 1, 4)
    ]
    assert json.loads(query.context_json or "") == {
        "fileSelections": [{"uri": {"fsPath": "/w/c.py"}}],
        "gitStatusRaw": "clean",
    }
    metadata = json.loads(query.metadata_json or "")
    assert metadata["checkpoint"] == {"files": ["/w/e.py"]}
    assert "todos" not in metadata


def test_the_attachments_of_an_answer_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    code = {"content": "x = 1", "languageId": "python", "uri": {"path": "/w/d.py"}}
    answer = bubble(
        "a1",
        2,
        "Here.",
        2,
        thinking={"text": "Let me see."},
        codeBlocks=[code],
        tokenCount={"inputTokens": 10, "outputTokens": 5},
    )
    asked = bubble("q1", 1, "See", 1, modelInfo={"modelName": "model-x"})
    import_paths(ledger, state_db(tmp_path / GLOBAL, chat("c", asked, answer)))

    turn = ledger.thread("cursor:c").turns[0]

    response = turn.messages[1]
    assert response.thinking == "Let me see."
    assert [(c.content, c.language, c.file_path) for c in response.codeblocks] == [
        ("x = 1", "python", "/w/d.py")
    ]
    assert (turn.model, turn.provider, turn.total_tokens) == ("model-x", "cursor", 15)


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ({"status": "completed"}, ("completed", "completed")),
        ({"status": "error"}, ("failed", "error")),
        ({"status": "cancelled"}, ("cancelled", "cancelled")),
        ({"status": "loading"}, ("cancelled", "loading")),
        ({"status": "completed", "userDecision": "rejected"}, ("rejected", "completed")),
        ({"status": "wondering", "result": "1"}, ("completed", "wondering")),
        ({"status": None, "additionalData": {"status": "rejected"}}, ("rejected", "rejected")),
    ],
)
def test_statuses_of_calls_keep_the_source_s_word(
    ledger: Ledger, tmp_path: Path, said: dict[str, Any], stored: tuple[str, str]
) -> None:
    data = {**tool("k", "grep", 41), **said}
    rows = chat("c", PAIR[0], bubble("a1", 2, "", 2, toolFormerData=data))
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    assert only(ledger, "SELECT status, source_status FROM tool_calls") == stored


# -- what is wrong or must not be read --------------------------------------------------------


def test_secrets_are_never_read(ledger: Ledger, tmp_path: Path) -> None:
    secrets = {
        "cursorAuth/accessToken": "do-not-keep-1",
        "secret://one": "do-not-keep-2",
        "telemetry.machineId": "do-not-keep-3",
        "composer.composerDataX": "do-not-keep-4",
    }
    disk = {**chat("c", *PAIR), "cursorAuth/x": "do-not-keep-5", "bubbleIe:": "do-not-keep-6"}
    path = state_db(tmp_path / GLOBAL, disk, secrets)
    import_paths(ledger, path)

    (made,) = export_source(ledger, "cursor:c", tmp_path / "out.vscdb")

    assert b"do-not-keep" in path.read_bytes()
    assert b"do-not-keep" not in made.read_bytes()


def test_empty_and_broken_values_are_reported_and_the_rest_imported(
    ledger: Ledger, tmp_path: Path
) -> None:
    rows: dict[str, Any] = chat("c", *PAIR, NEXT[0])
    rows |= {
        "composerData:null": None,
        "composerData:empty": b"",
        "composerData:list": "[1]",
        "composerData:torn": '{"composerId": "torn", "name": "x',
        "bubbleId:c:q2": b'{"type": 1, \xff\xfe',
        "bubbleId:lost:q5": bubble("q5", 1, "Anyone?", 1),
        "bubbleId:lost:a5": bubble("a5", 2, "Me.", 2),
        "bubbleId:": "0",
        "composerData:empty-state-draft": {"composerId": "empty-state-draft"},
        "composerData:draft": {"composerId": "draft", "text": "never sent"},
        "bubbleId:c:control": b'{"type": 2, "text": "a\x01b", "createdAt": "2026-01-28T16:00:30Z"}',
    }
    report = import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    sessions = column(ledger, "SELECT origin_session_id FROM sessions ORDER BY label")
    assert sessions == ["c", "lost"]
    assert len(report.faults) == 7  # what is not UTF-8 is told too
    assert not any("null" in fault.what for fault in report.faults)  # so it leaves a deleted chat
    assert report.counts.failed == 0
    assert only(ledger, "SELECT count(*) FROM messages WHERE content LIKE 'a_b'") == 1
    kept = sum(number for (source, _, _), number in report.records.items() if source == "cursor")
    assert kept == len(rows)
    assert ledger.audit() == ()


def test_a_file_that_is_not_a_database_is_a_fault(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / GLOBAL
    path.parent.mkdir(parents=True)
    path.write_bytes(b"SQLite format 3\0" + os.urandom(5000))

    report = import_paths(ledger, path)

    assert report.counts.failed == 1
    assert len(report.faults) == 1


# -- reading again ----------------------------------------------------------------------------


def test_a_second_import_reads_and_writes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR, *NEXT))
    import_paths(ledger, path)
    before = result(ledger)

    again = import_paths(ledger, path)
    os.utime(path, ns=(1, 1))  # looks changed, is not
    touched = import_paths(ledger, path)

    for report in (again, touched):
        assert (report.read_bytes, report.derived_records, report.written_turns) == (0, 0, 0)
    assert result(ledger) == before


def test_only_new_and_changed_rows_are_archived_again(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR, *NEXT))
    import_paths(ledger, path)
    size = only(ledger, "SELECT kept_bytes FROM source_files")
    longer = bubble("a2", 2, "Those two.", 4)
    state_db(path, {"bubbleId:c:a2": longer})

    report = import_paths(ledger, path)

    grown = only(ledger, "SELECT kept_bytes FROM source_files")
    assert 0 < grown - size == report.read_bytes < 500
    assert report.written_turns == 1
    assert ledger.thread("cursor:c").turns[-1].response == ledger.thread("q2").turns[-1].response
    assert column(ledger, "SELECT content FROM messages WHERE id = 'a2'") == ["Those two."]


def test_a_change_reads_the_archive_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR, *NEXT))
    import_paths(ledger, path)
    state_db(path, {"bubbleId:c:a2": bubble("a2", 2, "Those two.", 4)})
    read = []
    stream = Sources.stream

    def counted(self: Sources, file_id: int) -> Iterator[bytes]:
        read.append(file_id)
        return stream(self, file_id)

    monkeypatch.setattr(Sources, "stream", counted)
    import_paths(ledger, path)

    assert len(read) == 1  # to derive; a table without chats is not compared with anything


def test_deleted_rows_stay_and_decreasing_rowids_are_noticed(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = state_db(
        tmp_path / GLOBAL, chat("c", *PAIR, *NEXT) | chat("d", bubble("q6", 1), bubble("a6", 2))
    )
    import_paths(ledger, path)
    with closing(sqlite3.connect(path)) as made:
        made.execute("DELETE FROM cursorDiskKV WHERE key LIKE '%:d%'")
        made.commit()
        made.execute("VACUUM")
    state_db(path, chat("e", bubble("q8", 1, "New"), bubble("a8", 2, "Row")))

    import_paths(ledger, path)

    assert column(ledger, "SELECT id FROM turns ORDER BY id") == ["q1", "q2", "q6", "q8"]


def test_rows_in_the_write_ahead_log_are_read(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR), wal=True)
    import_paths(ledger, path)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        for key, value in chat("c", *PAIR, *NEXT).items():
            writer.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, json.dumps(value)))
        writer.commit()
        import_paths(ledger, path)
    assert ledger.session("cursor:c").thread_id == "q2"


AS_NOBODY = """
import os, shutil, sys, tempfile
from pathlib import Path
from agents_ledger import Ledger
from agents_ledger.importers.pipeline import import_paths

own, known, there = map(Path, sys.argv[1:])
with Ledger.open(str(own / "known.db")) as ledger:
    import_paths(ledger, [known])  # whatever is imported on use is imported with all rights
if os.geteuid() == 0:  # nothing is forbidden to root
    os.chown(own, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
with Ledger.open(str(own / "ledger.db")) as ledger:
    import_paths(ledger, [there])
    print(ledger.session("cursor:c").thread_id)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders are not forbidden this way")
def test_a_read_only_folder_is_read_with_its_log(tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, {}, wal=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        own, there = Path(folder) / "own", Path(folder) / "there" / "state.vscdb"
        own.mkdir()
        there.parent.mkdir()
        with closing(sqlite3.connect(path)) as writer:
            for key, value in chat("c", *PAIR).items():
                writer.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, json.dumps(value)))
            writer.commit()
            for end in ("", "-wal"):
                shutil.copy(f"{path}{end}", f"{there}{end}")
        there.parent.chmod(0o555)
        command = [sys.executable, "-c", AS_NOBODY, str(own), str(path), str(there)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        there.parent.chmod(0o755)
    assert (done.stdout, done.stderr) == ("q1\n", "")


def test_steps_in_any_order_end_in_the_same_rows(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    third = (bubble("q3", 1, "More?", 10), bubble("a3", 2, "", 11))
    states: list[dict[str, Any]] = [
        chat("c", PAIR[0]),
        chat("c", *PAIR, NEXT[0]),
        chat("c", *PAIR, *NEXT) | chat("d", *PAIR, *NEXT, third[0]),
        chat("c", *PAIR, *NEXT, *third) | chat("d", *PAIR, *third),
    ]
    results = []
    for run in range(4):
        path = state_db(tmp_path / str(run) / GLOBAL, {})
        with Ledger.open(new_address()) as ledger:
            for number, rows in enumerate(states):
                shuffled = list(rows.items())
                random.Random(run).shuffle(shuffled)
                state_db(path, dict(shuffled))
                if number == len(states) - 1 or run & 1 << number:
                    import_paths(ledger, path)
            assert ledger.audit() == ()
            results.append(result(ledger))

    assert all(each == results[0] for each in results)


def test_an_export_has_the_same_rows(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("c", *PAIR) | {"composerData:bad": b"\xff", "composerData:none": None}
    path = state_db(tmp_path / GLOBAL, rows)
    with closing(sqlite3.connect(path)) as made:
        made.execute("INSERT INTO cursorDiskKV VALUES ('bubbleId:c:odd', CAST(x'7bff' AS TEXT))")
        made.commit()
    import_paths(ledger, path)

    (made_path,) = export_source(ledger, "cursor:c", tmp_path / "out.vscdb")

    query = "SELECT key, typeof(value), CAST(value AS BLOB) FROM cursorDiskKV ORDER BY rowid"
    found = []
    for each in (path, made_path):
        with closing(sqlite3.connect(each)) as connection:
            found.append(connection.execute(query).fetchall())
    assert found[0] == found[1]
    assert len(found[0]) == len(rows) + 1
