"""Qwen Code: records linked by uuids, forks that copy them, subagents and compactions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from agents_ledger import Ledger
from tests.importers.helping import import_paths, result

SESSION = "0b9d9b5e-0000-4000-8000-000000000001"


def uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_OID, name))


def record(name: str, parent: str | None, type_: str, *parts: Any, **more: Any) -> dict[str, Any]:
    return {
        "uuid": uuid(name), "parentUuid": uuid(parent) if parent else None,
        "sessionId": SESSION, "type": type_, **more,
        "timestamp": "2026-08-16T00:00:00.000Z", "cwd": "/home/dev/app",
        "message": {"parts": parts},
    }  # fmt: skip


def log(folder: Path, *records: dict[str, Any], name: str = SESSION, below: str = "chats") -> Path:
    path = folder / "projects" / "-home-dev-app" / below / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


CALL = {
    "functionCall": {"id": "c1", "name": "read_file", "args": {"file_path": "/home/dev/app/a.py"}}
}
RESULT = {"functionResponse": {"id": "c1", "response": {"output": "x = 1"}}}
USAGE = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 9}
TALK = (
    record("u1", None, "user", {"text": "What is x?"}),
    record("s1", "u1", "system", subtype="ui_telemetry", systemPayload={}),
    record("a1", "s1", "assistant", {"text": "Look.", "thought": True}, CALL, usageMetadata=USAGE),
    record("r1", "a1", "tool_result", RESULT, toolCallResult={"callId": "c1", "status": "success"}),
    record("a2", "r1", "assistant", {"text": "One."}, model="qwen3-coder"),
)


def test_a_turn_has_its_calls_thinking_tokens_and_files(ledger: Ledger, tmp_path: Path) -> None:
    title = record("t1", "a2", "system", subtype="custom_title", systemPayload={"customTitle": "X"})
    import_paths(ledger, log(tmp_path, *TALK, title))
    (turn,) = ledger.thread(f"qwen-code:{SESSION}").turns
    assert [message.content for message in turn.messages] == ["What is x?", "", "One."]
    assert (turn.messages[1].thinking, turn.model) == ("Look.", "qwen3-coder")
    assert (turn.input_tokens, turn.cached_input_tokens, turn.output_tokens) == (100, 60, 9)
    assert turn.tool_calls[0].result_json == '{"output":"x = 1"}'
    assert [hit.turn_id for hit in ledger.files("a.py").touches] == [turn.id]
    assert ledger.session(f"qwen-code:{SESSION}").title == "X"


def test_a_rewind_is_a_branch_and_a_compaction_keeps_the_thread(
    ledger: Ledger, tmp_path: Path
) -> None:
    summary = {
        "compressedHistory": [{"parts": [{"text": "x is 1."}]}],
        "info": {"newTokenCount": 5},
    }
    import_paths(
        ledger,
        log(
            tmp_path,
            *TALK,
            record("u2", "a2", "user", {"text": "And y?"}),
            record("a3", "u2", "assistant", {"text": "Two."}),
            record("k1", "a2", "system", subtype="chat_compression", systemPayload=summary),
            record("u3", "k1", "user", {"text": "And z?"}),
            record("a4", "u3", "assistant", {"text": "Three."}),
        ),
    )
    first, compaction, last = ledger.thread(f"qwen-code:{SESSION}").turns
    assert compaction.compaction is not None
    assert compaction.compaction.summary == "x is 1."
    assert last.messages[-1].content == "Three."
    assert len(ledger.children(first.id)) == 2


def test_a_branch_shares_its_turns_and_a_subagent_has_a_parent(
    ledger: Ledger, tmp_path: Path
) -> None:
    fork = [dict(copied, sessionId="f1") for copied in TALK]
    helper = record("h1", None, "user", {"text": "Find x."}, isSidechain=True, agentId="explore")
    answer = record("h2", "h1", "assistant", {"text": "Here."}, isSidechain=True, agentId="explore")
    import_paths(ledger, log(tmp_path, *TALK), log(tmp_path, *fork, name="f1"))
    import_paths(
        ledger, log(tmp_path, helper, answer, name="agent-e", below=f"subagents/{SESSION}")
    )
    assert ledger.head("qwen-code:f1") == ledger.head(f"qwen-code:{SESSION}")
    child = ledger.session("qwen-code:agent-e")
    assert (child.is_subagent, child.parent_session_label) == (True, f"qwen-code:{SESSION}")
    before = result(ledger)
    import_paths(ledger, tmp_path)
    assert result(ledger) == before
