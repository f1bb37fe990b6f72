"""Tasks of the Agent Bus: the saved entities are the record, and turns are derived with every save.

A task's conversation is the session `task:<id>`. Only the completion status and update time of a
task can change, and the status, details, end and update time of a call; messages never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from types import TracebackType

from msgspec import structs

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection.tasks import (
    TaskPosition,
    claim,
    derive,
    derive_last,
    label_of,
    start_before,
    start_of,
)
from agents_ledger.ledger.projection.turns import stored_turns
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.model.agents.tasks import (
    Task,
    TaskCall,
    TaskCallStatus,
    TaskMessage,
    TaskMessagePage,
    TaskPage,
)
from agents_ledger.model.errors import Conflict, NameTaken, NotFound, Refused
from agents_ledger.model.ids import LATEST_MS, new_id, now_ms
from agents_ledger.model.sessions import Session, TaskStatus
from agents_ledger.store.database import Transaction, Work

Entity = Task | TaskMessage | TaskCall
ACTIVE = "null"  # the filter for tasks in progress
CRASHED = "Process crashed during execution"
EVER = (0, 1 << 62)
ALL = 1 << 62
_STAGES: tuple[TaskCallStatus, ...] = ("pending", "in_progress", "completed", "failed")
_LAST_STAGE = _STAGES.index("completed")


class Tasks:
    """The tasks of one ledger."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def save(self, *entities: Entity) -> None:
        """Save tasks, messages and calls: all of them, or none."""
        self._core.recover_if_due()
        self._core.db.write(saving(self._core, entities))

    def get(self, task_id: str) -> Task | None:
        rows = self._core.read(lambda tx: tx.run("task", id=task_id))
        return Task(*rows[0]) if rows else None

    def query(
        self,
        *,
        completion_status: str | None = None,
        parent_task_id: str | None = None,
        from_time: int | None = None,
        to_time: int | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> TaskPage:
        """Tasks, newest first. The completion status "null" selects those in progress."""
        page, count = _statements(completion_status, parent_task_id)
        values = {
            "status": completion_status,
            "parent": parent_task_id,
            "from_time": EVER[0] if from_time is None else from_time,
            "to_time": EVER[1] if to_time is None else to_time,
        }

        def work(tx: Transaction) -> TaskPage:
            rows = tx.run(page, **values, limit=limit, offset=offset)
            total = tx.run(count, **values)[0][0]
            return TaskPage(tuple(Task(*row) for row in rows), total)

        return self._core.read(work)

    def messages(
        self, task_id: str, *, limit: int | None = None, offset: int = 0
    ) -> TaskMessagePage:
        """A task's messages, by time and then by arrival."""

        def work(tx: Transaction) -> TaskMessagePage:
            values = {"limit": ALL if limit is None else limit, "offset": offset}
            rows = tx.run("task_messages", task_id=task_id, **values)
            total = tx.run("count_task_messages", task_id=task_id)[0][0]
            return TaskMessagePage(tuple(TaskMessage(*row) for row in rows), total)

        return self._core.read(work)

    def calls(self, task_id: str, status: TaskCallStatus | None = None) -> tuple[TaskCall, ...]:
        """A task's calls in their order, all or those of one status."""
        under_way = status == "in_progress"
        statement = "task_calls_in_progress" if under_way else "task_calls"
        rows = self._core.read(lambda tx: tx.run(statement, task_id=task_id))
        calls = (TaskCall(*row) for row in rows)
        return tuple(call for call in calls if status in (None, call.status))

    # -- messages that stream in --------------------------------------------------------------

    def stream(self, task_id: str, message_id: str = "") -> TaskStream:
        """Begin an assistant message that is written in pieces."""
        self._core.recover_if_due()
        stream_id = message_id or new_id()
        recording.check_id(stream_id)
        writer_id = self._core.db.writer().id
        self._core.db.write(
            partial(begin_stream, stream_id=stream_id, task_id=task_id, writer_id=writer_id)
        )
        return TaskStream(self._core, stream_id, writer_id)

    def resume_stream(self, message_id: str) -> TaskStream:
        """A stream that this process began before."""
        return TaskStream(self._core, message_id, self._core.db.writer().id)

    def partial_text(self, task_id: str) -> str:
        """The text streamed into a task so far."""

        def work(tx: Transaction) -> str:
            streams = [row[0] for row in tx.run("streams_of_task", task_id=task_id)]
            return "".join(_streamed(tx, stream_id) for stream_id in streams)

        return self._core.read(work)


def _statements(completion_status: str | None, parent_task_id: str | None) -> tuple[str, str]:
    """The statements that select a page of tasks and count them; each filter has its index."""
    if parent_task_id is not None:
        return "tasks_of_parent", "count_tasks_of_parent"
    if completion_status is None:
        return "tasks_by_time", "count_tasks_by_time"
    if completion_status == ACTIVE:
        return "tasks_active", "count_tasks_active"
    return "tasks_by_status", "count_tasks_by_status"


class TaskStream:
    """An assistant message being written. Readers see its text at once; it becomes a message when
    it is finished. Leaving the block by an error saves the text as a partial message."""

    def __init__(self, core: Core, message_id: str, writer_id: str) -> None:
        self._core = core
        self.id = message_id
        self._writer_id = writer_id
        self._ended = False

    def write(self, text: str) -> None:
        """Commit the next piece."""
        self._core.db.write(
            partial(add_text, stream_id=self.id, writer_id=self._writer_id, text=text)
        )

    def finish(self) -> TaskMessage:
        """Save the message with the current time."""
        return self._end(cut=False)

    def _end(self, *, cut: bool) -> TaskMessage:
        ended = self._core.db.write(
            partial(end_stream, stream_id=self.id, writer_id=self._writer_id, cut=cut)
        )
        self._ended = True
        return ended

    def __enter__(self) -> TaskStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended:
            self._end(cut=error is not None)


# -- saving -----------------------------------------------------------------------------------


def saving(core: Core, entities: Sequence[Entity]) -> Work[None]:
    """The work that saves entities."""
    runs = any(isinstance(e, TaskCall) and e.status == "in_progress" for e in entities)
    writer_id = core.db.writer().id if runs else None
    return partial(save, entities=entities, writer_id=writer_id)


def save(tx: Transaction, entities: Sequence[Entity], writer_id: str | None) -> None:
    """Save entities in their order, then derive the turns of every task they touch."""
    touched: dict[str, TaskPosition | None] = {}
    for entity in entities:
        _check_times(entity)
        if isinstance(entity, Task):
            _touch(touched, entity.id, save_task(tx, entity))
        elif isinstance(entity, TaskMessage):
            _touch(touched, entity.task_id, save_message(tx, entity))
        elif isinstance(entity, TaskCall):
            _touch(touched, entity.task_id, save_call(tx, entity, writer_id))
        else:
            raise Refused(f"a task has messages and calls, not a {type(entity).__name__}")
    for task_id, since in sorted(touched.items()):
        if since is not None:
            derive(tx, task_id, since)


def _check_times(entity: Entity) -> None:
    for name in ("created_at", "updated_at", "timestamp"):
        if not 0 <= getattr(entity, name, 0) < LATEST_MS:
            raise Refused(
                f"{name} of {entity.id!r} is {getattr(entity, name)}",
                "Times are Unix milliseconds, from 1970 to 9998.",
            )


def _touch(
    touched: dict[str, TaskPosition | None], task_id: str, since: TaskPosition | None
) -> None:
    """Note the position from which a task's turns must be derived; None: not at all."""
    before = touched.get(task_id)
    touched[task_id] = min(before, since) if before and since else before or since


def save_task(tx: Transaction, task: Task) -> TaskPosition | None:
    """Create a task with its session, or update it."""
    recording.check_id(task.id)
    if task.completion_status == ACTIVE:
        raise Refused(
            "'null' is no completion status: it asks for tasks in progress",
            "Leave it out while the task is in progress.",
        )
    if not tx.run("task_state", id=task.id):
        try:
            _create(tx, task)
        except NameTaken:
            if not tx.run("task_state", id=task.id):
                raise
        else:
            return None
    # The task exists, or another writer on a server has just created it.
    claim(tx, task.id)
    stored = Task(*tx.run("task", id=task.id)[0])
    _unchanged("task", stored, task, ("system_prompt", "created_at", "parent_task_id"))
    if stored == task:
        return None
    tx.run(
        "update_task",
        id=task.id,
        completion_status=task.completion_status,
        updated_at=task.updated_at,
    )
    if stored.completion_status == task.completion_status:
        return None
    status = task_status(task.completion_status)
    heads.update(tx, label_of(task.id), {"task_status": status})
    last = tx.run("last_turn_of_task", task_id=task.id)
    return start_of(tx, last[0][0] if last else None)


def task_status(completion_status: str | None) -> TaskStatus:
    """The task status of a session for a completion status."""
    if completion_status is None:
        return "running"
    word = completion_status.partition(":")[0].strip().lower()
    if word in ("failed", "error"):
        return "failed"
    return "cancelled" if word == "cancelled" else "completed"


def _create(tx: Transaction, task: Task) -> None:
    parent = None
    if task.parent_task_id is not None:
        if not tx.run("task_state", id=task.parent_task_id):
            raise NotFound(
                f"there is no task {task.parent_task_id!r} to be the parent of {task.id!r}",
                "Save the parent first.",
            )
        parent = label_of(task.parent_task_id)
    session = Session(
        label_of(task.id),
        created_as="system" if parent is None else "subagent",
        is_subagent=parent is not None,
        parent_session_label=parent,
        task_status=task_status(task.completion_status),
        origin="bus",
        origin_session_id=task.id,
        created_at=task.created_at,
    )
    heads.create(tx, session)
    prompt_hash = recording.hash_prompt(task.system_prompt)
    tx.run("insert_system_prompt", hash=prompt_hash, content=task.system_prompt)
    tx.run(
        "insert_task",
        id=task.id,
        parent_task_id=task.parent_task_id,
        completion_status=task.completion_status,
        system_prompt_hash=prompt_hash,
        created_at=task.created_at,
        updated_at=task.updated_at,
        session_label=session.label,
    )


def _unchanged(kind: str, stored: object, new: object, fields: Iterable[str]) -> None:
    for name in fields:
        if getattr(stored, name) != getattr(new, name):
            raise Conflict(
                f"{kind} {getattr(new, 'id', '')} is saved already with another {name}",
                f"{name} does not change; use a new id for another {kind}.",
            )


def save_message(tx: Transaction, message: TaskMessage) -> TaskPosition | None:
    """Add a message to a task. Repeating it changes nothing."""
    recording.check_id(message.id)
    claim(tx, message.task_id)
    if tx.run("stream", id=message.id):
        raise Conflict(f"message {message.id} is still streaming", "Finish its stream instead.")
    written = tx.run("insert_task_message", **structs.asdict(message), partial=0)
    if not written:
        stored = tx.run("task_message", id=message.id)[0]
        if stored[:5] != structs.astuple(message) or stored[5]:
            raise Conflict(
                f"message {message.id} is saved already, with other content",
                "Messages never change; use a new id for another message.",
            )
        return None
    return start_before(tx, message.task_id, TaskPosition(message.timestamp, written[0][0]))


def save_call(tx: Transaction, call: TaskCall, writer_id: str | None) -> TaskPosition | None:
    """Create a call, or advance it from pending to in progress to its end."""
    recording.check_id(call.id)
    if not call.ability_name:
        raise Refused(f"call {call.id} needs the name of its ability")
    claim(tx, call.task_id)
    for name in ("start_message_id", "end_message_id"):
        _check_message(tx, call, name)
    if not _write_call(tx, call, writer_id if call.status == "in_progress" else None):
        return None
    turn_id = tx.run("task_message", id=call.start_message_id)[0][6]
    # Its message is in the same batch, and derives the turn with this call in it.
    if turn_id is None:
        return None
    if stored_turns(tx, [turn_id])[turn_id].frozen:
        tx.run("mark_source_has_more", label=label_of(call.task_id))
        return None
    return start_of(tx, turn_id)


def _write_call(tx: Transaction, call: TaskCall, writer_id: str | None) -> bool:
    """Write a call's row. False if nothing changed."""
    rows = tx.run("task_call", id=call.id)
    if writer_id is not None:
        tx.run("insert_writer", id=writer_id)
    if not rows:
        tx.run("insert_task_call", **structs.asdict(call), writer_id=writer_id)
        return True
    stored = TaskCall(*rows[0])
    fixed = ("task_id", "ability_name", "parameters", "created_at", "start_message_id")
    _unchanged("call", stored, call, fixed)
    if stored == call and writer_id is None:
        return False
    _check_stage(stored, call)
    tx.run(
        "update_task_call",
        id=call.id,
        status=call.status,
        details=call.details,
        updated_at=call.updated_at,
        end_message_id=call.end_message_id,
        writer_id=writer_id,
    )
    return True


def _check_message(tx: Transaction, call: TaskCall, name: str) -> None:
    message_id = getattr(call, name)
    if message_id is None:
        return
    rows = tx.run("task_message", id=message_id)
    if not rows or rows[0][1] != call.task_id or rows[0][5]:
        raise NotFound(
            f"task {call.task_id!r} has no message {message_id!r}, which call {call.id!r} names as"
            f" its {name}",
            "Save the message first.",
        )


def _check_stage(stored: TaskCall, call: TaskCall) -> None:
    before, after = _STAGES.index(stored.status), _STAGES.index(call.status)
    if after < before or (before >= _LAST_STAGE and after != before):
        raise Conflict(
            f"call {call.id} is {stored.status}, and does not become {call.status}",
            "A call goes from pending to in_progress to completed or failed. Make a new call.",
        )


# -- messages that stream in ------------------------------------------------------------------


def begin_stream(tx: Transaction, stream_id: str, task_id: str, writer_id: str) -> None:
    claim(tx, task_id)
    if tx.run("task_message", id=stream_id):
        raise Conflict(f"message {stream_id} is saved already", "Use a new id.")
    tx.run("insert_writer", id=writer_id)
    if not tx.run("insert_stream", id=stream_id, task_id=task_id, writer_id=writer_id):
        raise Conflict(f"message {stream_id} is streaming already", "Use a new id.")
    derive_last(tx, task_id)


def _mine(tx: Transaction, stream_id: str, writer_id: str) -> str:
    rows = tx.run("stream", id=stream_id)
    if not rows or rows[0][1] != writer_id:
        raise Conflict(
            f"message {stream_id} does not stream from here",
            "Begin a stream, and write to it from the process that began it.",
        )
    return str(rows[0][0])


def add_text(tx: Transaction, stream_id: str, writer_id: str, text: str) -> None:
    _mine(tx, stream_id, writer_id)
    tx.run("insert_stream_text", stream_id=stream_id, content=text)


def _streamed(tx: Transaction, stream_id: str) -> str:
    return "".join(row[0] for row in tx.run("stream_texts", stream_id=stream_id))


def end_stream(tx: Transaction, stream_id: str, writer_id: str, *, cut: bool) -> TaskMessage:
    """Save the streamed text as a message, or as a partial one if it was `cut`."""
    task_id = _mine(tx, stream_id, writer_id)
    message = TaskMessage(stream_id, task_id, "assistant", _streamed(tx, stream_id), now_ms())
    tx.run("delete_stream_texts", stream_id=stream_id)
    tx.run("delete_stream", id=stream_id)
    claim(tx, task_id)
    if message.content or not cut:
        rows = tx.run("insert_task_message", **structs.asdict(message), partial=int(cut))
        derive(tx, task_id, start_before(tx, task_id, TaskPosition(message.timestamp, rows[0][0])))
    else:
        derive_last(tx, task_id)
    return message


# -- after a crash ----------------------------------------------------------------------------


def fail_all(tx: Transaction, writer_id: str) -> None:
    """Fail the running calls of a process that died, and save the text it was streaming. Nothing is
    run again: whoever resumes the task reads what happened."""
    for stream_id, _ in tx.run("writer_streams", writer_id=writer_id):
        end_stream(tx, stream_id, writer_id, cut=True)
    for row in tx.run("writer_calls", writer_id=writer_id):
        call = TaskCall(*row)
        now = now_ms()
        notice = TaskMessage(
            new_id(),
            call.task_id,
            "assistant",
            f"✗ {call.ability_name} failed due to process crash",
            now,
        )
        failed = structs.replace(
            call,
            status="failed",
            details=f'{{"error":"{CRASHED}"}}',
            updated_at=now,
            end_message_id=notice.id,
        )
        save(tx, (notice, failed), None)
