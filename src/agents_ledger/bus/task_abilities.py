"""Abilities about tasks, their messages and calls. Names in JSON are those of the seed: taskId."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from agents_ledger.bus.ability import Ability
from agents_ledger.bus.inputs import COUNT_MAX, PAGE_MAX, Input, Time
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import LATEST_MS
from agents_ledger.model.tasks import (
    Task,
    TaskCall,
    TaskCallStatus,
    TaskMessage,
    TaskMessagePage,
    TaskPage,
    TaskRole,
)

ID_MAX = 200
SAVES_MAX = 10_000
Id = Annotated[str, Meta(min_length=1, max_length=ID_MAX)]


def _whole(description: str, most: int = COUNT_MAX) -> Meta:
    return Meta(ge=0, le=most, description=description)


class TaskEntity(Input, rename="camel"):
    """A unit of work."""

    id: Annotated[Id, Meta(description="Unique task identifier.")]
    system_prompt: str
    created_at: Time
    updated_at: Time
    parent_task_id: Annotated[Id | None, Meta(description="Of a subtask.")] = None
    completion_status: Annotated[
        Annotated[str, Meta(min_length=1, max_length=10_000)] | None,
        Meta(description="Left out while in progress; success, cancelled, failed: why, error."),
    ] = None


class MessageEntity(Input, rename="camel"):
    """What was said in a task."""

    id: Annotated[Id, Meta(description="Unique message identifier.")]
    task_id: Id
    role: TaskRole
    content: str
    timestamp: Annotated[int, _whole("Unix milliseconds; when it was complete.", LATEST_MS)]


class CallEntity(Input, rename="camel"):
    """An ability invoked for a task."""

    id: Annotated[Id, Meta(description="Unique call identifier.")]
    task_id: Id
    ability_name: Annotated[str, Meta(min_length=1, max_length=512)]
    parameters: Annotated[str, Meta(description="JSON-encoded parameters.")]
    status: TaskCallStatus
    details: Annotated[str, Meta(description="JSON-encoded details or result.")]
    created_at: Time
    updated_at: Time
    start_message_id: Annotated[Id, Meta(description="The message that announced it.")]
    end_message_id: Annotated[Id | None, Meta(description="The message that told its end.")] = None


class SaveTask(Input):
    """A task to save."""

    task: Annotated[TaskEntity, Meta(description="Task entity to save")]


class SaveMessage(Input):
    """A message to save."""

    message: Annotated[MessageEntity, Meta(description="Message entity to save")]


class SaveCall(Input):
    """A call to save."""

    call: Annotated[CallEntity, Meta(description="Call entity to save")]


class Save(Input):
    """One of a task, a message or a call."""

    task: TaskEntity | None = None
    message: MessageEntity | None = None
    call: CallEntity | None = None


class SaveAll(Input):
    """Tasks, messages and calls, in the order they are to be saved."""

    saves: Annotated[tuple[Save, ...], Meta(max_length=SAVES_MAX)]


class OfTask(Input, rename="camel"):
    """A task by its id."""

    task_id: Id


class TaskQuery(Input, rename="camel"):
    """Filters of tasks."""

    completion_status: Annotated[
        str | UnsetType, Meta(description="Filter by status, use 'null' for active tasks")
    ] = UNSET
    parent_task_id: Annotated[str | UnsetType, Meta(description="Filter by parent task")] = UNSET
    from_time: Annotated[int, _whole("Start timestamp (Unix ms)")] | UnsetType = UNSET
    to_time: Annotated[int, _whole("End timestamp (Unix ms)")] | UnsetType = UNSET
    limit: Annotated[int, _whole("Maximum results", PAGE_MAX)] = 100
    offset: Annotated[int, _whole("Pagination offset")] = 0


class CallQuery(Input, rename="camel"):
    """A task, and which of its calls."""

    task_id: Id
    status: TaskCallStatus | None = None


class MessageQuery(Input, rename="camel"):
    """A task, and which of its messages."""

    task_id: Id
    limit: Annotated[int, _whole("Maximum results; all, if left out.")] | UnsetType = UNSET
    offset: Annotated[int, _whole("Pagination offset")] = 0


class BeginMessage(Input, rename="camel"):
    """An assistant's message that will come in pieces."""

    task_id: Id
    message_id: Annotated[Id | None, Meta(description="The id it will have; made if left out.")] = (
        None
    )


class Piece(Input, rename="camel"):
    """The next piece of a message."""

    message_id: Id
    text: str


class OfMessage(Input, rename="camel"):
    """A message that streams in."""

    message_id: Id


class Saved(Struct):
    """It is stored."""

    success: bool


class SavedMessage(Struct, rename="camel"):
    """It is stored."""

    success: bool
    message_id: str


class OneTask(Struct):
    """A task, or null."""

    task: Annotated[Task | None, Meta(description="Task entity or null if not found")]


class Calls(Struct):
    """Calls."""

    calls: tuple[TaskCall, ...]


class Begun(Struct, rename="camel"):
    """The id of a message that streams in."""

    message_id: str


class OneMessage(Struct):
    """A message."""

    message: TaskMessage


class PartialText(Struct):
    """What has streamed in so far."""

    text: str


def _save_task(ledger: Ledger, asked: SaveTask) -> Saved:
    ledger.tasks.save(Task(**asdict(asked.task)))
    return Saved(True)


def _get_task(ledger: Ledger, asked: OfTask) -> OneTask:
    return OneTask(ledger.tasks.get(asked.task_id))


def _query_tasks(ledger: Ledger, asked: TaskQuery) -> TaskPage:
    given = {name: value for name, value in asdict(asked).items() if value is not UNSET}
    return ledger.tasks.query(**given)


def _save_call(ledger: Ledger, asked: SaveCall) -> Saved:
    ledger.tasks.save(TaskCall(**asdict(asked.call)))
    return Saved(True)


def _list_calls(ledger: Ledger, asked: CallQuery) -> Calls:
    return Calls(ledger.tasks.calls(asked.task_id, asked.status))


def _save_message(ledger: Ledger, asked: SaveMessage) -> SavedMessage:
    ledger.tasks.save(TaskMessage(**asdict(asked.message)))
    return SavedMessage(True, asked.message.id)


def _list_messages(ledger: Ledger, asked: MessageQuery) -> TaskMessagePage:
    limit = None if asked.limit is UNSET else asked.limit
    return ledger.tasks.messages(asked.task_id, limit=limit, offset=asked.offset)


def _save_all(ledger: Ledger, asked: SaveAll) -> Saved:
    with ledger.batch() as batch:
        for number, each in enumerate(asked.saves):
            given = [part for part in (each.task, each.message, each.call) if part is not None]
            if len(given) != 1:
                raise Refused(f"saves[{number}] has to be one of task, message or call")
            batch.save(_KINDS[type(given[0])](**asdict(given[0])))
    return Saved(True)


_KINDS: dict[type, Any] = {TaskEntity: Task, MessageEntity: TaskMessage, CallEntity: TaskCall}


def _begin(ledger: Ledger, asked: BeginMessage) -> Begun:
    return Begun(ledger.tasks.stream(asked.task_id, asked.message_id or "").id)


def _append(ledger: Ledger, asked: Piece) -> Saved:
    ledger.tasks.resume_stream(asked.message_id).write(asked.text)
    return Saved(True)


def _finish(ledger: Ledger, asked: OfMessage) -> OneMessage:
    return OneMessage(ledger.tasks.resume_stream(asked.message_id).finish())


def _partial(ledger: Ledger, asked: OfTask) -> PartialText:
    return PartialText(ledger.tasks.partial_text(asked.task_id))


ABILITIES = (
    Ability(
        id="ldg:task:save",
        description="Save or update a task entity.",
        input=SaveTask,
        output=Saved,
        function=_save_task,
        writes=True,
    ),
    Ability(
        id="ldg:task:get",
        description="Retrieve a task by ID.",
        input=OfTask,
        output=OneTask,
        function=_get_task,
    ),
    Ability(
        id="ldg:task:query",
        description="Query tasks with filters and pagination.",
        input=TaskQuery,
        output=TaskPage,
        function=_query_tasks,
    ),
    Ability(
        id="ldg:call:save",
        description="Save or update a call entity.",
        input=SaveCall,
        output=Saved,
        function=_save_call,
        writes=True,
    ),
    Ability(
        id="ldg:call:list",
        description="List all calls for a task.",
        input=CallQuery,
        output=Calls,
        function=_list_calls,
    ),
    Ability(
        id="ldg:msg:save",
        description="Save a message (immutable, insert-only).",
        input=SaveMessage,
        output=SavedMessage,
        function=_save_message,
        writes=True,
    ),
    Ability(
        id="ldg:msg:list",
        description="List all messages for a task, ordered by timestamp.",
        input=MessageQuery,
        output=TaskMessagePage,
        function=_list_messages,
    ),
    Ability(
        id="ldg:batch:save",
        description="Save tasks, messages and calls in one transaction.",
        input=SaveAll,
        output=Saved,
        function=_save_all,
        writes=True,
    ),
    Ability(
        id="ldg:msg:begin",
        description="Begin an assistant's message that comes in pieces.",
        input=BeginMessage,
        output=Begun,
        function=_begin,
        writes=True,
    ),
    Ability(
        id="ldg:msg:append",
        description="Add a piece to a message that streams in.",
        input=Piece,
        output=Saved,
        function=_append,
        writes=True,
    ),
    Ability(
        id="ldg:msg:finish",
        description="Save a message that streamed in; its timestamp is now.",
        input=OfMessage,
        output=OneMessage,
        function=_finish,
        writes=True,
    ),
    Ability(
        id="ldg:msg:partial",
        description="What streams into a task now, as far as it has come.",
        input=OfTask,
        output=PartialText,
        function=_partial,
    ),
)
