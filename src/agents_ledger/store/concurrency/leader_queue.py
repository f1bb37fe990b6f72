"""Writers that wait together are written together, by one of them.

Whoever finds no leader missing waits; everybody else leads: it takes what is queued, has it
committed, answers everyone, and hands the lead to a waiting thread. A lone caller leads at once,
without a hand-over. Members that do not wait in a thread (asyncio) are led by a thread kept for
them.

Signals such as Ctrl-C are held while the queue changes (`interrupts.py`). They can end a wait, and
a work that is alone in its batch.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from agents_ledger.model.errors import OutcomeUnknown
from agents_ledger.store.concurrency.interrupts import NOT_HELD, Hold, held
from agents_ledger.store.database import CommitCallback, Work

# A lock that is waited for cannot be interrupted, so this is the longest wait of Ctrl-C.
CHECK_SECONDS = 0.25


class Member:
    __slots__ = ("alone", "answer", "error", "leads", "result", "wake", "work")

    def __init__(self, work: Any, answer: CommitCallback | None = None) -> None:
        self.work = work  # a Work, or what the subclass takes for one
        self.answer = answer  # None: a thread waits
        self.wake: threading.Lock | None = None  # locked until answered or made leader
        self.result: Any = None
        self.error: BaseException | None = None
        self.leads = False
        self.alone: Work[Any] | None = None  # what its caller's thread has to do instead


class LeaderQueue:
    """A queue of works, and who commits them. How, is said by a subclass."""

    def __init__(self, leaders: int = 1) -> None:
        self._queue: deque[Member] = deque()
        # Guards the queue and _leading; held for an instant.
        self._state = threading.Lock()
        self._idle = threading.Condition(self._state)
        self._leaders = leaders
        self._leading = 0
        self._start_leader: Callable[[], object] | None = None

    def _commit(self, batch: list[Member], hold: Hold) -> None:
        """Commit a batch; every member gets its result, its error, or what is left to it."""
        raise NotImplementedError

    def _do_alone(self, work: Work[Any]) -> Any:
        """Do what was left to the caller's thread."""
        raise NotImplementedError

    def _gather(self, own: int) -> None:
        """Called before a leader takes works beside its own."""

    # Called while the state is locked:

    def _take(self, batch: list[Member]) -> None:
        """Move works from the queue to a batch."""
        raise NotImplementedError

    def _can_be_taken(self, member: Member) -> bool:
        """Whether a leader could take it now."""
        return True

    def _claim(self, member: Member) -> None:
        """A leader has it now."""

    def _release(self, batch: Sequence[Member]) -> None:
        """No leader has these any more."""

    def _enqueued(self) -> None:
        """One more work waits."""

    # ---

    def run(self, work: Work[Any]) -> Any:
        """Do `work` durably, alone or together with whoever waits."""
        me = Member(work)
        with held() as hold:
            with self._state:
                leads = self._begin_leading(me)
                if leads:
                    self._claim(me)
                else:
                    me.wake = threading.Lock()
                    me.wake.acquire()
                    self._queue.append(me)
                    self._enqueued()
            if me.wake is None:
                self._lead([me], hold)
            else:
                self._wait(me, me.wake, hold)
        if me.error is not None:
            raise me.error
        return me.result if me.alone is None else self._do_alone(me.alone)

    def _begin_leading(self, me: Member) -> bool:
        """Whether a leader is missing, and could take this one; from now on it is not."""
        begins = self._leading < self._leaders and self._can_be_taken(me)
        self._leading += begins
        return begins

    def _wait(self, me: Member, wake: threading.Lock, hold: Hold) -> None:
        try:
            # Not interruptible: a signal that strikes when the lock is taken would leave it taken.
            while not wake.acquire(timeout=hold.wait_seconds(threading.TIMEOUT_MAX, CHECK_SECONDS)):
                hold.check()
        except BaseException:
            # Ctrl-C: nothing of ours may stay in the queue, and nobody else may hang. A work that a
            # leader has already taken cannot be withdrawn, so its answer is awaited.
            if not self.withdraw(me):
                wake.acquire()
            if me.leads:
                self._lead([], hold)
            raise
        if me.leads:
            self._lead([me], hold)

    def submit(
        self, work: Work[Any], answer: CommitCallback, start: Callable[[], object]
    ) -> Member:
        """Queue `work` and return; `start` is called when a leader is missing: it makes a thread of
        its own call lead()."""
        me = Member(work, answer)
        with held():
            with self._state:
                self._start_leader = start
                is_missing = self._begin_leading(me)
                self._queue.append(me)
                self._enqueued()
            if is_missing:
                start()
        return me

    def withdraw(self, me: Member) -> bool:
        """Take `me` back. False: too late, its outcome will come."""
        with self._state:
            if me.leads:
                self._release([me])  # it leads for the others now
                return True
            try:
                self._queue.remove(me)
            except ValueError:
                return False
            return True

    def lead(self) -> None:
        """Commit for others, as long as only such wait that cannot lead."""
        self._lead([], NOT_HELD, for_others=True)

    def _lead(self, own: list[Member], hold: Hold, *, for_others: bool = False) -> None:
        """Commit a batch, which begins with the leader's own work, and hand over."""
        again = True
        while again:
            batch, own = own, []
            can_be_interrupted, began = bool(batch), False
            try:
                self._gather(len(batch))
                hold.check()
                with self._state:
                    began = True
                    self._take(batch)
                if batch:
                    alone = can_be_interrupted and len(batch) == 1
                    self._commit(batch, hold if alone else NOT_HELD)
            except BaseException:  # Ctrl-C in the leader: nobody may hang
                if began:
                    self._fail(batch, OutcomeUnknown("the process was interrupted while it wrote"))
                raise
            finally:
                again = self._hand_over(batch, for_others=for_others)

    def _hand_over(self, batch: Sequence[Member], *, for_others: bool) -> bool:
        heir = None
        with self._state:
            self._release(batch)
            # The heir is chosen before anybody is answered: an answered caller may be back at once,
            # and would otherwise find a leader missing while works are still queued.
            due = [member for member in self._queue if self._can_be_taken(member)]
            heir = next((member for member in due if member.wake is not None), None)
            if heir is not None:
                heir.leads = True
                self._queue.remove(heir)
                self._claim(heir)
            elif not due:
                self._leading -= 1
                self._idle.notify_all()
        self._answer(batch)
        if heir is not None and heir.wake is not None:
            heir.wake.release()
        leaderless = bool(due) and heir is None
        if leaderless and not for_others and self._start_leader is not None:
            self._start_leader()
            return False
        return leaderless

    @staticmethod
    def _answer(batch: Sequence[Member]) -> None:
        wakes = set()
        for member in batch:
            if member.wake is not None:
                if not member.leads:
                    member.wake.release()
            elif member.answer is not None and member.alone is None:
                wakes.add(member.answer.set(member.result, member.error))
        # Each event loop is woken once, not once per task: its tasks would then run one by one.
        for wake in wakes:
            wake()

    @staticmethod
    def _fail(batch: Sequence[Member], error: Exception) -> None:
        for member in batch:
            if member.error is None:
                member.error = error

    def finish(self) -> None:
        """Wait until nothing is queued or being committed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._leading)
