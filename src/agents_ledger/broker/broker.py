"""The broker: takes messages, keeps them in the ledger's lines, and has them answered.

Whoever sends a message sees the run as it happens, also when another process runs it. A broker
answers the lines it was given messages for; with `work` it answers all.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from agents_ledger.broker import policy as policies
from agents_ledger.broker import prompts, workers
from agents_ledger.broker.events import LAST, Failed, Queued, RunEvent
from agents_ledger.broker.following import Follower
from agents_ledger.broker.policy import Policy
from agents_ledger.broker.run import CANCELLED, CLOSED, INTERRUPTED, Run, Setup
from agents_ledger.broker.tools import OfferedTool
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.ledger.search import routing
from agents_ledger.model.agents.engine import Engine
from agents_ledger.model.errors import LedgerError, NotFound, Refused
from agents_ledger.model.ids import new_id
from agents_ledger.model.queue import Ask, Claim, QueueEntry, QueueMode
from agents_ledger.model.turns import Message, MessageSource, Query, TurnRole

POLL_SECONDS = 0.25  # how soon we notice what other processes did
MEND_SECONDS = 5.0  # how often we look for processes that died, while they hold up a line
NEVER_NEW = ("thread", "thread_key", "routing_key", "smart")
STAY = 8  # turns in a row on one line while others wait


class Broker:
    """Runs turns on a ledger. Use it in one event loop, and close it."""

    def __init__(
        self,
        ledger: AsyncLedger,
        policy: Policy | None = None,
        engine: Engine | None = None,
        *,
        tools: Iterable[OfferedTool] = (),
    ) -> None:
        from agents_ledger.broker.engines.chosen import choose

        self.ledger = ledger
        self.policy = policy or Policy()
        self.queue = AsyncQueue(ledger)
        self._offered = {offered.tool.name: offered for offered in tools}
        self.engine = engine or choose(self.policy.engine.name)
        self._setup = Setup(ledger, self.queue, self.policy, self.engine, self._tools)
        self._slots = asyncio.Semaphore(self.policy.workers.at_once)
        self._runs: set[Run] = set()
        self._lines: dict[str, asyncio.Task[None]] = {}
        self._woken: set[str] = set()
        self._wake = asyncio.Event()
        self._watchers: dict[str, list[asyncio.Queue[RunEvent]]] = defaultdict(list)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving = False
        self._attending: asyncio.Task[None] | None = None
        self._mended_at = -MEND_SECONDS

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: str,
        *,
        engine: Engine | None = None,
        tools: Iterable[OfferedTool] = (),
        create: bool = True,
    ) -> AsyncIterator[Broker]:
        """A broker on the ledger at an address, with the policy beside it."""
        said = policies.load(address)
        async with (
            AsyncLedger.open(address, create=create) as ledger,
            cls(ledger, said, engine, tools=tools) as broker,
        ):
            yield broker

    async def __aenter__(self) -> Broker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop what runs. A turn that called no tool is asked again by the next broker."""
        for run in self._runs:
            run.stop(CLOSED)
        tasks = [*self._tasks, *self._lines.values()]
        if self._attending is not None:
            tasks.append(self._attending)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- taking messages ------------------------------------------------------------------------

    async def enqueue(
        self,
        target: str,
        query: Query,
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
        """Put a message in the line of a session, and see that it is answered.

        A target is what `Ledger.route` takes: a session's label or alias, `persona:NAME` for a
        persona's main session, a turn's id, a key, or `smart:TEXT`; where it names a turn, a fork
        of it. An unknown label makes a session. With an `id` of your own, the same call again
        changes nothing.
        """
        ask = Ask(
            _messages(query, source, target),
            directives or {},
            role,
            source_event_id,
            workspace_path,
            reply_to,
        )
        label, persona = await self.resolve(target)
        entry = await self.queue.enqueue(
            label,
            ask,
            mode=mode,
            limits=self.policy.queue,
            id=id,
            persona_id=persona_id or persona,
        )
        if entry.status == "waiting":
            if entry.mode == "interrupt":
                self._stop_line(entry.session_label, INTERRUPTED)
            self.wake(entry.session_label)
        return entry

    async def send(
        self, target: str, query: Query, *, id: str = "", **options: Any
    ) -> AsyncIterator[RunEvent]:
        """Enqueue, and yield what happens until the message is answered, or is not.

        Leaving the iteration early stops nothing: `cancel` does.
        """
        entry_id = id or new_id()
        events: asyncio.Queue[RunEvent] = asyncio.Queue()
        self._watchers[entry_id].append(events)
        try:
            entry = await self.enqueue(target, query, id=entry_id, **options)
            yield Queued(entry.id, entry.session_label)
            follower = Follower(self.ledger, self.queue, entry.id)
            async for event in self._follow(entry, events, follower):
                yield event
        finally:
            self._watchers[entry_id].remove(events)
            if not self._watchers[entry_id]:
                del self._watchers[entry_id]

    async def resolve(self, target: str) -> tuple[str, str | None]:
        """The label that a target means, and the persona of its session if that is new.

        A turn, a thread key and a smart target lead to a fork there.
        """
        parsed = routing.parse(target)
        kind, value = parsed.kind, parsed.value
        if kind == "persona":
            self.policy.persona(value)
        try:
            route = await self.ledger.route(target, personas=self.policy.main_sessions())
        except NotFound:
            if kind == "persona":
                return self.policy.main_sessions().get(value, value), value
            if kind in NEVER_NEW:
                raise
            return value, None
        if route.kind in ("session", "persona", "routing_key") and route.session_label:
            return route.session_label, None
        if route.turn_id is None:
            raise Refused(
                f"nothing fits {value!r} well enough", "Name a session, or a turn to go on from."
            )
        return (await self.ledger.fork(route.turn_id)).label, None

    async def cancel(self, target: str) -> tuple[str, ...]:
        """Stop what runs on a session, or one turn, in whichever process; the ids of the turns."""
        asked = await self.queue.stop(target)
        for run in self._runs:
            if run.claim.turn_id in asked:
                run.stop(CANCELLED)
        return asked

    # -- having them answered -------------------------------------------------------------------

    async def work(self, *, until_idle: bool = False) -> None:
        """Answer the lines of all sessions, until cancelled, or until nothing waits."""
        self._serving = True
        try:
            while True:
                await self._slots.acquire()
                told = self._wake.is_set()
                self._wake.clear()
                claim = await self._claim_any(told=told)
                if claim is not None:
                    self._keep(asyncio.create_task(self._carry_on(claim)))
                    continue
                self._slots.release()
                if until_idle and not self._runs and not await self.queue.entries(limit=1):
                    return
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), POLL_SECONDS)
        finally:
            self._serving = False

    async def _claim_any(self, *, told: bool) -> Claim | None:
        """What is next of any line. Who was not told that something is looks first: to claim is to
        write, for which others would wait."""
        claim = await self.queue.claim() if told or await self.queue.any_ready() else None
        if claim is None:
            await self._mend()
        return claim

    async def _carry_on(self, claim: Claim | None) -> None:
        """Answer one claim after the other, with the slot that was taken for it."""
        try:
            while claim is not None:
                await self._answer_line(claim)
                claim = await self.queue.claim()
        finally:
            self._slots.release()
            self._wake.set()

    async def _answer_line(self, claim: Claim | None) -> None:
        stayed = 0
        while claim is not None:
            stayed += 1
            claim = await self._answer(claim, go_on=stayed < STAY)

    async def _answer(self, claim: Claim, *, go_on: bool) -> Claim | None:
        run = Run(self._setup, claim, self._publish)
        self._runs.add(run)
        if self._attending is None or self._attending.done():
            self._attending = asyncio.create_task(self._attend())
        try:
            return await run.answer(go_on=go_on)
        except Exception as error:  # one run's mistake must not end the line
            with suppress(LedgerError):
                await run.give_up(error)
            return None
        finally:
            self._runs.discard(run)
            for entry in claim.entries:
                if entry.ask is not None and entry.ask.reply_to is not None:
                    self.wake(entry.ask.reply_to)

    def wake(self, label: str) -> None:
        """Something waits in a line: see that somebody looks."""
        self._wake.set()
        if self._serving:
            return
        self._woken.add(label)
        if label not in self._lines:
            self._lines[label] = asyncio.create_task(self._line(label))

    async def _line(self, label: str) -> None:
        """Answer one line until it is empty, whoever else answers it too."""
        try:
            while label in self._woken or await self._waits(label):
                self._woken.discard(label)
                async with self._slots:
                    await self._answer_line(await self.queue.claim(label))
        finally:
            del self._lines[label]

    async def _waits(self, label: str) -> bool:
        """Whether something waits in a line: not ready yet, or held up by another process."""
        if not any(entry.status == "waiting" for entry in await self.queue.entries(label)):
            return label in self._woken
        await self._mend()
        await asyncio.sleep(POLL_SECONDS)
        return True

    async def _mend(self) -> None:
        """Now and then: release what dead processes held, and tell managers of lost workers."""
        now = asyncio.get_running_loop().time()
        if now - self._mended_at < MEND_SECONDS:
            return
        self._mended_at = now
        await self.ledger.recover()
        for label in await workers.report_lost(self.queue):
            self.wake(label)

    async def _attend(self) -> None:
        """While turns run: notice what other processes want of them."""
        while self._runs:
            await asyncio.sleep(POLL_SECONDS)
            for wanted in await self.queue.urgent():
                for run in self._runs:
                    if wanted.what == "stop" and run.claim.turn_id == wanted.id:
                        run.stop(CANCELLED)
                if wanted.what == "interrupt":
                    self._stop_line(wanted.session_label, INTERRUPTED)

    def _stop_line(self, label: str, why: str) -> None:
        for run in self._runs:
            if run.claim.session_label == label:
                run.stop(why)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Lend this run's slot to others while it waits for them."""
        self._slots.release()
        try:
            yield
        finally:
            self._keep(asyncio.create_task(self._slots.acquire()))  # one more may run for a moment

    # -- telling --------------------------------------------------------------------------------

    def _publish(self, claim: Claim, event: RunEvent) -> None:
        for entry in claim.entries:
            for events in self._watchers.get(entry.id, ()):
                events.put_nowait(event)

    async def _follow(
        self, entry: QueueEntry, events: asyncio.Queue[RunEvent], follower: Follower
    ) -> AsyncIterator[RunEvent]:
        """What happens to an entry: as our own run tells it, else as the ledger shows it."""
        if entry.status == "dropped":
            yield Failed(None, entry.error or "dropped", "dropped")
            return
        while True:
            try:
                seen = [await asyncio.wait_for(events.get(), POLL_SECONDS)]
            except TimeoutError:
                if self._is_ours(entry.id):
                    continue
                seen = await follower.look()
                # A run of our own may have claimed the entry meanwhile, and even have ended: then
                # what the ledger shows is what that run reports.
                if self._is_ours(entry.id) or not events.empty():
                    continue
            for event in seen:
                follower.note(event)
                yield event
                if isinstance(event, LAST):
                    return

    def _is_ours(self, entry_id: str) -> bool:
        return any(entry_id == entry.id for run in self._runs for entry in run.claim.entries)

    # -- tools ----------------------------------------------------------------------------------

    def _tools(self, claim: Claim, role: TurnRole) -> Mapping[str, OfferedTool]:
        """What a turn is offered: the program's tools, and, by its role, those to delegate."""
        return {**self._offered, **workers.tools(self, claim, role)}


def _messages(query: Query, source: MessageSource, target: str) -> tuple[Message, ...]:
    """What is asked, each message with the target it was sent to."""
    parts = (query,) if isinstance(query, (str, Message)) else query
    made = (Message("user", part, source) if isinstance(part, str) else part for part in parts)
    routing = {"routing": {"target": target}}
    return tuple(
        replace(message, metadata_json=prompts.with_more(message.metadata_json, routing))
        for message in made
    )
