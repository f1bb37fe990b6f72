"""Writes rollouts of the shape that Codex writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

THREAD = "019d0000-0000-7000-8000-000000000000"


def turn_id(number: int) -> str:
    """A turn id of version 7: a larger number is later."""
    return f"019d{number:04x}-0000-7000-8000-00000000000a"


def thread_id(number: int) -> str:
    """A thread id of version 7, later than the turns with smaller numbers."""
    return f"019d{number:04x}-ffff-7000-8000-00000000000b"


def index_line(thread: str, name: str) -> str:
    """A line of the title index."""
    said = {"id": thread, "thread_name": name, "updated_at": "2026-03-01T10:00:00.1234567Z"}
    return json.dumps(said) + "\n"


def usage(total: int) -> dict[str, int]:
    return {
        "input_tokens": total - total // 10,
        "cached_input_tokens": total // 2,
        "output_tokens": total // 10,
        "reasoning_output_tokens": 0,
        "total_tokens": total,
    }


class Rollout:
    """Writes records in order, one second apart."""

    def __init__(self, folder: Path, thread: str = THREAD, **meta: Any) -> None:
        self.path = folder / f"rollout-2026-03-01T10-00-00-{thread}.jsonl"
        self.lines: list[str] = []
        self.clock = 0
        self.total = 0
        self.meta(thread, **meta)

    def add(self, kind: str, /, **payload: Any) -> None:
        self.clock += 1
        at = f"2026-03-01T10:{self.clock // 60:02}:{self.clock % 60:02}.000Z"
        self.lines.append(json.dumps({"timestamp": at, "type": kind, "payload": payload}))

    def meta(self, thread: str, **meta: Any) -> None:
        said = {"cwd": "/home/dev/shop", "cli_version": "0.142.0", "source": "cli"}
        self.add("session_meta", id=thread, model_provider="openai", **{**said, **meta})

    def event(self, kind: str, **payload: Any) -> None:
        self.add("event_msg", type=kind, **payload)

    def item(self, kind: str, **payload: Any) -> None:
        self.add("response_item", type=kind, **payload)

    def start(self, number: int, model: str = "gpt-5.5") -> None:
        self.event("task_started", turn_id=turn_id(number))
        self.add("turn_context", turn_id=turn_id(number), cwd="/home/dev/shop", model=model)

    def user(self, text: str) -> None:
        self.item("message", role="user", content=[{"type": "input_text", "text": text}])

    def ask(self, text: str) -> None:
        self.user(text)
        self.event("user_message", message=text, images=[])

    def say(self, text: str) -> None:
        self.event("agent_message", message=text)
        content = [{"type": "output_text", "text": text}]
        self.item("message", role="assistant", content=content, phase="final_answer")

    def call(
        self, call_id: str, name: str = "exec_command", output: Any = None, **args: Any
    ) -> None:
        self.item("function_call", name=name, arguments=json.dumps(args), call_id=call_id)
        if output is not None:
            self.item("function_call_output", call_id=call_id, output=output)

    def activity(self, call_id: str, agent: str, kind: str = "started") -> None:
        """The event of a subagent."""
        said = {"event_id": call_id, "agent_thread_id": agent, "agent_path": "/root/look"}
        self.add("event_msg", type="sub_agent_activity", kind=kind, **said)

    def response(self, number: int, response_id: str, tokens: int) -> None:
        """The tokens of one response of a turn, as 0.151 writes them."""
        named = {"thread_id": THREAD, "turn_id": turn_id(number), "response_id": response_id}
        self.add("token_usage_record", **named, usage=usage(tokens))

    def tokens(self, total: int, last: int | None = None) -> None:
        grown = total - self.total if last is None else last
        self.total = total
        info = {"total_token_usage": usage(total), "last_token_usage": usage(grown)}
        self.event("token_count", info=info, rate_limits=None)

    def end(self, number: int) -> None:
        self.event("task_complete", turn_id=turn_id(number), last_agent_message=None)

    def exchange(self, number: int, text: str, answer: str | None = "Done.") -> None:
        """A whole turn."""
        self.start(number)
        self.ask(text)
        if answer is not None:
            self.say(answer)
            self.tokens(self.total + 100)
            self.end(number)

    def fork(self, folder: Path, thread: str, lines: int, **meta: Any) -> Rollout:
        """A thread that begins with a replay of this one, with its own timestamps."""
        child = Rollout(folder, thread, forked_from_id=self.thread, **meta)
        for line in self.lines[:lines]:
            record = json.loads(line)
            child.clock += 1
            record["timestamp"] = "2026-03-02T10:00:00.000Z"
            child.lines.append(json.dumps(record))
        child.total = self.total
        return child

    @property
    def thread(self) -> str:
        return str(json.loads(self.lines[0])["payload"]["id"])

    def save(self, name: str | None = None) -> Path:
        path = self.path if name is None else self.path.with_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in self.lines))
        return path
