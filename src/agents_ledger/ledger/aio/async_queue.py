"""The queue for asyncio, with what a broker needs beside: to claim, to begin, to finish."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from agents_ledger.ledger.aio.async_ledger import AsyncLedger, AsyncLiveCall, AsyncLiveTurn
from agents_ledger.ledger.sessions import queue
from agents_ledger.ledger.sessions.queue import DEFAULT, Ending, NewEntry, Urgent
from agents_ledger.ledger.turns import live, threads
from agents_ledger.ledger.turns.recording import recording
from agents_ledger.model.errors import HeadMoved, OutcomeUnknown
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.queue import Ask, Claim, QueueEntry, QueueLimits, QueueMode, Rollup
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Usage
from agents_ledger.store.database import Row, Transaction, Work

T = TypeVar("T")


class AsyncQueue:
    """The lines of a ledger for asyncio.

    A commit whose outcome is unknown is made once more: each of these writes may be.
    """

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger

    async def _surely(self, work: Work[T], again: Work[T] | None = None) -> T:
        """Write, and once more if nobody knows whether it was written; `again`: then this."""
        try:
            return await self._ledger._write(work)
        except OutcomeUnknown:
            return await self._ledger._write(again or work)

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
        new = queue.new_entry(session, ask, mode, limits=limits, id=id, persona_id=persona_id)
        return await self._surely(lambda tx: queue.enqueue(tx, new))

    async def get(self, entry_id: str) -> QueueEntry:
        """One entry, waiting or not."""
        return await self._ledger._read(lambda tx: queue.get(tx, entry_id))

    async def entries(
        self,
        session: str | None = None,
        *,
        everything: bool = False,
        limit: int = queue.AT_MOST,
        after: int = 0,
    ) -> tuple[QueueEntry, ...]:
        """Entries that are not answered yet, or all, of one session or of every."""
        return await self._ledger._read(
            lambda tx: queue.entries(tx, session, everything=everything, limit=limit, after=after)
        )

    async def cancel(self, entry_id: str, reason: str = "cancelled") -> QueueEntry:
        """Take an entry out of its line; if it is being answered, ask that its turn be stopped."""
        return await self._ledger._write(lambda tx: queue.cancel(tx, entry_id, reason))

    async def stop(self, key: str) -> tuple[str, ...]:
        """Ask that what runs on a session, or one turn, be stopped; the ids of the turns."""
        return await self._ledger._write(lambda tx: queue.stop(tx, key))

    async def retry(self, entry_id: str) -> QueueEntry:
        """Let an entry that failed, or was cancelled or dropped, wait again."""
        return await self._ledger._write(lambda tx: queue.retry(tx, entry_id))

    async def urgent(self) -> tuple[Urgent, ...]:
        """Turns to be stopped, and messages that interrupt or steer."""
        return await self._ledger._read(queue.urgent)

    async def any_ready(self) -> bool:
        """Whether somebody should claim: looking takes no turn among the writers."""
        return bool(await self._ledger._read(lambda tx: tx.run("any_ready", now=now_ms())))

    async def claim(self, session: str | None = None) -> Claim | None:
        """What this process is to answer next, of one session or of any."""
        writer_id, turn_id = await self._ledger._writer_id(), new_id()

        def work(tx: Transaction) -> Claim | None:
            return queue.claim(tx, writer_id, turn_id, label=session)

        def again(tx: Transaction) -> Claim | None:
            return queue.claimed_by(tx, writer_id, turn_id) or work(tx)

        return await self._surely(work, again)

    async def look_again(self, claimed: Claim) -> Claim:
        """A claim with its session as it is now."""
        return await self._ledger._read(lambda tx: queue.look_again(tx, claimed))

    async def begin(self, claimed: Claim, query: Any, **fields: Any) -> AsyncLiveTurn:
        """Begin the turn that answers a claim; Conflict if the claim was lost."""
        chosen = {**fields, "id": claimed.turn_id}
        prepared = recording(claimed.session.label, query, None, chosen, live=True)
        turn = AsyncLiveTurn(self._ledger, prepared)

        def within(first: Work[None]) -> Work[None]:
            return partial(queue.begin, claimed=claimed, first=first)

        try:
            return await turn._start(within)
        except OutcomeUnknown:
            return await turn._start(within)

    async def seal(
        self,
        claimed: Claim,
        turn: AsyncLiveTurn,
        ending: Ending,
    ) -> tuple[HeadMoved | None, Claim | None]:
        """End the turn that answers a claim, and the claim with it, as one; with what is next."""

        writer_id, next_id = claimed.writer_id, new_id()

        def end(tx: Transaction) -> tuple[HeadMoved | None, Claim | None]:
            moved = None
            for work in ending.works:
                moved = work(tx)
            queue.finish(tx, claimed, ending.status, ending.error)
            if ending.task_status is not None:
                tx.run("set_task_status", label=claimed.session_label, status=ending.task_status)
            if ending.answer_to is not None:
                queue.deliver(tx, ending.answer_to)
            if not ending.go_on:
                return moved, None
            return moved, queue.claim_next(tx, writer_id, next_id, claimed.session_label)

        def again(tx: Transaction) -> tuple[HeadMoved | None, Claim | None]:
            if tx.run("holds_claim", turn_id=claimed.turn_id, writer_id=writer_id):
                return end(tx)
            moved = live.beside_head(tx, turn.state.live)
            return moved, queue.claimed_by(tx, writer_id, next_id)

        moved, more = await self._surely(end, again)
        turn.state.sealed = True
        return moved, more

    async def again(self, claimed: Claim, turn: AsyncLiveTurn, error: str) -> Claim:
        """Fail the turn of a claim, and let another one answer it: its claim."""
        other = replace(claimed, turn_id=new_id())

        def end(tx: Transaction) -> None:
            turn.state.fail(error, Usage())(tx)
            tx.run("retie_entries", turn_id=claimed.turn_id, other=other.turn_id)

        await self._surely(end)
        turn.state.sealed = True
        return other

    async def fail(self, claimed: Claim, error: str) -> None:
        """Give up a claim whose turn could not begin."""
        await self._surely(lambda tx: queue.finish(tx, claimed, "failed", error))

    async def spawn(self, call: AsyncLiveCall, worker: Session, task: NewEntry) -> None:
        """The session of a worker that a call starts, with its task in line: both or neither."""
        spawning = call._turn.state.spawn(call.call, worker)

        def work(tx: Transaction) -> None:
            spawning(tx)
            queue.enqueue(tx, task)

        await self._surely(work)

    async def lost_workers(self) -> tuple[Row, ...]:
        """Workers whose process died: label, manager's session, the failed turn, why."""
        return tuple(await self._ledger._read(lambda tx: tx.run("lost_workers")))

    async def report_lost(self, worker: str, result: NewEntry) -> None:
        """Tell a manager that a worker is lost."""

        def work(tx: Transaction) -> None:
            tx.run("set_task_status", label=worker, status="failed")
            queue.deliver(tx, result)

        await self._surely(work)

    async def take_result(self, worker: str, turn_id: str) -> str | None:
        """A worker's latest result, taken out of its manager's line into the turn that waited."""

        def work(tx: Transaction) -> str | None:
            turns = tx.run("last_answered", label=worker)
            if not turns:
                return None
            answered = threads.exact_turn(tx, turns[0][0])
            tx.run("answer_in_passing", id=f"result:{answered.id}", turn_id=turn_id)
            return answered.response.content if answered.response else answered.error

        return await self._surely(work)

    async def rollup(self, session: str) -> Rollup:
        """What a session and all workers below it have used."""
        return await self._ledger._read(lambda tx: queue.rollup(tx, session))

    async def steer(self, turn: AsyncLiveTurn, session: str) -> tuple[QueueEntry, ...]:
        """Take the messages that steer a session's turn into it; those taken."""
        line = await self._ledger._read(
            lambda tx: tx.run("waiting_entries", label=session, limit=queue.BATCH_MAX)
        )
        taken: list[QueueEntry] = []
        for entry in map(queue.to_entry, line):
            if entry.mode != "steer" or entry.ask is None:
                continue
            if await self._surely(_into_turn(turn, entry, entry.ask)):
                taken.append(entry)
        return tuple(taken)


def _into_turn(turn: AsyncLiveTurn, entry: QueueEntry, ask: Ask) -> Work[bool]:
    works = [turn.state.message(message)[1] for message in ask.messages]

    def take(tx: Transaction) -> bool:
        if not tx.change("answer_in_passing", id=entry.id, turn_id=turn.id):
            return queue.get(tx, entry.id).turn_id == turn.id  # taken before, if by this turn
        for work in works:
            work(tx)
        return True

    return take
