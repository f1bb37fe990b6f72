"""Tasks for tests: everything has a sensible value unless the test says otherwise."""

from __future__ import annotations

from typing import Any

from agents_ledger import Ledger, Task, TaskCall, TaskMessage
from agents_ledger.ledger.tasks import Tasks


def tasks_of(ledger: Ledger) -> Tasks:
    """The tasks of a ledger."""
    return Tasks(ledger._core)


def a_task(task_id: str = "t1", **fields: Any) -> Task:
    """A task in progress."""
    said = {"system_prompt": "Be brief.", "created_at": 1000, "updated_at": 1000}
    return Task(**{"id": task_id, **said, **fields})


def says(message_id: str, role: Any, content: str, at: int, task_id: str = "t1") -> TaskMessage:
    """A message of a task."""
    return TaskMessage(message_id, task_id, role, content, at)


def calls(call_id: str = "c1", **fields: Any) -> TaskCall:
    """A call that waits to be made, announced by m2."""
    said = {
        "task_id": "t1",
        "ability_name": "mem:retrieve",
        "parameters": '{"key":"x"}',
        "status": "pending",
        "details": "{}",
        "created_at": 1500,
        "updated_at": 1500,
        "start_message_id": "m2",
    }
    return TaskCall(**{"id": call_id, **said, **fields})


def a_talk(ledger: Ledger) -> Tasks:
    """A task with a question m1 and an answer m2."""
    tasks = tasks_of(ledger)
    tasks.save(a_task(), says("m1", "user", "Hello", 1100), says("m2", "assistant", "Hi", 1200))
    return tasks


def shape(ledger: Ledger, target: str) -> list[tuple[str, list[str]]]:
    """Status and contents of every turn of a thread."""
    return [
        (turn.status, [str(message.content) for message in turn.messages])
        for turn in ledger.thread(target).turns
    ]
