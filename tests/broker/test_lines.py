"""Lines: one turn at a time per session, sessions beside each other, also across processes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agents_ledger import Ask, AsyncLedger, Ledger, Message, Queue, QueueLimits, Request
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.events import Completed, Failed, Interrupted, Started, Steered
from agents_ledger.broker.policy import Policy
from agents_ledger.model.agents.engine import EngineEvent, TextPiece
from tests.broker.conftest import WithBroker, answer_of, events_of
from tests.waiting import PATIENCE_S, until

Worker = Callable[[str], subprocess.Popen[str]]
WORKER = """
import asyncio, sys
from agents_ledger import AsyncLedger
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.ledger.core import Core
from tests.contract.test_recovery import database

async def main():
    opening = AsyncLedger(lambda: Core(database(sys.argv[1])))  # which notices soon who died
    async with opening as ledger, Broker(ledger, engine=EchoEngine()) as broker:
        print("ready", flush=True)
        await broker.work(until_idle=sys.argv[2] == "once")

asyncio.run(main())
"""


@pytest.fixture
def worker(address: str) -> Iterator[Worker]:
    """Other processes that answer: once, until nothing waits, or on and on."""
    with ExitStack() as running:

        def start(how: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, address, how], stdout=subprocess.PIPE, text=True
            )
            running.enter_context(process)
            running.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            return process

        yield start


def asked(ledger: Ledger, key: str) -> list[list[str | None]]:
    """What each turn of a thread was asked."""
    return [[m.content for m in turn.query] for turn in ledger.thread(key).turns]


class Crowded(EchoEngine):
    """Counts how many turns run at once, on one session and in all."""

    def __init__(self) -> None:
        super().__init__()
        self.running: Counter[str] = Counter()
        self.most_of_one = self.most = 0

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        name = getattr(request.items[-1], "text", "").partition(" ")[0]
        self.running[name] += 1
        self.most_of_one = max(self.most_of_one, *self.running.values())
        self.most = max(self.most, self.running.total())
        await asyncio.sleep(0.02)
        async for event in super().run(request):
            yield event
        self.running[name] -= 1


def test_each_session_is_serial_and_sessions_run_concurrently(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    engine = Crowded()

    async def act(broker: Broker) -> None:
        for number in range(4):
            for name in ("a", "b", "c"):
                await broker.queue.enqueue(name, asking(f"{name} {number}"))
        await broker.work(until_idle=True)

    with_broker(act, engine=engine)

    assert engine.most_of_one == 1
    assert engine.most > 1
    for name in ("a", "b", "c"):
        assert asked(ledger, name) == [[f"{name} {number}"] for number in range(4)]


def test_collected_messages_become_one_turn_with_several_messages(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(queue=QueueLimits(mode="collect", debounce_ms=1000))

    async def act(broker: Broker) -> list[Any]:
        return await asyncio.gather(*(answer_of(broker, "main", text) for text in ("a", "b", "c")))

    done = with_broker(act, policy)

    assert len({event.turn_id for event in done}) == 1
    assert sorted(str(m) for (m,) in zip(*asked(ledger, "main"), strict=True)) == ["a", "b", "c"]


def test_an_interruption_stops_the_turn_and_joins_its_message(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> tuple[list[Any], Any]:
        first = asyncio.create_task(events_of(broker, "main", "/wait 10000\nlong"))
        while not broker._runs:
            await asyncio.sleep(0.01)
        second = await answer_of(broker, "main", "no, this", mode="interrupt")
        return await first, second

    told, done = with_broker(act)

    assert [type(e) for e in told if isinstance(e, (Started, Interrupted, Completed))] == [
        Started,
        Interrupted,
        Started,
        Completed,
    ]
    assert told[-1].turn_id == done.turn_id
    assert asked(ledger, "main") == [["/wait 10000\nlong", "no, this"]]
    stopped = next(e.turn_id for e in told if isinstance(e, Interrupted))
    assert ledger.get_turn(stopped).error == "interrupted by a later message"


def test_a_message_that_steers_joins_the_turn_that_runs(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> tuple[list[Any], Any]:
        first = asyncio.create_task(events_of(broker, "main", "/wait 300\nslow"))
        while not broker._runs:
            await asyncio.sleep(0.01)
        second = await answer_of(broker, "main", "in French", mode="steer")
        return await first, second

    told, done = with_broker(act)

    assert [e.text for e in told if isinstance(e, Steered)] == ["in French"]
    assert told[-1].text == "in French\nslow"
    assert done.turn_id == told[-1].turn_id
    assert ledger.thread("main", last=0).depth == 1


def test_without_a_turn_that_runs_a_steering_message_is_answered_itself(
    with_broker: WithBroker,
) -> None:
    assert with_broker(lambda b: answer_of(b, "main", "alone", mode="steer")).text == "alone"


def test_a_dropped_message_is_reported_to_the_next_turn(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(queue=QueueLimits(cap=1, drop="summarize"))

    async def act(broker: Broker) -> None:
        for text in ("first of all", "second"):
            await broker.queue.enqueue("main", asking(text), limits=policy.queue)
        await broker.work(until_idle=True)

    with_broker(act, policy)

    ((told, second),) = asked(ledger, "main")
    assert told == "[1 earlier messages were omitted; they began:]\n- first of all"
    assert second == "second"
    full = Policy(queue=QueueLimits(cap=0, drop="new"))
    failed = with_broker(lambda b: answer_of(b, "other", "x"), full)
    assert (failed.kind, failed.error) == ("dropped", "the queue was full")


def test_a_line_whose_session_is_merged_away_is_answered_on_the_one_that_stays(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    ledger.record("stays", "q", "r")
    ledger.record("stays", "q", "r")

    async def act(broker: Broker) -> None:
        await broker.queue.enqueue("goes", asking("late"))
        claim = await broker.queue.claim("goes")
        assert claim is not None
        await broker.ledger.merge("stays", "goes")
        await broker._answer(claim, go_on=True)

    with_broker(act)

    assert asked(ledger, "stays")[-1] == ["late"]
    assert ledger.thread("stays", last=0).depth == 3


# -- across processes --------------------------------------------------------------------------


def test_a_broker_that_waits_writes_nothing(address: str, ledger: Ledger) -> None:
    did: list[str] = []

    async def act() -> None:
        async with (
            AsyncLedger.open(address) as handle,
            Broker(handle, engine=EchoEngine(), poll_seconds=0.01) as broker,
        ):
            task = asyncio.create_task(broker.work())
            assert (await answer_of(broker, "main", "x")).text == "x"
            write, look = handle._write, broker.queue.any_ready

            async def written(work: Any) -> Any:
                did.append("wrote")
                return await write(work)

            async def looked() -> bool:
                did.append("looked")
                return await look()

            handle._write = written  # type: ignore[method-assign]
            broker.queue.any_ready = looked  # type: ignore[method-assign]
            while did[-8:] != ["looked"] * 8:
                await asyncio.sleep(0.01)
            Queue(ledger).enqueue("main", asking("y"))
            while not (entries := Queue(ledger).entries(everything=True)) or any(
                entry.status != "done" for entry in entries
            ):
                await asyncio.sleep(0.01)
            task.cancel()

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))

    assert "wrote" in did[did.index("looked") :]
    assert asked(ledger, "main") == [["x"], ["y"]]


def test_another_process_answers_and_the_sender_sees_it(
    address: str, ledger: Ledger, worker: Worker
) -> None:
    worker("on")

    async def act() -> list[Any]:
        async with (
            AsyncLedger.open(address) as handle,
            Broker(handle, engine=EchoEngine()) as broker,
        ):
            broker.wake = lambda label: None  # type: ignore[method-assign]
            return await events_of(broker, "main", "/wait 400\nfrom afar")

    told = asyncio.run(asyncio.wait_for(act(), PATIENCE_S))

    assert isinstance(told[-1], Completed)
    assert told[-1].text == "from afar"
    assert any(isinstance(event, Started) for event in told)


def test_a_turn_of_another_process_can_be_cancelled(
    address: str, ledger: Ledger, worker: Worker
) -> None:
    queue = Queue(ledger)
    entry = queue.enqueue("main", asking("/wait 20000"))
    process = worker("once")
    until(lambda: ledger.live_turns("main"))

    queue.cancel(entry.id)

    assert process.wait(PATIENCE_S) == 0
    assert queue.get(entry.id).status == "cancelled"
    assert ledger.head("main") is None


def test_a_turn_of_another_process_can_be_interrupted(ledger: Ledger, worker: Worker) -> None:
    queue = Queue(ledger)
    queue.enqueue("main", asking("/wait 20000"))
    process = worker("once")
    until(lambda: ledger.live_turns("main"))

    queue.enqueue("main", asking("rather this"), mode="interrupt")

    assert process.wait(PATIENCE_S) == 0
    assert asked(ledger, "main") == [["/wait 20000", "rather this"]]


def test_two_processes_share_the_lines_without_an_unintended_fork(
    address: str, ledger: Ledger, worker: Worker
) -> None:
    queue = Queue(ledger)
    for number in range(10):
        for name in ("a", "b", "c", "d"):
            queue.enqueue(name, asking(f"{name}{number}"))

    both = [worker("once") for _ in range(2)]
    assert [process.wait(PATIENCE_S) for process in both] == [0, 0]

    for name in ("a", "b", "c", "d"):
        assert asked(ledger, name) == [[f"{name}{number}"] for number in range(10)]
    turns = ledger.query("SELECT count(*) FROM turns")[1][0][0]
    assert turns == 40


def test_after_kill_nothing_is_lost_or_answered_twice(
    address: str, ledger: Ledger, worker: Worker
) -> None:
    queue = Queue(ledger)
    for number in range(12):
        for name in ("a", "b", "c"):
            queue.enqueue(name, asking(f"/wait 15\n{name}{number}"))
    process = worker("once")
    until(lambda: sum(e.status == "done" for e in queue.entries(everything=True)) >= 6)
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert worker("once").wait(PATIENCE_S) == 0

    statuses = Counter(entry.status for entry in queue.entries(everything=True))
    assert statuses["done"] + statuses["failed"] == 36
    assert statuses["failed"] <= 3  # at most one turn per session ran
    for name in ("a", "b", "c"):
        answered = [query for (query,) in asked(ledger, name)]
        assert answered == sorted(set(answered), key=lambda text: int(str(text)[10:]))
    begun = Counter(
        json.loads(metadata)["queue"]["entry_id"]
        for (metadata,) in ledger.query("SELECT metadata_json FROM messages WHERE role = 'user'")[1]
    )
    assert set(begun.values()) == {1}


def asking(text: str) -> Any:
    return Ask((Message("user", text, "human"),))


def test_text_of_another_process_arrives_in_parts(address: str, ledger: Ledger) -> None:
    ledger.record("main", "q", "r")
    queue = Queue(ledger)

    told: list[Any] = []

    async def watch(broker: Broker) -> None:
        async for event in broker.send("main", "x", id="e"):
            told.append(event)

    def pieces() -> list[str]:
        return [event.text for event in told if isinstance(event, TextPiece)]

    async def act() -> None:
        async with AsyncLedger.open(address) as one, AsyncLedger.open(address) as other:
            watching, answering = (Broker(a, engine=EchoEngine()) for a in (one, other))
            watching.wake = lambda label: None  # type: ignore[method-assign]
            task = asyncio.create_task(watch(watching))
            while not await answering.queue.entries():
                await asyncio.sleep(0.01)
            claim = await answering.queue.claim()
            assert claim is not None
            turn = await answering.queue.begin(claim, "x")
            for piece in ("one ", "two"):
                await turn.stream(piece)
                while piece not in pieces():
                    await asyncio.sleep(0.01)
            await turn.respond()
            await answering.queue.fail(claim, "ended beside the queue")
            await task

    asyncio.run(asyncio.wait_for(act(), PATIENCE_S))

    assert pieces() == ["one ", "two"]
    assert isinstance(told[-1], Completed | Failed)
    assert queue.get("e").status == "failed"
