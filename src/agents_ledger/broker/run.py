"""The run of one turn, from a claimed queue entry to a sealed turn: configure, assemble, begin,
converse, seal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from agents_ledger.broker import configuration, prompts
from agents_ledger.broker.assistant_output import AssistantOutput
from agents_ledger.broker.configuration import Configured
from agents_ledger.broker.engines.registry import Engines
from agents_ledger.broker.events import (
    Compacted,
    Completed,
    Failed,
    Interrupted,
    RunEvent,
    Started,
    Steered,
)
from agents_ledger.broker.policy import Policy
from agents_ledger.broker.tools import OfferedTool, TurnCalls
from agents_ledger.ledger.aio.async_ledger import AsyncLedger, AsyncLiveTurn
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.ledger.context.contexts import Context
from agents_ledger.ledger.sessions.queue_entries import ClaimEnding, NewEntry, new_entry
from agents_ledger.model.agents import config as configs
from agents_ledger.model.agents import permissions
from agents_ledger.model.agents.engine import Engine, EngineEvent, Finished, MessageDone, Request
from agents_ledger.model.agents.permissions import Permissions
from agents_ledger.model.context.compaction import Trigger, nears_limit
from agents_ledger.model.context.items import Item, TextItem, count_tokens
from agents_ledger.model.errors import EngineError, HeadMoved, LedgerError, Refused
from agents_ledger.model.queue import Ask, Claim, QueueLimits, QueueStatus
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import Message, Usage

# How often the head may move before a turn can begin.
MOVES_MAX = 5
# Numbers of final turns that are not shortened, tried in order until the context fits.
PROTECTED = (3, 1, 0)
# The result of a worker must never be dropped from the queue of its manager.
NEVER_FULL = QueueLimits(cap=1 << 31)
CANCELLED, INTERRUPTED, TIMEOUT, CLOSED = "cancelled", "interrupted", "timeout", "closed"
STOP_MESSAGES = {
    CANCELLED: "cancelled",
    INTERRUPTED: "interrupted by a later message",
    TIMEOUT: "timed out",
    CLOSED: "the broker was closed",
}


class Setup(NamedTuple):
    ledger: AsyncLedger
    queue: AsyncQueue
    policy: Policy
    engines: Engines
    tools: Callable[[Claim], Mapping[str, OfferedTool]]
    summariser: Engine | None  # None: the engine and model of the turn


class TurnPlan(NamedTuple):
    configured: Configured
    persona_id: str
    tools: Mapping[str, OfferedTool]
    granted: Permissions
    prompt: str | None  # None: the thread's own
    messages: tuple[Message, ...]
    ask: Ask  # of the last entry


class EngineOutcome(NamedTuple):
    """How the engine ended: with `finished`, or with the kind and message of an error."""

    finished: Finished | None = None
    kind: str = ""
    error: str = ""


class TurnRun:
    def __init__(
        self, setup: Setup, claim: Claim, publish: Callable[[Claim, RunEvent], None]
    ) -> None:
        self.setup = setup
        self.claim = claim
        self._publish = publish
        self._stopped: str | None = None
        self._engine_task: asyncio.Task[EngineOutcome] | None = None
        self._turn: AsyncLiveTurn | None = None
        self._overflowed = False
        self._budget: int | None = None
        self._earlier_steps: tuple[Item, ...] = ()  # of the turn that overflowed

    def stop(self, why: str) -> None:
        """Stop the turn: cancelled, interrupted, timeout or closed."""
        self._stopped = self._stopped or why
        if self._engine_task is not None:
            self._engine_task.cancel()

    def _notify(self, event: RunEvent) -> None:
        self._publish(self.claim, event)

    async def answer(self, *, go_on: bool = True) -> Claim | None:
        """Answer the claim; returns the next claim of the same session if `go_on` is set."""
        try:
            plan, turn, context = await self._begin()
        except LedgerError as error:
            await self.setup.queue.fail(self.claim, str(error))
            kind = error.kind if isinstance(error, EngineError) else "refused"
            self._notify(Failed(None, str(error), kind))
            return None
        calls = TurnCalls(turn, self.claim.session_label, plan.tools, plan.granted)
        output = AssistantOutput(turn)
        outcome = await self._converse(plan, turn, context, calls, output)
        # Once only: if the compacted context overflows too, another attempt would do the same
        # again.
        if outcome.kind == "overflow" and not self._overflowed and not self._stopped:
            self._overflowed = True
            # Tools that ran are not run again: the next turn is shown their calls and results.
            self._earlier_steps = output.items()
            await self._make_room(plan, turn, context, outcome)
            return await self.answer(go_on=go_on)
        return await self._seal(plan, turn, calls, output, outcome, go_on=go_on)

    async def give_up(self, error: Exception) -> None:
        """Fail the turn and its entries after an unexpected exception."""
        reason = f"{type(error).__name__}: {error}"
        turn = self._turn
        self._notify(Failed(turn.id if turn else None, reason))
        if turn is None or turn.state.sealed:
            await self.setup.queue.fail(self.claim, reason)
            return
        ending = ClaimEnding((turn.state.fail(reason, Usage()),), "failed", reason)
        await self.setup.queue.seal(self.claim, turn, ending)

    # -- before the engine ----------------------------------------------------------------------

    async def _begin(self) -> tuple[TurnPlan, AsyncLiveTurn, Context]:
        """Begin the turn on the head of the session; if the head moves, on the new one."""
        for attempt in range(MOVES_MAX):
            plan = await self._configure()
            context = await self._assemble(plan)
            try:
                turn = await self._begin_turn(plan, context)
            except HeadMoved:
                if attempt == MOVES_MAX - 1:
                    raise
                self.claim = await self.setup.queue.look_again(self.claim)
            else:
                ids = tuple(entry.id for entry in self.claim.entries)
                label = self.claim.session_label
                self._notify(Started(turn.id, label, ids, plan.configured.model.model))
                return plan, turn, context
        raise AssertionError("not reached")

    async def _configure(self) -> TurnPlan:
        """Fold the configuration, and narrow the permissions."""
        claim, policy = self.claim, self.setup.policy
        asks = [entry.ask for entry in claim.entries if entry.ask is not None]
        session = claim.session
        continued = configuration.Continued(
            session.persona_id,
            session.thread_id,
            configs.decode(claim.config_json),
            session.is_subagent,
            await configuration.manager_layers(self.setup.ledger, session.parent_turn_id),
        )
        configured = configuration.configure(
            policy,
            self.setup.engines,
            continued,
            {name: value for ask in asks for name, value in ask.directives.items()},
            next((ask.role for ask in reversed(asks) if ask.role), None),
        )
        tools = self.setup.tools(claim)
        granted = policy.narrow(
            session.persona_id,
            {name: tool.credentials for name, tool in tools.items()},
            toolset=configured.toolset,
            inherited=continued.layers,
        )
        prompt = prompts.system_prompt(policy.persona(session.persona_id), configured.role, session)
        return TurnPlan(
            configured, session.persona_id, tools, granted, prompt,
            prompts.messages_of(claim), asks[-1],
        )  # fmt: skip

    async def _assemble(self, plan: TurnPlan) -> Context:
        """The context of the turn; the session is compacted first if it nears the limit."""
        limits = self.setup.policy.context
        context = await self._context(plan)
        if self._overflowed or not nears_limit(
            context.total_tokens, limits.window_tokens, limits.compact_at
        ):
            return context
        await self._compact(plan, limits.window_tokens * limits.compact_to, "context_limit")
        return await self._context(plan)

    async def _context(self, plan: TurnPlan) -> Context:
        """The context of the turn, shortened to the budget if there is one."""
        context = partial(
            self.setup.ledger.context,
            self.claim.session.label,
            plan.messages,
            system_prompt=plan.prompt,
        )
        for last in PROTECTED if self._budget is not None else ():
            with suppress(Refused):
                return await context(self._budget, last=last)
        # No budget, or not even the query fits: then the provider reports the overflow.
        return await context()

    async def _begin_turn(self, plan: TurnPlan, context: Context) -> AsyncLiveTurn:
        persona = self.setup.policy.persona(plan.persona_id)
        query = prompts.with_context(plan.messages, plan.persona_id, persona, context)
        self._turn = await self.setup.queue.begin(
            self.claim,
            query,
            # The head that the context was assembled from: if it moved since, HeadMoved is raised
            # and the context is assembled anew.
            parent=self.claim.session.thread_id,
            model=plan.configured.model.model,
            role=plan.configured.role,
            toolset_name=plan.configured.toolset,
            tools_available=list(plan.tools),
            permissions_granted=permissions.encode(plan.granted).decode(),
            source_event_id=plan.ask.source_event_id,
            workspace_path=plan.ask.workspace_path,
            config=plan.configured.config,
            system_prompt=plan.prompt,
        )
        return self._turn

    # -- the engine -----------------------------------------------------------------------------

    async def _converse(
        self,
        plan: TurnPlan,
        turn: AsyncLiveTurn,
        context: Context,
        calls: TurnCalls,
        output: AssistantOutput,
    ) -> EngineOutcome:
        """Run the engine until it ends, fails, is stopped or times out."""
        request = Request(
            (*context.items, *self._earlier_steps),
            context.system_prompt,
            plan.configured.model,
            tuple(tool.tool for name, tool in plan.tools.items() if name in plan.granted.tools),
            calls.call,
            self._steering(turn),
        )
        listening = self._listen(plan.configured.engine, request, output)
        task = self._engine_task = asyncio.create_task(listening)
        if self._stopped:
            task.cancel()
        try:
            done, _ = await asyncio.wait([task], timeout=self.setup.policy.engine.timeout_seconds)
        except asyncio.CancelledError:
            # The broker is being closed. The turn is still to be sealed, so the cancellation is
            # raised only after that.
            self.stop(CLOSED)
            done = set()
        if not done:
            self.stop(TIMEOUT)
            await asyncio.wait([task])
        self._engine_task = None
        if task.cancelled():
            why = self._stopped or CANCELLED
            return EngineOutcome(None, why, STOP_MESSAGES[why])
        return task.result()

    async def _listen(
        self, engine: Engine, request: Request, output: AssistantOutput
    ) -> EngineOutcome:
        outcome = EngineOutcome(None, "unavailable", "the engine ended without an answer")
        try:
            async for event in engine.run(request):
                if isinstance(event, Finished):
                    outcome = EngineOutcome(event)
                    continue
                if not isinstance(event, EngineEvent):
                    error = f"an engine yields TextPiece, MessageDone, ..., not {event!r:.80}"
                    return EngineOutcome(None, "error", error)
                await output.add(event)
                if not isinstance(event, MessageDone):  # its parts were published
                    self._notify(event)
        except EngineError as failure:
            return EngineOutcome(None, failure.kind, str(failure))
        except LedgerError:
            raise
        except Exception as bug:
            # A bug of an engine must not end the queue; what it wrote so far is sealed as a failed
            # turn.
            return EngineOutcome(None, "error", f"{type(bug).__name__}: {bug}")
        return outcome

    def _steering(self, turn: AsyncLiveTurn) -> Callable[[], Any]:
        async def steer() -> tuple[TextItem, ...]:
            items = []
            for entry in await self.setup.queue.steer(turn, self.claim.session_label):
                for message in entry.ask.messages if entry.ask else ():
                    items.append(TextItem("user", message.content or "", turn.id, "query"))
                    self._notify(Steered(turn.id, entry.id, message.content or ""))
            return tuple(items)

        return steer

    # -- after the engine -----------------------------------------------------------------------

    async def _make_room(
        self, plan: TurnPlan, turn: AsyncLiveTurn, context: Context, outcome: EngineOutcome
    ) -> None:
        """After an overflow, fail the turn and compact, so that another turn can answer."""
        limits = self.setup.policy.context
        self.claim = await self.setup.queue.again(self.claim, turn, outcome.error)
        window = min(limits.window_tokens, context.total_tokens)
        await self._compact(plan, window * limits.overflow_to, "overflow_recovery")

    async def _compact(self, plan: TurnPlan, tokens: float, trigger: Trigger) -> None:
        """Compact the session; if nothing can be compacted, shorten the context instead."""
        budget = max(1, int(tokens))
        room = budget - await self._added_prompt_tokens(plan)
        try:
            turn = await self.setup.ledger.compact(
                self.claim.session.label,
                strategy=self.setup.policy.context.strategy,
                engine=self.setup.summariser or plan.configured.engine,
                model=None if self.setup.summariser else plan.configured.model.model,
                budget=max(1, room),
                trigger=trigger,
                fallback="sliding_window",
            )
        except Refused:
            self._budget = budget
            return
        compaction = turn.compaction
        if compaction is not None:
            before, after = compaction.tokens_before, compaction.tokens_after
            self._notify(Compacted(turn.id, trigger, before, after))
        self.claim = await self.setup.queue.look_again(self.claim)

    async def _added_prompt_tokens(self, plan: TurnPlan) -> int:
        """By how much the system prompt of the turn is longer than that of its thread."""
        head = self.claim.session.thread_id
        if plan.prompt is None or head is None:
            return 0
        present = await self.setup.ledger.system_prompt(head)
        return count_tokens(plan.prompt, ()) - count_tokens(present, ())

    async def _seal(
        self,
        plan: TurnPlan,
        turn: AsyncLiveTurn,
        calls: TurnCalls,
        output: AssistantOutput,
        outcome: EngineOutcome,
        *,
        go_on: bool,
    ) -> Claim | None:
        finished = outcome.finished
        if finished is None:
            ending = self._failing(plan, turn, calls, output, outcome)
        else:
            work = turn.state.respond(
                output.response(finished, plan.ask.reply_to),
                usage=finished.usage,
                model=finished.model,
                provider=finished.provider,
                permissions_used=permissions.encode(calls.used).decode(),
            )
            ending = ClaimEnding(
                (work,), "done", None, *self._reporting(plan, turn, output.text, "")
            )
        moved, next_claim = await self.setup.queue.seal(
            self.claim, turn, ending._replace(go_on=go_on and outcome.kind != CLOSED)
        )
        self._publish_end(turn, output, outcome, beside=moved is not None)
        if outcome.kind == CLOSED:
            raise asyncio.CancelledError
        return next_claim

    def _failing(
        self,
        plan: TurnPlan,
        turn: AsyncLiveTurn,
        calls: TurnCalls,
        output: AssistantOutput,
        outcome: EngineOutcome,
    ) -> ClaimEnding:
        unfinished = output.unfinished()
        used = permissions.encode(calls.used).decode()
        works: list[Any] = [turn.state.message(unfinished, streamed=True)[1]] if unfinished else []
        works.append(turn.state.fail(outcome.error, Usage(), permissions_used=used))
        # These messages wait to be answered again. If a tool ran before the broker was closed they
        # do not, since its effects could be repeated.
        if outcome.kind == INTERRUPTED or (outcome.kind == CLOSED and not calls.any_ran):
            return ClaimEnding(tuple(works), "waiting")
        status: QueueStatus = "cancelled" if outcome.kind == CANCELLED else "failed"
        report = self._reporting(plan, turn, output.text, outcome.error)
        return ClaimEnding(tuple(works), status, outcome.error, *report)

    def _reporting(
        self, plan: TurnPlan, turn: AsyncLiveTurn, text: str, error: str
    ) -> tuple[NewEntry | None, TaskStatus | None]:
        """The report to a worker's manager, and the status of the task."""
        if plan.ask.reply_to is None:
            return None, None
        status: TaskStatus = "failed" if error else "completed"
        session = self.claim.session_label
        return report(plan.ask.reply_to, session, turn.id, status, error or text), status

    def _publish_end(
        self, turn: AsyncLiveTurn, output: AssistantOutput, outcome: EngineOutcome, *, beside: bool
    ) -> None:
        finished = outcome.finished
        if finished is not None:
            details = (finished.usage, finished.model, finished.stop_reason, beside)
            self._notify(Completed(turn.id, output.text, *details))
        elif outcome.kind == INTERRUPTED:
            self._notify(Interrupted(turn.id))
        else:
            self._notify(Failed(turn.id, outcome.error, outcome.kind, output.text))


def report(manager: str, worker: str, turn_id: str, status: TaskStatus, text: str) -> NewEntry:
    """A worker's result as a message to the session of its manager; the id makes it unique."""
    metadata = {"worker": {"session": worker, "turn_id": turn_id, "status": status}}
    message = Message(
        "user",
        f"[worker {worker}: {status}]\n{text}",
        "agent",
        metadata_json=permissions.encode(metadata).decode(),
    )
    return new_entry(
        manager,
        Ask((message,)),
        "followup",
        limits=NEVER_FULL,
        id=f"result:{turn_id}",
        persona_id=None,
    )
