"""One small history of every source, as its program writes it: what the fuzzer starts from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.importers import (
    copilot_log,
    test_aider,
    test_aix,
    test_chatgpt,
    test_claude_ai,
    test_cline,
    test_cline_sessions,
    test_copilot,
    test_cursor_agent,
    test_gemini,
    test_openclaw_database,
    test_opencode,
    test_opencode_second,
    test_pi,
    test_qwen_code,
    test_requests,
)
from tests.importers.claude_log import SESSION, Log, text, tool
from tests.importers.codex_log import Rollout, turn_id
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.cursor_made import tool as cursor_tool

CORPUS_MAX = 40_000  # bytes of a real file to start from


def write_all(folder: Path) -> None:
    """Write a history of every source."""
    for write in (
        _claude_code, _codex, _cursor, _pi, _gemini, _documents, _opencode, _qwen_code, _aider
    ):  # fmt: skip
        write(folder / write.__name__.strip("_"))
    test_aix.sample(_made(folder / "aix") / "aix.db")
    events = copilot_log.Events(folder / "copilot")
    events.add("user.message", content="What?", transformedContent="<now/> What?")
    events.say("Reading.", copilot_log.request("t1", "view", path="cart.py"))
    events.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "x"})
    events.add("session.compaction_complete", summaryContent="So far.", preCompactionTokens=10)
    events.say("Done.", parentToolCallId="t1")
    events.add("session.shutdown", modelMetrics=copilot_log.metrics(10, 20))
    events.save()
    test_copilot.save_document(folder / "copilot", test_copilot.a_document())
    test_cursor_agent.spoken(folder / "spoken" / "s.txt", test_cursor_agent.SPOKEN)


def real_files() -> list[Path]:
    """Small real files, where there are any."""
    corpus = os.environ.get("AGENTS_LEDGER_CORPUS")
    if corpus is None:
        return []
    found = (path for path in sorted(Path(corpus).rglob("*")) if path.is_file())
    return [path for path in found if path.stat().st_size <= CORPUS_MAX]


def a_request() -> dict[str, Any]:
    """A sessions.import request."""
    return test_requests.request(test_requests.item())


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _claude_code(folder: Path) -> None:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", {"type": "thinking", "thinking": "Hm."}, api="m1")
    log.assistant("a3", tool("t1", "Task", prompt="Look.", file_path="/x"), api="m1")
    saved = f"<persisted-output>\n/x/{SESSION}/tool-results/b1.txt"
    log.result("a4", "t1", saved, toolUseResult={"agentId": "abc"})
    log.add("attachment", "a5", attachment={"type": "queued_command", "prompt": "And?"})
    log.add("queue-operation", operation="enqueue", content="More?", timestamp="2026-03-01")
    log.add("system", "c1", subtype="compact_boundary", compactMetadata={"preTokens": 9})
    log.user("c2", "So far.", isCompactSummary=True)
    log.assistant("c3", text("Going on."), isApiErrorMessage=True)
    log.add("summary", summary="Title", leafUuid=log.last)
    log.user("d1", "Look.", isSidechain=True, parentUuid=None)
    log.assistant("d2", text("Seen."), isSidechain=True)
    log.save()
    (_made(folder / SESSION / "tool-results") / "b1.txt").write_text("whole")
    agent = Log(folder / SESSION / "subagents", "agent-abc")
    agent.user("e1", "Look.", isSidechain=True, agentId="abc", sessionId=SESSION)
    agent.assistant("e2", text("Seen."), isSidechain=True, agentId="abc", sessionId=SESSION)
    agent.save().with_name("agent-abc.meta.json").write_text('{"agentType": "x"}')


def _codex(folder: Path) -> None:
    log = Rollout(folder)
    log.start(1)
    log.ask("Begin.")
    log.call("c1", output="Exit code: 0", cmd="ls")
    log.tokens(100)
    log.item("reasoning", summary=[{"type": "summary_text", "text": "Hm."}])
    log.add("compacted", message="So far.", replacement_history=[])
    log.call("c2", "spawn_agent", output='{"agent_id": "x"}', message="Look.")
    log.item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c3")
    log.item("custom_tool_call", name="exec", input="...", call_id="c4")
    change = {"type": "update", "unified_diff": "@@ -1 +1 @@\n-a\n+b\n", "move_path": "/y"}
    log.event("patch_apply_end", call_id="exec-1", turn_id=turn_id(1), changes={"/x": change})
    log.item("custom_tool_call_output", call_id="c4", output=[{"text": "Script failed\n"}])
    log.say("Done.")
    log.event("task_complete", turn_id="t")
    log.event("thread_rolled_back", num_turns=1)
    log.event("turn_aborted", reason="interrupted")
    _made(folder)
    log.path.write_text("".join(line + "\n" for line in log.lines))


def _cursor(folder: Path) -> None:
    task = cursor_tool("k1", "task_v2", 48, params='{"description": "Look"}', result="{}")
    rows = chat(
        "c1",
        bubble("q1", 1, "Begin.", 1, checkpointId="p1", richText="{}"),
        bubble("a1", 2, "", 2, toolFormerData=task, thinking={"text": "Hm."}),
        bubble("a2", 2, "Done.", 3, codeBlocks=[{"content": "x", "languageId": "py"}]),
        subComposerIds=["task-k1"],
        latestConversationSummary={"summary": {"summary": "So far."}},
    )
    rows["checkpointId:c1:p1"] = {"files": [{"uri": {"fsPath": "/x"}}]}
    items = {
        "composer.composerData": {"allComposers": [{"composerId": "c1", "name": "Title"}]},
        "workbench.panel.aichat.view.aichat.chatdata": {
            "tabs": [{"tabId": "b", "bubbles": [{"type": "user", "id": "x", "text": "Hi"}]}]
        },
    }
    state_db(folder / "Cursor/User/globalStorage/state.vscdb", rows, items)
    session = test_cursor_agent.SESSION
    path = folder / test_cursor_agent.PROJECT / session / f"{session}.jsonl"
    test_cursor_agent.transcript(path, *test_cursor_agent.TALK)
    said = [{"role": "user", "content": "Begin."}, {"role": "assistant", "content": "Done."}]
    test_cursor_agent.store(folder / ".cursor/chats/x/y/store.db", said)


def _pi(folder: Path) -> None:
    log = test_pi.Transcript(folder / "sessions" / "--x--")
    first = log.user("Begin.")
    log.say("Look.", test_pi.call("k1", "bash", command="ls"))
    log.result("k1", "a.py")
    log.add("compaction", summary="So far.", firstKeptEntryId=first, tokensBefore=9)
    log.add("branch_summary", summary="Tried.", fromId=first)
    log.say("Done.")
    log.save()
    claw = folder / ".openclaw" / "agents" / "main" / "sessions"
    other = test_pi.Transcript(claw, test_pi.TWO)
    other.user("Begin.")
    other.say("Done.")
    other.save()
    test_pi.store(claw, **{"agent:main:main": {"sessionId": test_pi.TWO, "updatedAt": 1}})
    rows = test_openclaw_database.Database(folder / "rows")
    rows.tell(other, test_pi.TWO)
    rows.stand(test_pi.TWO)


def _gemini(folder: Path) -> None:
    test_gemini.document(folder / "a", test_gemini.ASK, test_gemini.LOOK, test_gemini.TELL)
    head = dict(test_gemini.META)
    said = (test_gemini.ASK, test_gemini.LOOK, {"$rewindTo": "u1"}, test_gemini.ASK2)
    test_gemini.lines(folder / "b", head, *said, {"$set": {"summary": "x"}})


def _documents(folder: Path) -> None:
    talk = test_chatgpt.conversation(*test_chatgpt.LINE)
    test_chatgpt.export(_made(folder / "chatgpt"), talk)
    use = {"type": "tool_use", "id": "c1", "name": "web", "input": {"query": "rye"}}
    test_claude_ai.export(
        _made(folder / "claude"),
        test_claude_ai.said("m1", "human", "Which?"),
        test_claude_ai.said("m2", "assistant", "Rye.", use, parent_message_uuid="m1"),
    )
    timeline = test_cline.FIRST + test_cline.SECOND
    test_cline.write(folder / "cline", timeline, test_cline.HISTORY)
    session = test_cline_sessions.FIRST + test_cline_sessions.SECOND
    test_cline_sessions.write(folder / "cline sessions", session)


def _opencode(folder: Path) -> None:
    test_opencode.storage(folder / "files", test_opencode.SAMPLE)
    test_opencode.database(folder / "rows" / "opencode.db", test_opencode.SAMPLE)
    second = test_opencode_second
    messages = [(f"{each[0]}s", "ses_s", *each[2:]) for each in second.MESSAGES]
    second.database(folder / "second" / "opencode.db", [second.session("ses_s")], messages)


def _qwen_code(folder: Path) -> None:
    test_qwen_code.log(folder, *test_qwen_code.TALK)


def _aider(folder: Path) -> None:
    test_aider.history(_made(folder), test_aider.FIRST + test_aider.SECOND)


def as_json(value: Any) -> bytes:
    """The bytes of a value, with what is no text as it is."""
    return json.dumps(value).encode()
