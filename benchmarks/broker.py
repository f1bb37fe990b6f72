"""The broker under load: 200 sessions with 20 queued messages each, 64 turns at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from agents_ledger import Ask, AsyncLedger, AsyncQueue, Broker, Ledger, Message, Policy, Usage
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.policy import Workers
from agents_ledger.model.agents.engine import Request
from agents_ledger.model.context.items import TextItem
from benchmarks.measure import Goal, Line, Took, Watch, interleaved, middle, slower, timed

SESSIONS, MESSAGES, WORKERS = 200, 20, 64
TURNS = SESSIONS * MESSAGES
TEXT = "Say this once more, and then no more than that. " * 5
USAGE = Usage(60, 60)


def broker(folder: Path) -> Iterator[Line]:
    """What a run takes beside its engine, against a bare record; and that no line forked."""
    numbers = iter(range(1_000_000))
    unforked: list[bool] = []

    def fresh() -> str:
        return str(folder / f"broker-{next(numbers)}.db")

    def runs() -> Took:
        address = fresh()
        took = asyncio.run(_run_all(address))
        unforked.append(_in_order(address))
        return took

    sides = {"runs": runs, "tasks": lambda: asyncio.run(_record_all(fresh())),
             "lone": lambda: _record_one_by_one(fresh())}  # fmt: skip
    found = interleaved(sides, rounds=3)
    engine = middle([timed(_engine_alone, MESSAGES * 10).cpu for _ in range(3)])
    over = [Took(took.wall - engine, took.cpu - engine) for took in found["runs"]]
    name = f"{TURNS:,} queued turns, {WORKERS} at a time, without the engine"
    yield slower(f"{name} / record, one by one", over, found["lone"], "wall", Goal("<=", 5))
    yield slower(f"{name} / record, one by one", over, found["lone"], "cpu", Goal("<=", 5))
    yield slower(f"{name} / record, {WORKERS} tasks", over, found["tasks"], "wall", None)
    kept = sum(unforked)
    yield Line("rounds in order, without a fork", f"{kept} of {len(unforked)}",
               ratio=kept / len(unforked), goal=Goal(">=", 1))  # fmt: skip


async def _run_all(address: str) -> Took:
    async with AsyncLedger.open(address) as ledger:
        queue = AsyncQueue(ledger)
        for number in range(MESSAGES):
            await asyncio.gather(
                *(queue.enqueue(_name(each), _ask(number)) for each in range(SESSIONS))
            )
        policy = Policy(workers=Workers(at_once=WORKERS))
        async with Broker(ledger, policy, EchoEngine()) as made:
            with Watch(TURNS) as watch:
                await made.work(until_idle=True)
    return watch.took


def _in_order(address: str) -> bool:
    """Whether every session is one thread of its messages, in the order they were queued."""
    with Ledger.open(address) as ledger:
        turns = ledger.query("SELECT count(*) FROM turns")[1][0][0]
        said = [
            [turn.query[0].content for turn in ledger.thread(_name(each)).turns]
            for each in range(0, SESSIONS, 10)
        ]
    return turns == TURNS and all(
        texts == [f"{number} {TEXT}" for number in range(MESSAGES)] for texts in said
    )


async def _record_all(address: str) -> Took:
    async with AsyncLedger.open(address) as ledger:
        await ledger.recover()

        async def write(worker: int) -> None:
            for number in range(MESSAGES):
                for each in range(worker, SESSIONS, WORKERS):
                    text = f"{number} {TEXT}"
                    await ledger.record(_name(each), text, text, usage=USAGE, model="echo")

        with Watch(TURNS) as watch:
            await asyncio.gather(*map(write, range(WORKERS)))
    return watch.took


def _record_one_by_one(address: str) -> Took:
    with Ledger.open(address) as ledger:
        ledger.recover()

        def write() -> None:
            for number in range(MESSAGES):
                for each in range(0, SESSIONS, 10):
                    text = f"{number} {TEXT}"
                    ledger.record(_name(each), text, text, usage=USAGE, model="echo")

        return timed(write, TURNS // 10)


def _engine_alone() -> None:
    """What the echo engine takes by itself, at the middle of a line."""

    async def listen(events: AsyncIterator[object]) -> None:
        async for _ in events:
            pass

    async def run() -> None:
        items = tuple(TextItem("user", TEXT) for _ in range(MESSAGES))
        for _ in range(MESSAGES * 10):
            await listen(EchoEngine().run(Request(items)))

    asyncio.run(run())


def _name(number: int) -> str:
    return f"session-{number}"


def _ask(number: int) -> Ask:
    return Ask((Message("user", f"{number} {TEXT}", "human"),))
