"""Overflow: compacted ahead of the limit, and after the provider refused, then tried once more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents_ledger import (
    AsyncLedger,
    CallItem,
    EngineError,
    Ledger,
    MessageDone,
    Request,
    ResultItem,
    TextItem,
    ToolCall,
)
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.events import Compacted, Completed, Failed, Started
from agents_ledger.broker.policy import ContextLimits, EngineChoice, Policy
from agents_ledger.broker.tools import offer
from agents_ledger.model.agents.engine import CallBegun, CallFinished, EngineEvent, Finished
from tests.broker.conftest import WithBroker, answer_of, events_of
from tests.broker.loopback import Failure, Loopback, loopback, openai_text
from tests.engines import on_sqlite
from tests.waiting import PATIENCE_S

LONG = "word " * 200


def long_thread(ledger: Ledger) -> None:
    for number in range(8):
        ledger.record("main", f"question {number} {LONG}", f"answer {number} {LONG}")


def limits(window: int, strategy: str = "summary") -> Policy:
    return Policy(context=ContextLimits(window_tokens=window, strategy=strategy))


def test_a_session_is_compacted_ahead_of_the_limit(with_broker: WithBroker, ledger: Ledger) -> None:
    long_thread(ledger)

    told = with_broker(lambda b: events_of(b, "main", "short"), limits(5000))

    (compacted,) = (event for event in told if isinstance(event, Compacted))
    done = told[-1]
    assert isinstance(done, Completed)
    assert compacted.trigger == "context_limit"
    assert (compacted.tokens_after or 0) <= 5000 * 0.6
    assert ledger.get_turn(done.turn_id).parent_turn_id == compacted.turn_id
    assert ledger.thread("main", last=0).depth == 10


@pytest.mark.finding("users-11")
def test_a_plain_function_summarises_for_the_broker(address: str, ledger: Ledger) -> None:
    long_thread(ledger)

    async def act() -> Any:
        async with (
            AsyncLedger.open(address) as handle,
            Broker(
                handle, limits(5000), EchoEngine(), summariser=lambda prompt: "Short."
            ) as broker,
        ):
            return await answer_of(broker, "main", "short")

    done = asyncio.run(asyncio.wait_for(act(), PATIENCE_S))

    assert done.text == "short"
    assert ledger.compactions("main")[0].summary == "Short."


def test_after_an_overflow_the_session_is_compacted_and_retried_once(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    long_thread(ledger)
    shown = ledger.context("main", query="short").total_tokens

    told = with_broker(
        lambda b: events_of(b, "main", "short"),
        limits(1_000_000),
        EchoEngine(context_window=shown // 2),
    )

    (compacted,) = (event for event in told if isinstance(event, Compacted))
    assert compacted.trigger == "overflow_recovery"
    assert (compacted.tokens_after or 0) <= shown * 0.4
    first, second = (event.turn_id for event in told if isinstance(event, Started))
    assert isinstance(told[-1], Completed)
    assert told[-1].turn_id == second == ledger.head("main")
    failed = ledger.get_turn(first)
    assert failed.status == "failed"
    assert "exceed" in (failed.error or "")
    assert ledger.get_turn(second).parent_turn_id == compacted.turn_id


def test_what_is_too_long_in_itself_fails_after_one_more_try(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> Any:
        failed = await answer_of(broker, "main", LONG)
        return failed, await answer_of(broker, "main", "short")

    failed, done = with_broker(act, engine=EchoEngine(context_window=100))

    assert isinstance(failed, Failed)
    assert failed.kind == "overflow"
    assert done.text == "short"
    turns = ledger.query("SELECT count(*) FROM turns WHERE status = 'failed'")[1][0][0]
    assert turns == 2


def test_a_last_turn_too_long_by_itself_is_cut_for_the_next_and_stays_whole(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    steps = [ToolCall.of("Read", {"n": n}, {"text": "x" * 600}) for n in range(8)]
    long = ledger.record("main", "read it all", "done", steps=steps)

    async def act(broker: Broker) -> Any:
        return await answer_of(broker, "main", "and now?")

    done = with_broker(act, engine=EchoEngine(context_window=1000))

    assert isinstance(done, Completed)
    assert done.text == "and now?"
    assert ledger.get_turn(done.turn_id).parent_turn_id == long.id  # nothing was compacted
    assert ledger.get_turn(long.id).tool_calls[0].result_json == steps[0].result_json


def test_tools_that_ran_before_an_overflow_are_not_run_again(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    ran: list[str] = []

    def effect() -> str:
        """Something that must happen once."""
        ran.append("effect")
        return "done " * 2000

    long_thread(ledger)
    engine = TooLate()

    told = with_broker(lambda b: events_of(b, "main", "go"), engine=engine, tools=[offer(effect)])

    assert ran == ["effect"]
    assert isinstance(told[-1], Completed)
    result = engine.seen[-1]
    assert isinstance(result, ResultItem)
    assert result.text.endswith("characters omitted]")


class TooLate:
    """Overflows after its tool has run; told of the result, it answers."""

    name = "late"

    def __init__(self) -> None:
        self.seen: tuple[Any, ...] = ()

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        if "summar" in (request.system_prompt or "").lower():
            yield MessageDone("a summary")
            yield Finished()
            return
        self.seen = request.items
        if not isinstance(request.items[-1], ResultItem):
            call = CallItem("c", "effect", "{}")
            yield CallBegun(call)
            yield CallFinished(await request.call(call))
            raise EngineError("too long", kind="overflow")
        assert isinstance(request.items[-3], TextItem)
        yield MessageDone("it is done")
        yield Finished()


@on_sqlite
def test_a_provider_that_overflows_is_retried_with_a_shorter_context(
    address: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_thread(ledger)
    too_long = Failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})

    async def act() -> tuple[list[Any], Loopback]:
        async with loopback(too_long, openai_text("A summary."), openai_text("Short.")) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "k")
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            policy = Policy(engine=EngineChoice("pydantic-ai", "openai-chat:gpt-test"))
            async with AsyncLedger.open(address) as handle, Broker(handle, policy) as broker:
                return await events_of(broker, "main", "short"), server

    told, server = asyncio.run(asyncio.wait_for(act(), PATIENCE_S))

    assert isinstance(told[-1], Completed)
    assert (told[-1].text, told[-1].model) == ("Short.", "gpt-test-2026")
    first, _, second = (len(json.dumps(body)) for body in server.asked)
    assert second < first / 2
    assert ledger.compactions("main")[0].summary == "A summary."
