"""Writes logs of the shape that Claude Code writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SESSION = "11111111-1111-4111-8111-111111111111"


def uid(name: str) -> str:
    """A uuid that can be read: uid("b2") ends in b2."""
    return f"00000000-0000-4000-8000-{name:0>12}"


class Log:
    """Writes records as Claude Code does, each hung on the one before unless it says otherwise."""

    def __init__(self, folder: Path, name: str = SESSION) -> None:
        self.path = folder / f"{name}.jsonl"
        self.session = name
        self.lines: list[str] = []
        self.uuids: list[str | None] = []  # the last one after each line
        self.last: str | None = None
        self.clock = 0

    def add(self, kind: str, name: str | None = None, **fields: Any) -> None:
        self.clock += 1
        record: dict[str, Any] = {"type": kind}
        if name is not None:
            record |= {
                "uuid": uid(name),
                "parentUuid": self.last,
                "sessionId": self.session,
                "timestamp": f"2026-03-01T10:{self.clock // 60:02}:{self.clock % 60:02}.000Z",
                "cwd": "/home/dev/shop",
                "gitBranch": "main",
                "isSidechain": False,
            }
        record |= fields
        if name is not None:
            self.last = record["uuid"]
        self.lines.append(json.dumps(record))
        self.uuids.append(self.last)

    def user(self, name: str, content: Any, **fields: Any) -> None:
        self.add("user", name, message={"role": "user", "content": content}, **fields)

    def assistant(self, name: str, *blocks: dict[str, Any], **fields: Any) -> None:
        message = {
            "id": fields.pop("api", f"msg_{name}"),
            "role": "assistant",
            "model": fields.pop("model", "claude-opus-5"),
            "content": list(blocks),
            "usage": fields.pop("usage", {"input_tokens": 10, "output_tokens": 5}),
        }
        self.add("assistant", name, message=message, **fields)

    def result(self, name: str, call: str, content: Any, **fields: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": call, "content": content}
        if fields.pop("is_error", False):
            block["is_error"] = True
        self.user(name, [block], **fields)

    def thread(self) -> list[dict[str, Any]]:
        """The records from the first to the last, each with the one it hangs on before it."""
        known = {record.get("uuid"): record for record in map(json.loads, self.lines)}
        found, at = [], self.last
        while at is not None and at in known:
            found.append(known[at])
            at = known[at]["parentUuid"]
        return found[::-1]

    def resume(self, names: Iterator[str], since: int = 0, **fields: Any) -> None:
        """Write the thread once more from some record on, a record for each block."""
        thread = self.thread()
        self.last = thread[since]["parentUuid"]
        for record in thread[since:]:
            message = record.get("message")
            if message is None:
                self.last = record["uuid"]
                continue
            said = message["content"]
            for block in [text(said)] if isinstance(said, str) else said:
                again = record | fields | {"uuid": uid(next(names)), "parentUuid": self.last}
                self.last = again["uuid"]
                self.lines.append(json.dumps(again | {"message": message | {"content": [block]}}))
                self.uuids.append(self.last)

    def save(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(line + "\n" for line in self.lines))
        return self.path


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(call: str, name: str, **params: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": params}


def a_log(folder: Path, name: str = SESSION, words: str = "Begin.") -> Log:
    """A session of one turn, saved."""
    log = Log(folder, name)
    log.user(name[:8] + "a1", words)
    log.assistant(name[:8] + "a2", text("Begun."))
    log.save()
    return log
