"""Turns and trees for tests: everything has a sensible value unless the test says otherwise."""

from __future__ import annotations

from typing import Any

from agents_ledger import (
    Config,
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Usage,
)


def a_message(content: str = "hello", **fields: Any) -> Message:
    """A person's message."""
    return Message(**{"role": "user", "source": "human", "content": content, **fields})


def a_detailed_message(text: str = "look", **fields: Any) -> Message:
    """A message with everything a message can have."""
    details = {
        "thinking": f"{text}, I think",
        "context_json": '{"rules": ["be brief"]}',
        "metadata_json": '{"bubbleId": 7}',
        "tool_call_id": "call-0",
        "files": (
            MessageFile("read", f"{text}.py", 1, 9),
            MessageFile("attached", f"{text}.md"),
        ),
        "lints": (MessageLint(f"{text}.py", "unused", "ruff", 1, 2, 3, 4, "warning"),),
        "codeblocks": (
            MessageCodeblock("print()", "python", f"{text}.py", 5, 6),
            MessageCodeblock("ls"),
        ),
    }
    return a_message(text, **{**details, **fields})


def a_call(tool_name: str = "Read", **fields: Any) -> ToolCall:
    """A call that went well."""
    return ToolCall(**{"tool_name": tool_name, "params_json": '{"path": "a"}', **fields})


A_USAGE = Usage(10, 20, 3, 4, 5, 42)


def a_full_turn(**fields: Any) -> dict[str, Any]:
    """What can be passed to `record` beside the session, all of it but a compaction."""
    everything = {
        "query": [
            a_detailed_message("first", source="human"),
            a_message("second", source="webhook"),
            a_message("third", role="system", source=None),
        ],
        "steps": [
            a_detailed_message("step", role="assistant", source=None),
            a_call("Read", id="call-1", result_json='{"text": "x"}', tool_number=15),
            a_message('"x"', role="tool", source=None, tool_call_id="call-1"),
            a_call("Bash", id="call-2", error="exit 1", status="failed", source_status="aborted"),
        ],
        "response": a_detailed_message("answer", role="assistant", source=None),
        "usage": A_USAGE,
        "started_at": 1_700_000_000_000,
        "completed_at": 1_700_000_001_000,
        "model": "claude-opus-5",
        "provider": "anthropic",
        "role": "manager",
        "toolset_name": "full",
        "tools_available": ["Read", "Bash"],
        "permissions_granted": {"fs": "rw"},
        "permissions_used": {"fs": "r"},
        "source_event_id": "event-1",
        "workspace_path": "/home/me/project",
        "config": Config({"model": "claude-opus-5"}, {"temperature": 1}, {"network": False}),
        "system_prompt": "You are brief.",
        "thread_key": None,
        "persona_id": "atlas",
    }
    return {**everything, **fields}


def chain(ledger: Ledger, session: str, length: int) -> list[str]:
    """The ids of turns recorded one after the other on a session."""
    return [
        ledger.record(session, f"question {number}", f"answer {number}").id
        for number in range(1, length + 1)
    ]


def grow(ledger: Ledger, tree: str) -> dict[str, str]:
    """A tree of turns from words: "1-2-3, 2-4" hangs 4 on 2. The ids, by their words.

    Each branch is a session, named by its last word.
    """
    ids: dict[str, str] = {}
    for branch in tree.replace(" ", "").split(","):
        first, *others = branch.split("-")
        session = others[-1] if others else first
        if first not in ids:
            ids[first] = ledger.record(session, first, f"answer {first}").id
        else:
            ledger.fork(ids[first], label=session)
        for word in others:
            ids[word] = ledger.record(session, word, f"answer {word}").id
    return ids
