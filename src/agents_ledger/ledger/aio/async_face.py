"""How the verbs of AsyncLedger reach the store. Writes join the queue that synchronous callers use.

asyncio is imported on use: callers of this have it loaded, and the others need not pay for it.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.search import index_queue
from agents_ledger.model.errors import LedgerError, Refused
from agents_ledger.model.turns import Usage
from agents_ledger.store.database import Work

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from agents_ledger.ledger.face import Face
    from agents_ledger.ledger.turns.live_state import LiveState

P = ParamSpec("P")
T = TypeVar("T")


class _Mailbox:
    """Outcomes on their way to one event loop: a whole batch wakes it once."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.outcomes: deque[tuple[_PendingWrite, Any, BaseException | None]] = deque()

    def wake(self) -> None:
        # The loop is closed: nobody waits for the outcome any more.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self.outcomes:
            pending, result, error = self.outcomes.popleft()
            pending.deliver(result, error)


class _PendingWrite:
    """Where one write's outcome is delivered."""

    def __init__(self, mailbox: _Mailbox) -> None:
        self._mailbox = mailbox
        self.future: Future[Any] = mailbox.loop.create_future()
        self.delivered = False

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        self._mailbox.outcomes.append((self, result, error))
        return self._mailbox.wake

    def deliver(self, result: Any, error: BaseException | None) -> None:
        """Resolve the future, in its loop, unless it was cancelled."""
        self.delivered = True
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    async def wait_out(self) -> None:
        """Wait until the outcome is known, however often the caller is cancelled."""
        from asyncio import CancelledError

        while not self.delivered:
            self.future = self._mailbox.loop.create_future()
            with suppress(Exception, CancelledError):
                await self.future
        if not self.future.cancelled():
            # Retrieved, so that asyncio does not log it as never retrieved.
            self.future.exception()


class _NoReceiver:
    """Discards the outcome: what is not indexed now is indexed later."""

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        return lambda: None


class AsyncFace:
    """A ledger for asyncio, without its verbs.

    `async with AsyncLedger.open(address) as ledger:`, or `await AsyncLedger.open(address)`.
    """

    def __init__(self, open_core: Callable[[], Core]) -> None:
        self._open_core = open_core
        self._opened: Core | None = None
        self._mailbox: _Mailbox | None = None

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> Self:
        """The ledger at a file's path or `postgresql://` address; opens when awaited or entered."""
        return cls(partial(Core.open, address, create=create, read_only=read_only))

    @classmethod
    def over(cls, ledger: Face) -> Self:
        """The same ledger as one that is open already; closing either closes both."""
        shared = cls(lambda: ledger._core)
        shared._opened = ledger._core
        return shared

    @property
    def _core(self) -> Core:
        if self._opened is None:
            raise Refused("this ledger is not open", "Await it, or enter it with `async with`.")
        return self._opened

    @property
    def address(self) -> str:
        """The path or `postgresql://` address that the ledger was opened with."""
        return self._core.db.address

    async def _start(self) -> Self:
        import asyncio

        if self._opened is None:
            self._opened = await asyncio.to_thread(self._open_core)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the ledger. Everything acknowledged is stored already."""
        await self._call(Core.close)

    async def _call(
        self, verb: Callable[Concatenate[Core, P], T], *args: P.args, **options: P.kwargs
    ) -> T:
        import asyncio

        return await asyncio.to_thread(verb, self._core, *args, **options)

    async def _read(self, work: Work[T]) -> T:
        import asyncio

        return await asyncio.to_thread(self._core.read, work)

    async def _write(self, work: Work[T]) -> T:
        """Queue `work` and wait for it. Cancelling withdraws it or, when it is being committed,
        waits for its outcome first: a cancelled write is either not stored or known to be."""
        import asyncio

        loop = asyncio.get_running_loop()
        if self._core.is_recovery_due:
            await asyncio.to_thread(self._core.recover_if_due)
        if self._mailbox is None or self._mailbox.loop is not loop:
            self._mailbox = _Mailbox(loop)
        pending = _PendingWrite(self._mailbox)
        withdraw = self._core.db.submit(work, pending)
        try:
            result: T = await pending.future
        except asyncio.CancelledError:
            if not withdraw():
                await pending.wait_out()
            raise
        if self._core.index_is_due():
            index = partial(index_queue.put_in, least=self._core.db.limits.index_turns)
            self._core.db.submit(index, _NoReceiver())
        return result

    async def _writer_id(self) -> str:
        import asyncio

        writer = self._core.db.known_writer()
        if writer is None:
            writer = await asyncio.to_thread(self._core.db.writer)
        return writer.id

    async def _begin(self, state: LiveState, first: Work[None]) -> None:
        """Make the first commit of a live turn."""
        import asyncio

        try:
            await self._write(first)
        except asyncio.CancelledError:  # it may have begun, and its block will not be entered
            await asyncio.shield(self._abandon(state))
            raise

    async def _abandon(self, state: LiveState) -> None:
        with suppress(LedgerError):
            await self._write(state.fail("CancelledError", Usage()))


class AsyncBegins:
    """Begins when it is awaited or entered."""

    id: str
    _attempted = False  # to begin

    def _begun(self, state: T | None) -> T:
        if state is None:
            raise Refused(
                f"{self._named} has not begun", "Await it, or enter it with `async with`."
            )
        return state

    @property
    def _named(self) -> str:
        return f"{type(self).__name__} {self.id}"

    def __del__(self) -> None:
        if not self._attempted:
            message = f"{self._named} was never awaited: nothing of it is stored"
            warnings.warn(message, RuntimeWarning, stacklevel=2, source=self)

    async def _start(self) -> Self:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        return self._start().__await__()

    async def __aenter__(self) -> Self:
        return await self._start()


async def uninterrupted(
    function: Callable[P, Awaitable[T]], *args: P.args, **options: P.kwargs
) -> T:
    """Await a function's outcome, also if the caller is cancelled meanwhile."""
    import asyncio

    return await asyncio.shield(function(*args, **options))
