"""The queue: one durable line per session, answered by one writer at a time.

An entry is claimed together with the id of the turn that will answer it. A crash before that turn
began leaves the entry waiting; once it has begun, it is never asked again by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from agents_ledger.ledger import sessions, threads
from agents_ledger.ledger.async_ledger import AsyncLedger, AsyncLiveCall, AsyncLiveTurn
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.recording import check_id, recording
from agents_ledger.model.errors import Ambiguous, Conflict, HeadMoved, NotFound, Refused
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
from agents_ledger.model.sessions import Session, TaskStatus
from agents_ledger.model.turns import Usage
from agents_ledger.store.database import Row, Transaction, Work

PATIENCE = 10  # a batch that keeps growing is answered after so many times its debounce
BATCH_MAX = 100
GLIMPSE = 80  # characters told of a message that a full line could not hold
AT_MOST = 1000
FULL = "the line was full"
DEFAULT = QueueLimits()
_MODES = get_args(QueueMode)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Ask).decode


class NewEntry(NamedTuple):
    """What a caller puts in a line."""

    id: str
    session: str
    ask: Ask
    mode: QueueMode
    limits: QueueLimits
    persona_id: str | None  # of the session, if this creates it
    now: int


class Ending(NamedTuple):
    """How the turn of a claim ends: the works that seal it, and what goes with them."""

    works: tuple[Work[HeadMoved | None] | Work[None], ...]
    status: QueueStatus
    error: str | None = None
    answer_to: NewEntry | None = None  # a worker's result, for its manager's line
    task_status: TaskStatus | None = None
    go_on: bool = False  # claim what is next in the same line


class Urgent(NamedTuple):
    """What whoever answers a line must notice: `what` is stop, interrupt or steer."""

    session_label: str
    id: str  # of the turn to stop, or of the entry
    what: str


def to_entry(row: Row) -> QueueEntry:
    """A row of <queue_columns>."""
    values = list(row[:12])
    values[-1] = None if values[-1] is None else _decode(values[-1])
    return QueueEntry(*values)


# -- joining a line ----------------------------------------------------------------------------


def enqueue(tx: Transaction, new: NewEntry) -> QueueEntry:
    """Put an entry at the end of its session's line. The same again changes nothing."""
    ask_json = _encode(new.ask).decode()
    digest = hashlib.sha256(f"{new.session}\0{new.mode}\0{ask_json}".encode()).digest()
    known = tx.run("queue_entry", id=new.id)
    if known:
        if bytes(known[0][-1]) != digest:
            raise Conflict(f"entry {new.id} is queued already, with other content")
        return to_entry(known[0])
    label = sessions.writable(tx, new.session, persona_id=new.persona_id or "main").label
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
    """Drop an entry if the line is full: whether it is the new one, and what that one is to tell.

    An interruption always finds room.
    """
    limits = new.limits
    if new.mode == "interrupt" or tx.run("waiting_count", label=label)[0][0] < limits.cap:
        return False, ()
    line = [to_entry(row) for row in tx.run("waiting_entries", label=label, limit=2)]
    if limits.drop == "new" or not line:
        return True, ()
    oldest, *others = line
    tx.run("drop_entry", id=oldest.id, error=FULL)
    begins = _begins(oldest) if limits.drop == "summarize" else ()
    if begins and others and others[0].ask is not None:
        kept = replace(others[0].ask, left_out=(*begins, *others[0].ask.left_out))
        tx.run("leave_out", id=others[0].id, ask_json=_encode(kept).decode())
        return False, ()
    return False, begins


def _begins(dropped: QueueEntry) -> tuple[str, ...]:
    """How messages began, for the next in line to tell."""
    if dropped.ask is None:
        return ()
    texts = (" ".join((message.content or "").split()) for message in dropped.ask.messages)
    return (*dropped.ask.left_out, *(text[:GLIMPSE] for text in texts))


def deliver(tx: Transaction, new: NewEntry) -> QueueEntry | None:
    """Put a result in a line, unless its session is closed to new turns."""
    found = sessions.find(tx, new.session)
    return enqueue(tx, new) if found is not None and found.status == "active" else None


# -- being answered ----------------------------------------------------------------------------


def claim(tx: Transaction, writer_id: str, *, label: str | None = None) -> Claim | None:
    """What is to be answered next, of one session or of any; None: nothing is ready."""
    if label is None:
        found = tx.run("ready_session", now=now_ms())
        if not found:
            return None
        label = str(found[0][0])
    sessions.existing(tx, label, exact=True)
    if tx.run("is_claimed", label=label):  # since we looked, on a server
        return None
    tx.run("insert_writer", id=writer_id)
    return _claim_next(tx, writer_id, label)


def _claim_next(tx: Transaction, writer_id: str, label: str) -> Claim | None:
    """Claim the beginning of a line that is ours to answer."""
    batch = _next_batch(tx, label, now_ms())
    if not batch:
        return None
    turn_id = new_id()
    tx.run(
        "claim_entries",
        label=label,
        turn_id=turn_id,
        writer_id=writer_id,
        upto=batch[-1].position,
    )
    session = sessions.get(tx, label, exact=True)
    head = session.thread_id
    config_json = tx.run("turn_config", id=head)[0][0] if head else None
    return Claim(label, turn_id, writer_id, tuple(batch), session, config_json)


def _next_batch(tx: Transaction, label: str, now: int) -> Sequence[QueueEntry]:
    """The entries that one turn answers. Mostly that is the first alone: no more is read then."""
    first = tx.run("first_waiting", label=label)
    if not first or first[0][6] > now:
        return ()
    *entry, interruptions = first[0]
    if entry[3] != "collect" and not interruptions:
        return [to_entry(tuple(entry))]
    rows = tx.run("waiting_entries", label=label, limit=BATCH_MAX)
    return _batch([to_entry(row) for row in rows])


def _batch(line: Sequence[QueueEntry]) -> Sequence[QueueEntry]:
    """Up to an interruption, or a run of collected ones."""
    last_interruption = max(
        (at for at, entry in enumerate(line) if entry.mode == "interrupt"), default=-1
    )
    if last_interruption >= 0:
        return line[: last_interruption + 1]
    if line[0].mode != "collect":
        return line[:1]
    others = (at for at, entry in enumerate(line) if entry.mode != "collect")
    return line[: next(others, len(line))]


def finish(tx: Transaction, claimed: Claim, status: QueueStatus, error: str | None = None) -> None:
    """The turn of a claim is sealed, or could not begin. `waiting`: it is to be asked again."""
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


def _begin(tx: Transaction, claimed: Claim, begin: Work[None]) -> None:
    if not tx.run("holds_claim", turn_id=claimed.turn_id, writer_id=claimed.writer_id):
        raise Conflict(f"the claim of turn {claimed.turn_id} was lost to another process")
    begin(tx)
    if claimed.session.task_status == "pending":
        tx.run("set_task_status", label=claimed.session_label, status="running")


# -- looking and changing ----------------------------------------------------------------------


def get(tx: Transaction, entry_id: str) -> QueueEntry:
    """One entry, waiting or not, by its id or the first letters of it."""
    rows = tx.run("queue_entry", id=entry_id)
    if not rows and len(entry_id) >= threads.PREFIX_MIN:
        upper = entry_id + "\U0010ffff"
        rows = tx.run("entries_by_prefix", prefix=entry_id, upper=upper)
        if len(rows) > 1:
            raise Ambiguous(f"several entries begin with {entry_id}: {rows[0][1]}, {rows[1][1]}")
    if not rows:
        raise NotFound(
            f"there is no queue entry {entry_id!r}", "List them with `agents-ledger queue`."
        )
    return to_entry(rows[0])


def entries(
    tx: Transaction, key: str | None, *, everything: bool, limit: int, after: int
) -> tuple[QueueEntry, ...]:
    """Entries in the order of their lines: those not answered yet, or all."""
    label = None if key is None else sessions.get(tx, key).label
    rows = tx.run(
        "queue_entries", label=label, everything=int(everything), limit=limit, after=after
    )
    return tuple(to_entry(row) for row in rows)


def cancel(tx: Transaction, entry_id: str, reason: str) -> QueueEntry:
    """Take an entry out of its line; if it is being answered, ask that its turn be stopped."""
    entry = get(tx, entry_id)
    if not tx.change("cancel_entry", id=entry.id, error=reason):
        entry = get(tx, entry.id)
        if entry.status != "claimed":
            raise Refused(f"entry {entry.id} is {entry.status}: there is nothing to cancel")
        tx.run("stop_entries", turn_id=entry.turn_id, now=now_ms())
    return get(tx, entry.id)


def stop(tx: Transaction, key: str) -> tuple[str, ...]:
    """Ask that what runs on a session, or the one turn of this id, be stopped; the turns' ids."""
    found = sessions.find(tx, key)
    turns = [row[0] for row in tx.run("claimed_turns", label=found.label)] if found else [key]
    return tuple(turn for turn in turns if tx.change("stop_entries", turn_id=turn, now=now_ms()))


def retry(tx: Transaction, entry_id: str) -> QueueEntry:
    """Let an entry that failed, or was cancelled or dropped, wait again, at its old position."""
    entry = get(tx, entry_id)
    label = sessions.existing(tx, entry.session_label).label
    if not tx.change("retry_entry", id=entry.id, label=label, now=now_ms()):
        raise Refused(f"entry {entry.id} is {entry.status}: it cannot be asked again")
    return get(tx, entry.id)


def urgent(tx: Transaction) -> tuple[Urgent, ...]:
    """Everything urgent, of all lines."""
    return tuple(Urgent(*row) for row in tx.run("urgent_entries"))


def rollup(tx: Transaction, key: str) -> Rollup:
    """What a session and all workers below it have used, by the turns that answered their lines."""
    return Rollup(*tx.run("rollup", label=sessions.get(tx, key).label)[0])


# -- the faces ---------------------------------------------------------------------------------


class Queue:
    """The lines of a ledger, for synchronous programs: to put in, look, and take out."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def enqueue(
        self,
        session: str,
        ask: Ask,
        *,
        mode: QueueMode | None = None,
        limits: QueueLimits = DEFAULT,
        id: str = "",
        persona_id: str | None = None,
    ) -> QueueEntry:
        """Put something at the end of a session's line; it is answered by a broker."""
        new = new_entry(session, ask, mode, limits=limits, id=id, persona_id=persona_id)
        return self._ledger._write(lambda tx: enqueue(tx, new))

    def get(self, entry_id: str) -> QueueEntry:
        """One entry, waiting or not."""
        return self._ledger._read(lambda tx: get(tx, entry_id))

    def entries(
        self,
        session: str | None = None,
        *,
        everything: bool = False,
        limit: int = AT_MOST,
        after: int = 0,
    ) -> tuple[QueueEntry, ...]:
        """Entries that are not answered yet, or all, of one session or of every."""
        return self._ledger._read(
            lambda tx: entries(tx, session, everything=everything, limit=limit, after=after)
        )

    def cancel(self, entry_id: str, reason: str = "cancelled") -> QueueEntry:
        """Take an entry out of its line; if it is being answered, ask that its turn be stopped."""
        return self._ledger._write(lambda tx: cancel(tx, entry_id, reason))

    def stop(self, key: str) -> tuple[str, ...]:
        """Ask that what runs on a session, or one turn, be stopped; the ids of the turns."""
        return self._ledger._write(lambda tx: stop(tx, key))

    def retry(self, entry_id: str) -> QueueEntry:
        """Let an entry that failed, or was cancelled or dropped, wait again."""
        return self._ledger._write(lambda tx: retry(tx, entry_id))

    def rollup(self, session: str) -> Rollup:
        """What a session and all workers below it have used."""
        return self._ledger._read(lambda tx: rollup(tx, session))


class AsyncQueue:
    """The same for asyncio, with what a broker needs beside: to claim, to begin, to finish."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger

    async def enqueue(
        self,
        session: str,
        ask: Ask,
        *,
        mode: QueueMode | None = None,
        limits: QueueLimits = DEFAULT,
        id: str = "",
        persona_id: str | None = None,
    ) -> QueueEntry:
        """Put something at the end of a session's line."""
        new = new_entry(session, ask, mode, limits=limits, id=id, persona_id=persona_id)
        return await self._ledger._write(lambda tx: enqueue(tx, new))

    async def get(self, entry_id: str) -> QueueEntry:
        """One entry, waiting or not."""
        return await self._ledger._read(lambda tx: get(tx, entry_id))

    async def entries(
        self,
        session: str | None = None,
        *,
        everything: bool = False,
        limit: int = AT_MOST,
        after: int = 0,
    ) -> tuple[QueueEntry, ...]:
        """Entries that are not answered yet, or all, of one session or of every."""
        return await self._ledger._read(
            lambda tx: entries(tx, session, everything=everything, limit=limit, after=after)
        )

    async def cancel(self, entry_id: str, reason: str = "cancelled") -> QueueEntry:
        """Take an entry out of its line; if it is being answered, ask that its turn be stopped."""
        return await self._ledger._write(lambda tx: cancel(tx, entry_id, reason))

    async def stop(self, key: str) -> tuple[str, ...]:
        """Ask that what runs on a session, or one turn, be stopped; the ids of the turns."""
        return await self._ledger._write(lambda tx: stop(tx, key))

    async def retry(self, entry_id: str) -> QueueEntry:
        """Let an entry that failed, or was cancelled or dropped, wait again."""
        return await self._ledger._write(lambda tx: retry(tx, entry_id))

    async def urgent(self) -> tuple[Urgent, ...]:
        """Turns to be stopped, and messages that interrupt or steer."""
        return await self._ledger._read(urgent)

    async def claim(self, session: str | None = None) -> Claim | None:
        """What this process is to answer next, of one session or of any."""
        writer_id = await self._ledger._writer_id()
        return await self._ledger._write(lambda tx: claim(tx, writer_id, label=session))

    async def begin(self, claimed: Claim, query: Any, **fields: Any) -> AsyncLiveTurn:
        """Begin the turn that answers a claim; Conflict if the claim was lost."""
        chosen = {**fields, "id": claimed.turn_id}
        prepared = recording(claimed.session.label, query, None, chosen, live=True)
        turn = AsyncLiveTurn(self._ledger, prepared)
        return await turn._start(lambda begin: partial(_begin, claimed=claimed, begin=begin))

    async def seal(
        self,
        claimed: Claim,
        turn: AsyncLiveTurn,
        ending: Ending,
    ) -> tuple[HeadMoved | None, Claim | None]:
        """End the turn that answers a claim, and the claim with it, as one; with what is next."""

        def end(tx: Transaction) -> tuple[HeadMoved | None, Claim | None]:
            moved = None
            for work in ending.works:
                moved = work(tx)
            finish(tx, claimed, ending.status, ending.error)
            if ending.task_status is not None:
                tx.run("set_task_status", label=claimed.session_label, status=ending.task_status)
            if ending.answer_to is not None:
                deliver(tx, ending.answer_to)
            if not ending.go_on:
                return moved, None
            return moved, _claim_next(tx, claimed.writer_id, claimed.session_label)

        moved, more = await self._ledger._write(end)
        turn.state.sealed = True
        return moved, more

    async def again(self, claimed: Claim, turn: AsyncLiveTurn, error: str) -> Claim:
        """Fail the turn of a claim, and let another one answer it: its claim."""
        other = replace(claimed, turn_id=new_id())

        def end(tx: Transaction) -> None:
            turn.state.fail(error, Usage())(tx)
            tx.run("retie_entries", turn_id=claimed.turn_id, other=other.turn_id)

        await self._ledger._write(end)
        turn.state.sealed = True
        return other

    async def fail(self, claimed: Claim, error: str) -> None:
        """Give up a claim whose turn could not begin."""
        await self._ledger._write(lambda tx: finish(tx, claimed, "failed", error))

    async def spawn(self, call: AsyncLiveCall, worker: Session, task: NewEntry) -> None:
        """The session of a worker that a call starts, with its task in line: both or neither."""
        spawning = call._turn.state.spawn(call.call, worker)

        def work(tx: Transaction) -> None:
            spawning(tx)
            enqueue(tx, task)

        await self._ledger._write(work)

    async def lost_workers(self) -> tuple[Row, ...]:
        """Workers whose process died: label, manager's session, the failed turn, why."""
        return tuple(await self._ledger._read(lambda tx: tx.run("lost_workers")))

    async def report_lost(self, worker: str, result: NewEntry) -> None:
        """Tell a manager that a worker is lost."""

        def work(tx: Transaction) -> None:
            tx.run("set_task_status", label=worker, status="failed")
            deliver(tx, result)

        await self._ledger._write(work)

    async def take_result(self, worker: str, turn_id: str) -> str | None:
        """A worker's latest result, taken out of its manager's line into the turn that waited."""

        def work(tx: Transaction) -> str | None:
            turns = tx.run("last_answered", label=worker)
            if not turns:
                return None
            answered = threads.turn(tx, turns[0][0])
            tx.run("answer_in_passing", id=f"result:{answered.id}", turn_id=turn_id)
            return answered.response.content if answered.response else answered.error

        return await self._ledger._write(work)

    async def rollup(self, session: str) -> Rollup:
        """What a session and all workers below it have used."""
        return await self._ledger._read(lambda tx: rollup(tx, session))

    async def steer(self, turn: AsyncLiveTurn, session: str) -> tuple[QueueEntry, ...]:
        """Take the messages that steer a session's turn into it; those taken."""
        line = await self._ledger._read(
            lambda tx: tx.run("waiting_entries", label=session, limit=BATCH_MAX)
        )
        taken: list[QueueEntry] = []
        for entry in map(to_entry, line):
            if entry.mode != "steer" or entry.ask is None:
                continue
            if await self._ledger._write(_into_turn(turn, entry, entry.ask)):
                taken.append(entry)
        return tuple(taken)


def _into_turn(turn: AsyncLiveTurn, entry: QueueEntry, ask: Ask) -> Work[bool]:
    works = [turn.state.message(message)[1] for message in ask.messages]

    def take(tx: Transaction) -> bool:
        if not tx.change("answer_in_passing", id=entry.id, turn_id=turn.id):
            return False
        for work in works:
            work(tx)
        return True

    return take


def new_entry(session: str, ask: Ask, mode: QueueMode | None, **given: Any) -> NewEntry:
    """What a caller puts in a line, checked."""
    if not ask.messages:
        raise Refused("there is nothing to ask: an entry needs a message")
    if mode is not None and mode not in _MODES:
        raise Refused(f"a message is queued as {', '.join(_MODES)}, not {mode!r}")
    if given["id"]:
        check_id(given["id"])
    limits: QueueLimits = given["limits"]
    return NewEntry(
        given["id"] or new_id(),
        session,
        ask,
        mode or limits.mode,
        limits,
        given["persona_id"],
        now_ms(),
    )
