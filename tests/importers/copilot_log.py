"""Writes events of the shape that Copilot CLI writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SESSION = "cccccccc-0000-4000-8000-000000000001"
LABEL = f"copilot:{SESSION}"


class Events:
    """Writes events as Copilot CLI does."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / SESSION / "events.jsonl"
        self.lines: list[str] = []
        self.gone = 0  # events that were cut off
        context = {"cwd": "/home/dev/shop", "branch": "main", "repository": "dev/shop"}
        self.add("session.start", sessionId=SESSION, copilotVersion="1.0.64", context=context)

    def add(self, kind: str, agent: str | None = None, **data: Any) -> str:
        number = len(self.lines) + self.gone
        event = {
            "type": kind,
            "data": data,
            "id": f"dddddddd-0000-4000-8000-{number:012}",
            "timestamp": f"2026-03-01T10:{number // 60:02}:{number % 60:02}.000Z",
            "parentId": None,
        } | ({"agentId": agent} if agent else {})
        self.lines.append(json.dumps(event))
        return str(event["id"])

    def say(self, text: str, *calls: dict[str, Any], **data: Any) -> str:
        requests = list(calls)
        said = {"model": "gpt-5", "outputTokens": 10, **data}
        return self.add("assistant.message", content=text, toolRequests=requests, **said)

    def cut(self, left: int) -> None:
        """Remove all but the first events."""
        self.gone += len(self.lines) - left
        del self.lines[left:]

    def save(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(line + "\n" for line in self.lines))
        return self.path


def request(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"toolCallId": call_id, "name": name, "arguments": arguments, "type": "function"}


def metrics(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    usage = {"inputTokens": input_tokens, "outputTokens": output_tokens, "cacheReadTokens": 5}
    return {"gpt-5": {"usage": usage}}


def helped(folder: Path) -> Events:
    """A log in which only events name a subagent, as in newer versions."""
    log = Events(folder)
    log.add("user.message", content="Let somebody look.")
    log.say("Asking.", request("s1", "task", prompt="Look."))
    arguments = {"prompt": "Look."}
    log.add("tool.execution_start", toolCallId="s1", toolName="task", arguments=arguments)
    log.add("subagent.started", "one", toolCallId="s1", agentName="explore", model="small")
    log.add("user.message", "one", content="Look.", source="agent")
    log.add("session.model_change", "one", newModel="small")
    log.say("Looking.", agent="one", model="small", outputTokens=7)
    log.add("tool.execution_start", "one", toolCallId="t1", toolName="task", arguments=arguments)
    log.add("subagent.started", "two", toolCallId="t1", agentName="explore")
    log.say("Looking, too.", agent="two", outputTokens=2)
    log.add("tool.execution_complete", "one", toolCallId="t1", success=True)
    log.add("subagent.completed", "one", toolCallId="s1", agentName="explore")
    log.add("tool.execution_complete", toolCallId="s1", success=True, result={"content": "Seen."})
    return log
