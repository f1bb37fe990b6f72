"""The ledger itself, in the comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from agents_ledger import AsyncLedger, Ledger, ToolCall, Usage
from agents_ledger.integrations.openai_agents import LedgerSession
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.threads import DEEPEST
from agents_ledger.store.database import Transaction
from benchmarks import reading, workload
from benchmarks.peers import openai_items
from benchmarks.peers.port import Exchange

USAGE = Usage(12_480, 655)
READY = 100  # exchanges whose rows are made beforehand


def _steps(exchange: Exchange) -> list[ToolCall]:
    return [ToolCall(call.name, call.params, call.result) for call in exchange.calls]


def _work(session: str, exchange: Exchange) -> Callable[[Transaction], object]:
    fields = {"steps": _steps(exchange), "usage": USAGE}
    prepared = recording.recording(session, exchange.query, exchange.response, fields)
    return partial(recording.record, prepared=prepared)


class LedgerStore:
    """One ledger. A single writer is synchronous, a crowd of them are tasks of asyncio."""

    def __init__(self, folder: Path, address: str) -> None:
        self._address = address or str(folder / "ledger.db")
        self._ledger = Ledger.open(self._address)
        self._many: AsyncLedger | None = None

    async def append(self, session: str, exchange: Exchange) -> None:
        steps = _steps(exchange)
        if not session.startswith("crowd-"):
            self._ledger.record(
                session, exchange.query, exchange.response, steps=steps, usage=USAGE
            )
            return
        if self._many is None:
            self._many = await AsyncLedger.open(self._address)
        await self._many.record(
            session, exchange.query, exchange.response, steps=steps, usage=USAGE
        )

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        """Many in one transaction."""
        workload.fill(self._ledger, [_work(session, each) for each in exchanges])
        self._ledger._core.index(least=1)

    async def last(self, session: str, count: int) -> int:
        turns = self._ledger.thread(session, last=count).turns
        return sum(len(turn.messages) + 2 * len(turn.tool_calls) for turn in turns)

    async def whole(self, session: str) -> int:
        turns = self._ledger.thread(session).turns
        return sum(len(turn.messages) + 2 * len(turn.tool_calls) for turn in turns)

    async def context(self, session: str) -> int:
        """The whole history as messages for a model, as SQLiteSession's get_items()."""
        return len(self._ledger.context(session).as_openai()["messages"])

    async def fork(self, session: str) -> None:
        self._ledger.fork(session)

    async def close(self) -> None:
        if self._many is not None:
            await self._many.close()
        self._ledger.close()


class Live(LedgerStore):
    """Each step committed as it happens: the question, each call, its outcome, the answer."""

    async def append(self, session: str, exchange: Exchange) -> None:
        with self._ledger.turn(session, exchange.query) as turn:
            for each in exchange.calls:
                with turn.tool_call(each.name, each.params) as call:
                    call.complete(each.result)
            turn.respond(exchange.response, usage=USAGE)


class InFive(LedgerStore):
    """The same in five commits: each outcome with the next call, the last with the answer."""

    async def append(self, session: str, exchange: Exchange) -> None:
        with self._ledger.turn(session, exchange.query) as turn:
            finished: list[ToolCall] = []
            for number, each in enumerate(exchange.calls):
                call = ToolCall(each.name, each.params, status="running", id=f"call_{number}")
                turn.add(*finished, call)
                finished = [ToolCall(each.name, each.params, each.result, id=call.id)]
            turn.respond(exchange.response, steps=finished, usage=USAGE)


class Forgetful(LedgerStore):
    """Each read is the first of its process."""

    async def last(self, session: str, count: int) -> int:
        self._forget()
        return await super().last(session, count)

    async def whole(self, session: str) -> int:
        self._forget()
        return await super().whole(session)

    async def context(self, session: str) -> int:
        self._forget()
        return await super().context(session)

    def _forget(self) -> None:
        cache = self._ledger._core.db._cache  # type: ignore[attr-defined]
        cache._values.clear()
        cache._length = 0


class ByHand(LedgerStore):
    """The same rows without a ledger, written and read by hand: what could be reached at most."""

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        """Then record some more on a copy, to have their rows ready."""
        await super().seed(session, exchanges)
        self._ledger.close()
        path = Path(self._address)
        more = [
            (session, workload.Turn(each.query, each.response, tuple(_steps(each))))
            for each in exchanges[-READY:]
        ]
        with workload.unindexed():
            recorded = workload.capture(workload.copy_of(path, "recorded.db"), more)
        self._ready = iter([turn.statements for turn in recorded])
        self._connection = workload.connect(path)

    async def append(self, session: str, exchange: Exchange) -> None:
        workload.commit_at_once(self._connection, next(self._ready))

    async def whole(self, session: str) -> int:
        _, messages, calls = reading.by_hand(self._connection, 1, DEEPEST)
        return len(messages) + 2 * len(calls)

    async def last(self, session: str, count: int) -> int:
        raise NotImplementedError

    async def close(self) -> None:
        self._connection.close()


class ForRunner(LedgerStore):
    """LedgerSession, in place of SQLiteSession."""

    _count = 0

    async def append(self, session: str, exchange: Exchange) -> None:
        self._count += 1
        for step in openai_items.steps(exchange, self._count):
            await LedgerSession(session, self._ledger).add_items(step)

    async def last(self, session: str, count: int) -> int:
        return len(await LedgerSession(session, self._ledger).get_items(limit=count * 8))
