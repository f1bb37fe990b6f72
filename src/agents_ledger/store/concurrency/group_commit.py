"""Group commit: works that wait together are committed together.

Whoever finds nobody leading leads: it takes what is queued, and what queues up meanwhile, commits
it as one transaction, answers everyone, and hands the lead to a waiting thread. A lone caller leads
at once, without a hand-over. Members that do not wait in a thread (asyncio) are led by a thread
kept for them.

Callers that were answered together are likely to be back together. The next leader waits for them,
an instant at most: written one by one while the others prepare theirs, each statement would have to
win the interpreter back.

Works are done in the order they came; neighbours that can be done at once (Joint) are. A work that
raises before it wrote anything fails alone. One that raises after it wrote spoils the batch: it is
rolled back and done again with a savepoint for each.

Signals such as Ctrl-C are held while the queue or the transaction changes (`interrupts.py`).
They can end a wait, and a work that is alone in its batch: its transaction is rolled back.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby, repeat, starmap
from typing import Any, Protocol, cast

from agents_ledger.model.errors import OutcomeUnknown
from agents_ledger.store.concurrency.interrupts import NOT_HELD, Hold, held
from agents_ledger.store.database import CommitCallback, Joint, Transaction, Work

BATCH_MAX = 256
# Part of the time a batch took that the next leader waits for its callers to be back.
PATIENCE = 0.4
PATIENCE_MAX = 0.01  # seconds
# A lock that is waited for cannot be interrupted, so this is the longest wait of Ctrl-C.
CHECK_SECONDS = 0.25


class WriteSession(Protocol):
    """A connection that can write, as the leader uses it."""

    transaction: Transaction

    def begin(self, hold: Hold) -> None:
        """Wait for our turn among all processes, then begin. The wait can be interrupted."""

    def restart(self) -> None:
        """Begin again after a roll-back, still our turn."""

    def commit(self) -> None: ...
    def roll_back(self) -> None: ...
    def end(self) -> None:
        """Roll back what is still open; it is the next process's turn."""

    def is_open(self) -> bool:
        """Whether a transaction is under way: a full disk ends it."""

    def changes(self) -> int:
        """How many rows were written so far."""

    def savepoint(self) -> None: ...
    def release(self) -> None: ...
    def roll_back_to(self) -> None: ...
    def error(self, error: Exception) -> Exception:
        """The same in our words."""


class Member:
    __slots__ = ("answer", "error", "leads", "result", "wake", "work")

    def __init__(self, work: Work[Any], answer: CommitCallback | None = None) -> None:
        self.work = work
        self.answer = answer  # None: a thread waits
        self.wake: threading.Lock | None = None  # locked until answered or made leader
        self.result: Any = None
        self.error: BaseException | None = None
        self.leads = False


class GroupCommit:
    """A queue of works in front of one connection."""

    def __init__(self, session: WriteSession) -> None:
        self._session = session
        self._queue: deque[Member] = deque()
        # Guards the queue and _leading; held for an instant.
        self._state = threading.Lock()
        self._leading = False
        self._start_leader: Callable[[], object] | None = None
        self._expected = 0  # callers just answered
        self._until = 0.0  # so long the next leader waits for them
        # If not 0, a leader waits until this many works are queued.
        self._awaited = 0
        self._gathered = threading.Lock()  # locked, but for the moment when they are
        self._gathered.acquire()

    def run(self, work: Work[Any]) -> Any:
        """Do `work` durably, alone or together with whoever waits."""
        me = Member(work)
        with held() as hold:
            with self._state:
                if self._leading:
                    me.wake = threading.Lock()
                    me.wake.acquire()
                self._leading = True
                self._enqueue(me)
            if me.wake is None:
                self.lead(me, hold)
            else:
                self._wait(me, me.wake, hold)
        if me.error is not None:
            raise me.error
        return me.result

    def _wait(self, me: Member, wake: threading.Lock, hold: Hold) -> None:
        try:
            # Not interruptible: a signal that strikes when the lock is taken would leave it taken.
            while not wake.acquire(timeout=hold.wait_seconds(threading.TIMEOUT_MAX, CHECK_SECONDS)):
                hold.check()
        except BaseException:
            # Ctrl-C: nothing of ours may stay in the queue, and nobody else may hang. A work that a
            # leader has already taken cannot be withdrawn, so its answer is awaited.
            withdrawn = self.withdraw(me)
            if not withdrawn:
                wake.acquire()
            if me.leads:
                self.lead(me, hold)
            raise
        if me.leads:
            self.lead(me, hold)

    def submit(
        self, work: Work[Any], answer: CommitCallback, start: Callable[[], object]
    ) -> Member:
        """Queue `work` and return; `start` is called when nobody leads: it makes a thread of its
        own call lead(for_others=True)."""
        me = Member(work, answer)
        with held():
            with self._state:
                self._start_leader = start
                first, self._leading = not self._leading, True
                self._enqueue(me)
            if first:
                start()
        return me

    def _enqueue(self, me: Member) -> None:
        self._queue.append(me)
        if self._awaited and len(self._queue) >= self._awaited:
            self._awaited = 0
            self._gathered.release()

    def withdraw(self, me: Member) -> bool:
        """Take `me` back. False: too late, its outcome will come."""
        with self._state:
            if me.leads:
                self._queue.remove(me)  # it leads for the others now
                return True
            try:
                self._queue.remove(me)
            except ValueError:
                return False
            return True

    def lead(self, me: Member | None = None, hold: Hold = NOT_HELD) -> None:
        """Commit a batch and hand over. Without a work of its own it leads for others, and goes on
        while only such wait that cannot."""
        again = True
        while again:
            batch: list[Member] = []
            try:
                self._gather()
                hold.check()
                self._take(batch)
                if batch:
                    self._commit(batch, hold if batch == [me] else NOT_HELD)
            except BaseException:  # Ctrl-C in the leader: nobody may hang
                self._drop(me)
                self._fail(batch, OutcomeUnknown("the process was interrupted while it wrote"))
                raise
            finally:
                again = self._hand_over(batch, for_others=me is None)

    def _drop(self, me: Member | None) -> None:
        """Take a leader's own work back, if it is not begun: it is not to be done by its heir."""
        with self._state, suppress(ValueError):
            if me is not None:
                self._queue.remove(me)

    def _gather(self) -> None:
        """Wait an instant for the callers that were just answered."""
        patience = self._until - time.monotonic()
        if patience <= 0:
            return
        try:
            with self._state:
                if len(self._queue) >= self._expected:
                    return
                self._awaited = self._expected
            self._gathered.acquire(timeout=patience)
        finally:
            with self._state:
                self._awaited = 0
                self._gathered.acquire(blocking=False)  # they came just now

    def _take(self, batch: list[Member]) -> None:
        with self._state:
            count = min(len(self._queue), BATCH_MAX - len(batch))
            batch.extend(starmap(self._queue.popleft, repeat((), count)))

    def _hand_over(self, batch: Sequence[Member], *, for_others: bool) -> bool:
        heir = None
        with self._state:
            # The heir is chosen before anybody is answered: an answered caller may be back at once,
            # and would otherwise find nobody leading while works are still queued.
            if self._queue:
                heir = next((member for member in self._queue if member.wake is not None), None)
                if heir is not None:
                    heir.leads = True
            else:
                self._leading = False
            leaderless = bool(self._queue) and heir is None
        self._answer(batch)
        if heir is not None and heir.wake is not None:
            heir.wake.release()
        if leaderless and not for_others and self._start_leader is not None:
            self._start_leader()
            return False
        return leaderless

    @staticmethod
    def _answer(batch: Sequence[Member]) -> None:
        wakes = set()
        for member in batch:
            if member.wake is not None:
                member.wake.release()
            elif member.answer is not None:
                wakes.add(member.answer.set(member.result, member.error))
        # Each event loop is woken once, not once per task: its tasks would then run one by one.
        for wake in wakes:
            wake()

    def _commit(self, batch: list[Member], hold: Hold) -> None:
        session = self._session
        self._until = 0.0
        try:
            session.begin(hold)
            began = time.monotonic()
            try:
                if not self._run_together(batch, hold):
                    self._run_apart(batch)
                if session.is_open():
                    session.commit()
                    now = time.monotonic()
                    self._until = now + min(PATIENCE * (now - began), PATIENCE_MAX)
            finally:
                session.end()
        except Exception as error:
            self._fail(batch, session.error(error))
        self._expected = len(batch)

    def _joining(self, batch: list[Member]) -> Iterator[list[Member]]:
        """Everyone in the batch, and whoever queues up meanwhile: neighbours that can be done at
        once together, and then, each by itself, whoever of them was left."""
        done = 0
        while done < len(batch):
            for joint, members in groupby(
                batch[done:], lambda member: hasattr(member.work, "together")
            ):
                neighbours = list(members)
                done += len(neighbours)
                if joint and len(neighbours) > 1:
                    yield neighbours
                for member in neighbours:
                    if member.result is None:
                        yield [member]
            self._take(batch)

    def _do(self, members: Sequence[Member], hold: Hold) -> None:
        tx = self._session.transaction
        first = members[0]
        if len(members) == 1:
            first.result = hold.interruptible(first.work, tx)
            return
        works = [cast(Joint, member.work) for member in members]
        for member, result in zip(members, works[0].together(tx, works), strict=True):
            member.result = result

    def _run_together(self, batch: list[Member], hold: Hold) -> bool:
        """Whether the transaction stands as it is, or is over; False: do it again apart."""
        session = self._session
        for members in self._joining(batch):
            written = session.changes()
            try:
                self._do(members, hold if len(batch) == 1 else NOT_HELD)
            except Exception as error:
                translated = session.error(error)
                # A full disk ends the whole transaction, so what the others of the batch wrote is
                # gone too.
                if not session.is_open():
                    self._fail(batch, translated)
                    return True
                # It wrote nothing, so nothing of it has to be undone and the others keep what they
                # wrote.
                if len(members) == 1 and session.changes() == written:
                    members[0].error = translated
                    continue
                # SQLite cannot undo one work without a savepoint, and a savepoint for each costs
                # every batch for the rare one that fails.
                session.roll_back()
                if len(batch) == 1:
                    members[0].error = translated
                    return True
                session.restart()
                for request in batch:
                    request.result = request.error = None
                return False
        return True

    def _run_apart(self, batch: Sequence[Member]) -> None:
        """Each in a savepoint of its own."""
        session = self._session
        for member in batch:
            session.savepoint()
            try:
                member.result = member.work(session.transaction)
            except Exception as error:
                member.error = session.error(error)
                if not session.is_open():
                    self._fail(batch, member.error)
                    return
                session.roll_back_to()
            session.release()

    @staticmethod
    def _fail(batch: Sequence[Member], error: Exception) -> None:
        for member in batch:
            if member.error is None:
                member.error = error
