"""The examples printed in the description of the agents_* tables, out of Cursor's rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.cursor_made import bubble, chat, shown, state_db, tool
from tests.importers.helping import import_paths

GLOBAL = Path("Cursor/User/globalStorage/state.vscdb")
PAIR = (bubble("q1", 1, "What is new?", 1), bubble("a1", 2, "Two fixes.", 2))

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


def specified_chat() -> dict[str, Any]:
    """56 messages; those of the specification are at 50, 51 and 52."""
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


def test_the_main_session_of_the_specification_is_shown(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, specified_chat()))

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


def test_the_messages_of_the_specification_are_shown(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, state_db(tmp_path / GLOBAL, specified_chat()))

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


def test_the_turn_of_the_specification_has_the_id_of_its_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    rows = specified_chat()
    for at in range(53, 56):  # the answer is the last message of the specified turn
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


def test_the_heavy_turn_of_the_specification_has_all_its_calls(
    ledger: Ledger, tmp_path: Path
) -> None:
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


def test_the_subagent_of_the_specification_is_linked_from_both_sides(
    ledger: Ledger, tmp_path: Path
) -> None:
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
def test_the_tool_calls_of_the_specification_are_shown(
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


METADATA = {  # the fields of a message in the specification, none of them empty
    "codebaseContextChunks": [{"path": "a.py", "text": "x"}],
    "attachedCodeChunks": [{"relativeWorkspacePath": "a.py"}],
    "attachedFolders": [{"path": "src"}],
    "relevantFiles": ["a.py"],
    "commits": [{"sha": "1"}],
    "pullRequests": [{"number": 7}],
    "gitDiffs": [{"diff": "+x"}],
    "toolResults": [{"ok": True}],
    "todos": [{"id": "1", "status": "pending"}],
    "cursorRules": [{"name": "style"}],
    "lints": [{"message": "unused"}],
    "interpreterResults": [{"output": "1"}],
    "images": [{"path": "a.png"}],
    "tokenCount": {"inputTokens": 0, "outputTokens": 0},
    "isAgentic": False,
    "unifiedMode": 2,
    "conversationState": "~",
}


def test_the_metadata_of_the_specification_is_kept_field_by_field(
    ledger: Ledger, tmp_path: Path
) -> None:
    answer = bubble(
        "a1", 2, "Done.", 2, aFieldOfTomorrow={"deep": [1]}, supportedTools=[], **METADATA
    )
    rows = chat(MAIN, bubble("q1", 1, "Begin.", 1), answer)

    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    kept = json.loads(shown(ledger, "agent_messages", id="a1")["metadata_json"])
    assert METADATA.items() <= kept.items()
    said = {"_v": 3, "type": 2, "bubbleId": "a1", "createdAt": answer["createdAt"]}
    assert said.items() <= kept.items()
    assert kept["aFieldOfTomorrow"] == {"deep": [1]}
    assert "supportedTools" not in kept  # it is empty
    assert "text" not in kept  # it has a column


def test_a_field_next_to_one_with_a_column_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    asked, long = json.dumps({"raw": "x" * 3000}), json.dumps({"made": "y" * 3000})
    call = tool("call-1", "write", 1, rawArgs=asked, params=long, result=long)
    fields = {
        "rawText": "**Done.**",
        "thinking": {"text": "Hm.", "signature": "c2ln"},
        "context": {"todos": ["own"], "cursorRules": ["style"]},
        "toolFormerData": call,
    }
    rows = chat(MAIN, bubble("q1", 1, "Begin.", 1), bubble("a1", 2, "Done.", 2, **fields))
    rows["messageRequestContext:" + MAIN + ":a1"] = {"todos": ["sent"], "gitStatusRaw": "clean"}

    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    message = shown(ledger, "agent_messages", id="a1")
    kept = json.loads(message["metadata_json"])
    assert kept["rawText"] == "**Done.**"
    assert kept["thinking"] == {"signature": "c2ln"}
    assert kept["toolFormerData"] == {
        name: value for name, value in call.items() if name not in ("params", "result")
    }
    assert json.loads(message["context_json"]) == {
        "todos": ["own"],
        "cursorRules": ["style"],
        "gitStatusRaw": "clean",
        "messageRequestContext": {"todos": ["sent"]},
    }
    assert json.loads(message["cursor_rules_json"]) == ["style"]


def test_unmapped_fields_of_a_chat_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    said = {
        "capabilities": [{"type": 30}],
        "isSpec": True,
        "modelConfig": {"modelName": "model-x", "maxMode": True},
        "codeBlockData": {"file:///a": "x" * 5000},  # a state of the editor
        "blobEncryptionKey": "secret",
        "hasUnreadMessages": None,
    }
    import_paths(ledger, state_db(tmp_path / GLOBAL, chat(MAIN, *PAIR, **said)))

    kept = json.loads(ledger.session(f"cursor:{MAIN}").metadata_json or "")
    beside = {name: said[name] for name in ("capabilities", "isSpec", "modelConfig")}
    assert kept["composer"] == {"_v": 10, **beside}


def test_null_values_harm_neither_their_chat_nor_the_views(ledger: Ledger, tmp_path: Path) -> None:
    odd = {"name": "A LONE", "contextTokenLimit": "many", "contextTokensUsed": [], "isSpec": "LONE"}
    call = tool("k-LONE", "write", 1, params="{}", result="{}")
    answer = bubble("a1", 2, "LONE", 2, thinking={"text": "Hm."}, toolFormerData=call, size=1e999)
    rows = chat(MAIN, PAIR[0], answer | {"checkpointId": "LONE"}, **odd)
    written = {key: json.dumps(row).replace("LONE", "\\ud83d") for key, row in rows.items()}
    report = import_paths(ledger, state_db(tmp_path / GLOBAL, written | chat("other", *PAIR)))

    assert (report.counts.imported, report.faults) == (2, [])
    session = shown(ledger, "agent_sessions", id=MAIN)
    assert session["context_token_limit"] in (None, "many")
    message = shown(ledger, "agent_messages", id="a1", session_id=MAIN)
    assert (message["content"], message["thinking"]) == ("\ud83d", "Hm.")
    assert ledger.session(f"cursor:{MAIN}").title == "A \ufffd"
    assert [each.tool_name for each in ledger.get_turn("q1").tool_calls] == ["write"]


def test_fields_of_a_chat_without_a_column_are_in_its_metadata(
    ledger: Ledger, tmp_path: Path
) -> None:
    said = {
        "branches": [{"branchName": "fix"}],
        "contextTokenLimit": 200_000,
        "contextTokensUsed": 7_000,
        "contextUsagePercent": 3.5,
        "createdOnBranch": "main",
        "filesChangedCount": 2,
        "forceMode": "edit",
        "forkedFrom": "other",
        "gitWorktree": "/w/tree",
        "isAgentic": True,
        "isArchived": True,
        "isBestOfNSubcomposer": True,
        "newlyCreatedFiles": ["/w/new.py"],
        "status": "completed",
        "subtitle": "Read a.py",
        "todos": [{"content": "Test"}],
        "totalLinesAdded": 5,
        "totalLinesRemoved": 4,
        "trackedGitRepos": [{"repoPath": "/w"}],
        "unifiedMode": "agent",
        "usageData": {"default": {"costInCents": 4}},
    }
    asked = (bubble("q1", 1, "Go."), bubble("a1", 2, "Done.", 1))
    import_paths(ledger, state_db(tmp_path / GLOBAL, chat("c", *asked, **said)))

    told = json.loads(ledger.session("cursor:c").metadata_json or "")
    names = {name: re.sub("([A-Z])", r"_\1", name).lower() for name in said}
    assert {name: told.get(names[name]) for name in said} == said


def lint(message: str, line: int, **more: Any) -> dict[str, Any]:
    position = {"line": line, "column": 2}
    span = {"startPosition": position, "endPosition": position}
    return {"message": message, "source": "ruff", "range": span, **more}


@pytest.mark.finding("spec-M")
def test_attached_code_and_lints_have_rows(ledger: Ledger, tmp_path: Path) -> None:
    chunks = [
        {"relativeWorkspacePath": "a.py", "startLineNumber": 5, "lines": ["x", "y"]},
        {"uri": {"fsPath": "/w/b.py"}},
        {"relativeWorkspacePath": "a.py", "startLineNumber": 5, "lines": ["x"]},
        {"lines": ["in no file"]},
    ]
    lints = [
        {"relativeWorkspacePath": "a.py", "errors": [lint("unused", 1, severity=2)]},
        {"linterErrors": {"relativeWorkspacePath": "b.py", "errors": [lint("bad", 3, severity=1)]}},
        {"path": "c.py", "message": "long", "severity": "DIAGNOSTIC_SEVERITY_HINT"},
        {
            "message": "odd",
            "severity": {"deep": 1},
            "range": {"start": {"line": 7, "character": 8}},
        },
    ]
    by_file = [{"relativeWorkspacePath": "a.py", "errors": [lint("unused", 1, severity=2)]}]
    asked = bubble(
        "q1", 1, "Fix.", 1, attachedCodeChunks=chunks, lints=lints, multiFileLinterErrors=by_file
    )
    rows = chat(MAIN, asked, bubble("a1", 2, "Fixed.", 2))
    import_paths(ledger, state_db(tmp_path / GLOBAL, rows))

    files = "SELECT kind, file_path, line_start, line_end FROM message_files ORDER BY file_path"
    assert ledger.query(files)[1] == [
        ("attached", "/w/b.py", None, None),
        ("attached", "a.py", 5, 6),
    ]
    reported = "SELECT file_path, message, severity, start_line FROM message_lints ORDER BY message"
    assert ledger.query(reported)[1] == [
        ("b.py", "bad", "error", 3),
        ("c.py", "long", "info", None),
        (None, "odd", None, 7),
        ("a.py", "unused", "warning", 1),
    ]
