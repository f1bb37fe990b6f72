"""The ledger itself, in the comparison."""

from __future__ import annotations

from pathlib import Path

from agents_ledger import AsyncLedger, Ledger, ToolCall, Usage
from benchmarks.peers.port import Exchange

USAGE = Usage(12_480, 655)


class LedgerStore:
    """One ledger. A single writer is synchronous, a crowd of them are tasks of asyncio."""

    def __init__(self, folder: Path, address: str) -> None:
        self._address = address or str(folder / "ledger.db")
        self._ledger = Ledger.open(self._address)
        self._many: AsyncLedger | None = None

    async def append(self, session: str, exchange: Exchange) -> None:
        steps = [ToolCall(call.name, call.params, call.result) for call in exchange.calls]
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
        raise NotImplementedError

    async def last(self, session: str, count: int) -> int:
        turns = self._ledger.thread(session, last=count).turns
        return sum(len(turn.messages) + 2 * len(turn.tool_calls) for turn in turns)

    async def whole(self, session: str) -> int:
        turns = self._ledger.thread(session).turns
        return sum(len(turn.messages) + 2 * len(turn.tool_calls) for turn in turns)

    async def fork(self, session: str) -> None:
        self._ledger.fork(session)

    async def close(self) -> None:
        if self._many is not None:
            await self._many.close()
        self._ledger.close()
