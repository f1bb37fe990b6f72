"""Works that a server does in one call, however many wait.

Each call is a transaction of its own: one round trip. Two are under way at once, so that callers
prepare theirs while the server writes. Works with one key, such as turns of one session, go one
after the other. What a call left undone, because it is not so simple or something is wrong with it,
is done statement by statement in its caller's thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from agents_ledger.model.errors import OutcomeUnknown, StoreUnavailable
from agents_ledger.store.concurrency.interrupts import Hold
from agents_ledger.store.concurrency.leader_queue import LeaderQueue, Member
from agents_ledger.store.database import UNDONE, CommitCallback, ServerWork, Transaction, Work

LEADERS = 2
BATCH_MAX = 128


class Server(Protocol):
    wait_seconds: float

    def call(self, works: Sequence[ServerWork], hold: Hold) -> list[Any]:
        """Do them in one call; their results, or UNDONE."""

    def write_alone(self, work: Work[Any]) -> Any:
        """Do one in a transaction of statements."""

    def start(self, function: Callable[[], object]) -> object:
        """Run it in another thread."""


class CallQueue(LeaderQueue):
    def __init__(self, server: Server) -> None:
        super().__init__(LEADERS)
        self._server = server
        self._keys: set[str] = set()  # of the works under way

    def _can_be_taken(self, member: Member) -> bool:
        return member.work.key not in self._keys

    def _claim(self, member: Member) -> None:
        self._keys.add(member.work.key)

    def _release(self, batch: Sequence[Member]) -> None:
        self._keys.difference_update([member.work.key for member in batch])

    def _take(self, batch: list[Member]) -> None:
        kept = []
        while self._queue and len(batch) < BATCH_MAX:
            member = self._queue.popleft()
            if self._can_be_taken(member):
                self._claim(member)
                batch.append(member)
            else:
                kept.append(member)
        self._queue.extendleft(reversed(kept))

    def _commit(self, batch: list[Member], hold: Hold) -> None:
        by_class: dict[type, list[Member]] = {}
        for member in batch:
            by_class.setdefault(type(member.work), []).append(member)
        for members in by_class.values():
            self._call(members, hold)
        for member in batch:
            if member.alone is not None and member.answer is not None:
                self._server.start(partial(self._answer_alone, member.alone, member.answer))

    def _call(self, members: list[Member], hold: Hold) -> None:
        began = time.monotonic()
        try:
            results = self._server.call([member.work for member in members], hold)
        except OutcomeUnknown as error:
            # Each finds out for itself whether it was stored, unless its time is over.
            if time.monotonic() - began > self._server.wait_seconds:
                self._fail(members, error)
                return
            for member in members:
                member.alone = _Repeat(member.work)
        except Exception as error:
            self._fail(members, error)
        else:
            for member, result in zip(members, results, strict=True):
                if result is UNDONE:
                    member.alone = member.work
                else:
                    member.result = result

    def _do_alone(self, work: Work[Any]) -> Any:
        try:
            return self._server.write_alone(work)
        except StoreUnavailable as error:
            if isinstance(work, _Repeat) and not isinstance(error, OutcomeUnknown):
                raise OutcomeUnknown(f"the connection was lost, and then: {error}") from error
            raise

    def _answer_alone(self, work: Work[Any], answer: CommitCallback) -> None:
        answer_with(answer, partial(self._do_alone, work))


class _Repeat:
    """A work whose answer was lost. Until it is done again, nobody knows whether it is stored."""

    def __init__(self, work: ServerWork) -> None:
        self._work = work

    def __call__(self, tx: Transaction) -> Any:
        return self._work.repeat(tx)


def answer_with(answer: CommitCallback, function: Callable[[], Any]) -> None:
    """Hand what a function returns or raises to whoever waits for it."""
    try:
        result = function()
    except BaseException as error:
        wake = answer.set(None, error)
    else:
        wake = answer.set(result, None)
    wake()
