"""Generated from ledger/sessions/queue.py by `make async`. Do not edit."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from agents_ledger.ledger.aio.async_ledger import AsyncLedger, AsyncLiveCall, AsyncLiveTurn
from agents_ledger.ledger.sessions import queue_entries
from agents_ledger.ledger.sessions.queue_entries import DEFAULT, ClaimEnding, NewEntry, Urgent
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
    """The queue of every session of a ledger.

    A commit whose outcome is unknown is repeated once, which is safe for each of these writes.
    """

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger

    async def _surely(self, work: Work[T], again: Work[T] | None = None) -> T:
        """Write; if the outcome is unknown, write once more: `again`, or else the same work."""
        try:
            return await self._ledger._write(work)
        except OutcomeUnknown:
            return await self._ledger._write(again or work)

    # -- entries ------------------------------------------------------------------------------

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
        """Add an entry to the end of a session's queue, for a broker to answer."""
        new = queue_entries.new_entry(
            session, ask, mode, limits=limits, id=id, persona_id=persona_id
        )
        return await self._surely(lambda tx: queue_entries.enqueue(tx, new))

    async def get(self, entry_id: str) -> QueueEntry:
        """An entry, whatever its status, by its id or a prefix of it."""
        return await self._ledger._read(lambda tx: queue_entries.get(tx, entry_id))

    async def entries(
        self,
        session: str | None = None,
        *,
        everything: bool = False,
        limit: int = queue_entries.AT_MOST,
        after: int = 0,
    ) -> tuple[QueueEntry, ...]:
        """The unanswered entries of one session or of all; with `everything`, the answered too."""
        return await self._ledger._read(
            lambda tx: queue_entries.entries(
                tx, session, everything=everything, limit=limit, after=after
            )
        )

    async def cancel(self, entry_id: str, reason: str = "cancelled") -> QueueEntry:
        """Cancel a waiting entry; if it is being answered, ask its turn to stop."""
        return await self._ledger._write(lambda tx: queue_entries.cancel(tx, entry_id, reason))

    async def stop(self, key: str) -> tuple[str, ...]:
        """Ask the running turns of a session, or one turn, to stop; returns the turns' ids."""
        return await self._ledger._write(lambda tx: queue_entries.stop(tx, key))

    async def retry(self, entry_id: str) -> QueueEntry:
        """AsyncQueue a failed, cancelled or dropped entry again."""
        return await self._ledger._write(lambda tx: queue_entries.retry(tx, entry_id))

    async def rollup(self, session: str) -> Rollup:
        """What a session and all workers below it have used."""
        return await self._ledger._read(lambda tx: queue_entries.rollup(tx, session))

    # -- what a broker needs ------------------------------------------------------------------

    async def urgent(self) -> tuple[Urgent, ...]:
        """Turns that should stop, and messages that interrupt or steer."""
        return await self._ledger._read(queue_entries.urgent)

    async def any_ready(self) -> bool:
        """Whether there is something to claim. Only reads, so that polling blocks no writer."""
        return bool(await self._ledger._read(lambda tx: tx.run("any_ready", now=now_ms())))

    async def claim(self, session: str | None = None) -> Claim | None:
        """Claim what this process is to answer next, of one session or of any."""
        writer_id, turn_id = await self._ledger._writer_id(), new_id()

        def work(tx: Transaction) -> Claim | None:
            return queue_entries.claim(tx, writer_id, turn_id, label=session)

        def again(tx: Transaction) -> Claim | None:
            return queue_entries.claimed_by(tx, writer_id, turn_id) or work(tx)

        return await self._surely(work, again)

    async def look_again(self, claimed: Claim) -> Claim:
        """A claim with its session as it is now."""
        return await self._ledger._read(lambda tx: queue_entries.look_again(tx, claimed))

    async def begin(self, claimed: Claim, query: Any, **fields: Any) -> AsyncLiveTurn:
        """Begin the turn that answers a claim. Conflict if the claim was lost."""
        prepared = recording(
            claimed.session.label, query, None, {**fields, "id": claimed.turn_id}, live=True
        )

        def within(first: Work[None]) -> Work[None]:
            return partial(queue_entries.begin, claimed=claimed, first=first)

        turn = AsyncLiveTurn(self._ledger, prepared, within)
        try:
            await turn._start()
        except OutcomeUnknown:
            await turn._start()
        return turn

    async def seal(
        self, claimed: Claim, turn: AsyncLiveTurn, ending: ClaimEnding
    ) -> tuple[HeadMoved | None, Claim | None]:
        """End the turn that answers a claim, and the claim, in one commit.

        Returns HeadMoved if the session's head did not follow, and the next claim if
        `ending.go_on` asks for one.
        """
        writer_id, next_id = claimed.writer_id, new_id()

        def end(tx: Transaction) -> tuple[HeadMoved | None, Claim | None]:
            moved = None
            for work in ending.works:
                moved = work(tx)
            queue_entries.finish(tx, claimed, ending.status, ending.error)
            if ending.task_status is not None:
                tx.run("set_task_status", label=claimed.session_label, status=ending.task_status)
            if ending.answer_to is not None:
                queue_entries.deliver(tx, ending.answer_to)
            if not ending.go_on:
                return moved, None
            label = claimed.session_label
            return moved, queue_entries.claim_next(tx, writer_id, next_id, label)

        def again(tx: Transaction) -> tuple[HeadMoved | None, Claim | None]:
            if tx.run("holds_claim", turn_id=claimed.turn_id, writer_id=writer_id):
                return end(tx)
            moved = live.beside_head(tx, turn.state.live)
            return moved, queue_entries.claimed_by(tx, writer_id, next_id)

        outcome = await self._surely(end, again)
        turn.state.sealed = True
        return outcome

    async def again(self, claimed: Claim, turn: AsyncLiveTurn, error: str) -> Claim:
        """Fail the turn of a claim; returns the claim for another turn that will answer it."""
        other = replace(claimed, turn_id=new_id())

        def end(tx: Transaction) -> None:
            turn.state.fail(error, Usage())(tx)
            tx.run("retie_entries", turn_id=claimed.turn_id, other=other.turn_id)

        await self._surely(end)
        turn.state.sealed = True
        return other

    async def fail(self, claimed: Claim, error: str) -> None:
        """Fail a claim whose turn could not begin."""
        await self._surely(lambda tx: queue_entries.finish(tx, claimed, "failed", error))

    async def spawn(self, call: AsyncLiveCall, worker: Session, task: NewEntry) -> None:
        """Create the session of a worker that a call starts and queue its task, in one commit."""
        spawning = call._turn.state.spawn(call.call, worker)

        def work(tx: Transaction) -> None:
            spawning(tx)
            queue_entries.enqueue(tx, task)

        await self._surely(work)

    async def lost_workers(self) -> tuple[Row, ...]:
        """Workers whose process died: label, manager's session, failed turn, error."""
        return tuple(await self._ledger._read(lambda tx: tx.run("lost_workers")))

    async def report_lost(self, worker: str, result: NewEntry) -> None:
        """Report a lost worker to its manager."""

        def work(tx: Transaction) -> None:
            tx.run("set_task_status", label=worker, status="failed")
            queue_entries.deliver(tx, result)

        await self._surely(work)

    async def take_result(self, worker: str, turn_id: str) -> str | None:
        """A worker's latest result, taken from its manager's queue into the turn that waited."""

        def work(tx: Transaction) -> str | None:
            turns = tx.run("last_answered", label=worker)
            if not turns:
                return None
            answered = threads.exact_turn(tx, turns[0][0])
            tx.run("answer_in_passing", id=f"result:{answered.id}", turn_id=turn_id)
            return answered.response.content if answered.response else answered.error

        return await self._surely(work)

    async def steer(self, turn: AsyncLiveTurn, session: str) -> tuple[QueueEntry, ...]:
        """Add the waiting messages that steer a session's turn to it; returns their entries."""
        waiting = await self._ledger._read(
            lambda tx: tx.run("waiting_entries", label=session, limit=queue_entries.BATCH_MAX)
        )
        taken: list[QueueEntry] = []
        for entry in map(queue_entries.to_entry, waiting):
            if entry.mode != "steer" or entry.ask is None:
                continue
            if await self._surely(_into_turn(turn, entry, entry.ask)):
                taken.append(entry)
        return tuple(taken)


def _into_turn(turn: AsyncLiveTurn, entry: QueueEntry, ask: Ask) -> Work[bool]:
    works = [turn.state.message(message)[1] for message in ask.messages]

    def take(tx: Transaction) -> bool:
        if not tx.change("answer_in_passing", id=entry.id, turn_id=turn.id):
            return queue_entries.get(tx, entry.id).turn_id == turn.id  # taken before, by this turn?
        for work in works:
            work(tx)
        return True

    return take
