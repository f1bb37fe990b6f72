"""Group commit: works that wait together are committed together.

The leader (`leader_queue.py`) takes what is queued, and what queues up meanwhile, and commits it as
one transaction.

Callers that were answered together are likely to be back together. The next leader waits for them,
an instant at most: written one by one while the others prepare theirs, each statement would have to
win the interpreter back.

Works are done in the order they came; neighbours that can be done at once (Joint) are. A work that
raises before it wrote anything fails alone. One that raises after it wrote spoils the batch: it is
rolled back and done again with a savepoint for each.

Signals such as Ctrl-C are held while the transaction changes (`interrupts.py`). They can end a work
that is alone in its batch: its transaction is rolled back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat, starmap
from typing import Protocol, cast

from agents_ledger.store.concurrency.interrupts import NOT_HELD, Hold
from agents_ledger.store.concurrency.leader_queue import LeaderQueue, Member
from agents_ledger.store.database import Joint, Transaction

BATCH_MAX = 256
# Part of the time a batch took that the next leader waits for its callers to be back.
PATIENCE = 0.4
PATIENCE_MAX = 0.01  # seconds


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


class GroupCommit(LeaderQueue):
    """A queue of works in front of one connection."""

    def __init__(self, session: WriteSession) -> None:
        super().__init__()
        self._session = session
        self._expected = 0  # callers just answered
        self._until = 0.0  # so long the next leader waits for them
        # If not 0, a leader waits until this many works are queued.
        self._awaited = 0
        self._gathered = threading.Lock()  # locked, but for the moment when they are
        self._gathered.acquire()

    def _enqueued(self) -> None:
        if self._awaited and len(self._queue) >= self._awaited:
            self._awaited = 0
            self._gathered.release()

    def _gather(self, own: int) -> None:
        """Wait an instant for the callers that were just answered."""
        patience = self._until - time.monotonic()
        if patience <= 0:
            return
        try:
            with self._state:
                if len(self._queue) + own >= self._expected:
                    return
                self._awaited = self._expected - own
            self._gathered.acquire(timeout=patience)
        finally:
            with self._state:
                self._awaited = 0
                self._gathered.acquire(blocking=False)  # they came just now

    def _take(self, batch: list[Member]) -> None:
        count = min(len(self._queue), BATCH_MAX - len(batch))
        batch.extend(starmap(self._queue.popleft, repeat((), count)))

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
            with self._state:
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
