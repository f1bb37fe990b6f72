"""Admission: how many requests run at once, and reads that simultaneous requests share.

Python runs one thread at a time. Concurrent requests take the interpreter from each other and all
finish late, so a few run and the others wait in order of arrival. A request that writes waits its
turn too, but does not occupy a slot while it runs: most of its time it waits for the commit, which
is cheaper the more requests share it.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar, cast

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")

READS = ("GET", "HEAD")
# A longer request gives up its slot: an audit must not delay the pages.
SLOW_S = 0.1
SHARED_MAX = 64
# On PostgreSQL as many as the pool has connections; more would wait there instead.
SERVER_SLOTS = 10

_arrived: ContextVar[float] = ContextVar("arrived", default=math.inf)


def read_slots(engine: str) -> int:
    """The number of requests that may read at once."""
    cores = os.cpu_count() or 1
    # More threads only take the interpreter from each other, which costs up to 5 ms each time.
    return min(4, max(2, cores // 2)) if engine == "sqlite" else SERVER_SLOTS


class _Slot:
    """The slot of a running request. It is released once."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._is_released = False

    def release(self) -> None:
        if not self._is_released:
            self._is_released = True
            self._admission._next()


class Admission:
    """Middleware that limits the requests that run at once."""

    def __init__(self, app: ASGIApp, slots: int, slow_s: float = SLOW_S) -> None:
        self._app = app
        self._slots = slots
        self._slow_s = slow_s
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        _arrived.set(time.monotonic())
        await self._turn()
        if scope["method"] not in READS:
            self._next()
            await self._app(scope, receive, send)
            return
        slot = _Slot(self)
        timer = asyncio.get_running_loop().call_later(self._slow_s, slot.release)

        async def release_and_send(message: Message) -> None:
            # The response is ready: a slow client must not delay others.
            slot.release()
            await send(message)

        try:
            await self._app(scope, receive, release_and_send)
        finally:
            timer.cancel()
            slot.release()

    async def _turn(self) -> None:
        if self._running < self._slots:
            self._running += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()  # it was our turn already
            raise

    def _next(self) -> None:
        """Pass the slot to the next request that still waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1


class _SharedValue(NamedTuple):
    read_at: float
    value: Any


class SharedReads:
    """A value read for one request, reused for every request that arrived before the read began:
    they see everything committed before they arrived, as if they had read it themselves.

    A read must not use shared values itself: they may have been read before it began.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: OrderedDict[Hashable, _SharedValue] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """The result of `read`, or of a call of it since the current request arrived."""
        with self._lock:
            shared = self._values.get(key)
        if shared is not None and shared.read_at > _arrived.get():
            return cast(T, shared.value)
        # The clock is read before the value: a request that arrives during the read must not share
        # it, as it may expect commits that the snapshot does not have.
        own = _SharedValue(self._clock(), read())
        with self._lock:
            other = self._values.pop(key, None)
            # Of two concurrent reads, the later snapshot stays.
            self._values[key] = other if other and other.read_at > own.read_at else own
            while len(self._values) > SHARED_MAX:
                self._values.popitem(last=False)
        return cast(T, own.value)
