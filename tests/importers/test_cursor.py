from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from tests.importers.cursor_made import bubble, chat, state_db, tool
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


def shown(ledger: Ledger, view: str, **wanted: Any) -> dict[str, Any]:
    """The row of a view with these values."""
    names, rows = ledger.query(f"SELECT * FROM {view}")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    matching = [row for row in found if wanted.items() <= row.items()]
    assert len(matching) == 1, found
    return matching[0]


# -- the examples of the seed -----------------------------------------------------------------

MAIN = "a3730dd7-5c30-4081-9876-3c28e4505cc9"
USER = "342e1403-90ec-43b4-8a0e-037385b88ea6"
CALLER = "4af766f6-a2a9-45cd-a4b2-894cc72d8799"
ANSWER = "11f91921-e7e6-4509-afb9-746653c8e639"
BEFORE = "54455e57-4d63-4220-9c9f-106e4cadfc1d"
PARENT = "872520ab-a30e-4d85-8f7e-9f925992cebe"
TASK_CALL = "toolu_bdrk_01BFM9VaztN9grH5e4zFhQyZ"
MKDIR = {
    "command": "mkdir -p /path/to/dirs",
    "cwd": "",
    "parsingResult": {"executableCommands": [{"name": "mkdir", "args": ["-p"]}]},
}
TODOS = {
    "todos": [
        {
            "id": "rename_ca_repo",
            "content": "Rename ca_repo.py to conversation_analysis_repository.py",
            "status": "in_progress",
        }
    ]
}
OPEN = {"rejected": False}
READ = {
    "relativeWorkspacePath": "app/electron/ipc/webserver/auth-utils.ts",
    "readEntireFile": True,
    "maxLines": 1500,
}


def seed_chat() -> dict[str, Any]:
    """56 messages; the user's, the caller's and the answer of the seed at 50, 51 and 52."""
    messages = [
        bubble(BEFORE if at == 49 else f"m{at}", 1 if at == 0 else 2, "words", at)
        for at in range(50)
    ]
    terminal = tool("toolu_1", "run_terminal_command_v2", 15)
    terminal |= {"params": '{"command":"sleep 15"}', "result": '{"rejected":false}'}
    messages += [
        bubble(
            USER,
            1,
            "hmm this is fine, but I dont want you updating this file yourself anymore...",
            isAgentic=False,
            checkpointId="c0264a7f-0573-438f-b89f-24e07fdd1233",
            createdAt=1769616537000,
            cursorRules=[{"name": "style"}],
        ),
        bubble(CALLER, 2, createdAt=1769616538000, toolFormerData=terminal),
        bubble(ANSWER, 2, "Understood.", createdAt=1769616539000),
        *(bubble(f"m{at}", 2, "words", createdAt=1769616540000 + at) for at in range(53, 56)),
    ]
    return chat(
        MAIN,
        *messages,
        isAgentic=True,
        forceMode="edit",
        contextTokenLimit=176000,
        contextTokensUsed=38191,
        modelConfig={"modelName": "claude-4.5-opus-high-thinking"},
        workspaceIdentifier={"uri": {"fsPath": "/home/someone/nexus"}},
    )


def test_the_main_session_of_the_seed_is_shown(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, seed_chat()))

    session = shown(ledger, "agent_sessions", id=MAIN)

    assert {
        "source": "cursor",
        "model": "claude-4.5-opus-high-thinking",
        "project": "nexus",
        "message_count": 56,
        "is_subagent": 0,
        "is_agentic": 1,
        "context_token_limit": 176000,
        "context_tokens_used": 38191,
        "force_mode": "edit",
        "workspace_path": "/home/someone/nexus",
    }.items() <= session.items()


def test_the_messages_of_the_seed_are_shown(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, seed_chat()))

    asked = shown(ledger, "agent_messages", id=USER, session_id=MAIN)
    called = shown(ledger, "agent_messages", id=CALLER)

    assert {
        "role": "user",
        "sequence": 50,
        "timestamp": 1769616537000,
        "is_agentic": 0,
        "checkpoint_id": "c0264a7f-0573-438f-b89f-24e07fdd1233",
    }.items() <= asked.items()
    assert asked["content"].startswith("hmm this is fine")
    assert json.loads(asked["cursor_rules_json"]) == [{"name": "style"}]
    assert (called["role"], called["content"]) == ("assistant", "")
    data = json.loads(called["metadata_json"])["toolFormerData"]
    assert {
        "tool": 15,
        "name": "run_terminal_command_v2",
        "status": "completed",
        "params": '{"command":"sleep 15"}',
        "result": '{"rejected":false}',
    }.items() <= data.items()


def test_the_turn_of_the_seed_is_known_by_its_prompt(ledger: Ledger, tmp_path: Path) -> None:
    rows = seed_chat()
    for at in range(53, 56):  # the answer is the last message of the seed's turn
        del rows[f"bubbleId:{MAIN}:m{at}"]
    heads = rows[f"composerData:{MAIN}"]["fullConversationHeadersOnly"]
    del heads[53:]
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    turn = shown(ledger, "agent_turns", response_message_id=ANSWER)

    assert {
        "id": USER,
        "session_id": MAIN,
        "parent_turn_id": "m0",
        "query_message_ids": json.dumps([USER]),
        "model": "claude-4.5-opus-high-thinking",
        "tool_call_count": 1,
    }.items() <= turn.items()
    above = shown(ledger, "agent_turns", id="m0")
    assert (above["response_message_id"], above["session_id"]) == (BEFORE, MAIN)


def test_the_heavy_turn_of_the_seed_has_all_its_calls(ledger: Ledger, tmp_path: Path) -> None:
    calls = [
        bubble(f"b{at}", 2, toolFormerData=tool(f"call_{at}", "grep", 41)) for at in range(597)
    ]
    response = "0751cf1f-b680-457d-a5db-568984466ce1"
    query = "c2b62701-cd72-41dc-a189-3bbd3d1abfea"
    session = "53a4d6c2-9752-41f9-b466-1d9d1ae08dee"
    rows = chat(
        session,
        *PAIR,
        bubble(query, 1, "Do it all", 5),
        *calls,
        bubble(response, 2, "Done.", 59),
        modelConfig={"modelName": "gpt-5.2-codex-xhigh"},
    )
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    turn = shown(ledger, "agent_turns", id=query)

    assert turn["response_message_id"] == response
    assert (turn["tool_call_count"], turn["model"]) == (597, "gpt-5.2-codex-xhigh")
    assert (turn["session_id"], turn["parent_turn_id"]) == (session, "q1")


def test_the_subagent_of_the_seed_is_linked_from_both_sides(ledger: Ledger, tmp_path: Path) -> None:
    params = {"description": "Update ONBOARDING.md to align", "prompt": "Align it."}
    start = tool(TASK_CALL, "task_v2", 48, params=json.dumps(params))
    child = f"task-{TASK_CALL}"
    rows = chat(PARENT, PAIR[0], bubble("a1", 2, "", 2, toolFormerData=start))
    rows |= chat(
        child,
        bubble("t0", 1, "Align it.", 1),
        *(bubble(f"t{at}", 2, "words", at + 1) for at in range(1, 16)),
        isAgentic=True,
        modelConfig={"modelName": "composer-1"},
    )
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    session = shown(ledger, "agent_sessions", id=child)

    assert {
        "source": "cursor",
        "model": "composer-1",
        "message_count": 16,
        "parent_session_id": PARENT,
        "parent_message_id": "a1",
        "tool_call_id": TASK_CALL,
        "task_description": "Update ONBOARDING.md to align",
        "task_status": "completed",
        "is_subagent": 1,
        "is_agentic": 1,
    }.items() <= session.items()
    call = shown(ledger, "agent_tool_calls", id=TASK_CALL)
    assert (call["child_session_id"], call["session_id"]) == (child, PARENT)


@pytest.mark.parametrize(
    "example",
    [
        ("tool_b277fa6a-e88c-4d15-b54d-c89c00fa96c", "read_file", 5, READ, "x" * 3708),
        ("toolu_015gV4YYZ3qxn3RHSEFA2Biq", "run_terminal_command_v2", 15, MKDIR, OPEN),
        ("toolu_01XYZ", "todo_write", 35, TODOS, OPEN),
    ],
)
@pytest.mark.parametrize("as_text", [True, False])
def test_the_tool_calls_of_the_seed_are_shown(
    ledger: Ledger, tmp_path: Path, example: tuple[str, str, int, Any, Any], as_text: bool
) -> None:
    call_id, name, number, params, came = example
    data = tool(call_id, name, number)
    data["params"] = json.dumps(params) if as_text else params
    data["result"] = json.dumps(came) if as_text else came
    rows = chat("c", PAIR[0], bubble("a1", 2, "", 2, toolFormerData=data))
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    call = shown(ledger, "agent_tool_calls", id=call_id)

    assert {"tool_name": name, "tool_number": number, "status": "completed"}.items() <= call.items()
    assert json.loads(call["params_json"]) == params
    assert json.loads(call["result_json"]) == came
    assert (call["message_id"], call["session_id"]) == ("a1", "c")


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


def test_old_bubbles_get_times_between_the_chat_s(ledger: Ledger, tmp_path: Path) -> None:
    conversation = [{"type": 2 - n % 2, "bubbleId": f"b{n}", "text": "w"} for n in range(1, 5)]
    data = {"composerId": "c", "createdAt": 1000_000_000_000, "lastUpdatedAt": 1000_000_004_000}
    import_paths(
        ledger,
        state_db(tmp_path / GLOBAL, {"composerData:c": {**data, "conversation": conversation}}),
    )

    times = column(ledger, "SELECT created_at FROM messages ORDER BY id")

    assert times == [1000_000_000_000 + 1000 * n for n in range(4)]


# -- trees ------------------------------------------------------------------------------------


def test_a_trailing_prompt_is_pending_and_no_head(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, chat("c", *PAIR, NEXT[0])))

    assert ledger.session("cursor:c").thread_id == "q1"
    assert only(ledger, "SELECT status FROM turns WHERE id = 'q2'") == "pending"


def test_what_the_chat_lists_no_more_is_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    again = (bubble("q3", 1, "And now?", 8), bubble("a3", 2, "Now this.", 9))
    rows = chat("c", *PAIR, *again)
    rows |= {f"bubbleId:c:{each['bubbleId']}": each for each in NEXT}
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])

    assert found == {"q1": None, "q2": "q1", "q3": "q1"}
    assert ledger.session("cursor:c").thread_id == "q3"


def test_a_copied_chat_shares_what_it_copied(ledger: Ledger, tmp_path: Path) -> None:
    other = (bubble("q9", 1, "Another way?", 5), bubble("a9", 2, "Yes.", 6))
    rows = chat("c1", *PAIR, *NEXT) | chat("c2", *PAIR, *other)
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = dict(ledger.query("SELECT id, parent_turn_id FROM turns")[1])

    assert found == {"q1": None, "q2": "q1", "q9": "q1"}
    assert [ledger.session(f"cursor:{c}").thread_id for c in ("c1", "c2")] == ["q2", "q9"]


def test_same_ids_with_other_words_stay_apart(ledger: Ledger, tmp_path: Path) -> None:
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


def test_bubbles_alone_make_a_subagent_s_session(ledger: Ledger, tmp_path: Path) -> None:
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


def test_a_subagent_written_into_its_call_is_read(ledger: Ledger, tmp_path: Path) -> None:
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


def test_chats_that_a_chat_started_are_its_children(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("c", *PAIR, subComposerIds=["d"])
    rows |= chat("d", *NEXT) | chat(
        "e", bubble("q7", 1), bubble("a7", 2), subagentInfo={"parentComposerId": "c"}
    )
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    found = ledger.query("SELECT id FROM agent_sessions WHERE parent_session_id = 'c' ORDER BY id")

    assert found[1] == [("d",), ("e",)]


# -- what hangs on messages -------------------------------------------------------------------


def test_what_hangs_on_a_message_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    lint = {
        "relativeWorkspacePath": "a.py",
        "errors": [
            {
                "message": "unused",
                "source": "ruff",
                "range": {
                    "startPosition": {"line": 1, "column": 2},
                    "endPosition": {"line": 3, "column": 4},
                },
            }
        ],
    }
    asked = bubble(
        "q1",
        1,
        "See",
        1,
        relevantFiles=["b.py"],
        multiFileLinterErrors=[lint],
        modelInfo={"modelName": "model-x"},
        context={"fileSelections": [{"uri": {"fsPath": "/w/c.py"}}], "quotes": []},
        checkpointId="k",
        todos=[],
    )
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
    rows = chat("c", asked, answer)
    rows["messageRequestContext:c:q1"] = {"terminalFiles": [], "gitStatusRaw": "clean"}
    rows["checkpointId:c:k"] = {"files": [{"uri": {"fsPath": "/w/e.py"}, "content": "long"}]}
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    turn = ledger.thread("cursor:c").turns[0]

    query, response = turn.messages
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
    assert response.thinking == "Let me see."
    assert [(c.content, c.language, c.file_path) for c in response.codeblocks] == [
        ("x = 1", "python", "/w/d.py")
    ]
    assert (turn.model, turn.total_tokens) == ("model-x", 15)


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
    assert len(report.faults) == 7
    assert report.counts.failed == 0
    assert only(ledger, "SELECT count(*) FROM messages WHERE content LIKE 'a_b'") == 1
    kept = sum(number for (source, _, _), number in report.records.items() if source == "cursor")
    assert kept == len(rows)
    assert ledger.audit() == ()


def test_a_file_that_is_no_database_is_a_fault(ledger: Ledger, tmp_path: Path) -> None:
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


def test_only_new_and_changed_rows_are_kept_again(ledger: Ledger, tmp_path: Path) -> None:
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


def test_rows_that_vanish_stay_and_numbers_that_go_back_are_noticed(
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


def test_what_still_stands_in_the_log_is_read(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR), wal=True)
    import_paths(ledger, path)
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        for key, value in chat("c", *PAIR, *NEXT).items():
            writer.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, json.dumps(value)))
        writer.commit()
        import_paths(ledger, path)

    assert ledger.session("cursor:c").thread_id == "q2"


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
    for seed in range(4):
        path = state_db(tmp_path / str(seed) / GLOBAL, {})
        with Ledger.open(new_address()) as ledger:
            for number, rows in enumerate(states):
                shuffled = list(rows.items())
                random.Random(seed).shuffle(shuffled)
                state_db(path, dict(shuffled))
                if number == len(states) - 1 or seed & 1 << number:
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
