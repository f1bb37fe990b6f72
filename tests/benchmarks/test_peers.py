"""The comparison hands pieces over as the peer's own framework does."""

from __future__ import annotations

import asyncio
from typing import Any

import agents

from benchmarks.peers import openai_items
from benchmarks.peers.port import Call, Exchange

EXCHANGE = Exchange(
    "where is it?",
    tuple(Call("look", f'{{"at":"{at}"}}', f"nothing at {at}") for at in "abc"),
    "nowhere",
)


def test_the_runner_saves_three_calls_in_a_row_in_five_steps() -> None:
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        """Calls the tool three times, then answers."""

        def __init__(self) -> None:
            said = ResponseOutputText(text=EXCHANGE.response, type="output_text", annotations=[])
            self.outputs: list[Any] = [
                *(
                    ResponseFunctionToolCall(
                        call_id=f"call_7_{number}",
                        name=call.name,
                        arguments=call.params,
                        type="function_call",
                    )
                    for number, call in enumerate(EXCHANGE.calls)
                ),
                ResponseOutputMessage(
                    id="answer",
                    content=[said],
                    role="assistant",
                    status="completed",
                    type="message",
                ),
            ]

        async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
            return ModelResponse([self.outputs.pop(0)], agents.Usage(), None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    class Listening(agents.SQLiteSession):
        """Remembers what was added together."""

        async def add_items(self, items: list[Any]) -> None:
            added.append([item.get("type", item.get("role")) for item in items])
            await super().add_items(items)

    added: list[list[str]] = []
    tool = agents.function_tool(lambda at: f"nothing at {at}", name_override="look")
    agent = agents.Agent(name="scripted", model=Scripted(), tools=[tool])
    session = Listening("main")
    off = agents.RunConfig(tracing_disabled=True)
    asyncio.run(agents.Runner.run(agent, EXCHANGE.query, session=session, run_config=off))

    measured = [
        [item.get("type", item.get("role")) for item in step]
        for step in openai_items.steps(EXCHANGE, 7)
    ]
    assert added == measured
    assert len(measured) == 5
