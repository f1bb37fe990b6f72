"""A ledger as busy people have it: a year with a million messages, and a very long session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agents_ledger import Ledger, Message, MessageFile, Session, ToolCall, Usage, now_ms
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from benchmarks import workload
from benchmarks.figures import DAY_MS, DAYS, MODELS, TOOLS

SESSIONS = 4_000
TURNS = 25  # of a session
STEPS = 8  # messages between query and response: in all there are a million
CALLS = 4
LONG_TURNS = 260
LONG_STEPS = 49  # a message and a call each: with query and response 26,000 records
FORK_EVERY = 7
SPAWN_EVERY = 10
FAIL_EVERY = 20

Work = Callable[[Transaction], object]


def busy(folder: Path) -> Path:
    """Its file, made if it is not there."""
    path = folder / "busy.db"
    if path.exists():
        return path
    growing = folder / "busy-growing.db"
    first = now_ms() - DAYS * DAY_MS
    with Ledger.open(str(growing)) as ledger:
        for start in range(0, SESSIONS, 100):
            works: list[Work] = []
            for number in range(start, start + 100):
                works += session(number, first + number * DAYS * DAY_MS // SESSIONS)
            workload.fill(ledger, works)
        workload.fill(ledger, list(_long(now_ms() - DAY_MS)))
        ledger._core.index(least=1)
        ledger.summarise()
    growing.rename(path)
    return path


def session(number: int, at: int, turns: int = TURNS) -> Iterator[Work]:
    """A session and its turns, the first of which begins at a time."""
    label = f"session-{number}"
    new = Session(
        label,
        persona_id=f"persona-{number % 5}",
        origin=("claude_code", "codex", "native")[number % 3],
        title=f"Work on subject {number}" if number % 2 else None,
    )
    yield partial(heads.create, session=new)
    for turn in range(turns):
        yield _turn(label, number, turn, at + turn * 60_000)
    if number % FORK_EVERY == 0:
        yield partial(heads.fork, target=label, label=f"fork-of-{number}", before=True)


def _turn(label: str, number: int, turn: int, at: int) -> Work:
    project = f"/home/user/project-{number % 40}"
    steps: list[Message | ToolCall] = []
    for step in range(STEPS):
        path = f"{project}/src/module_{(number + turn + step) % 300}.py"
        kind = "written" if step % 4 == 1 else "read"
        files = (MessageFile(kind, path),) if step % 2 else ()  # type: ignore[arg-type]
        steps.append(Message("assistant", f"step {step} of question {turn}", files=files))
        if step < CALLS:
            steps.append(_call(number + turn + step, path, at))
    if turn == 1 and number % SPAWN_EVERY == 0:
        steps.append(ToolCall("Task", spawned_session_label=f"agent-of-{number}"))
    fields: dict[str, Any] = {
        "steps": steps,
        "started_at": at,
        "completed_at": at + 20_000,
        "usage": Usage(1_200 + turn, 300, 900, 0, 20),
        "model": MODELS[number // 50 % len(MODELS)],
        "provider": "anthropic",
        "workspace_path": project,
    }
    if turn == TURNS - 1 and number % FAIL_EVERY == 0:
        fields |= {"status": "failed", "error": "the provider was overloaded"}
    query = f"question {turn} about subject {number} and word{number * TURNS + turn}"
    prepared = recording.recording(label, query, f"answer {turn}", fields)
    return partial(recording.record, prepared=prepared)


def _call(number: int, path: str, at: int) -> ToolCall:
    failed = number % 50 == 0
    return ToolCall(
        TOOLS[number % len(TOOLS)],
        f'{{"file_path":"{path}"}}',
        None if failed else '"done"',
        "no such file" if failed else None,
        "failed" if failed else "completed",
        started_at=at,
        completed_at=at + number % 4_000,
    )


def _long(at: int) -> Iterator[Work]:
    for turn in range(LONG_TURNS):
        steps: list[Message | ToolCall] = []
        for step in range(LONG_STEPS):
            command = {"command": f"sed -n {step},{step + 9}p notes.txt"}
            steps.append(Message("assistant", f"I look at part {step} of it. " * 10))
            steps.append(ToolCall.of("Bash", command, "line\n" * 100))
        fields = {"steps": steps, "started_at": at + turn * 120_000, "model": MODELS[0]}
        prepared = recording.recording("long", f"long question {turn}", "An answer. " * 50, fields)
        yield partial(recording.record, prepared=prepared)
