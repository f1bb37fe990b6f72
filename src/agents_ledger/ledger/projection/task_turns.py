"""How the messages and calls of a task form turns. Pure: records in, turns out.

Messages stand in the order of their time, then of their arrival. A user's message begins a turn,
unless nobody has answered yet: what system and users say before the first answer or call is one
query. Everything up to the next query belongs to the turn; the last assistant's message is its
response. A call stands behind the message that announced it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agents_ledger.ledger.turns.live import NO_RESPONSE, PARTIAL, WRITER_DIED
from agents_ledger.model.tasks import TaskCall, TaskRole
from agents_ledger.model.turns import CallStatus, Message, ToolCall, Turn, TurnStatus, to_json

VERSION = b"task/1\0"
NO_RESULT = "no result recorded"
STATUSES: dict[str, CallStatus] = {
    "pending": "pending",
    "in_progress": "running",
    "completed": "completed",
    "failed": "failed",
}


class Record(NamedTuple):
    """A message of a task, without its content."""

    position: int
    id: str
    role: TaskRole
    timestamp: int
    partial: int
    turn_id: str | None  # where it stands; None: nowhere yet


class CallLine(NamedTuple):
    """A call in outline."""

    id: str
    start_message_id: str
    updated_at: int
    revision: int
    derived_revision: int | None  # as its turn has it; None: not yet


class State(NamedTuple):
    """What of a task beside its messages and calls decides how its last turn stands."""

    task_id: str
    prompt_hash: str
    completion_status: str | None
    streaming: bool


class Contents(NamedTuple):
    """What was said, by message, and calls as they are now. What is left out is not written."""

    texts: Mapping[str, str]
    calls: Mapping[str, TaskCall]


class Group(NamedTuple):
    """The records of one turn, each with the calls it announced."""

    records: list[Record]
    calls: dict[str, list[CallLine]]
    is_last: bool

    @property
    def response(self) -> Record | None:
        """The last answer, if there is one."""
        answers = (r for r in reversed(self.records) if r.role == "assistant" and not r.partial)
        return next(answers, None)

    def steps(self) -> Iterator[Record | CallLine]:
        """Messages and calls in the order of the turn."""
        for record in self.records:
            yield record
            yield from self.calls.get(record.id, ())

    def lines(self) -> list[CallLine]:
        """Its calls."""
        return [line for lines in self.calls.values() for line in lines]


def row_id(message_id: str) -> str:
    """The id of a task's message among all messages."""
    return f"task:{message_id}"


def turn_id(task_id: str, first_message_id: str, again: int = 0) -> str:
    """The id of the turn that begins with a message; `again`: another, where that one is taken."""
    number = f"\0{again}" if again else ""
    key = f"{task_id}\0{first_message_id}{number}".encode("utf-8", "surrogatepass")
    return "T" + hashlib.blake2b(key, digest_size=12).hexdigest().upper()


def grouped(records: Sequence[Record], lines: Iterable[CallLine]) -> list[Group]:
    """The records of a task, turn by turn."""
    announced: dict[str, list[CallLine]] = {}
    for line in lines:
        announced.setdefault(line.start_message_id, []).append(line)
    groups: list[Group] = []
    answered = False
    for record in records:
        if not groups or (record.role == "user" and answered):
            groups.append(Group([], {}, is_last=False))
            answered = False
        groups[-1].records.append(record)
        if record.id in announced:
            groups[-1].calls[record.id] = announced[record.id]
        answered = answered or record.role == "assistant" or record.id in announced
    if groups:
        groups[-1] = groups[-1]._replace(is_last=True)
    return groups


def status_of(group: Group, state: State) -> tuple[TurnStatus, str | None]:
    """How a turn stands: answered, or failed and why, or still open."""
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


def fingerprint(group: Group, state: State) -> bytes:
    """Of all that a turn shows: its messages never change, its calls have revisions."""
    said = msgspec.msgpack.encode(
        [
            [(record.id, record.partial) for record in group.records],
            [(line.id, line.revision) for line in group.lines()],
            status_of(group, state),
        ]
    )
    return hashlib.blake2b(VERSION + said, digest_size=16).digest()


def build(
    own_id: str, group: Group, state: State, parent_id: str | None, contents: Contents
) -> Turn:
    """The turn of a group, with those of its messages and calls that `contents` has."""
    status, error = status_of(group, state)
    messages: list[Message] = []
    calls: list[ToolCall] = []
    announcing = group.records[0]
    for sequence, step in enumerate(group.steps()):
        if isinstance(step, Record):
            announcing = step
            if step.id in contents.texts:
                messages.append(_message(step, contents.texts[step.id], own_id, sequence))
        elif step.id in contents.calls:
            spoken = row_id(announcing.id) if announcing.role == "assistant" else None
            given_up = status == "completed"
            call = contents.calls[step.id]
            calls.append(_call(call, own_id, sequence, spoken, given_up=given_up))
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


def _query(group: Group) -> list[str]:
    """The ids of what was said before the first answer or call."""
    asked: list[str] = []
    for step in group.steps():
        if isinstance(step, CallLine) or step.role == "assistant":
            break
        asked.append(row_id(step.id))
    return asked


def _message(record: Record, text: str, own_id: str, sequence: int) -> Message:
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
    call: TaskCall, own_id: str, sequence: int, spoken: str | None, *, given_up: bool
) -> ToolCall:
    """A call as a tool call. A turn that was answered has no open calls: one that still runs is
    given up there until its outcome is saved."""
    status = STATUSES[call.status]
    error = _reason(call.details) if status == "failed" else None
    is_open = status in ("pending", "running")
    if is_open and given_up:
        status, error = "cancelled", NO_RESULT
    return ToolCall(
        call.ability_name,
        _json(call.parameters),
        _json(call.details) if call.status == "completed" else None,
        error,
        status,
        call.id,
        own_id,
        spoken,
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
    """Why a call failed: its details' error, else all of them."""
    try:
        said = msgspec.json.decode(details)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return details
    if isinstance(said, dict) and isinstance(said.get("error"), str):
        return str(said["error"])
    return details
