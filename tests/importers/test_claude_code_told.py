"""What Claude Code's records tell beside what was said."""

from __future__ import annotations

import json
from pathlib import Path

from agents_ledger import Ledger
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths


def test_a_session_tells_where_it_began(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.", gitBranch="")
    log.assistant("a2", text("Begun."), cwd="/home/dev/shop/api", version="2.1")
    log.user("b1", "Go on.", cwd="/home/dev/other", gitBranch="fix", version="2.2")
    import_paths(ledger, log.save())

    told = ledger.session(f"claude-code:{SESSION}").metadata_json
    assert json.loads(told or "") == {
        "cwd": "/home/dev/shop",
        "git_branch": "main",
        "version": "2.1",
        "project": "shop",
    }


def test_a_message_says_how_it_came_about(ledger: Ledger, tmp_path: Path) -> None:
    said = {"permissionMode": "plan", "promptSource": "sdk", "origin": {"kind": "human"}}
    log = Log(tmp_path)
    log.user("a1", "Begin.", **said)
    log.assistant("a2", text("No."), requestId="req_1", isApiErrorMessage=True)
    import_paths(ledger, log.save())

    asked, answer = ledger.get_turn(uid("a1")).messages
    assert json.loads(asked.metadata_json or "") == said
    told = {"requestId": "req_1", "isApiErrorMessage": True, "message_id": "msg_a2"}
    assert json.loads(answer.metadata_json or "") == told


def test_a_call_without_a_name_is_shown_and_one_without_an_id_is_none(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", {"type": "tool_use", "id": "t1"}, {"type": "tool_use", "name": "Bash"})
    import_paths(ledger, log.save())

    (call,) = ledger.get_turn(uid("a1")).tool_calls
    assert (call.tool_name, call.params_json) == ("unknown", "{}")


def test_calls_tell_which_files_they_read_and_wrote(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant(
        "a2",
        tool("t1", "Read", file_path="/a"),
        tool("t2", "NotebookRead", notebook_path="/b"),
        tool("t3", "Write", file_path="/c"),
        tool("t4", "Edit", file_path="/d"),
        tool("t5", "MultiEdit", file_path="/e"),
        tool("t6", "NotebookEdit", notebook_path="/f"),
        tool("t7", "Grep", file_path="/g"),
        tool("t8", "Read", file_path=["/h"]),
    )
    for number in range(1, 9):
        log.result(f"b{number}", f"t{number}", "Done.")
    import_paths(ledger, log.save())

    files = ledger.get_turn(uid("a1")).messages[1].files
    assert sorted((file.file_path, file.kind) for file in files) == [
        ("/a", "read"),
        ("/b", "read"),
        *((path, "written") for path in ("/c", "/d", "/e", "/f")),
    ]


def test_records_without_ids_are_a_thread_all_the_same(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.", uuid=None)
    log.assistant("a2", text("Begun."), uuid=None)
    log.add("file-history-snapshot", snapshot={})
    log.user("b1", "Go on.", uuid=None)

    report = import_paths(ledger, log.save())

    (first,) = ledger.thread(f"claude-code:{SESSION}").turns
    assert [message.content for message in first.messages] == ["Begin.", "Begun."]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(2,)]
    assert report.records["claude-code", "file-history-snapshot", "unmapped"] == 1
