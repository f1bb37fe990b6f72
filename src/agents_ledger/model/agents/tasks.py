"""Tasks of the Agent Bus as values. JSON uses the names of the specification: parentTaskId."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

TaskRole = Literal["system", "user", "assistant"]
TaskCallStatus = Literal["pending", "in_progress", "completed", "failed"]


class Task(Struct, frozen=True, rename="camel"):
    """A unit of delegated work. Its conversation is the session `task:<id>`."""

    id: str
    system_prompt: str
    created_at: int
    updated_at: int
    parent_task_id: str | None = None
    completion_status: str | None = None  # None: in progress


class TaskMessage(Struct, frozen=True, rename="camel"):
    """What was said in a task. It never changes."""

    id: str
    task_id: str
    role: TaskRole
    content: str
    timestamp: int  # when it was complete


class TaskCall(Struct, frozen=True, rename="camel"):
    """An ability invoked for a task, from its announcement to its end."""

    id: str
    task_id: str
    ability_name: str
    parameters: str  # JSON
    status: TaskCallStatus
    details: str  # JSON: how far it got, or what came of it
    created_at: int
    updated_at: int
    start_message_id: str
    end_message_id: str | None = None


class TaskPage(Struct, frozen=True):
    """Some of the tasks asked for, newest first, and how many there are in all."""

    tasks: tuple[Task, ...]
    total: int


class TaskMessagePage(Struct, frozen=True):
    """Some of a task's messages, in their order, and how many there are in all."""

    messages: tuple[TaskMessage, ...]
    total: int
