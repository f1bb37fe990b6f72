"""langgraph: a graph of one node with a checkpointer, run once per exchange."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from benchmarks.peers.port import Exchange


class State(TypedDict):
    """Every checkpoint holds all messages."""

    messages: Annotated[list[Any], add_messages]


def together(state: list[Any] | None, writes: Any) -> list[Any]:
    """What a DeltaChannel replays."""
    return [*(state or ()), *(each for write in writes for each in write)]


class DeltaState(TypedDict):
    """A checkpoint holds what was added."""

    messages: Annotated[list[Any], DeltaChannel(together)]


def reply(exchange: Exchange, number: int) -> list[Any]:
    """What the agent says and does."""
    found: list[Any] = []
    for index, call in enumerate(exchange.calls):
        called = f"call_{number}_{index}"
        asked = {"name": call.name, "args": {"json": call.params}, "id": called}
        found.append(AIMessage("", tool_calls=[asked]))
        found.append(ToolMessage(call.result, tool_call_id=called))
    return [*found, AIMessage(exchange.response)]


class Saver:
    """SqliteSaver, its default."""

    state: Any = State

    def __init__(self, folder: Path, address: str) -> None:
        self._replies: dict[str, list[Any]] = {}
        self._count = 0
        self._opened = self._saver(folder, address)
        self._checkpointer = self._opened.__enter__()
        self._checkpointer.setup()
        graph = StateGraph(self.state)
        graph.add_node("agent", self._agent)
        graph.add_edge(START, "agent")
        graph.add_edge("agent", END)
        self._graph = graph.compile(checkpointer=self._checkpointer)

    def _saver(self, folder: Path, address: str) -> Any:
        return SqliteSaver.from_conn_string(str(folder / "checkpoints.db"))

    def _agent(self, state: Any, config: RunnableConfig) -> Any:
        return {"messages": self._replies[config["configurable"]["thread_id"]]}

    def _config(self, session: str) -> Any:
        return {"configurable": {"thread_id": session}}

    async def append(self, session: str, exchange: Exchange) -> None:
        self._count += 1
        self._replies[session] = reply(exchange, self._count)
        asked = {"messages": [HumanMessage(exchange.query)]}
        if session.startswith("crowd-"):
            await asyncio.to_thread(self._graph.invoke, asked, self._config(session))
        else:
            self._graph.invoke(asked, self._config(session))

    async def seed(self, session: str, exchanges: list[Exchange]) -> None:
        """Its history grows with the square of its length: most of it is put in at once."""
        messages: list[Any] = []
        for exchange in exchanges:
            self._count += 1
            messages += [HumanMessage(exchange.query), *reply(exchange, self._count)]
        self._graph.update_state(self._config(session), {"messages": messages}, as_node="agent")

    async def last(self, session: str, count: int) -> int:
        return await self.whole(session)

    async def whole(self, session: str) -> int:
        return len(self._graph.get_state(self._config(session)).values["messages"])

    async def fork(self, session: str) -> None:
        found = self._graph.get_state(self._config(session))
        self._graph.update_state(found.config, {"messages": []}, as_node="agent")

    async def close(self) -> None:
        self._opened.__exit__(None, None, None)


class Delta(Saver):
    """SqliteSaver with a DeltaChannel, which is in beta."""

    state = DeltaState


class Server(Saver):
    """PostgresSaver."""

    def _saver(self, folder: Path, address: str) -> Any:
        from langgraph.checkpoint.postgres import PostgresSaver

        return PostgresSaver.from_conn_string(address)
