"""The same ledger for asyncio. Writes join the queue that synchronous callers use.

asyncio is imported on use: whoever calls this has it already, whoever does not need not pay for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from agents_ledger.ledger.aio.async_reading import AsyncReading
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.ledger.turns import live, recording
from agents_ledger.ledger.turns.batch_recording import Record
from agents_ledger.ledger.turns.live import NO_RESPONSE, LiveState
from agents_ledger.model.agents.embedding import Embedder
from agents_ledger.model.agents.engine import Engine
from agents_ledger.model.compaction import Compaction, Trigger
from agents_ledger.model.errors import Conflict, LedgerError, OutcomeUnknown, Refused
from agents_ledger.model.reports.routing import SmartFork
from agents_ledger.model.sessions import (
    Alias,
    AliasReason,
    Session,
    SessionStatus,
)
from agents_ledger.model.tasks import Task, TaskCall, TaskMessage
from agents_ledger.model.text.tokens import Counter, estimate_tokens
from agents_ledger.model.turns import (
    Answer,
    CallStatus,
    Message,
    Query,
    ToolCall,
    Turn,
    TurnFields,
    Usage,
    to_json,
)
from agents_ledger.store.database import Work

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

T = TypeVar("T")


class _Mailbox:
    """Outcomes on their way to one event loop: a whole batch wakes it once."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.letters: deque[tuple[_Answer, Any, BaseException | None]] = deque()

    def wake(self) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self.letters:
            answer, result, error = self.letters.popleft()
            answer.arrive(result, error)


class _Answer:
    """Where one write's outcome arrives."""

    def __init__(self, mailbox: _Mailbox) -> None:
        self._mailbox = mailbox
        self.future: Future[Any] = mailbox.loop.create_future()
        self.arrived = False

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        self._mailbox.letters.append((self, result, error))
        return self._mailbox.wake

    def arrive(self, result: Any, error: BaseException | None) -> None:
        """In the loop: tell who waits, if nobody cancelled it."""
        self.arrived = True
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    async def wait_out(self) -> None:
        """Wait until the outcome is known, whatever it is and whoever cancels."""
        from asyncio import CancelledError

        while not self.arrived:
            self.future = self._mailbox.loop.create_future()
            with suppress(Exception, CancelledError):
                await self.future
        if not self.future.cancelled():
            self.future.exception()  # seen, so that asyncio does not complain


class _Nobody:
    """Waits for no outcome: what waits for the index is tried again later."""

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        """Nothing to do, and nobody to wake."""
        return lambda: None


class AsyncLedger(AsyncReading):
    """One ledger, for asyncio; see Ledger for what each verb does.

    `async with AsyncLedger.open(address) as ledger:`, or `await AsyncLedger.open(address)`.
    """

    def __init__(self, open_core: Callable[[], Core]) -> None:
        self._open_core = open_core
        self._mailbox: _Mailbox | None = None

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> AsyncLedger:
        """The ledger at a file's path or `postgresql://` address; opens when awaited or entered."""
        return cls(partial(Core.open, address, create=create, read_only=read_only))

    async def _start(self) -> AsyncLedger:
        import asyncio

        if self._opened is None:
            self._opened = await asyncio.to_thread(self._open_core)
        return self

    def __await__(self) -> Generator[Any, None, AsyncLedger]:
        return self._start().__await__()

    async def __aenter__(self) -> AsyncLedger:
        return await self._start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the ledger. Everything acknowledged is stored already."""
        import asyncio

        await asyncio.to_thread(self._core.close)

    async def _writer_id(self) -> str:
        import asyncio

        known = self._core.db.known_writer()
        if known is None:
            known = await asyncio.to_thread(self._core.db.writer)
        return known.id

    async def _write(self, work: Work[T]) -> T:
        """Queue `work` and wait for it. Cancelling takes it back, or, when a leader has it already,
        waits for its outcome first: a cancelled write is either not stored or known to be."""
        import asyncio

        loop = asyncio.get_running_loop()
        if not self._core.recovered:
            await asyncio.to_thread(self._core.recover_once)
        if self._mailbox is None or self._mailbox.loop is not loop:
            self._mailbox = _Mailbox(loop)
        answer: _Answer = _Answer(self._mailbox)
        withdraw = self._core.db.submit(work, answer)
        try:
            result: T = await answer.future
        except asyncio.CancelledError:
            if not withdraw():
                await answer.wait_out()
            raise
        if self._core.index_is_due():
            self._core.db.submit(partial(index_queue.put_in, least=index_queue.BATCH), _Nobody())
        return result

    # -- turns --------------------------------------------------------------------------------

    async def record(
        self,
        session: str,
        query: Query = (),
        response: Answer = None,
        *,
        steps: Sequence[Message | ToolCall] = (),
        usage: Usage | None = None,
        status: Literal["completed", "failed"] = "completed",
        error: str | None = None,
        completed_at: int | None = None,
        compaction: Compaction | None = None,
        **fields: Unpack[TurnFields],
    ) -> Turn:
        """Record a finished turn and move the session to it: all of it, or nothing.

        The session is found by label, then by alias, else created. With an `id` of your own, the
        same call again changes nothing and returns the turn.
        """
        passed = {
            "steps": steps,
            "usage": usage,
            "status": status,
            "error": error,
            "completed_at": completed_at,
            "compaction": compaction,
            **fields,
        }
        prepared = recording.recording(session, query, response, passed)
        try:
            return await self._write(Record(prepared))
        except OutcomeUnknown as unknown:
            raise OutcomeUnknown(str(unknown), prepared.id) from unknown

    def turn(self, session: str, query: Query = (), **fields: Unpack[TurnFields]) -> AsyncLiveTurn:
        """A live turn; it begins when awaited or entered."""
        return AsyncLiveTurn(self, recording.recording(session, query, None, {**fields}, live=True))

    async def compact(
        self,
        session: str,
        *,
        strategy: str = "summary",
        engine: Engine | None = None,
        model: str | None = None,
        budget: int | None = None,
        trigger: Trigger = "manual",
        instructions: str | None = None,
        fallback: str | None = None,
        count: Counter = estimate_tokens,
    ) -> Turn:
        """Compact a session to `budget` tokens; the compaction turn, with its record.

        The strategy `summary` has the engine summarise what does not stay; `sliding_window` and
        `selective` need no model, also as `fallback` for when summarising fails.
        """
        from agents_ledger.ledger.context import compaction as compacting

        asked = compacting.Asked(
            session, strategy, budget, trigger, engine, model, instructions, fallback, count
        )
        return await compacting.compact(asked, self._read, self._write)

    async def embed(self, embedder: Embedder, *, behind: bool = False) -> int:
        """Give every turn that lacks one a vector, for searching by meaning; how many.

        `behind`: in a thread, now and whenever turns were recorded, until the ledger is closed.
        """
        import asyncio

        from agents_ledger.ledger.search import vectors

        await asyncio.to_thread(self._core.recover_once)
        if behind:
            self._core.embed_behind(embedder)
            return 0
        return await asyncio.to_thread(vectors.embed, self._core.db, embedder)

    async def rebuild_index(self) -> int:
        """Empty the word index and fill it again from the turns; with how many. Vectors go too."""
        import asyncio

        return await asyncio.to_thread(self._core.rebuild_index)

    async def recover(self) -> tuple[str, ...]:
        """Fail the turns whose writer died; their ids. Done by itself before the first write."""
        import asyncio

        return await asyncio.to_thread(self._core.recover)

    async def summarise(self) -> int:
        """Sum up the days that are over, so that usage() and tools() are quick; how many days."""
        import asyncio

        from agents_ledger.ledger.reports import daily_totals

        await asyncio.to_thread(self._core.recover_once)
        return await asyncio.to_thread(daily_totals.summarise, self._core.db)

    def batch(self) -> AsyncBatch:
        """Saves of tasks, their messages and calls, committed together when its block ends."""
        return AsyncBatch(self)

    # -- sessions -----------------------------------------------------------------------------

    async def create_session(self, session: Session | str) -> Session:
        """Make a session, empty or pointing to a turn. NameTaken if its label leads somewhere."""
        new = Session(session) if isinstance(session, str) else session
        return await self._write(lambda tx: heads.create(tx, new))

    async def fork(
        self,
        target: str,
        *,
        label: str | None = None,
        before: bool = False,
        persona_id: str | None = None,
    ) -> Session:
        """A new session at a turn; `before`: at its parent, to ask its query differently."""
        return await self._write(
            lambda tx: heads.fork(tx, target, label=label, before=before, persona_id=persona_id)
        )

    async def smart_fork(
        self,
        text: str,
        *,
        label: str | None = None,
        persona_id: str | None = None,
        budget: int | None = None,
        embedder: Embedder | None = None,
    ) -> SmartFork:
        """Fork where the context fits a text best; where nothing fits well enough, only propose."""
        from agents_ledger.ledger.search import routing

        found = await self._read(
            lambda tx: routing.proposed(tx, text, budget=budget, embedder=embedder)
        )
        if not routing.is_sure(found):
            return found
        first = found.proposals[0]
        made = await self.fork(first.turn_id, label=label, persona_id=persona_id)
        return SmartFork(made, found.confidence, found.proposals)

    async def move(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Point a session to any sealed turn; only from `expected`, if that is given."""
        return await self._write(
            lambda tx: heads.move(tx, key, target, expected=expected, reason="move")
        )

    async def roll_back(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Point a session to an ancestor of its head."""
        return await self._write(
            lambda tx: heads.move(tx, key, target, expected=expected, reason="rollback")
        )

    async def undo(self, key: str, move_id: int | None = None) -> Session:
        """Point a session to where it was before a move, by default its last."""
        return await self._write(lambda tx: heads.undo(tx, key, move_id))

    async def clear(self, key: str) -> Session:
        """Make a session empty. Its turns stay."""
        return await self._write(lambda tx: heads.clear(tx, key))

    async def archive(self, key: str, status: SessionStatus = "archived") -> Session:
        """Archive a session, mark it deleted, or make it active again. Nothing is removed."""
        return await self._write(lambda tx: heads.set_status(tx, key, status))

    async def update_session(self, key: str, **changes: Any) -> Session:
        """Change persona_id, agent_id, routing_key, task_description, task_status, origin or
        origin_session_id."""
        return await self._write(lambda tx: heads.update(tx, key, changes))

    async def annotate(self, key: str, **changes: Any) -> Session:
        """Change a session's title, starred or note: people's words, not part of the record."""
        return await self._write(lambda tx: heads.annotate(tx, key, changes))

    # -- names and history --------------------------------------------------------------------

    async def alias(self, alias: str, key: str, *, reason: AliasReason = "manual") -> Alias:
        """Let a session answer to another key."""
        return await self._write(lambda tx: names.add(tx, alias, key, reason=reason))

    async def promote(self, channel: str, entity: str) -> Session:
        """Somebody known by a channel's key turns out to be an entity: both lead to one session."""
        return await self._write(lambda tx: names.promote(tx, channel, entity))

    async def merge(
        self, first: str, second: str, *, reason: AliasReason = "identity_merge"
    ) -> Session:
        """Let two sessions go on as the one with the longer history; nothing is lost."""
        return await self._write(lambda tx: names.merge(tx, first, second, reason=reason))


def over(core: Core) -> AsyncLedger:
    """A ledger that is open already."""
    ledger = AsyncLedger(lambda: core)
    ledger._opened = core
    return ledger


class AsyncBatch:
    """Tasks, messages and calls to be saved as one; none of them if its block ends by an error."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger
        self._entities: list[Task | TaskMessage | TaskCall] = []

    def save(self, *entities: Task | TaskMessage | TaskCall) -> None:
        """Add to what is saved at the end of the block, in this order."""
        self._entities += entities

    async def __aenter__(self) -> AsyncBatch:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio

        from agents_ledger.ledger.tasks import Tasks

        if error is None:
            tasks = Tasks(self._ledger._core)
            await self._ledger._write(await asyncio.to_thread(tasks.saving, self._entities))


class AsyncLiveTurn:
    """A turn being written. Leaving its block without a response fails it."""

    def __init__(self, ledger: AsyncLedger, prepared: recording.Prepared) -> None:
        self._ledger = ledger
        self._prepared = prepared
        self._state: LiveState | None = None
        self.id = prepared.id

    async def _start(
        self, within: Callable[[Work[None]], Work[None]] = lambda work: work
    ) -> AsyncLiveTurn:
        """`within`: what the first commit does beside."""
        import asyncio

        writer_id = await self._ledger._writer_id()
        if self._state is None:
            state = LiveState(self._prepared, writer_id)
            try:
                await self._ledger._write(within(state.begin()))
            except asyncio.CancelledError:  # perhaps it was begun: nobody will enter its block
                await asyncio.shield(self._abandon(state))
                raise
            except OutcomeUnknown as unknown:
                raise OutcomeUnknown(str(unknown), self.id) from unknown
            self._state = state
        return self

    async def _abandon(self, state: LiveState) -> None:
        """Fail the turn, if it was begun."""
        with suppress(LedgerError):
            await self._ledger._write(state.fail("CancelledError", Usage()))

    @property
    def state(self) -> LiveState:
        """What the turn's writer keeps in mind."""
        if self._state is None:
            raise Refused("this turn has not begun", "Await it, or enter it with `async with`.")
        return self._state

    def __await__(self) -> Generator[Any, None, AsyncLiveTurn]:
        return self._start().__await__()

    async def __aenter__(self) -> AsyncLiveTurn:
        return await self._start()

    async def message(self, message: str | Message, *, streamed: bool = False) -> Message:
        """Commit a message; text is the assistant's. `streamed`: it is what was streamed so far."""
        filled, work = self.state.message(message, streamed=streamed)
        with self.state.committing(filled):
            await self._ledger._write(work)
        return self.state.said(filled, streamed=streamed)

    def tool_call(
        self, tool_name: str, params: object = None, *, id: str = "", tool_number: int | None = None
    ) -> AsyncLiveCall:
        """A tool call; that it is made is committed when awaited or entered."""
        return AsyncLiveCall(self, self.state.call(tool_name, params, id, tool_number))

    async def stream(self, text: str) -> None:
        """Commit a piece of the answer; others see it in `partial_text`."""
        with self.state.committing(text):
            await self._ledger._write(self.state.stream(text))
        self.state.streamed()

    async def respond(
        self,
        response: Answer = None,
        *,
        usage: Usage | None = None,
        model: str | None = None,
        provider: str | None = None,
        permissions_used: Any = None,
    ) -> None:
        """Seal the turn and move its session to it. Without a response, what was streamed is it.

        HeadMoved: the session moved meanwhile; the turn is stored all the same, beside its head.
        """
        work = self.state.respond(
            response,
            usage=usage or Usage(),
            model=model,
            provider=provider,
            permissions_used=permissions_used,
        )
        self.state.close(await self._ledger._write(work))

    async def fail(self, error: str, *, usage: Usage | None = None) -> None:
        """Seal the turn as failed; what was recorded stays, the head does not move."""
        self.state.close(await self._ledger._write(self.state.fail(error, usage or Usage())))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio

        if self.state.sealed:
            return
        try:
            await asyncio.shield(self.fail(live.reason_of(error) if error else NO_RESPONSE))
        except Conflict:  # sealed all the same, and the error came after: it tells more
            if error is None:
                raise


class AsyncLiveCall:
    """A tool call under way. Leaving its block by an error fails it."""

    def __init__(self, turn: AsyncLiveTurn, call: ToolCall) -> None:
        self._turn = turn
        self.call = call
        self.id = call.id
        self._started = self._finished = False

    async def _start(self) -> AsyncLiveCall:
        if not self._started:
            state = self._turn.state
            with state.committing(self.call):
                await self._turn._ledger._write(state.start(self.call))
            self._started = True
        return self

    def __await__(self) -> Generator[Any, None, AsyncLiveCall]:
        return self._start().__await__()

    async def _finish(self, status: CallStatus, **outcome: str | None) -> None:
        await self._turn._ledger._write(self._turn.state.finish(self.call, status, **outcome))
        self._finished = True

    async def complete(self, result: object = None) -> None:
        """Commit the result: JSON text, or what becomes it."""
        await self._finish("completed", result_json=None if result is None else to_json(result))

    async def fail(self, error: str, result: object = None) -> None:
        """Commit that the call failed."""
        given = None if result is None else to_json(result)
        await self._finish("failed", error=error, result_json=given)

    async def cancel(self, error: str | None = None) -> None:
        """Commit that the call was given up."""
        await self._finish("cancelled", error=error)

    async def reject(self, error: str | None = None) -> None:
        """Commit that the call was not allowed."""
        await self._finish("rejected", error=error)

    async def spawn(self, session: Session | str) -> Session:
        """Make the session of a subagent that this call starts, linked from both sides."""
        child = Session(session) if isinstance(session, str) else session
        return await self._turn._ledger._write(self._turn.state.spawn(self.call, child))

    async def __aenter__(self) -> AsyncLiveCall:
        return await self._start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not self._finished:
            with suppress(Conflict):  # it ended all the same
                await self.fail(live.reason_of(error))
