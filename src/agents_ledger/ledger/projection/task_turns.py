"""How the messages and calls of a task form turns. Pure: records in, turns out.

Messages are ordered by time, then by arrival. A user message begins a turn once something has been
answered: the system and user messages before the first answer or call are one query. Everything up
to the next query belongs to the turn, and its last assistant message is the response. A call comes
after the message that announced it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agents_ledger.ledger.turns.live import NO_RESPONSE, PARTIAL, WRITER_DIED
from agents_ledger.model.agents.tasks import TaskCall, TaskRole
from agents_ledger.model.turns import CallStatus, Message, ToolCall, Turn, TurnStatus, to_json

VERSION = b"task/1\0"
NO_RESULT = "no result recorded"
STATUSES: dict[str, CallStatus] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


class TaskRecord(NamedTuple):
    """A message of a task, without its content."""

    position: int
    id: str
    role: TaskRole
    timestamp: int
    partial: int
    turn_id: str | None  # None: not derived yet


class TaskCallLine(NamedTuple):
    """A call without its parameters and result."""

    id: str
    start_message_id: str
    updated_at: int
    revision: int
    derived_revision: int | None  # the one in its turn; None: not derived yet


class TaskState(NamedTuple):
    """What determines the status of a task's last turn, apart from its messages and calls."""

    task_id: str
    prompt_hash: str
    completion_status: str | None
    streaming: bool


class TaskContents(NamedTuple):
    """Texts by message id and calls by id; what is missing here is not written."""

    texts: Mapping[str, str]
    calls: Mapping[str, TaskCall]


class TaskTurnGroup(NamedTuple):
    """The records of one turn, each with the calls it announced."""

    records: list[TaskRecord]
    calls: dict[str, list[TaskCallLine]]
    is_last: bool

    @property
    def response(self) -> TaskRecord | None:
        """The last complete answer."""
        answers = (r for r in reversed(self.records) if r.role == "assistant" and not r.partial)
        return next(answers, None)

    def steps(self) -> Iterator[TaskRecord | TaskCallLine]:
        """Messages and calls in the order of the turn."""
        for record in self.records:
            yield record
            yield from self.calls.get(record.id, ())

    def lines(self) -> list[TaskCallLine]:
        return [line for lines in self.calls.values() for line in lines]


def row_id(message_id: str) -> str:
    """The id of a task's message among all messages."""
    return f"task:{message_id}"


def turn_id(task_id: str, first_message_id: str, attempt: int = 0) -> str:
    """The id of the turn that begins with a message; each `attempt` gives another."""
    number = f"\0{attempt}" if attempt else ""
    key = f"{task_id}\0{first_message_id}{number}".encode("utf-8", "surrogatepass")
    return "T" + hashlib.blake2b(key, digest_size=12).hexdigest().upper()


def grouped(records: Sequence[TaskRecord], lines: Iterable[TaskCallLine]) -> list[TaskTurnGroup]:
    announced: dict[str, list[TaskCallLine]] = {}
    for line in lines:
        announced.setdefault(line.start_message_id, []).append(line)
    groups: list[TaskTurnGroup] = []
    answered = False
    for record in records:
        if not groups or (record.role == "user" and answered):
            groups.append(TaskTurnGroup([], {}, is_last=False))
            answered = False
        groups[-1].records.append(record)
        if record.id in announced:
            groups[-1].calls[record.id] = announced[record.id]
        answered = answered or record.role == "assistant" or record.id in announced
    if groups:
        groups[-1] = groups[-1]._replace(is_last=True)
    return groups


def status_of(group: TaskTurnGroup, state: TaskState) -> tuple[TurnStatus, str | None]:
    """The status of a turn, and the error if it failed."""
    if group.response is not None:
        return "completed", None
    if state.streaming and group.is_last:
        return "streaming", None
    if any(record.partial for record in group.records):
        return "failed", WRITER_DIED
    if group.is_last and state.completion_status is not None:
        ended = state.completion_status
        return "failed", NO_RESPONSE if ended == "success" else ended
    return ("streaming" if group.calls else "pending"), None


def fingerprint(group: TaskTurnGroup, state: TaskState) -> bytes:
    """Messages never change and calls have revisions, so that ids and revisions suffice."""
    encoded = msgspec.msgpack.encode(
        [
            [(record.id, record.partial) for record in group.records],
            [(line.id, line.revision) for line in group.lines()],
            status_of(group, state),
        ]
    )
    return hashlib.blake2b(VERSION + encoded, digest_size=16).digest()


def build(
    own_id: str,
    group: TaskTurnGroup,
    state: TaskState,
    parent_id: str | None,
    contents: TaskContents,
) -> Turn:
    """The turn of a group, with the messages and calls that are in `contents`."""
    status, error = status_of(group, state)
    messages: list[Message] = []
    calls: list[ToolCall] = []
    announcing = group.records[0]
    for sequence, step in enumerate(group.steps()):
        if isinstance(step, TaskRecord):
            announcing = step
            if step.id in contents.texts:
                messages.append(_message(step, contents.texts[step.id], own_id, sequence))
        elif step.id in contents.calls:
            message_id = row_id(announcing.id) if announcing.role == "assistant" else None
            call = contents.calls[step.id]
            calls.append(
                _call(call, own_id, sequence, message_id, turn_answered=status == "completed")
            )
    response = group.response
    times = [r.timestamp for r in group.records] + [line.updated_at for line in group.lines()]
    return Turn(
        id=own_id,
        parent_turn_id=parent_id,
        status=status,
        started_at=group.records[0].timestamp,
        completed_at=max(times) if status in ("completed", "failed") else None,
        query_message_ids=msgspec.json.encode(_query(group)).decode(),
        response_message_id=row_id(response.id) if response else None,
        tool_call_count=len(group.lines()),
        error=error,
        projected=True,
        messages=tuple(messages),
        tool_calls=tuple(calls),
    )


def _query(group: TaskTurnGroup) -> list[str]:
    """The ids of the messages before the first answer or call."""
    ids: list[str] = []
    for step in group.steps():
        if isinstance(step, TaskCallLine) or step.role == "assistant":
            break
        ids.append(row_id(step.id))
    return ids


def _message(record: TaskRecord, text: str, own_id: str, sequence: int) -> Message:
    return Message(
        record.role,
        text,
        metadata_json=PARTIAL if record.partial else None,
        id=row_id(record.id),
        turn_id=own_id,
        sequence=sequence,
        created_at=record.timestamp,
    )


def _call(
    call: TaskCall, own_id: str, sequence: int, message_id: str | None, *, turn_answered: bool
) -> ToolCall:
    """A call as a tool call. An answered turn has no open calls: one that still runs counts as
    cancelled until its outcome is saved."""
    status = STATUSES[call.status]
    error = _reason(call.details) if status == "failed" else None
    is_open = status in ("pending", "running")
    if is_open and turn_answered:
        status, error = "cancelled", NO_RESULT
    return ToolCall(
        call.ability_name,
        _json(call.parameters),
        _json(call.details) if call.status == "completed" else None,
        error,
        status,
        call.id,
        own_id,
        message_id,
        source_status=call.status if is_open else None,
        started_at=call.created_at,
        completed_at=None if status in ("pending", "running") else call.updated_at,
        sequence=sequence,
    )


def _json(text: str) -> str:
    """The text if it is JSON, else the JSON of the text."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return to_json([text])[1:-1]
    return text


def _reason(details: str) -> str:
    """The error of a failed call: the field `error` of its details, or all of them."""
    try:
        decoded = msgspec.json.decode(details)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return details
    if isinstance(decoded, dict) and isinstance(decoded.get("error"), str):
        return str(decoded["error"])
    return details
