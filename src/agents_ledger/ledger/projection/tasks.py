"""The turns of tasks, derived from their records and reconciled in place.

Each save derives the turn it touches again, in its own transaction. A turn that only grew gets what
is new; any other is rewritten as an import's is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from agents_ledger.ledger.projection import task_turns
from agents_ledger.ledger.projection.reconcile import follow
from agents_ledger.ledger.projection.task_turns import CallLine, Contents, Group, Record, State
from agents_ledger.ledger.projection.turns import (
    Change,
    Known,
    is_due,
    known_now,
    retire,
    write_batch,
    write_row,
)
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.model.errors import NotFound
from agents_ledger.model.imports.sources import DerivedSession, DerivedTurn
from agents_ledger.model.tasks import TaskCall
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches


class Place(NamedTuple):
    """Where a message stands in its task's order."""

    timestamp: int
    position: int


START = Place(-1, -1)


def label_of(task_id: str) -> str:
    """The label of a task's session."""
    return f"task:{task_id}"


def claim(tx: Transaction, task_id: str) -> State:
    """The state of a task, whose session is ours until we commit."""
    heads.find(tx, label_of(task_id), exact=True)
    rows = tx.run("task_state", id=task_id)
    if not rows:
        raise NotFound(f"there is no task {task_id!r}", "Save the task first.")
    _, _, prompt_hash, completion_status = rows[0]
    streaming = bool(tx.run("streams_of_task", task_id=task_id))
    return State(task_id, prompt_hash, completion_status, streaming)


def start_before(tx: Transaction, task_id: str, place: Place) -> Place:
    """Where the turn begins that a message at `place` may belong to."""
    before = tx.run("turn_of_record_before", task_id=task_id, **place._asdict())
    start = start_of(tx, before[0][0] if before else None)
    return min(start, place) if before else START


def start_of(tx: Transaction, turn_id: str | None) -> Place:
    """Where a turn begins in its task's order."""
    rows = tx.run("first_record_of_turn", turn_id=turn_id) if turn_id else []
    return Place(*rows[0]) if rows else START


def derive_last(tx: Transaction, task_id: str) -> None:
    """Derive a task's last turn again."""
    last = tx.run("last_turn_of_task", task_id=task_id)
    if last:
        derive(tx, task_id, start_of(tx, last[0][0]))


class Standing(NamedTuple):
    """A turn to be brought to what its records say."""

    group: Group
    derived: DerivedTurn
    known: Known | None


def derive(tx: Transaction, task_id: str, since: Place) -> None:
    """Derive the turns of a task again from the record at `since` on, which begins one.

    Turns that one of ours stands on are frozen: what comes later begins another turn below them.
    """
    state = claim(tx, task_id)
    tx.run("lock_projection")  # what is frozen now stays so, and nothing else becomes it
    at = {"task_id": task_id, **since._asdict()}
    records = [Record(*row) for row in tx.run("records_since", **at)]
    lines = [CallLine(*row) for row in tx.run("calls_since", **at)]
    before = list(dict.fromkeys(record.turn_id for record in records if record.turn_id))
    known = known_now(tx, before)
    parent_id = tx.run("turn_parent", id=before[0])[0][0] if before and since != START else None
    frozen = [turn_id for turn_id in before if known[turn_id].frozen]
    if frozen and since != START:  # late records may stand below them that say an earlier time
        derive(tx, task_id, START)
        return
    if frozen:
        above = {known[turn_id].parent_id for turn_id in frozen}
        parent_id = next(turn_id for turn_id in reversed(frozen) if turn_id not in above)
    groups = task_turns.grouped([r for r in records if r.turn_id not in frozen], lines)
    head = _answered_above(tx, parent_id)
    changes: list[Standing] = []
    now: set[str] = set()
    for group in groups:
        own_id, stored = _turn_for(tx, task_id, group, known)
        turn = _derived(tx, own_id, group, state, parent_id)
        parent_id = turn.id
        head = turn.id if group.response else head
        now.add(turn.id)
        if is_due(turn, stored):
            changes.append(Standing(group, turn, stored))
    _write(tx, state, changes)
    if state.streaming:
        tx.run("set_stream_turn", task_id=task_id, turn_id=parent_id)
    _follow(tx, task_id, head)
    gone = {*before} - {*frozen} - now
    if gone:
        retire(tx, gone)


def _turn_for(
    tx: Transaction, task_id: str, group: Group, known: Mapping[str, Known]
) -> tuple[str, Known | None]:
    """The id of a group's turn, and what is stored of it. What was frozen while it held other
    records stays as it is: then the turn has another id."""
    for again in count():
        own_id = task_turns.turn_id(task_id, group.records[0].id, again)
        stored = known.get(own_id) or known_now(tx, [own_id]).get(own_id)
        if stored is None or not stored.frozen:
            break
    return own_id, stored


def _derived(
    tx: Transaction, own_id: str, group: Group, state: State, parent_id: str | None
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


def _contents(tx: Transaction, records: Iterable[Record], lines: Iterable[CallLine]) -> Contents:
    texts: dict[str, str] = {}
    for ids in in_batches([record.id for record in records]):
        texts |= dict(tx.run("record_contents", ids=ids))
    calls: dict[str, TaskCall] = {}
    for ids in in_batches([line.id for line in lines]):
        calls |= {row[0]: TaskCall(*row) for row in tx.run("task_calls_of", ids=ids)}
    return Contents(texts, calls)


def _write(tx: Transaction, state: State, changes: Sequence[Standing]) -> None:
    """Write the turns that changed: one that only grew gets what is new, others are rewritten."""
    if not changes:
        return
    left = {r.turn_id for group, turn, _ in changes for r in group.records if r.turn_id != turn.id}
    rewritten = [each for each in changes if each.derived.id in left or not _grow(tx, state, each)]
    if rewritten:
        built = [Change(each.derived, each.derived.build(), each.known) for each in rewritten]
        write_batch(tx, built)
    for group, turn, _ in changes:
        tx.run("insert_bus_turn", turn_id=turn.id, task_id=state.task_id)
        for record in group.records:
            if record.turn_id != turn.id:
                tx.run("set_record_turn", turn_id=turn.id, position=record.position)
        for ids in in_batches([line.id for line in group.lines() if _is_behind(line)]):
            tx.run("mark_calls_derived", ids=ids)
    index_queue.grown(tx, [turn.id for _, turn, _ in changes])


def _is_behind(line: CallLine) -> bool:
    return line.derived_revision != line.revision


def _grow(tx: Transaction, state: State, standing: Standing) -> bool:
    """Add to a turn what came after all it has, and bring its calls up to date. False: it is new,
    or something came in between, or it stands otherwise now."""
    group, turn, known = standing
    if known is None or known.parent_id != turn.parent_id:
        return False
    is_new = [
        step.turn_id != turn.id if isinstance(step, Record) else step.derived_revision is None
        for step in group.steps()
    ]
    status, _ = task_turns.status_of(group, state)
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
    write_row(tx, Change(turn, built, known))
    return True


def _answered_above(tx: Transaction, turn_id: str | None) -> str | None:
    """The nearest turn at or above this one that was answered."""
    while turn_id is not None and tx.run("turn_status", id=turn_id)[0][0] != "completed":
        turn_id = tx.run("turn_parent", id=turn_id)[0][0]
    return turn_id


def _follow(tx: Transaction, task_id: str, head: str | None) -> None:
    label, put_by_us, *_ = tx.run("task_state", id=task_id)[0]
    session = DerivedSession(session_id=task_id, label=label, head=head, file_ids=frozenset())
    follow(tx, session, put_by_us)
    if put_by_us != head:
        tx.run("set_task_head", id=task_id, head_turn_id=head)
