"""Histories of the sources that the corpus of real logs lacks: the same bytes on every run."""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


# -- Claude.ai --------------------------------------------------------------------------------

ROOT = "00000000-0000-4000-8000-000000000000"


def claude_ai_message(name: str, sender: str, words: str, *blocks: Json, **more: Any) -> Json:
    return {
        "uuid": name,
        "sender": sender,
        "text": words,
        "content": [*blocks, text(words)],
        "created_at": f"2026-02-01T08:00:{int(name[1:]):02}Z",
        "attachments": [],
        "files": [],
        **more,
    }


def claude_ai_conversation(name: str, *messages: Json, **more: Any) -> Json:
    return {
        "uuid": name,
        "name": f"Bread {name}",
        "created_at": "2026-02-01T08:00:00Z",
        "updated_at": "2026-02-01T09:00:00Z",
        "account": {"uuid": "x"},
        "chat_messages": messages,
        **more,
    }


def claude_ai(folder: Path) -> None:
    """A conversation in a line with a tool call and an attachment, and one that is a tree."""
    search = {"type": "tool_use", "id": "c1", "name": "web_search", "input": {"query": "rye"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"text": "dark"}]}
    thinking = {"type": "thinking", "thinking": "Dark bread."}
    attached = [{"file_name": "list.txt", "extracted_content": "flour, salt"}]
    line = claude_ai_conversation(
        "t1",
        claude_ai_message("m1", "human", "Which flour? ÄÖ \U0001f35e", attachments=attached),
        claude_ai_message("m2", "assistant", "Rye.", thinking, search, result),
        claude_ai_message("m3", "human", "How much?"),
    )
    tree = claude_ai_conversation(
        "t2",
        claude_ai_message("m1", "human", "Which flour?", parent_message_uuid=ROOT),
        claude_ai_message("m2", "assistant", "Rye.", parent_message_uuid="m1"),
        claude_ai_message("m3", "assistant", "Spelt.", parent_message_uuid="m1"),
        claude_ai_message("m4", "human", "Which salt?", parent_message_uuid=ROOT),
        claude_ai_message("m5", "assistant", "Any.", parent_message_uuid="m4"),
        claude_ai_message("m6", "human", "Why?", parent_message_uuid="m3"),
        claude_ai_message("m7", "assistant", "It is mild.", parent_message_uuid="m6"),
        current_leaf_message_uuid="m7",
    )
    damaged = claude_ai_conversation(
        "t3", {"uuid": "m1"}, claude_ai_message("m2", "human", "Hello")
    )
    write_json(folder / "conversations.json", [line, tree, damaged])


# -- Cline, Roo and Kilo: a folder per task ---------------------------------------------------

MODEL = {"modelInfo": {"providerId": "anthropic", "modelId": "model-a"}}
EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline", "kilocode.kilo-code")


def say(ts: int, name: str, value: Any = None, **more: Any) -> Json:
    words = value if isinstance(value, str) or value is None else json.dumps(value)
    return {"ts": ts, "type": "say", "say": name, "text": words, **more}


def model_request(ts: int, **tokens: Any) -> Json:
    place = "# Current Working Directory (/home/dev/shop) Files"
    return say(ts, "api_req_started", {"request": place, **tokens}, **MODEL)


def timeline() -> list[Any]:
    condensed = {"summary": "The till works.", "prevContextTokens": 900, "newContextTokens": 90}
    return [
        say(1000, "task", "Fix the till."),
        model_request(1001, tokensIn=10, tokensOut=5, cacheReads=100, cacheWrites=20, cost=0.5),
        say(1002, "reasoning", "Where is the till?"),
        say(1003, "text", "I read the file.", conversationHistoryIndex=0),
        say(1004, "tool", {"tool": "readFile", "path": "till.py"}, conversationHistoryIndex=0),
        say(1005, "checkpoint_created"),
        model_request(1006, tokensIn=20, tokensOut=6),
        say(1007, "command", "make test", conversationHistoryIndex=2),
        say(1008, "command_output", "1 passed"),
        {"ts": 1009, "type": "ask", "ask": "tool", "text": '{"tool":"newFileCreated"}'},
        say(1010, "completion_result", "It works.", conversationHistoryIndex=4),
        {"ts": 1011, "type": "ask", "ask": "completion_result", "text": ""},
        {**say(1500, "condense_context"), "contextCondense": condensed},
        say(2000, "user_feedback", "And the drawer?"),
        model_request(2001, tokensIn=7, tokensOut=3),
        say(2002, "text", "It is stuck.", conversationHistoryIndex=6),
        say(2002, "text", "Quite stuck.", conversationHistoryIndex=6),
    ]


def history() -> list[Json]:
    read = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "till.py"}}
    lines = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "print(1)"}
    command = "<execute_command>\n<command>make test</command>\n</execute_command>"
    output = "[execute_command for 'make test'] Result:\n\n1 passed in 2 s"
    completion = "<attempt_completion><result>It works.</result></attempt_completion>"
    feedback = "<feedback>\nAnd the drawer?\n</feedback>"
    return [
        {"role": "user", "content": [text("<task>\nFix the till.\n</task>")]},
        {"role": "assistant", "content": [text("I read the file."), read]},
        {"role": "user", "content": [lines]},
        {"role": "assistant", "content": command},
        {"role": "user", "content": [text(output)]},
        {"role": "assistant", "content": completion},
        {"role": "user", "content": [text("[attempt_completion] Result:"), text(feedback)]},
        {"role": "assistant", "content": [text("It is stuck.")]},
    ]


def cline_tasks(folder: Path) -> None:
    """For each extension a task with both files, one with each alone, and a damaged one."""
    for number, extension in enumerate(EXTENSIONS):
        tasks = folder / "globalStorage" / extension / "tasks"
        first = 1719000000000 + number * 10
        write_json(tasks / f"{first}" / "ui_messages.json", timeline())
        write_json(tasks / f"{first}" / "api_conversation_history.json", history())
        write_json(tasks / f"{first + 1}" / "ui_messages.json", timeline()[: 8 + number])
        write_json(tasks / f"{first + 2}" / "api_conversation_history.json", history())
        write_json(tasks / f"{first + 3}" / "ui_messages.json", [None, *timeline()])


# -- Cline: a folder per session --------------------------------------------------------------

SESSION = "1790877871094_aB3dE"
SESSION_MODEL = {"modelInfo": {"id": "model-a", "provider": "anthropic", "family": "a"}}


def session_message(name: str, role: str, *content: Json, **more: Any) -> Json:
    made = {"id": f"msg_{name:x<8}", "role": role, "content": list(content)}
    return {**made, "ts": 1790877871000 + sum(map(ord, name)), **more}


def user(name: str, *content: Json, **more: Any) -> Json:
    return session_message(name, "user", *content, **more)


def agent(name: str, *content: Json, **more: Any) -> Json:
    return session_message(name, "assistant", *content, **SESSION_MODEL, **more)


def prompt(words: str, mode: str = "act") -> Json:
    return text(f'<user_input mode="{mode}">{words}</user_input>')


def use(name: str, tool: str, **arguments: Any) -> Json:
    return {"type": "tool_use", "id": name, "name": tool, "input": arguments}


def answer(name: str, content: Any, **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": name, "name": "t", "content": content, **more}


def metrics(into: int, out: int, read: int = 0, write: int = 0) -> Json:
    tokens = {"inputTokens": into, "outputTokens": out, "cost": 0.25}
    return {"metrics": {**tokens, "cacheReadTokens": read, "cacheWriteTokens": write}}


def session_messages() -> list[Json]:
    thinking = {"type": "thinking", "thinking": "Where is it?", "signature": "s"}
    image = {"type": "image", "data": "iVBORw0K" * 8, "mediaType": "image/png"}
    lines = [{"query": "/w/till.py", "result": "print(1)", "success": True}]
    return [
        user("u1", prompt("Fix the till."), image),
        agent(
            "a1",
            thinking,
            text("I read the file."),
            use("c1", "read_files", files=[{"path": "/w/till.py"}, {"path": "/w/drawer.py"}]),
            use("c2", "run_commands", commands=["make test"]),
            **metrics(100, 10, read=60, write=20),
        ),
        user("r1", answer("c1", lines)),
        user("r2", answer("c2", "no such rule", is_error=True)),
        agent("a2", use("c3", "spawn_agent", systemPrompt="s", task="Count the coins.")),
        user("r3", answer("c3", '{"text":"12","usage":{"inputTokens":40}}')),
        agent("a3", text("It works."), **metrics(150, 5, read=120)),
        user("u2", prompt("And the drawer?", "plan")),
        agent("a4", text("It is stuck."), **metrics(200, 7)),
    ]


def session_document(name: str, messages: list[Json], **more: Any) -> Json:
    head = {"version": 1, "updated_at": "2026-10-01T18:10:00.000Z", "agent": "lead"}
    return {**head, "sessionId": name, **more, "messages": messages, "system_prompt": "You are."}


def session_manifest(name: str, **metadata: Any) -> Json:
    return {
        "version": 1,
        "session_id": name,
        "source": "cli",
        "pid": 7,
        "started_at": "2026-10-01T18:00:00.000Z",
        "status": "running",
        "interactive": True,
        "provider": "anthropic",
        "model": "model-a",
        "cwd": "/home/dev/shop",
        "workspace_root": "/home/dev/shop",
        "enable_tools": True,
        "prompt": "Fix the till.",
        "metadata": metadata,
    }


def cline_sessions(folder: Path) -> None:
    """A session with a subagent, a teammate and a compaction beside it, and a fork of it."""
    sessions = folder / "data" / "sessions"
    place, messages = sessions / SESSION, session_messages()
    write_json(place / f"{SESSION}.json", session_manifest(SESSION, title="The till"))
    write_json(place / f"{SESSION}.messages.json", session_document(SESSION, messages))
    origin = {"source": "cli", "mode": "subagent", "parentThreadId": SESSION, "subagent": "agent_7"}
    counting = [user("k1", text("Count the coins.")), agent("k2", text("12"), **metrics(40, 1))]
    child = session_document(f"{SESSION}__agent_7", counting, agent="subagent", origin=origin)
    write_json(place / "agent_7.messages.json", child)
    help_ = [user("t1", text("Help."))]
    team = session_document(f"{SESSION}__teamtask__ann__x1", help_, agent="teammate")
    write_json(place / "ann__x1.messages.json", team)
    summary = {"kind": "compaction_summary", "displayRole": "system", "tokensBefore": 900}
    folded = user(
        "u1",
        text("Context summary:\n\nThe till is fixed."),
        metadata={**summary, "summary": "The till is fixed."},
    )
    compaction = {"version": 1, "updated_at": "2026-10-01T18:10:00.000Z"} | {
        "conversation_id": SESSION,
        "source_message_count": 7,
        "messages": [folded, messages[6]],
    }
    write_json(place / f"{SESSION}.compaction.json", compaction)
    fork = {"forkedFromSessionId": SESSION, "forkedAt": "2026-10-01T18:20:00.000Z"}
    lamp = [
        user("u9", prompt("Rather the lamp.")),
        agent("a9", text("It is lit."), **metrics(9, 1)),
    ]
    write_json(sessions / "fork1" / "fork1.json", session_manifest("fork1", fork=fork))
    forked = session_document("fork1", messages[:7] + lamp)
    write_json(sessions / "fork1" / "fork1.messages.json", forked)


# -- AIX --------------------------------------------------------------------------------------

AIX_TABLES = {
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
AIX_TIME = 1769616537000


def aix_message(name: str, session: str, role: str, words: str, at: int, **more: Any) -> Json:
    made = {"id": name, "session_id": session, "role": role, "content": words}
    return {**made, "sequence": at, "timestamp": AIX_TIME + at, **more}


def aix_rows() -> dict[str, list[Json]]:
    parent = {
        "id": "s1",
        "source": "cursor",
        "project": "nexus",
        "model": "model-x",
        "created_at": AIX_TIME,
        "is_agentic": 1,
        "force_mode": "edit",
        "context_token_limit": 176000,
        "context_tokens_used": 38191,
        "workspace_path": "/w/nexus",
        "is_subagent": 0,
        "raw_json": {"long": "story"},
    }
    child: Json = {"id": "task-k1", "source": "cursor", "parent_session_id": "s1", "is_subagent": 1}
    child |= {"task_description": "Look", "task_status": "completed"}
    call: Json = {"id": "k1", "message_id": "a1", "session_id": "s1", "tool_name": "task_v2"}
    call |= {"tool_number": 48, "params_json": {"description": "Look"}, "status": "completed"}
    call |= {"result_json": {"ok": True}, "child_session_id": "task-k1"}
    turn = {"session_id": "s1", "model": "model-y"}
    asked = {"checkpoint_id": "cp", "is_agentic": 0, "cursor_rules_json": [{"name": "style"}]}
    metadata = {"bubbleId": "a2", "thinking": {"text": "Hm."}, "todos": []}
    return {
        "sessions": [
            parent,
            child,
            {"id": "s2", "source": "codex", "created_at": AIX_TIME + 50},
            {"id": "s3", "source": "clawdbot"},
        ],
        "messages": [
            aix_message("q1", "s1", "user", "Please look", 0, **asked),
            aix_message("a1", "s1", "assistant", "", 1),
            aix_message("a2", "s1", "assistant", "Looked.", 2),
            aix_message("q2", "s1", "user", "Again", 3),
            aix_message("a3", "s1", "assistant", "Done.", 4),
            aix_message("t0", "task-k1", "user", "Look", 0),
            aix_message("t1", "task-k1", "assistant", "!", 1),
            aix_message("x0", "s2", "user", "Hello", 0),
            aix_message("x1", "s2", "assistant", "Hello.", 1),
        ],
        "turns": [
            {"id": "a2", "response_message_id": "a2", "token_count": 12, **turn},
            {"id": "a3", "response_message_id": "a3", "parent_turn_id": "a2", **turn},
        ],
        "tool_calls": [call],
        "message_metadata": [{"message_id": "a2", "session_id": "s1", "metadata_json": metadata}],
        "message_lints": [{"message_id": "q1", "file_path": "a.py", "message": "unused"}],
        "message_files": [{"message_id": "q1", "kind": "relevant", "file_path": "b.py"}],
        "message_codeblocks": [
            {"message_id": "a2", "idx": 0, "raw_json": {"content": "x", "languageId": "python"}}
        ],
        "sync_state": [{"key": "cursor:bubble_max_rowid", "value": "7"}],
    }


def aix(folder: Path) -> None:
    """A session whose call started another, with all that AIX stores of messages."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "aix.db")) as database:
        for table, columns in AIX_TABLES.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
        for table, rows in aix_rows().items():
            for row in rows:
                values = [json.dumps(v) if isinstance(v, dict | list) else v for v in row.values()]
                marks = ", ".join("?" for _ in row)
                database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", values)
        database.commit()


# -- sessions.import --------------------------------------------------------------------------


def request_message(name: str, turn: str | None, role: str, words: str, at: int) -> Json:
    message = {"sourceMessageId": name, "sourceTurnId": turn, "role": role, "content": words}
    return {**message, "sequence": at, "createdAtMs": 1_000 + at}


def request_call(name: str, turn: str, **more: Any) -> Json:
    return {
        "sourceToolCallId": name,
        "sourceTurnId": turn,
        "toolName": "count",
        "paramsJson": '{"what":"pears"}',
        "resultJson": {"number": 4},
        "status": "completed",
        "startedAtMs": 3_100,
        "completedAtMs": 3_200,
        "sequence": 3,
        **more,
    }


def request_item(name: str, fingerprint: str = "f1", **parts: Any) -> Json:
    first = {"sourceTurnId": "t1", "startedAtMs": 1_000, "completedAtMs": 2_000}
    first |= {"model": "model-a", "inputTokens": 10, "outputTokens": 5}
    first |= {"queryMessageSourceIds": ["m1"], "responseMessageSourceId": "m2"}
    second = {"sourceTurnId": "t2", "parentSourceTurnId": "t1", "startedAtMs": 3_000}
    second |= {"completedAtMs": 4_000, "inputTokens": 20, "outputTokens": 7, "totalTokens": 30}
    return {
        "sourceProvider": "cursor",
        "sourceSessionId": name,
        "sourceSessionFingerprint": fingerprint,
        "importedAtMs": 5_000,
        "session": {"createdAtMs": 1_000, "updatedAtMs": 4_000, "workspacePath": "/home/dev/shop"},
        "turns": [{**first, "metadata": {"effort": "low"}}, second],
        "messages": [
            request_message("m1", "t1", "user", "Count the apples.", 0),
            request_message("m2", "t1", "assistant", "Seven.", 1),
            request_message("m3", "t2", "user", "And the pears?", 2),
            request_message("m4", "t2", "assistant", "Four.", 4),
        ],
        "toolCalls": [request_call("c1", "t2")],
        **parts,
    }


def request(key: str, *items: Json, **more: Any) -> Json:
    head = {"source": "aix", "mode": "backfill", "idempotencyKey": key, "runId": f"run-{key}"}
    return {**head, "items": list(items), **more}


def requests(folder: Path) -> None:
    """A family of sessions, other providers, no turns, a later state, damage, and two chunks."""
    calls = [
        request_call("c1", "t2", sourceMessageId="m4"),
        request_call("c2", "t1", sequence=1, sourceMessageId="m2", spawnedSourceSessionId="named"),
    ]
    by_call = {"isSubagent": True, "parentSourceSessionId": "parent", "spawnToolCallId": "c1"}
    by_message = {"parentSourceSessionId": "by-call", "parentSourceMessageId": "m2"}
    family = [
        request_item("parent", toolCalls=calls),
        request_item("by-call", session=by_call),
        request_item("by-message", toolCalls=[], session=by_message),
        request_item("named", session={"title": "The pears"}, toolCalls=[]),
    ]
    write_json(folder / "1-family.json", request("k1", *family))
    elsewhere = [
        request_item("parent", sourceProvider="codex"),
        request_item("b/c", sourceProvider="a", session={"labelHint": "fruit"}),
        request_item("no-turns", turns=[]),
        {**request_item("damaged"), "messages": "none"},
    ]
    write_json(folder / "2-elsewhere.json", request("k2", *elsewhere))
    later = request_item("parent", "f2", toolCalls=calls)
    later["messages"].append(request_message("m5", "t2", "user", "Thanks. \U0001f34e", 5))
    write_json(folder / "3-later.json", request("k3", later))
    packed = gzip.compress(json.dumps(request_item("chunked")).encode(), mtime=0)
    data = base64.b64encode(packed).decode()
    for index, part in enumerate((data[:101], data[101:])):
        chunk: Json = {
            "source": "aix",
            "mode": "backfill",
            "idempotencyKey": "k4",
            "runId": "run-k4",
        }
        chunk |= {"uploadId": "u1", "chunkIndex": index, "chunkTotal": 2}
        chunk |= {"encoding": "gzip+base64", "data": part, "sourceProvider": "cursor"}
        chunk |= {"sourceSessionId": "chunked", "sourceSessionFingerprint": "f1"}
        write_json(folder / f"4-chunk-{index}.json", chunk)


FILES: dict[str, Callable[[Path], None]] = {
    "aix": aix,
    "claude_ai": claude_ai,
    "cline_sessions": cline_sessions,
    "cline_tasks": cline_tasks,
}
