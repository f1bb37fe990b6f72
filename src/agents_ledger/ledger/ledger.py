"""The ledger for synchronous programs: every verb that writes, live turns and batches.

`make async` writes AsyncLedger from this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.face import Begins, uninterrupted
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.ledger.subjects import Subjects
from agents_ledger.ledger.turns import live, recording
from agents_ledger.ledger.turns.batch_recording import RecordTurn
from agents_ledger.ledger.turns.live import NO_RESPONSE
from agents_ledger.ledger.turns.live_state import LiveState
from agents_ledger.model.agents.embedding import Embedder
from agents_ledger.model.agents.engine import AnswerFunction, Engine, as_engine
from agents_ledger.model.agents.tasks import Task, TaskCall, TaskMessage
from agents_ledger.model.context.compaction import Compaction, Trigger
from agents_ledger.model.errors import Conflict, OutcomeUnknown
from agents_ledger.model.imports.requests import (
    ChunkResponse,
    ImportChunk,
    ImportRequest,
    ImportResponse,
)
from agents_ledger.model.reports.routing import SmartFork
from agents_ledger.model.sessions import (
    Alias,
    AliasReason,
    Annotations,
    Session,
    SessionStatus,
)
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
    encoded,
)
from agents_ledger.store.database import Work


class Ledger(Subjects):
    """One ledger, for any number of threads or tasks.

    A target is a session's label or alias, or a turn's id or a prefix of it.
    """

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
        """Record a finished turn and move the session's head to it, in one transaction.

        The session is found by label, then by alias, otherwise created. With an `id` of your own,
        a repeated call changes nothing and returns the turn.
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
        recording.check_content(prepared.new)
        try:
            return self._write(RecordTurn(prepared))
        except OutcomeUnknown as unknown:
            raise OutcomeUnknown(str(unknown), prepared.id) from unknown

    def turn(self, session: str, query: Query = (), **fields: Unpack[TurnFields]) -> LiveTurn:
        """A live turn, durable from its first message on.

        With asyncio, it begins when it is awaited or entered.
        """
        prepared = recording.recording(session, query, None, {**fields}, live=True)
        return LiveTurn(self, prepared)._start()

    def compact(
        self,
        session: str,
        *,
        strategy: str = "summary",
        engine: Engine | AnswerFunction | None = None,
        model: str | None = None,
        budget: int | None = None,
        trigger: Trigger = "manual",
        instructions: str | None = None,
        fallback: str | None = None,
        count: Counter = estimate_tokens,
    ) -> Turn:
        """Compact a session to `budget` tokens; returns the compaction turn.

        The strategy `summary` has the engine summarise the turns that are not kept: an Engine, or a
        function that gets the prompt and returns the summary. The strategies `sliding_window` and
        `selective` need no model; either can be the `fallback` for a summary that fails.
        """
        from agents_ledger.ledger.context import compaction

        request = compaction.CompactionRequest(
            session=session,
            strategy=strategy,
            budget=budget,
            trigger=trigger,
            engine=as_engine(engine),
            model=model,
            instructions=instructions,
            fallback=fallback,
            count=count,
        )
        return compaction.compact_and_wait(request, self._read, self._write)

    def import_sessions(self, request: ImportRequest | Mapping[str, Any]) -> ImportResponse:
        """Import sessions of another program; returns the result of each.

        A mapping has the fields of a JSON request. A repeated request gets the same answer, an
        unchanged session is skipped, and one that is invalid fails without affecting the others.
        RequestRefused if the request as a whole is invalid.
        """
        return self._call(Core.import_sessions, request)

    def import_chunk(self, chunk: ImportChunk | Mapping[str, Any]) -> ChunkResponse:
        """Stage a part of one session of another program; the last part imports it."""
        return self._call(Core.import_chunk, chunk)

    def embed(self, embedder: Embedder, *, behind: bool = False) -> int:
        """Compute the missing vectors for searching by meaning; returns how many.

        `behind`: do so in a thread, now and after each recorded turn, until the ledger is closed.
        """
        return self._call(Core.embed, embedder, behind=behind)

    def rebuild_index(self) -> int:
        """Rebuild the word index from the turns and drop all vectors; returns how many turns."""
        return self._call(Core.rebuild_index)

    def recover(self) -> tuple[str, ...]:
        """Fail the turns whose writer died; returns their ids. The first write does this too."""
        return self._call(Core.recover)

    def summarise(self) -> int:
        """Store the daily totals that make usage() and tools() fast; returns how many days."""
        return self._call(Core.summarise)

    def batch(self) -> Batch:
        """A batch of tasks, task messages and task calls, committed when its block ends."""
        return Batch(self)

    # -- sessions -----------------------------------------------------------------------------

    def create_session(self, session: Session | str) -> Session:
        """Create a session, empty or at a turn. NameTaken if the label is a session or an alias."""
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
        """Create a session at a turn; with `before` at its parent, to ask another query there."""
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
        """Fork at the turn whose context fits a text best.

        Without a sufficiently good match, nothing is forked and only the proposals are returned.
        """
        from agents_ledger.ledger.search import routing

        proposed = self._read(
            lambda tx: routing.proposed(tx, text, budget=budget, embedder=embedder)
        )
        if not routing.is_sure(proposed):
            return proposed
        best = proposed.proposals[0]
        session = self.fork(best.turn_id, label=label, persona_id=persona_id)
        return SmartFork(session, proposed.confidence, proposed.proposals)

    def move(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Move a session's head to any sealed turn. HeadMoved if it is not at `expected`."""
        return self._write(lambda tx: heads.move(tx, key, target, expected=expected, reason="move"))

    def roll_back(self, key: str, target: str, *, expected: Any = ...) -> Session:
        """Move a session's head back to one of its ancestors."""
        return self._write(
            lambda tx: heads.move(tx, key, target, expected=expected, reason="rollback")
        )

    def undo(self, key: str, move_id: int | None = None) -> Session:
        """Move a session's head to where it was before a move, by default its last."""
        return self._write(lambda tx: heads.undo(tx, key, move_id))

    def clear(self, key: str) -> Session:
        """Empty a session. Its turns remain."""
        return self._write(lambda tx: heads.clear(tx, key))

    def archive(self, key: str, status: SessionStatus = "archived") -> Session:
        """Archive a session, mark it deleted, or make it active again. Nothing is removed."""
        return self._write(lambda tx: heads.set_status(tx, key, status))

    def update_session(self, key: str, **changes: Any) -> Session:
        """Change persona_id, agent_id, routing_key, task_description, task_status, origin or
        origin_session_id."""
        return self._write(lambda tx: heads.update(tx, key, changes))

    def annotate(self, key: str, **changes: Unpack[Annotations]) -> Session:
        """Change a session's title, starred or note, which are not part of the record."""
        return self._write(lambda tx: heads.annotate(tx, key, {**changes}))

    # -- names and history --------------------------------------------------------------------

    def alias(self, alias: str, key: str, *, reason: AliasReason = "manual") -> Alias:
        """Add another key that leads to a session."""
        return self._write(lambda tx: names.add(tx, alias, key, reason=reason))

    def remove_alias(self, alias: str) -> Alias:
        """Remove an alias. Refused for labels, and for names that the next import would add."""
        return self._write(lambda tx: names.remove(tx, alias))

    def rename(self, key: str, label: str) -> Session:
        """Give a session another label. The former label becomes an alias, so links still work."""
        return self._write(lambda tx: names.rename(tx, key, label))

    def promote(self, channel: str, entity: str) -> Session:
        """Make a channel's key and an entity's lead to one session."""
        return self._write(lambda tx: names.promote(tx, channel, entity))

    def merge(self, first: str, second: str, *, reason: AliasReason = "identity_merge") -> Session:
        """Merge two sessions into the one with the longer history. No turn is lost."""
        return self._write(lambda tx: names.merge(tx, first, second, reason=reason))

    def unmerge(self, label: str) -> Session:
        """Reverse a merge: the session of this label and its aliases are its own again.

        What was recorded through them after the merge stays with the other session.
        """
        return self._write(lambda tx: names.unmerge(tx, label))


class Batch:
    """Tasks, messages and calls that are saved together, or not at all if the block raises."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._entities: list[Task | TaskMessage | TaskCall] = []

    def save(self, *entities: Task | TaskMessage | TaskCall) -> None:
        """Add entities, to be saved in this order when the block ends."""
        self._entities += entities

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from agents_ledger.ledger.tasks import saving

        if error is None:
            self._ledger._write(self._ledger._call(saving, self._entities))


class LiveTurn(Begins):
    """A turn being written. Leaving its block without a response fails it."""

    id: str  # of the turn

    def __init__(
        self,
        ledger: Ledger,
        prepared: recording.PreparedTurn,
        within: Callable[[Work[None]], Work[None]] = lambda first: first,
    ) -> None:
        """`within` wraps the first commit, so that it can include more."""
        self._ledger = ledger
        self._prepared = prepared
        self._within = within
        self._state: LiveState | None = None
        self.id = prepared.id

    def _start(self) -> Self:
        self._attempted = True
        if self._state is None:
            state = LiveState(self._prepared, self._ledger._writer_id())
            try:
                self._ledger._begin(state, self._within(state.begin()))
            except OutcomeUnknown as unknown:
                raise OutcomeUnknown(str(unknown), self.id) from unknown
            self._state = state
        return self

    @property
    def state(self) -> LiveState:
        """What the turn's writer knows of it."""
        return self._begun(self._state)

    def message(self, message: str | Message, *, streamed: bool = False) -> Message:
        """Commit a message; a text becomes an assistant message.

        `streamed`: the message replaces the text streamed so far.
        """
        filled, work = self.state.message(message, streamed=streamed)
        with self.state.committing(filled):
            self._ledger._write(work)
        return self.state.committed(filled, streamed=streamed)

    def tool_call(
        self, tool_name: str, params: object = None, *, id: str = "", tool_number: int | None = None
    ) -> LiveCall:
        """Commit that a tool is being called.

        With asyncio, this is committed when the call is awaited or entered.
        """
        return LiveCall(self, self.state.call(tool_name, params, id, tool_number))._start()

    def add(self, *steps: Message | ToolCall) -> None:
        """Commit messages and tool calls at once, all of them or none.

        A call that the turn has already is its outcome.
        """
        filled = self.state.steps(steps)
        with self.state.committing(*filled.messages, *filled.calls):
            self._ledger._write(self.state.add(filled))
        self.state.added(filled)

    def stream(self, text: str) -> None:
        """Commit a piece of the answer, visible to others in `partial_text`."""
        with self.state.committing(text):
            self._ledger._write(self.state.stream(text))
        self.state.streamed()

    def respond(
        self,
        response: Answer = None,
        *,
        steps: Sequence[Message | ToolCall] = (),
        usage: Usage | None = None,
        model: str | None = None,
        provider: str | None = None,
        permissions_used: Any = None,
    ) -> None:
        """Seal the turn, after its last `steps`, and move its session's head to it.

        Without a response, the streamed text is the response. HeadMoved: the session's head moved
        meanwhile; the turn is stored, but the head does not point to it.
        """
        self.state.check_answered(response, steps)
        work = self.state.respond(
            response,
            steps=self.state.steps(steps),
            usage=usage or Usage(),
            model=model,
            provider=provider,
            permissions_used=permissions_used,
        )
        self.state.close(self._ledger._write(work))

    def fail(self, error: str, *, usage: Usage | None = None, model: str | None = None) -> None:
        """Seal the turn as failed. What was committed stays; the head does not move."""
        work = self.state.fail(error, usage or Usage(), model=model)
        self.state.close(self._ledger._write(work))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.state.sealed:
            return
        try:
            uninterrupted(self.fail, live.reason_of(error) if error else NO_RESPONSE)
        except Conflict:
            if error is None:
                # Otherwise the turn was sealed before the error, which says more.
                raise


class LiveCall(Begins):
    """A tool call in progress. Leaving its block by an error fails it."""

    id: str  # of the call
    call: ToolCall  # as it began

    def __init__(self, turn: LiveTurn, call: ToolCall) -> None:
        self._turn = turn
        self.call = call
        self.id = call.id
        self._started = self._finished = False

    def _start(self) -> Self:
        self._attempted = True
        if not self._started:
            state = self._turn.state
            with state.committing(self.call):
                self._turn._ledger._write(state.start(self.call))
            self._started = True
        return self

    def _finish(self, status: CallStatus, **outcome: str | None) -> None:
        self._begun(self._started or None)
        self._turn._ledger._write(self._turn.state.finish(self.call, status, **outcome))
        self._finished = True

    def complete(self, result: object = None) -> None:
        """Commit the result: any value that can be encoded as JSON, or its JSON text."""
        self._finish("completed", result_json=None if result is None else encoded(result, "result"))

    def fail(self, error: str, result: object = None) -> None:
        """Commit that the call failed."""
        result_json = None if result is None else encoded(result, "result")
        self._finish("failed", error=error, result_json=result_json)

    def cancel(self, error: str | None = None) -> None:
        """Commit that the call was cancelled."""
        self._finish("cancelled", error=error)

    def reject(self, error: str | None = None) -> None:
        """Commit that the call was not permitted."""
        self._finish("rejected", error=error)

    def spawn(self, session: Session | str) -> Session:
        """Create the session of a subagent that this call starts, and link the two."""
        self._begun(self._started or None)
        child = Session(session) if isinstance(session, str) else session
        return self._turn._ledger._write(self._turn.state.spawn(self.call, child))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not self._finished:
            with suppress(Conflict):  # it finished before the error
                self.fail(live.reason_of(error))
