"""The broker: queues messages in the ledger, and runs the turns that answer them.

The sender of a message receives the events of the run, even if another process runs it. A broker
answers the sessions it has enqueued messages for; with `work` it answers all sessions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

from msgspec.structs import replace

from agents_ledger.broker import configuration, prompts, workers
from agents_ledger.broker import policy as policies
from agents_ledger.broker.engines.registry import Engines
from agents_ledger.broker.entry_follower import EntryFollower
from agents_ledger.broker.events import LAST, Failed, Queued, RunEvent
from agents_ledger.broker.policy import Policy
from agents_ledger.broker.run import CANCELLED, CLOSED, INTERRUPTED, Setup, TurnRun
from agents_ledger.broker.tools import OfferedTool
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.ledger.search import routing
from agents_ledger.ledger.sessions.queue_entries import checked_ask
from agents_ledger.ledger.turns.recording import checked_step, has_content, messages_of
from agents_ledger.model.agents.engine import AnswerFunction, Engine, as_engine
from agents_ledger.model.errors import LedgerError, NotFound, Refused
from agents_ledger.model.ids import new_id
from agents_ledger.model.installation import settings
from agents_ledger.model.queue import Ask, Claim, QueueEntry, QueueMode
from agents_ledger.model.sessions import DEFAULT_PERSONA, Session
from agents_ledger.model.turns import Message, MessageSource, Query, TurnRole, check_text

# Other processes write to the same ledger and cannot wake this one.
POLL_SECONDS = 0.25
# Between two searches for dead processes that hold up a queue.
RECOVER_SECONDS = 5.0
EXISTING_ONLY = ("thread", "thread_key", "routing_key", "smart")
# On one session while others wait: a busy session must not starve them.
TURNS_IN_A_ROW = 8


class Destination(NamedTuple):
    """Where a message goes: to a session, which may have to be created, or to a fork of a turn."""

    label: str | None = None
    turn_id: str | None = None  # to fork, if there is no label
    persona_id: str | None = None  # of the session that is created
    session: Session | None = None  # None: it is created


class Broker:
    """Runs turns on a ledger. Use it in one event loop, and close it."""

    def __init__(
        self,
        ledger: AsyncLedger,
        policy: Policy | None = None,
        engine: Engine | None = None,
        *,
        tools: Iterable[OfferedTool] = (),
        summariser: Engine | AnswerFunction | None = None,
        poll_seconds: float = POLL_SECONDS,
        recover_seconds: float = RECOVER_SECONDS,
    ) -> None:
        tools = tuple(tools)
        for tool in tools:
            if not isinstance(tool, OfferedTool):
                name = getattr(tool, "__name__", "function")
                raise Refused(f"a tool is an OfferedTool, not {tool!r:.80}", f"Use offer({name}).")
        if engine is not None and (isinstance(engine, type) or not isinstance(engine, Engine)):
            raise Refused(
                f"an engine is an Engine, not {engine!r:.80}",
                "It is an object with a `name` and a method `run(request)`.",
            )
        self.ledger = ledger
        self._poll_seconds, self._recover_seconds = poll_seconds, recover_seconds
        self.policy = policy or Policy()
        self.queue = AsyncQueue(ledger)
        self._offered = {offered.tool.name: offered for offered in tools}
        policy_file = settings.policy_file(ledger.address)
        self.engines = Engines(self.policy.engine, policy_file, engine)
        self._setup = Setup(
            ledger, self.queue, self.policy, self.engines, self._tools, as_engine(summariser)
        )
        self._slots = asyncio.Semaphore(self.policy.workers.at_once)
        self._runs: set[TurnRun] = set()
        self._queues: dict[str, asyncio.Task[None]] = {}
        self._pending: set[str] = set()
        self._wake = asyncio.Event()
        self._watchers: dict[str, list[asyncio.Queue[RunEvent]]] = defaultdict(list)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving = False
        self._closed = False
        self._monitoring: asyncio.Task[None] | None = None
        self._recovered_at = -recover_seconds

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: str,
        *,
        model: str | None = None,
        engine: Engine | None = None,
        tools: Iterable[OfferedTool] = (),
        summariser: Engine | AnswerFunction | None = None,
        create: bool = True,
    ) -> AsyncIterator[Broker]:
        """A broker on the ledger at an address, with the policy of that ledger.

        `model` replaces the engine of the policy: "anthropic:claude-opus-5", or "echo", which only
        repeats messages. An `engine` of your own runs every model. A `summariser`, an engine or a
        function from a prompt to a text, writes the summaries when a session is compacted.
        """
        policy = policies.load(address)
        if model is not None:
            check_text(model, "model")
            policy = replace(policy, engine=replace(policy.engine, name=None, model=model))
        async with (
            AsyncLedger.open(address, create=create) as ledger,
            cls(ledger, policy, engine, tools=tools, summariser=summariser) as broker,
        ):
            yield broker

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop all runs. Messages whose turn had called no tool are answered by the next broker."""
        self._closed = True
        for run in self._runs:
            run.stop(CLOSED)
        tasks = [*self._tasks, *self._queues.values()]
        if self._monitoring is not None:
            tasks.append(self._monitoring)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- queueing -------------------------------------------------------------------------------

    async def enqueue(
        self,
        target: str | None = None,
        query: Query = (),
        *,
        mode: QueueMode | None = None,
        id: str = "",
        source: MessageSource = "human",
        persona_id: str | None = None,
        role: TurnRole | None = None,
        directives: Mapping[str, Any] | None = None,
        source_event_id: str | None = None,
        workspace_path: str | None = None,
        reply_to: str | None = None,
    ) -> QueueEntry:
        """Queue a message for a session, and have it answered.

        A target is that of `Ledger.route`: a session's label or alias, `persona:NAME` for the main
        session of a persona, a turn id, a key, or `smart:TEXT`. A target that names a turn creates
        a fork. An unknown label creates a session. Without a target, the message goes to the main
        session of `persona_id`, by default `main`. With an `id` of your own, a repeated call
        changes nothing.

        What `check` refuses is raised, and then nothing is written.
        """
        destination = await self.check(
            target, persona_id=persona_id, role=role, directives=directives
        )
        ask = Ask(
            _messages(query, source, _target(target, persona_id)),
            directives or {},
            role,
            source_event_id,
            workspace_path,
            reply_to,
        )
        ask = checked_ask(ask, mode, id)  # before a fork is written
        label = destination.label or (await self.ledger.fork(destination.turn_id or "")).label
        entry = await self.queue.enqueue(
            label,
            ask,
            mode=mode,
            limits=self.policy.queue,
            id=id,
            persona_id=persona_id or destination.persona_id,
        )
        if entry.status == "waiting":
            if entry.mode == "interrupt":
                self._stop_session(entry.session_label, INTERRUPTED)
            self.wake(entry.session_label)
        return entry

    async def send(
        self, target: str | None = None, query: Query = (), *, id: str = "", **options: Any
    ) -> AsyncIterator[RunEvent]:
        """Queue a message and yield the events of its run, up to `Completed` or `Failed`.

        Leaving the iteration early does not stop the run; `cancel` does.
        """
        entry_id = id or new_id()
        events: asyncio.Queue[RunEvent] = asyncio.Queue()
        # Before the entry exists: its run may begin at once, and its first event must not be
        # missed.
        self._watchers[entry_id].append(events)
        try:
            entry = await self.enqueue(target, query, id=entry_id, **options)
            yield Queued(entry.id, entry.session_label)
            follower = EntryFollower(self.ledger, self.queue, entry.id)
            async for event in self._follow(entry, events, follower):
                yield event
        finally:
            self._watchers[entry_id].remove(events)
            if not self._watchers[entry_id]:
                del self._watchers[entry_id]

    async def check(
        self,
        target: str | None = None,
        *,
        persona_id: str | None = None,
        role: TurnRole | None = None,
        directives: Mapping[str, Any] | None = None,
    ) -> Destination:
        """Where a message would go; nothing is written.

        Raises what would keep a turn from beginning: an unknown target, persona, toolset or
        directive, a model that is not configured, not permitted or unknown, or has no key.
        """
        destination = await self._destination(_target(target, persona_id))
        if destination.session is not None:
            continued = await configuration.of_session(self.ledger, destination.session)
        elif destination.turn_id is not None:
            continued = await configuration.of_turn(self.ledger, destination.turn_id)
        else:
            persona = persona_id or destination.persona_id or DEFAULT_PERSONA
            continued = configuration.Continued(persona)
        configuration.configure(self.policy, self.engines, continued, directives or {}, role)
        return destination

    async def _destination(self, target: str) -> Destination:
        if not target:
            raise Refused("the target is empty", "Leave it out for the main session of a persona.")
        parsed = routing.parse(target)
        kind, value = parsed.kind, parsed.value
        if kind == "persona":
            self.policy.persona(value)
        try:
            route = await self.ledger.route(target, personas=self.policy.main_sessions())
        except NotFound:
            if kind == "persona":
                return Destination(self.policy.main_sessions().get(value, value), persona_id=value)
            if kind in EXISTING_ONLY:
                raise
            return Destination(value)
        if route.kind in ("session", "persona", "routing_key") and route.session_label:
            session = await self.ledger.session(route.session_label)
            return Destination(session.label, session=session)
        if route.turn_id is None:
            raise Refused(
                f"no turn fits {value!r} well enough", "Give a session, or a turn to continue."
            )
        return Destination(turn_id=route.turn_id)

    async def cancel(self, target: str) -> tuple[str, ...]:
        """Stop the turns of a session, or one turn, in any process; returns the turn ids."""
        turn_ids = await self.queue.stop(target)
        for run in self._runs:
            if run.claim.turn_id in turn_ids:
                run.stop(CANCELLED)
        return turn_ids

    # -- answering ------------------------------------------------------------------------------

    async def work(self, *, until_idle: bool = False) -> None:
        """Answer the messages of all sessions until cancelled, or until the queue is empty."""
        self._serving = True
        try:
            while True:
                await self._slots.acquire()
                woken = self._wake.is_set()
                # Cleared before the look: an entry queued during it sets the event again.
                self._wake.clear()
                claim = await self._claim_any(woken=woken)
                if claim is not None:
                    self._keep(asyncio.create_task(self._answer_claims(claim)))
                    continue
                self._slots.release()
                if until_idle and not self._runs and not await self.queue.entries(limit=1):
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._poll_seconds)
        finally:
            self._serving = False

    async def _claim_any(self, *, woken: bool) -> Claim | None:
        # Claiming writes, which makes other writers wait, so look first unless we were woken.
        claim = await self.queue.claim() if woken or await self.queue.any_ready() else None
        if claim is None:
            await self._recover()
        return claim

    async def _answer_claims(self, claim: Claim | None) -> None:
        """Answer claims until there are none, in the slot that the caller has acquired."""
        try:
            while claim is not None:
                await self._answer_queue(claim)
                claim = await self.queue.claim()
        finally:
            self._slots.release()
            self._wake.set()

    async def _answer_queue(self, claim: Claim | None) -> None:
        turns = 0
        while claim is not None:
            turns += 1
            claim = await self._answer(claim, go_on=turns < TURNS_IN_A_ROW)

    async def _answer(self, claim: Claim, *, go_on: bool) -> Claim | None:
        run = TurnRun(self._setup, claim, self._publish)
        self._runs.add(run)
        if self._monitoring is None or self._monitoring.done():
            self._monitoring = asyncio.create_task(self._monitor())
        try:
            return await run.answer(go_on=go_on)
        except Exception as error:  # a failing run must not end the queue
            with suppress(LedgerError):
                await run.give_up(error)
            return None
        finally:
            self._runs.discard(run)
            for entry in claim.entries:
                if entry.ask is not None and entry.ask.reply_to is not None:
                    self.wake(entry.ask.reply_to)

    def wake(self, label: str) -> None:
        """Have the waiting messages of a session answered."""
        self._wake.set()
        if self._serving or self._closed:
            return
        self._pending.add(label)
        if label not in self._queues:
            self._queues[label] = asyncio.create_task(self._work_on(label))

    async def _work_on(self, label: str) -> None:
        """Answer one session until its queue is empty; other processes may do so too."""
        try:
            while label in self._pending or await self._has_waiting(label):
                self._pending.discard(label)
                async with self._slots:
                    await self._answer_queue(await self.queue.claim(label))
        finally:
            del self._queues[label]

    async def _has_waiting(self, label: str) -> bool:
        """Whether messages wait: not ready yet, or held up by another process."""
        if not any(entry.status == "waiting" for entry in await self.queue.entries(label)):
            return label in self._pending
        await self._recover()
        await asyncio.sleep(self._poll_seconds)
        return True

    async def _recover(self) -> None:
        """Now and then, release what dead processes held, and report lost workers."""
        now = asyncio.get_running_loop().time()
        if now - self._recovered_at < self._recover_seconds:
            return
        self._recovered_at = now
        await self.ledger.recover()
        for label in await workers.report_lost(self.queue):
            self.wake(label)

    async def _monitor(self) -> None:
        """While turns run, stop those that other processes cancel or interrupt."""
        while self._runs:
            await asyncio.sleep(self._poll_seconds)
            for request in await self.queue.urgent():
                for run in self._runs:
                    if request.what == "stop" and run.claim.turn_id == request.id:
                        run.stop(CANCELLED)
                if request.what == "interrupt":
                    self._stop_session(request.session_label, INTERRUPTED)

    def _stop_session(self, label: str, why: str) -> None:
        for run in self._runs:
            if run.claim.session_label == label:
                run.stop(why)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Release this run's slot while it waits for other runs."""
        self._slots.release()
        try:
            yield
        finally:
            # Not awaited: the manager already has its result. For a while one run too many may run.
            self._keep(asyncio.create_task(self._slots.acquire()))

    # -- events ---------------------------------------------------------------------------------

    def _publish(self, claim: Claim, event: RunEvent) -> None:
        for entry in claim.entries:
            for events in self._watchers.get(entry.id, ()):
                events.put_nowait(event)

    async def _follow(
        self, entry: QueueEntry, events: asyncio.Queue[RunEvent], follower: EntryFollower
    ) -> AsyncIterator[RunEvent]:
        """The events of an entry: from a run of this process, or else from the ledger."""
        if entry.status == "dropped":
            yield Failed(None, entry.error or "dropped", "dropped")
            return
        while True:
            try:
                batch = [await asyncio.wait_for(events.get(), self._poll_seconds)]
            except TimeoutError:
                if self._is_ours(entry.id):
                    continue
                batch = await follower.look()
                # A run of this process may have claimed the entry meanwhile, and may even have
                # ended: then the events are its own, and already in the queue.
                if self._is_ours(entry.id) or not events.empty():
                    continue
            for event in batch:
                follower.note(event)
                yield event
                if isinstance(event, LAST):
                    return

    def _is_ours(self, entry_id: str) -> bool:
        return any(entry_id == entry.id for run in self._runs for entry in run.claim.entries)

    # -- tools ----------------------------------------------------------------------------------

    def _tools(self, claim: Claim) -> Mapping[str, OfferedTool]:
        """The tools of the program, and those to delegate."""
        return {**self._offered, **workers.tools(self, claim)}


def _target(target: str | None, persona_id: str | None) -> str:
    return f"persona:{persona_id or DEFAULT_PERSONA}" if target is None else target


def _messages(query: Query, source: MessageSource, target: str) -> tuple[Message, ...]:
    """The query as messages, with the target in their metadata."""
    messages = tuple(map(checked_step, messages_of(query, source)))
    if not any(map(has_content, messages)):
        raise Refused("the message is empty", "Pass a text or messages as `query`.")
    metadata = {"routing": {"target": target}}
    return tuple(
        replace(message, metadata_json=prompts.with_more(message.metadata_json, metadata))
        for message in messages
    )
