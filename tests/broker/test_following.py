"""One report of each run: by the broker that runs it, or from the ledger, and not by both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from agents_ledger import Ask, Message, Request
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.entry_follower import EntryFollower
from agents_ledger.broker.events import LAST, Completed, RunEvent, Started
from agents_ledger.model.agents.engine import EngineEvent, TextPiece
from tests.broker.conftest import WithBroker


class HeldEngine(EchoEngine):
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        await self.may_answer.wait()
        async for event in super().run(request):
            yield event


class LateFollower(EntryFollower):
    """Looks at the ledger only once a run of this broker has got somewhere."""

    def __init__(self, broker: Broker, entry_id: str, act: Callable[[], object]) -> None:
        super().__init__(broker.ledger, broker.queue, entry_id)
        self._act = act
        self.got_there = asyncio.Event()

    async def look(self) -> list[RunEvent]:
        self._act()
        await self.got_there.wait()
        return await super().look()


class WatchedQueue(asyncio.Queue[RunEvent]):
    """Tells when an event of some kind is put into it."""

    def __init__(self, kind: type | tuple[type, ...], then: Callable[[], object]) -> None:
        super().__init__()
        self._kind, self._then = kind, then

    def put_nowait(self, item: RunEvent) -> None:
        super().put_nowait(item)
        if isinstance(item, self._kind):
            self._then()


@pytest.mark.finding("spec-11")
@pytest.mark.parametrize("reached", [Started, LAST])
def test_a_run_that_begins_while_the_ledger_is_looked_at_is_reported_once(
    with_broker: WithBroker, reached: type | tuple[type, ...]
) -> None:
    engine = HeldEngine()

    async def follow(broker: Broker) -> list[RunEvent]:
        entry = await broker.queue.enqueue("main", Ask((Message("user", "Hello there"),)))
        follower = LateFollower(broker, entry.id, lambda: broker.wake("main"))
        events = WatchedQueue(reached, follower.got_there.set)
        broker._watchers[entry.id].append(events)
        if reached is not Started:
            engine.may_answer.set()
        seen = []
        async for event in broker._follow(entry, events, follower):
            seen.append(event)
            engine.may_answer.set()
        return seen

    seen = with_broker(follow, engine=engine)

    [started] = [event for event in seen if isinstance(event, Started)]
    [done] = [event for event in seen if isinstance(event, LAST)]
    assert isinstance(done, Completed)
    assert (seen[0], seen[-1]) == (started, done)
    assert "".join(event.text for event in seen if isinstance(event, TextPiece)) == done.text


class SteeredEngine(EchoEngine):
    """Takes what steers it when it is allowed to, and then answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_steer, self.may_answer = asyncio.Event(), asyncio.Event()

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        await self.may_steer.wait()
        await request.steer()
        await self.may_answer.wait()
        async for event in super().run(request):
            yield event


@pytest.mark.finding("spec-11")
def test_the_sender_of_a_message_that_steers_sees_the_turn_to_its_end(
    with_broker: WithBroker,
) -> None:
    engine = SteeredEngine()

    async def steer(broker: Broker) -> list[RunEvent]:
        seen = []
        async for event in broker.send("main", "and this", mode="steer"):
            seen.append(event)
            engine.may_steer.set()
            if isinstance(event, Started):
                engine.may_answer.set()
        return seen

    async def follow(broker: Broker) -> tuple[list[RunEvent], list[RunEvent]]:
        seen = []
        steering = None
        async for event in broker.send("main", "Hello there"):
            seen.append(event)
            if isinstance(event, Started):
                steering = asyncio.create_task(steer(broker))
        assert steering is not None
        return seen, await steering

    first, second = with_broker(follow, engine=engine)

    for seen in (first, second):
        assert len([event for event in seen if isinstance(event, Started)]) == 1
        [done] = [event for event in seen if isinstance(event, LAST)]
        assert isinstance(done, Completed)
    assert first[-1].turn_id == second[-1].turn_id
