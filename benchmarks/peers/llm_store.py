"""llm: a conversation with tools, every response logged as its command line does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llm
import sqlite_utils
from llm.logs import LogStore
from llm.migrations import migrate

from benchmarks.peers.port import Exchange


class Scripted(llm.Model):  # type: ignore[misc]
    """Calls three tools, then answers: what the exchange says."""

    model_id = "scripted"
    supports_tools = True
    exchange: Exchange

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
        if prompt.tool_results:
            yield self.exchange.response
            return
        for call in self.exchange.calls:
            asked = llm.ToolCall(name=call.name, arguments=json.loads(call.params))
            response.add_tool_call(asked)
        yield ""


class Log:
    """log_to_db, its only way to keep a response."""

    def __init__(self, folder: Path, address: str) -> None:
        self._db = sqlite_utils.Database(folder / "logs.db")
        migrate(self._db)
        self._model = Scripted()
        self._conversations: dict[str, Any] = {}
        self._results: list[str] = []

    def _tool(self, name: str) -> Any:
        def run(path: str, limit: int) -> str:
            """Read something."""
            return self._results.pop(0)

        return llm.Tool.function(run, name=name)

    async def append(self, session: str, exchange: Exchange) -> None:
        if session not in self._conversations:
            self._conversations[session] = self._model.conversation()
        self._model.exchange = exchange
        self._results = [call.result for call in exchange.calls]
        chain = self._conversations[session].chain(
            exchange.query,
            tools=[self._tool(name) for name in dict.fromkeys(c.name for c in exchange.calls)],
        )
        chain.text()
        chain.log_to_db(self._db)

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        raise NotImplementedError

    async def last(self, session: str, count: int) -> int:
        return await self.whole(session)

    async def whole(self, session: str) -> int:
        messages = LogStore(self._db).thread_messages(self._conversations[session].id)
        return sum(len(message.parts) for message in messages)

    async def fork(self, session: str) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        self._db.close()
