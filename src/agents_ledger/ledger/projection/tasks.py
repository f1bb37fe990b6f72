"""The turns of tasks, derived from their records and updated in place.

Each save derives the turn it touches again, in the same transaction. A turn that only grew gets the
new rows; any other is rewritten, as an imported one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from agents_ledger.ledger.projection import task_turns
from agents_ledger.ledger.projection.sessions import follow
from agents_ledger.ledger.projection.task_turns import (
    TaskCallLine,
    TaskContents,
    TaskRecord,
    TaskState,
    TaskTurnGroup,
)
from agents_ledger.ledger.projection.turns import (
    Change,
    StoredTurn,
    is_due,
    retire,
    stored_turns,
    write_batch,
    write_row,
)
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.model.agents.tasks import TaskCall
from agents_ledger.model.errors import NotFound
from agents_ledger.model.imports.sources import DerivedSession, DerivedTurn
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches


class TaskPosition(NamedTuple):
    """The order of a task's messages: by time, then by arrival."""

    timestamp: int
    position: int


START = TaskPosition(-1, -1)


def label_of(task_id: str) -> str:
    return f"task:{task_id}"


def claim(tx: Transaction, task_id: str) -> TaskState:
    """The state of a task; its session is locked until the transaction ends."""
    heads.find(tx, label_of(task_id), exact=True)
    rows = tx.run("task_state", id=task_id)
    if not rows:
        raise NotFound(f"there is no task {task_id!r}", "Save the task first.")
    _, _, prompt_hash, completion_status = rows[0]
    streaming = bool(tx.run("streams_of_task", task_id=task_id))
    return TaskState(task_id, prompt_hash, completion_status, streaming)


def start_before(tx: Transaction, task_id: str, place: TaskPosition) -> TaskPosition:
    """The start of the turn that a message at `place` may belong to."""
    before = tx.run("turn_of_record_before", task_id=task_id, **place._asdict())
    start = start_of(tx, before[0][0] if before else None)
    return min(start, place) if before else START


def start_of(tx: Transaction, turn_id: str | None) -> TaskPosition:
    rows = tx.run("first_record_of_turn", turn_id=turn_id) if turn_id else []
    return TaskPosition(*rows[0]) if rows else START


def derive_last(tx: Transaction, task_id: str) -> None:
    last = tx.run("last_turn_of_task", task_id=task_id)
    if last:
        derive(tx, task_id, start_of(tx, last[0][0]))


class TaskTurnChange(NamedTuple):
    """A turn whose rows differ from what its records say."""

    group: TaskTurnGroup
    derived: DerivedTurn
    stored: StoredTurn | None


def derive(tx: Transaction, task_id: str, since: TaskPosition) -> None:
    """Derive the turns of a task again from the record at `since` on, which begins one.

    Turns that one of ours continues are frozen: later records begin another turn below them.
    """
    state = claim(tx, task_id)
    # Otherwise a turn could be frozen by a writer on a server while it is derived again.
    tx.run("lock_projection")
    records, stored = _records_since(tx, task_id, since)
    if any(turn.frozen for turn in stored.values()) and since != START:
        # Below frozen turns, late records with an earlier time may follow: read all of them.
        since = START
        records, stored = _records_since(tx, task_id, since)
    frozen = [turn_id for turn_id, turn in stored.items() if turn.frozen]
    parent_id = _parent_of_first(tx, stored, frozen, since)
    head = _nearest_answered(tx, parent_id)
    changes: list[TaskTurnChange] = []
    derived: set[str] = set()
    lines = [
        TaskCallLine(*row) for row in tx.run("calls_since", task_id=task_id, **since._asdict())
    ]
    for group in task_turns.grouped([r for r in records if r.turn_id not in frozen], lines):
        own_id, before = _turn_for(tx, task_id, group, stored)
        turn = _derived(tx, own_id, group, state, parent_id)
        parent_id = turn.id
        head = turn.id if group.response else head
        derived.add(turn.id)
        if is_due(turn, before):
            changes.append(TaskTurnChange(group, turn, before))
    _write(tx, state, changes)
    if state.streaming:
        tx.run("set_stream_turn", task_id=task_id, turn_id=parent_id)
    _follow(tx, task_id, head)
    gone = {*stored} - {*frozen} - derived
    if gone:
        retire(tx, gone)


def _records_since(
    tx: Transaction, task_id: str, since: TaskPosition
) -> tuple[list[TaskRecord], dict[str, StoredTurn]]:
    """The records from a position on and, in their order, the stored turns they are in."""
    rows = tx.run("records_since", task_id=task_id, **since._asdict())
    records = [TaskRecord(*row) for row in rows]
    turn_ids = list(dict.fromkeys(record.turn_id for record in records if record.turn_id))
    stored = stored_turns(tx, turn_ids)
    return records, {turn_id: stored[turn_id] for turn_id in turn_ids}


def _parent_of_first(
    tx: Transaction, stored: Mapping[str, StoredTurn], frozen: Sequence[str], since: TaskPosition
) -> str | None:
    """The parent of the first turn that is derived: the last frozen turn, if there are any."""
    if frozen:
        inner = {stored[turn_id].parent_id for turn_id in frozen}
        return next(turn_id for turn_id in reversed(frozen) if turn_id not in inner)
    if not stored or since == START:
        return None
    parent_id: str | None = tx.run("turn_parent", id=next(iter(stored)))[0][0]
    return parent_id


def _turn_for(
    tx: Transaction, task_id: str, group: TaskTurnGroup, stored: Mapping[str, StoredTurn]
) -> tuple[str, StoredTurn | None]:
    """The id of a group's turn, and what is stored of it. If that turn was frozen while it held
    other records, the group's turn gets another id."""
    for attempt in count():
        own_id = task_turns.turn_id(task_id, group.records[0].id, attempt)
        before = stored.get(own_id) or stored_turns(tx, [own_id]).get(own_id)
        if before is None or not before.frozen:
            break
    return own_id, before


def _derived(
    tx: Transaction, own_id: str, group: TaskTurnGroup, state: TaskState, parent_id: str | None
) -> DerivedTurn:
    """A group's turn; its content is read when it is built."""
    return DerivedTurn(
        own_id,
        parent_id,
        task_turns.fingerprint(group, state),
        frozenset(),
        tuple(task_turns.row_id(record.id) for record in group.records),
        lambda: task_turns.build(
            own_id, group, state, parent_id, _contents(tx, group.records, group.lines())
        ),
        state.prompt_hash,
    )


def _contents(
    tx: Transaction, records: Iterable[TaskRecord], lines: Iterable[TaskCallLine]
) -> TaskContents:
    texts: dict[str, str] = {}
    for ids in in_batches([record.id for record in records]):
        texts |= dict(tx.run("record_contents", ids=ids))
    calls: dict[str, TaskCall] = {}
    for ids in in_batches([line.id for line in lines]):
        calls |= {row[0]: TaskCall(*row) for row in tx.run("task_calls_of", ids=ids)}
    return TaskContents(texts, calls)


def _write(tx: Transaction, state: TaskState, changes: Sequence[TaskTurnChange]) -> None:
    """Write the turns that changed: one that only grew gets what is new, others are rewritten."""
    if not changes:
        return
    left = {r.turn_id for group, turn, _ in changes for r in group.records if r.turn_id != turn.id}
    rewritten = [
        Change(change.derived, change.derived.build(), change.stored)
        for change in changes
        if change.derived.id in left or not _grow(tx, state, change)
    ]
    if rewritten:
        write_batch(tx, rewritten)
    for group, turn, _ in changes:
        tx.run("insert_bus_turn", turn_id=turn.id, task_id=state.task_id)
        for record in group.records:
            if record.turn_id != turn.id:
                tx.run("set_record_turn", turn_id=turn.id, position=record.position)
        for ids in in_batches([line.id for line in group.lines() if _is_behind(line)]):
            tx.run("mark_calls_derived", ids=ids)
    index_queue.grown(tx, [turn.id for _, turn, _ in changes])


def _is_behind(line: TaskCallLine) -> bool:
    return line.derived_revision != line.revision


def _grow(tx: Transaction, state: TaskState, change: TaskTurnChange) -> bool:
    """Add new messages to the end of a turn, and update its calls. False if the turn has to be
    rewritten: it is new, something came in between, or its parent or status changed."""
    group, turn, stored = change
    if stored is None or stored.parent_id != turn.parent_id:
        return False
    is_new = [
        step.turn_id != turn.id if isinstance(step, TaskRecord) else step.derived_revision is None
        for step in group.steps()
    ]
    status, _ = task_turns.status_of(group, state)
    # New steps must come after all others: one in between would change the sequence of those after
    # it.
    if is_new != sorted(is_new) or tx.run("turn_status", id=turn.id)[0][0] != status:
        return False
    records = [record for record in group.records if record.turn_id != turn.id]
    lines = [line for line in group.lines() if _is_behind(line)]
    contents = _contents(tx, records, lines)
    built = task_turns.build(turn.id, group, state, turn.parent_id, contents)
    for line in lines:
        tx.run("delete_turn_call", turn_id=turn.id, id=line.id)
    recording.write_messages(tx, built.messages, statement="project_message")
    if built.tool_calls:
        tx.run_many("insert_tool_call", built.tool_calls)
    write_row(tx, Change(turn, built, stored))
    return True


def _nearest_answered(tx: Transaction, turn_id: str | None) -> str | None:
    """This turn, or its nearest ancestor, that was answered."""
    while turn_id is not None and tx.run("turn_status", id=turn_id)[0][0] != "completed":
        turn_id = tx.run("turn_parent", id=turn_id)[0][0]
    return turn_id


def _follow(tx: Transaction, task_id: str, head: str | None) -> None:
    label, derived_head, *_ = tx.run("task_state", id=task_id)[0]
    session = DerivedSession(session_id=task_id, label=label, head=head, file_ids=frozenset())
    follow(tx, session, derived_head)
    if derived_head != head:
        tx.run("set_task_head", id=task_id, head_turn_id=head)
