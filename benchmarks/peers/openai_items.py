"""An exchange as pieces of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.port import Exchange


def items(exchange: Exchange, number: int) -> list[Any]:
    """The pieces of an exchange."""
    found: list[Any] = [{"role": "user", "content": exchange.query}]
    for index, call in enumerate(exchange.calls):
        called = f"call_{number}_{index}"
        found += [
            {
                "type": "function_call",
                "call_id": called,
                "name": call.name,
                "arguments": call.params,
            },
            {"type": "function_call_output", "call_id": called, "output": call.result},
        ]
    answer = {"type": "output_text", "text": exchange.response, "annotations": []}
    return [*found, {"type": "message", "role": "assistant", "content": [answer]}]


def steps(exchange: Exchange, number: int) -> list[list[Any]]:
    """As the Runner hands them over: the question, each call with its output, the answer."""
    found = items(exchange, number)
    return [found[:1], *(found[at : at + 2] for at in range(1, len(found) - 1, 2)), found[-1:]]
