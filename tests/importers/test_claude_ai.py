"""Claude.ai export: a list of messages, or a tree if parents are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from tests.importers.helping import import_paths

ROOT = "00000000-0000-4000-8000-000000000000"


def said(name: str, sender: str, text: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    return {
        "uuid": name,
        "sender": sender,
        "text": text,
        "content": [*blocks, {"type": "text", "text": text}],
        "created_at": "2026-02-01T08:00:00Z",
        "attachments": [],
        "files": [],
        **more,
    }


def export(folder: Path, *messages: dict[str, Any], **more: Any) -> Path:
    path = folder / "conversations.json"
    talk = {
        "uuid": "t1",
        "name": "Bread",
        "created_at": "2026-02-01T08:00:00Z",
        "updated_at": "2026-02-01T09:00:00Z",
        "account": {"uuid": "x"},
        "chat_messages": messages,
        **more,
    }
    path.write_text(json.dumps([talk]))
    return path


def test_an_export_without_parents_is_a_list(ledger: Ledger, tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "web_search", "input": {"query": "rye"}}
    found = {"type": "tool_result", "tool_use_id": "c1", "content": [{"text": "dark"}]}
    path = export(
        tmp_path,
        said("m1", "human", "Which flour?", attachments=[{"file_name": "list.txt"}]),
        said(
            "m2", "assistant", "Rye.", {"type": "thinking", "thinking": "Dark bread."}, use, found
        ),
        said("m3", "human", "How much?"),
    )
    import_paths(ledger, path)
    session = ledger.session("claude-ai:t1")
    assert (session.title, session.origin) == ("Bread", "claude-ai")
    (turn,) = ledger.thread("claude-ai:t1").turns
    assert "list.txt" in str(turn.messages[0].metadata_json)
    assert turn.messages[1].thinking == "Dark bread."
    assert turn.tool_calls[0].result_json == '[{"text":"dark"}]'
    assert ledger.get_turn("t1:m3").status == "pending"
    assert ledger.audit() == ()


def test_an_export_with_parents_is_a_tree(ledger: Ledger, tmp_path: Path) -> None:
    path = export(
        tmp_path,
        said("m1", "human", "Which flour?", parent_message_uuid=ROOT),
        said("m2", "assistant", "Rye.", parent_message_uuid="m1"),
        said("m3", "assistant", "Spelt.", parent_message_uuid="m1"),
        said("m4", "human", "Which salt?", parent_message_uuid=ROOT),
        said("m5", "assistant", "Any.", parent_message_uuid="m4"),
        current_leaf_message_uuid="m3",
    )
    import_paths(ledger, path)
    assert ledger.session("claude-ai:t1").thread_id == "t1:m3"
    roots = {turn.id: [m.content for m in turn.messages] for turn in ledger.roots()}
    assert set(roots) == {"t1:m1", "t1:m3", "t1:m4"}
    again = ledger.get_turn("t1:m3")
    assert [m.content for m in again.messages] == ["Which flour?", "Spelt."]
    assert import_paths(ledger, path).read_bytes == 0
    assert ledger.audit() == ()


def test_unpaired_surrogates_do_not_hide_a_conversation(ledger: Ledger, tmp_path: Path) -> None:
    path = export(tmp_path, said("m1", "human", "Hello"), said("m2", "assistant", "LONE"))
    path.write_text(path.read_text().replace("LONE", "\\ud83d"))

    assert import_paths(ledger, path).faults == []
    assert ledger.query("SELECT content FROM messages ORDER BY id")[1] == [("Hello",), ("\ufffd",)]
