"""How many requests run at once, and what those that waited together can share.

Python runs one thread at a time. Requests that run side by side take the interpreter from each
other at every statement and all finish late, so a few run and the others wait, in the order they
came. A request that writes waits its turn too, but then it takes nobody's place: most of its time
it waits for the commit, which is the cheaper the more of them share it.
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
SLOW_S = 0.1  # who runs longer makes room for the next: an audit must not hold up the pages
SHARED_MAX = 64
AT_ONCE_SERVER = 10  # on a database server: as many as there are connections

_arrived: ContextVar[float] = ContextVar("arrived", default=math.inf)


def reads_at_once(engine: str) -> int:
    """How many requests that read run side by side."""
    cores = os.cpu_count() or 1
    return min(4, max(2, cores // 2)) if engine == "sqlite" else AT_ONCE_SERVER


class _Place:
    """The place of one request among those that run; it can be left once."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._left = False

    def leave(self) -> None:
        if not self._left:
            self._left = True
            self._admission._next()


class Admission:
    """Stands before the application."""

    def __init__(self, app: ASGIApp, at_once: int, slow_s: float = SLOW_S) -> None:
        self._app = app
        self._at_once = at_once
        self._slow_s = slow_s
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in when it is its turn."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        _arrived.set(time.monotonic())
        await self._turn()
        if scope["method"] not in READS:
            self._next()
            await self._app(scope, receive, send)
            return
        place = _Place(self)
        timer = asyncio.get_running_loop().call_later(self._slow_s, place.leave)

        async def leave_and_send(message: Message) -> None:
            # The answer is made. How fast the client takes it must not matter to others.
            place.leave()
            await send(message)

        try:
            await self._app(scope, receive, leave_and_send)
        finally:
            timer.cancel()
            place.leave()

    async def _turn(self) -> None:
        if self._running < self._at_once:
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
        """Hand a place to the next one that still waits."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._running -= 1


class _Shared(NamedTuple):
    began: float
    value: Any


class SharedReads:
    """What was read for one request answers every request that had arrived before the reading
    began: these see all that was committed before they came, as if they had read it themselves.

    A reading must not use what is shared itself: that may have been read before it began.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: OrderedDict[Hashable, _Shared] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], T]) -> T:
        """What `read` gives, or gave since the request arrived that this is called for."""
        with self._lock:
            shared = self._values.get(key)
        if shared is not None and shared.began > _arrived.get():
            return cast(T, shared.value)
        began = self._clock()
        value = read()
        with self._lock:
            known = self._values.pop(key, None)
            # Of two that read side by side, the later snapshot stays.
            self._values[key] = known if known and known.began > began else _Shared(began, value)
            while len(self._values) > SHARED_MAX:
                self._values.popitem(last=False)
        return value
