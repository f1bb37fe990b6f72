"""The queue: one durable queue per session, answered by one writer at a time.

An entry is claimed together with the id of the turn that will answer it. If the process dies before
that turn began, the entry waits again; once it began, the entry is never retried automatically.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.ledger.turns.recording import check_id, check_role, check_texts, checked_step
from agents_ledger.model.agents.config import check_directives
from agents_ledger.model.errors import (
    Ambiguous,
    Conflict,
    Damaged,
    HeadMoved,
    NotFound,
    Refused,
)
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.queue import (
    Ask,
    Claim,
    QueueEntry,
    QueueLimits,
    QueueMode,
    QueueStatus,
    Rollup,
)
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.store.database import Row, Transaction, Work

# A batch that keeps growing is answered after at most this many debounce times.
PATIENCE = 10
BATCH_MAX = 100
# Characters that are kept of a message dropped from a full queue.
GLIMPSE = 80
AT_MOST = 1000
FULL = "the queue was full"
DEFAULT = QueueLimits()
_MODES = get_args(QueueMode)
_TEXTS = ("source_event_id", "workspace_path", "reply_to")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Ask).decode


class NewEntry(NamedTuple):
    id: str
    session: str
    ask: Ask
    mode: QueueMode
    limits: QueueLimits
    persona_id: str | None  # of the session, if this creates it
    now: int


class ClaimEnding(NamedTuple):
    """How the turn of a claim ends: the works that seal it, and what is committed with them."""

    works: tuple[Work[HeadMoved | None] | Work[None], ...]
    status: QueueStatus
    error: str | None = None
    answer_to: NewEntry | None = None  # a worker's result, for its manager's queue
    task_status: TaskStatus | None = None
    go_on: bool = False  # claim the next entry of the same queue


class Urgent(NamedTuple):
    """What a broker must react to: `what` is stop, interrupt or steer."""

    session_label: str
    id: str  # of the turn to stop, or of the entry
    what: str


def new_entry(
    session: str,
    ask: Ask,
    mode: QueueMode | None,
    *,
    limits: QueueLimits,
    id: str,
    persona_id: str | None,
) -> NewEntry:
    """An entry to be queued. Refused if it asks nothing, or could not be answered."""
    ask = checked_ask(ask, mode, id)
    now = now_ms()
    return NewEntry(id or new_id(), session, ask, mode or limits.mode, limits, persona_id, now)


def checked_ask(ask: Ask, mode: QueueMode | None, id: str) -> Ask:
    """What an entry asks, as it is stored. Refused if it could not be decoded again."""
    if not isinstance(ask, Ask):
        raise Refused(f"an entry asks an Ask, not {ask!r:.80}", "Use Ask((Message(...),)).")
    if not ask.messages:
        raise Refused("there is nothing to ask: an entry needs a message")
    if mode is not None and mode not in _MODES:
        raise Refused(f"there is no queue mode {mode!r}", f"Modes are {', '.join(_MODES)}.")
    if id:
        check_id(id)
    check_directives(ask.directives)
    if ask.role is not None:
        check_role(ask.role)
    check_texts(ask, _TEXTS)
    ask = replace(ask, messages=tuple(checked_step(message) for message in ask.messages))
    try:
        _decode(_encode(ask))
    except (TypeError, msgspec.DecodeError) as error:  # such as a file's line that is no number
        raise Refused(f"the message cannot be stored: {error}") from error
    return ask


def to_entry(row: Row) -> QueueEntry:
    """A row of <queue_columns>."""
    values = list(row[:12])
    try:
        values[-1] = None if values[-1] is None else _decode(values[-1])
    except msgspec.DecodeError as error:
        raise Damaged(f"the message of queue entry {row[0]} cannot be decoded") from error
    return QueueEntry(*values)


# -- joining a line ----------------------------------------------------------------------------


def enqueue(tx: Transaction, new: NewEntry) -> QueueEntry:
    """Add an entry to the end of its session's queue. Repeating it changes nothing."""
    ask_json = _encode(new.ask).decode()
    digest = hashlib.sha256(f"{new.session}\0{new.mode}\0{ask_json}".encode()).digest()
    rows = tx.run("queue_entry", id=new.id)
    if rows:
        if bytes(rows[0][-1]) != digest:
            raise Conflict(f"entry {new.id} is queued already, with other content")
        return to_entry(rows[0])
    label = heads.writable(tx, new.session, persona_id=new.persona_id or "main").label
    dropped, left_out = _make_room(tx, label, new)
    if left_out:
        ask_json = _encode(replace(new.ask, left_out=left_out)).decode()
    ready_at = new.now
    if new.mode == "collect":
        ready_at += new.limits.debounce_ms
        patience_ms = PATIENCE * new.limits.debounce_ms
        tx.run("delay_batch", label=label, now=new.now, ready_at=ready_at, patience_ms=patience_ms)
    else:
        tx.run("end_batch", label=label, now=new.now)
    tx.run(
        "insert_queue_entry",
        id=new.id,
        session_label=label,
        mode=new.mode,
        status="dropped" if dropped else "waiting",
        enqueued_at=new.now,
        ready_at=ready_at,
        error=FULL if dropped else None,
        ask_json=ask_json,
        request_hash=digest,
    )
    return to_entry(tx.run("queue_entry", id=new.id)[0])


def _make_room(tx: Transaction, label: str, new: NewEntry) -> tuple[bool, tuple[str, ...]]:
    """Drop an entry if the queue is full; interruptions are always accepted.

    Returns whether the new one is dropped, and the beginnings of dropped messages that it carries.
    """
    limits = new.limits
    if new.mode == "interrupt" or tx.run("waiting_count", label=label)[0][0] < limits.cap:
        return False, ()
    line = [to_entry(row) for row in tx.run("waiting_entries", label=label, limit=2)]
    if limits.drop == "new" or not line:
        return True, ()
    oldest, *newer = line
    tx.run("drop_entry", id=oldest.id, error=FULL)
    begins = _begins(oldest) if limits.drop == "summarize" else ()
    if begins and newer and newer[0].ask is not None:
        ask = replace(newer[0].ask, left_out=(*begins, *newer[0].ask.left_out))
        tx.run("leave_out", id=newer[0].id, ask_json=_encode(ask).decode())
        return False, ()
    return False, begins


def _begins(dropped: QueueEntry) -> tuple[str, ...]:
    """The beginnings of dropped messages, to be carried by the next entry."""
    if dropped.ask is None:
        return ()
    texts = (" ".join((message.content or "").split()) for message in dropped.ask.messages)
    return (*dropped.ask.left_out, *(text[:GLIMPSE] for text in texts))


def deliver(tx: Transaction, new: NewEntry) -> QueueEntry | None:
    """Enqueue a worker's result, unless the session is not active."""
    pointer = heads.find(tx, new.session)
    return enqueue(tx, new) if pointer is not None and pointer.status == "active" else None


# -- being answered ----------------------------------------------------------------------------


def claim(
    tx: Transaction, writer_id: str, turn_id: str, *, label: str | None = None
) -> Claim | None:
    """Claim what a turn is to answer, of one session or of any; None if nothing is ready."""
    if label is None:
        rows = tx.run("ready_session", now=now_ms())
        if not rows:
            return None
        label = str(rows[0][0])
    heads.existing(tx, label, exact=True)
    # By another process on a server, since the session was chosen.
    if tx.run("is_claimed", label=label):
        return None
    tx.run("insert_writer", id=writer_id)
    return claim_next(tx, writer_id, turn_id, label)


def claim_next(tx: Transaction, writer_id: str, turn_id: str, label: str) -> Claim | None:
    """Claim the first entries of a queue that this writer answers."""
    batch = _next_batch(tx, label, now_ms())
    if not batch:
        return None
    tx.run(
        "claim_entries",
        label=label,
        turn_id=turn_id,
        writer_id=writer_id,
        upto=batch[-1].position,
    )
    return _claim_of(tx, writer_id, turn_id, batch)


def claimed_by(tx: Transaction, writer_id: str, turn_id: str) -> Claim | None:
    """The claim of a turn, if it was committed."""
    batch = [to_entry(row) for row in tx.run("claim", turn_id=turn_id, writer_id=writer_id)]
    return _claim_of(tx, writer_id, turn_id, batch) if batch else None


def _claim_of(tx: Transaction, writer_id: str, turn_id: str, batch: Sequence[QueueEntry]) -> Claim:
    label = batch[0].session_label
    session = heads.get(tx, label, exact=True)
    config_json, _ = threads.config_above(tx, session.thread_id)
    return Claim(label, turn_id, writer_id, tuple(batch), session, config_json)


def look_again(tx: Transaction, claimed: Claim) -> Claim:
    """A claim with the current state of its session, or of the one it was merged into."""
    session = heads.get(tx, claimed.session_label)
    config_json, _ = threads.config_above(tx, session.thread_id)
    return replace(claimed, session=session, config_json=config_json)


def _next_batch(tx: Transaction, label: str, now: int) -> Sequence[QueueEntry]:
    """The entries that one turn answers. That is mostly the first alone, so it is read first."""
    first = tx.run("first_waiting", label=label)
    if not first or first[0][6] > now:
        return ()
    *entry, interruptions = first[0]
    if entry[3] != "collect" and not interruptions:
        return [to_entry(tuple(entry))]
    rows = tx.run("waiting_entries", label=label, limit=BATCH_MAX)
    return _batch([to_entry(row) for row in rows])


def _batch(line: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
    """The entries up to the last interruption, or a run of collected ones, or the first."""
    last_interruption = max(
        (at for at, entry in enumerate(line) if entry.mode == "interrupt"), default=-1
    )
    if last_interruption >= 0:
        return line[: last_interruption + 1]
    if line[0].mode != "collect":
        return line[:1]
    ends = (at for at, entry in enumerate(line) if entry.mode != "collect")
    return line[: next(ends, len(line))]


def finish(tx: Transaction, claimed: Claim, status: QueueStatus, error: str | None = None) -> None:
    """Set the status of a claim's entries. `waiting`: they are to be answered again."""
    if status == "waiting":
        tx.run("return_entries", turn_id=claimed.turn_id, writer_id=claimed.writer_id)
        return
    tx.run(
        "finish_entries",
        turn_id=claimed.turn_id,
        writer_id=claimed.writer_id,
        status=status,
        error=error,
    )


def begin(tx: Transaction, claimed: Claim, first: Work[None]) -> None:
    """Begin the turn that answers a claim. `first` is the turn's first commit."""
    # Recovery may have taken this process for dead and returned its entries to the queue.
    if not tx.run("holds_claim", turn_id=claimed.turn_id, writer_id=claimed.writer_id):
        raise Conflict(f"the claim of turn {claimed.turn_id} was lost to another process")
    first(tx)
    if claimed.session.task_status == "pending":
        tx.run("set_task_status", label=claimed.session_label, status="running")


# -- looking and changing ----------------------------------------------------------------------


def get(tx: Transaction, entry_id: str) -> QueueEntry:
    """An entry by its id or a prefix of it."""
    rows = tx.run("queue_entry", id=entry_id)
    if not rows and len(entry_id) >= threads.PREFIX_MIN:
        upper = entry_id + "\U0010ffff"
        rows = tx.run("entries_by_prefix", prefix=entry_id, upper=upper)
        if len(rows) > 1:
            named = threads.examples(row[1] for row in rows)
            raise Ambiguous(f"several entries begin with {entry_id!r}: {named}")
    if not rows:
        raise NotFound(
            f"there is no queue entry {entry_id!r}", "List them with `agents-ledger queue`."
        )
    return to_entry(rows[0])


def entries(
    tx: Transaction, key: str | None, *, everything: bool, limit: int, after: int
) -> tuple[QueueEntry, ...]:
    label = None if key is None else heads.get(tx, key).label
    rows = tx.run(
        "queue_entries", label=label, everything=int(everything), limit=limit, after=after
    )
    return tuple(to_entry(row) for row in rows)


def cancel(tx: Transaction, entry_id: str, reason: str) -> QueueEntry:
    entry = get(tx, entry_id)
    if not tx.change("cancel_entry", id=entry.id, error=reason):
        entry = get(tx, entry.id)
        if entry.status != "claimed":
            raise Refused(f"entry {entry.id} is {entry.status}: there is nothing to cancel")
        tx.run("stop_entries", turn_id=entry.turn_id, now=now_ms())
    return get(tx, entry.id)


def stop(tx: Transaction, key: str) -> tuple[str, ...]:
    pointer = heads.find(tx, key)
    turns = [row[0] for row in tx.run("claimed_turns", label=pointer.label)] if pointer else [key]
    return tuple(turn for turn in turns if tx.change("stop_entries", turn_id=turn, now=now_ms()))


def retry(tx: Transaction, entry_id: str) -> QueueEntry:
    """Queue a failed, cancelled or dropped entry again, at its old position."""
    entry = get(tx, entry_id)
    label = heads.existing(tx, entry.session_label).label
    if not tx.change("retry_entry", id=entry.id, label=label, now=now_ms()):
        raise Refused(f"entry {entry.id} is {entry.status}: it cannot be retried")
    return get(tx, entry.id)


def urgent(tx: Transaction) -> tuple[Urgent, ...]:
    return tuple(Urgent(*row) for row in tx.run("urgent_entries"))


def rollup(tx: Transaction, key: str) -> Rollup:
    """The usage of a session and all workers below it, by the turns that answered their entries."""
    return Rollup(*tx.run("rollup", label=heads.get(tx, key).label)[0])
