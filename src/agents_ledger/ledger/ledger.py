"""The ledger for synchronous programs. Every verb is a function of its own module, joined here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.reading import Reading
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.ledger.turns import live, recording
from agents_ledger.ledger.turns.batch_recording import Record
from agents_ledger.ledger.turns.live import NO_RESPONSE, LiveState
from agents_ledger.model.agents.embedding import Embedder
from agents_ledger.model.agents.engine import Engine
from agents_ledger.model.compaction import Compaction, Trigger
from agents_ledger.model.errors import Conflict, OutcomeUnknown
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

T = TypeVar("T")


class Ledger(Reading):
    """One ledger, for any number of threads.

    A target is a session's label or alias, or a turn's id or the first letters of it.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    @classmethod
    def open(cls, address: str, *, create: bool = True, read_only: bool = False) -> Ledger:
        """Open the ledger at a file's path or a `postgresql://` address, creating it if need be."""
        return cls(Core.open(address, create=create, read_only=read_only))

    def close(self) -> None:
        """Close the ledger. Everything acknowledged is stored already."""
        self._core.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, work: Work[T]) -> T:
        self._core.recover_once()
        result = self._core.db.write(work)
        if self._core.index_is_due():
            self._core.index(steps=1)
        return result

    # -- turns --------------------------------------------------------------------------------

    def record(
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
            return self._write(Record(prepared))
        except OutcomeUnknown as unknown:
            raise OutcomeUnknown(str(unknown), prepared.id) from unknown

    def turn(self, session: str, query: Query = (), **fields: Unpack[TurnFields]) -> LiveTurn:
        """Begin a live turn: everything said in its block is durable as it happens."""
        self._core.recover_once()
        prepared = recording.recording(session, query, None, {**fields}, live=True)
        turn = LiveTurn(self, LiveState(prepared, self._core.db.writer().id))
        try:
            self._write(turn.state.begin())
        except OutcomeUnknown as unknown:
            raise OutcomeUnknown(str(unknown), turn.id) from unknown
        return turn

    def compact(
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
        read, write = compacting.at_once(self._read), compacting.at_once(self._write)
        return compacting.waited_for(compacting.compact(asked, read, write))

    def embed(self, embedder: Embedder, *, behind: bool = False) -> int:
        """Give every turn that lacks one a vector, for searching by meaning; how many.

        `behind`: in a thread, now and whenever turns were recorded, until the ledger is closed.
        """
        from agents_ledger.ledger.search import vectors

        self._core.recover_once()
        if behind:
            self._core.embed_behind(embedder)
            return 0
        return vectors.embed(self._core.db, embedder)

    def rebuild_index(self) -> int:
        """Empty the word index and fill it again from the turns; with how many. Vectors go too."""
        return self._core.rebuild_index()

    def recover(self) -> tuple[str, ...]:
        """Fail the turns whose writer died; their ids. Done by itself before the first write."""
        return self._core.recover()

    def summarise(self) -> int:
        """Sum up the days that are over, so that usage() and tools() are quick; how many days."""
        from agents_ledger.ledger.reports import daily_totals

        self._core.recover_once()
        return daily_totals.summarise(self._core.db)

    def batch(self) -> Batch:
        """Saves of tasks, their messages and calls, committed together when its block ends."""
        return Batch(self._core)

    # -- sessions -----------------------------------------------------------------------------

    def create_session(self, session: Session | str) -> Session:
        """Make a session, empty or pointing to a turn. NameTaken if its label leads somewhere."""
        new = Session(session) if isinstance(session, str) else session
        return self._write(lambda tx: heads.create(tx, new))

    def fork(
        self,
        target: str,
        *,
        label: str | None = None,
        before: bool = False,
        persona_id: str | None = None,
    ) -> Session:
        """A new session at a turn; `before`: at its parent, to ask its query differently."""
        return self._write(
            lambda tx: heads.fork(tx, target, label=label, before=before, persona_id=persona_id)
        )

    def smart_fork(
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

        found = self._read(lambda tx: routing.proposed(tx, text, budget=budget, embedder=embedder))
        if not routing.is_sure(found):
            return found
        first = found.proposals[0]
        made = self.fork(first.turn_id, label=label, persona_id=persona_id)
        return SmartFork(made, found.confidence, found.proposals)

    def move(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Point a session to any sealed turn; only from `expected`, if that is given."""
        return self._write(lambda tx: heads.move(tx, key, target, expected=expected, reason="move"))

    def roll_back(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Point a session to an ancestor of its head."""
        return self._write(
            lambda tx: heads.move(tx, key, target, expected=expected, reason="rollback")
        )

    def undo(self, key: str, move_id: int | None = None) -> Session:
        """Point a session to where it was before a move, by default its last."""
        return self._write(lambda tx: heads.undo(tx, key, move_id))

    def clear(self, key: str) -> Session:
        """Make a session empty. Its turns stay."""
        return self._write(lambda tx: heads.clear(tx, key))

    def archive(self, key: str, status: SessionStatus = "archived") -> Session:
        """Archive a session, mark it deleted, or make it active again. Nothing is removed."""
        return self._write(lambda tx: heads.set_status(tx, key, status))

    def update_session(self, key: str, **changes: Any) -> Session:
        """Change persona_id, agent_id, routing_key, task_description, task_status, origin or
        origin_session_id."""
        return self._write(lambda tx: heads.update(tx, key, changes))

    def annotate(self, key: str, **changes: Any) -> Session:
        """Change a session's title, starred or note: people's words, not part of the record."""
        return self._write(lambda tx: heads.annotate(tx, key, changes))

    # -- names and history --------------------------------------------------------------------

    def alias(self, alias: str, key: str, *, reason: AliasReason = "manual") -> Alias:
        """Let a session answer to another key."""
        return self._write(lambda tx: names.add(tx, alias, key, reason=reason))

    def promote(self, channel: str, entity: str) -> Session:
        """Somebody known by a channel's key turns out to be an entity: both lead to one session."""
        return self._write(lambda tx: names.promote(tx, channel, entity))

    def merge(self, first: str, second: str, *, reason: AliasReason = "identity_merge") -> Session:
        """Let two sessions go on as the one with the longer history; nothing is lost."""
        return self._write(lambda tx: names.merge(tx, first, second, reason=reason))


class Batch:
    """Tasks, messages and calls to be saved as one; none of them if its block ends by an error."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._entities: list[Task | TaskMessage | TaskCall] = []

    def save(self, *entities: Task | TaskMessage | TaskCall) -> None:
        """Add to what is saved at the end of the block, in this order."""
        self._entities += entities

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from agents_ledger.ledger.tasks import Tasks

        if error is None:
            Tasks(self._core).save(*self._entities)


class LiveTurn:
    """A turn being written. Leaving its block without a response fails it."""

    def __init__(self, ledger: Ledger, state: LiveState) -> None:
        self._ledger = ledger
        self.state = state
        self.id = state.id

    def message(self, message: str | Message, *, streamed: bool = False) -> Message:
        """Commit a message; text is the assistant's. `streamed`: it is what was streamed so far."""
        filled, work = self.state.message(message, streamed=streamed)
        with self.state.committing(filled):
            self._ledger._write(work)
        return self.state.said(filled, streamed=streamed)

    def tool_call(
        self, tool_name: str, params: object = None, *, id: str = "", tool_number: int | None = None
    ) -> LiveCall:
        """Commit that a tool is being called."""
        call = self.state.call(tool_name, params, id, tool_number)
        with self.state.committing(call):
            self._ledger._write(self.state.start(call))
        return LiveCall(self, call)

    def stream(self, text: str) -> None:
        """Commit a piece of the answer; others see it in `partial_text`."""
        with self.state.committing(text):
            self._ledger._write(self.state.stream(text))
        self.state.streamed()

    def respond(
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
        self.state.close(self._ledger._write(work))

    def fail(self, error: str, *, usage: Usage | None = None) -> None:
        """Seal the turn as failed; what was recorded stays, the head does not move."""
        self.state.close(self._ledger._write(self.state.fail(error, usage or Usage())))

    def __enter__(self) -> LiveTurn:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.state.sealed:
            return
        try:
            self.fail(live.reason_of(error) if error else NO_RESPONSE)
        except Conflict:  # sealed all the same, and the error came after: it tells more
            if error is None:
                raise


class LiveCall:
    """A tool call under way. Leaving its block by an error fails it."""

    def __init__(self, turn: LiveTurn, call: ToolCall) -> None:
        self._turn = turn
        self.call = call
        self.id = call.id
        self._finished = False

    def _finish(self, status: CallStatus, **outcome: str | None) -> None:
        self._turn._ledger._write(self._turn.state.finish(self.call, status, **outcome))
        self._finished = True

    def complete(self, result: object = None) -> None:
        """Commit the result: JSON text, or what becomes it."""
        self._finish("completed", result_json=None if result is None else to_json(result))

    def fail(self, error: str, result: object = None) -> None:
        """Commit that the call failed."""
        given = None if result is None else to_json(result)
        self._finish("failed", error=error, result_json=given)

    def cancel(self, error: str | None = None) -> None:
        """Commit that the call was given up."""
        self._finish("cancelled", error=error)

    def reject(self, error: str | None = None) -> None:
        """Commit that the call was not allowed."""
        self._finish("rejected", error=error)

    def spawn(self, session: Session | str) -> Session:
        """Make the session of a subagent that this call starts, linked from both sides."""
        child = Session(session) if isinstance(session, str) else session
        return self._turn._ledger._write(self._turn.state.spawn(self.call, child))

    def __enter__(self) -> LiveCall:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not self._finished:
            with suppress(Conflict):  # it ended all the same
                self.fail(live.reason_of(error))
