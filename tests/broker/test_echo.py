"""The echo engine keeps the contract of the Engine port, and needs no model."""

from __future__ import annotations

import asyncio

import pytest

from agents_ledger import (
    CallBegun,
    CallFinished,
    CallItem,
    EngineError,
    Finished,
    ImageItem,
    MessageDone,
    ModelConfig,
    Request,
    ResultItem,
    TextItem,
    TextPiece,
    ThinkingItem,
    ThinkingPiece,
    estimate_tokens,
)
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.model.agents.engine import Engine, EngineEvent, ask
from agents_ledger.model.context.items import count_tokens

ECHO: Engine = EchoEngine()


def asked(text: str, **fields: object) -> Request:
    items = (TextItem("user", "before"), TextItem("assistant", "yes"), TextItem("user", text))
    return Request(items, **fields)  # type: ignore[arg-type]


def events(request: Request, engine: Engine = ECHO) -> list[EngineEvent]:
    async def run() -> list[EngineEvent]:
        return [event async for event in engine.run(request)]

    return asyncio.run(run())


def test_it_repeats_the_message_in_parts_and_reports_usage() -> None:
    *pieces, message, finished = events(asked("one\ntwo", config=ModelConfig("my-model")))

    assert pieces == [TextPiece("one\n"), TextPiece("two")]
    assert message == MessageDone("one\ntwo")
    assert isinstance(finished, Finished)
    assert (finished.model, finished.provider, finished.stop_reason) == ("my-model", "echo", "end")
    assert finished.usage.input_tokens == count_tokens(None, asked("one\ntwo").items)
    assert finished.usage.output_tokens == 3


def test_it_has_its_caller_execute_the_tools() -> None:
    executed = []

    async def call(item: CallItem) -> ResultItem:
        executed.append((item.tool_name, item.params_json))
        return ResultItem(item.id, "found")

    done = events(asked('/think first\n/call Read {"path": "a"}\nDone.', call=call))

    thought, begun, finished, *_, message, _ = done
    assert thought == ThinkingPiece("first")
    assert isinstance(begun, CallBegun)
    assert finished == CallFinished(ResultItem(begun.call.id, "found"))
    assert message == MessageDone("Done.", "first")
    assert executed == [("Read", '{"path": "a"}')]


def test_without_tools_every_call_is_answered_with_an_error() -> None:
    [_, finished, *_] = events(asked("/call Read"))

    assert isinstance(finished, CallFinished)
    assert finished.result.is_error
    assert "no tool 'Read'" in finished.result.text


def test_it_stops_at_the_tokens_it_may_say() -> None:
    *_, message, finished = events(asked("é" * 100, config=ModelConfig(max_tokens=5)))

    assert message == MessageDone("é" * 7)
    assert isinstance(finished, Finished)
    assert finished.stop_reason == "max_tokens"


def test_it_fails_on_request_after_the_previous_lines() -> None:
    seen = []

    async def run() -> None:
        async for event in ECHO.run(asked("/think hm\n/wait 1\n/fail rate slow down")):
            seen.append(event)

    with pytest.raises(EngineError, match="slow down") as failed:
        asyncio.run(run())

    assert seen == [ThinkingPiece("hm")]
    assert (failed.value.kind, failed.value.passing) == ("rate", True)
    with pytest.raises(EngineError) as unknown:
        events(asked("/fail nonsense"))
    assert unknown.value.kind == "unavailable"


def test_it_overflows_above_its_context_window() -> None:
    request = asked("x" * 400)
    tokens = count_tokens(None, request.items)

    assert events(request, EchoEngine(context_window=tokens))
    with pytest.raises(EngineError, match=f"{tokens} tokens exceed") as failed:
        events(request, EchoEngine(context_window=tokens - 1))
    assert (failed.value.kind, failed.value.passing) == ("overflow", False)
    assert "compact" in failed.value.hint


def test_asking_gives_the_last_message_and_what_it_cost() -> None:
    reply = asyncio.run(ask(ECHO, asked("hello")))

    assert reply.text == "hello"
    assert reply.finished.provider == "echo"


def test_an_engine_that_ends_without_finishing_is_an_error() -> None:
    class Silent:
        name = "silent"

        async def run(self, request: Request):  # type: ignore[no-untyped-def]
            yield TextPiece("half")

    with pytest.raises(EngineError, match="'silent' ended without an answer"):
        asyncio.run(ask(Silent(), asked("hello")))


def test_tokens_are_three_bytes_each_and_every_item_costs_a_little() -> None:
    texts = (None, "", "a", "abc", "abcd", "日本語")
    assert [estimate_tokens(text) for text in texts] == [0, 0, 1, 1, 2, 3]
    assert estimate_tokens("\ud800") == 1
    items = (
        TextItem("user", "abc"),
        ThinkingItem("abc"),
        CallItem("1", "Red", "{}"),
        ResultItem("1", "abc", images=(ImageItem("a.png"),)),
        ImageItem("b.png"),
    )
    assert count_tokens("abc", items) == 6 * 4 + 3 + 1 + 2 + 1500 + 1500
