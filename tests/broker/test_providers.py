"""The engine for every provider: against pydantic-ai's function model, and over HTTP against a
server that speaks OpenAI's and Anthropic's protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

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
    Tool,
    Usage,
)
from agents_ledger.broker.engines.providers import ProviderEngine, to_messages, to_settings
from tests.broker.loopback import (
    Failure,
    Script,
    anthropic_call,
    anthropic_message,
    anthropic_text,
    anthropic_thinking,
    loopback,
    openai_call,
    openai_text,
    responses_call,
    responses_text,
)
from tests.waiting import PATIENCE_S

OPENAI, RESPONSES, ANTHROPIC = "openai-chat:gpt-test", "openai:gpt-5-test", "anthropic:claude-test"
WEATHER = Tool(
    "weather",
    "The weather of a place.",
    {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
)


async def sunny(call: CallItem) -> ResultItem:
    assert call.params_json == '{"place": "Rome"}'
    return ResultItem(call.id, "sunny")


def ask(model: str, text: str = "How is it?", **fields: Any) -> Request:
    config = ModelConfig(model, **fields.pop("config", {}))
    return Request((TextItem("user", text),), "Be brief.", config, **fields)


def events(
    request: Request, *scripts: Script, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], Any]:
    """What the engine yields, and what the server was asked."""

    async def run() -> tuple[list[Any], Any]:
        async with loopback(*scripts) as server:
            monkeypatch.setenv("OPENAI_API_KEY", "k")
            monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            return [event async for event in ProviderEngine().run(request)], server

    return asyncio.run(run())


# -- over HTTP ---------------------------------------------------------------------------------


def test_openai_streams_text_and_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"max_tokens": 100, "temperature": 0.5}
    told, server = events(
        ask(OPENAI, config=config), openai_text("It ", "is fine."), monkeypatch=monkeypatch
    )

    assert told == [
        TextPiece("It "),
        TextPiece("is fine."),
        MessageDone("It is fine."),
        Finished(Usage(20, 5, 4, None, 2), "gpt-test-2026", "openai", "end"),
    ]
    (body,) = server.asked
    assert server.paths == ["/v1/chat/completions"]
    assert body["stream"] is True
    assert body["temperature"] == 0.5
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Be brief."


def test_openai_calls_tools_and_gets_their_results(monkeypatch: pytest.MonkeyPatch) -> None:
    told, server = events(
        ask(OPENAI, tools=(WEATHER,), call=sunny),
        openai_call("weather", '{"place": "Rome"}'),
        openai_text("Sunny."),
        monkeypatch=monkeypatch,
    )

    call = CallItem("call_1", "weather", '{"place": "Rome"}')
    assert told == [
        TextPiece("Let me look."),
        MessageDone("Let me look."),
        CallBegun(call),
        CallFinished(ResultItem("call_1", "sunny")),
        TextPiece("Sunny."),
        MessageDone("Sunny."),
        Finished(Usage(30, 12, 8, None, 4), "gpt-test-2026", "openai", "end"),
    ]
    assert server.asked[0]["tools"][0]["function"]["name"] == "weather"
    last = server.asked[1]["messages"][-1]
    assert (last["role"], last["tool_call_id"], last["content"]) == ("tool", "call_1", "sunny")


def test_openai_responses_think_call_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    told, server = events(
        ask(RESPONSES, tools=(WEATHER,), call=sunny, config={"thinking": "low", "max_tokens": 99}),
        responses_call("weather", '{"place": "Rome"}', "I must look."),
        responses_text("It is ", "sunny."),
        monkeypatch=monkeypatch,
    )

    assert told == [
        ThinkingPiece("I must look."),
        MessageDone("", "I must look.", "sealed"),
        CallBegun(CallItem("call_1", "weather", '{"place": "Rome"}')),
        CallFinished(ResultItem("call_1", "sunny")),
        TextPiece("It is "),
        TextPiece("sunny."),
        MessageDone("It is sunny."),
        Finished(Usage(40, 10, 8, None, 4), "gpt-test-2026", "openai", "end"),
    ]
    assert server.paths == ["/v1/responses", "/v1/responses"]
    first, second = server.asked
    assert first["instructions"] == "Be brief."
    assert first["reasoning"]["effort"] == "low"
    assert first["max_output_tokens"] == 99
    assert first["tools"][0]["name"] == "weather"
    said = {item.get("type", "message"): item for item in second["input"]}
    assert said["function_call"]["call_id"] == "call_1"
    assert said["function_call_output"]["output"] == "sunny"


def test_an_answer_of_openai_that_was_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = responses_text(
        "Half an ans", status="incomplete", incomplete_details={"reason": "max_output_tokens"}
    )

    told, _ = events(ask(RESPONSES), cut, monkeypatch=monkeypatch)

    assert isinstance(told[-1], Finished)
    assert told[-1].stop_reason == "max_tokens"
    assert told[-2] == MessageDone("Half an ans")


def test_anthropic_thinks_calls_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    told, server = events(
        ask(ANTHROPIC, tools=(WEATHER,), call=sunny, config={"thinking": 2000}),
        anthropic_message(
            anthropic_thinking("I must look.", "sig-1"),
            anthropic_call("weather", '{"place": "Rome"}'),
            stop="tool_use",
        ),
        anthropic_message(anthropic_text("It is ", "sunny."), stop="max_tokens"),
        monkeypatch=monkeypatch,
    )

    assert told == [
        ThinkingPiece("I must look."),
        MessageDone("", "I must look.", "sig-1"),
        CallBegun(CallItem("toolu_1", "weather", '{"place": "Rome"}')),
        CallFinished(ResultItem("toolu_1", "sunny")),
        TextPiece("It is "),
        TextPiece("sunny."),
        MessageDone("It is sunny."),
        Finished(Usage(32, 18, 6, 4), "claude-test-2026", "anthropic", "max_tokens"),
    ]
    first, second = server.asked
    assert first["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    said = second["messages"][1]["content"]
    assert [block["type"] for block in said] == ["thinking", "tool_use"]
    assert said[0]["signature"] == "sig-1"
    assert second["messages"][2]["content"][0]["tool_use_id"] == "toolu_1"


@pytest.mark.parametrize(
    ("model", "failure", "kind"),
    [
        (
            OPENAI,
            Failure(
                400,
                {"error": {"code": "context_length_exceeded", "message": "maximum context length"}},
            ),
            "overflow",
        ),
        (
            ANTHROPIC,
            Failure(
                400,
                {
                    "type": "error",
                    "error": {
                        "type": "invalid_request_error",
                        "message": "prompt is too long: 210000 tokens > 200000 maximum",
                    },
                },
            ),
            "overflow",
        ),
        (
            RESPONSES,
            Failure(
                400,
                {
                    "error": {
                        "code": "context_length_exceeded",
                        "message": "Your input exceeds the context window of this model.",
                    }
                },
            ),
            "overflow",
        ),
        (RESPONSES, Failure(401, {"error": {"message": "bad key"}}), "auth"),
        (RESPONSES, Failure(429, {"error": {"message": "slow down"}}), "rate"),
        (RESPONSES, Failure(503, {"error": {"message": "overloaded"}}), "unavailable"),
        (OPENAI, Failure(401, {"error": {"message": "bad key"}}), "auth"),
        (OPENAI, Failure(429, {"error": {"message": "slow down"}}), "rate"),
        (OPENAI, Failure(422, {"error": {"message": "no such thing"}}), "bad_request"),
        (ANTHROPIC, Failure(529, {"error": {"type": "overloaded_error"}}), "unavailable"),
        (ANTHROPIC, Failure(500, {"error": {"type": "api_error"}}), "unavailable"),
    ],
)
def test_every_error_has_its_kind(
    model: str, failure: Failure, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError) as error:
        events(ask(model), failure, monkeypatch=monkeypatch)

    assert error.value.kind == kind


def test_a_broken_stream_is_reported_after_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = anthropic_message(anthropic_text("Half an ans"))[:-3]
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    heard: list[Any] = []

    async def run() -> None:
        async with loopback([*broken, error]) as server:
            monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
            heard.extend([event async for event in listening(ProviderEngine().run(ask(ANTHROPIC)))])

    async def listening(source: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for event in source:
            heard.append(event)
            yield event

    with pytest.raises(EngineError) as failed:
        asyncio.run(run())

    assert failed.value.kind == "unavailable"
    assert heard == [TextPiece("Half an ans")]


def test_a_missing_key_and_an_unknown_model_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def run(model: str | None) -> str:
        with pytest.raises(EngineError) as error:
            await anext(aiter(ProviderEngine().run(ask(model or ""))))
        return error.value.kind

    assert asyncio.run(run(OPENAI)) == "auth"
    assert asyncio.run(run("nobody:model")) == "bad_request"
    assert asyncio.run(run(None)) == "bad_request"


# -- with the function model -------------------------------------------------------------------


def with_function(stream: Any) -> ProviderEngine:
    return ProviderEngine(lambda name: FunctionModel(stream_function=stream, model_name=name))


def test_calls_of_one_message_are_executed_concurrently() -> None:
    both_run = asyncio.Event()
    running: list[str] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {
                0: DeltaToolCall("a", "{}", tool_call_id="1"),
                1: DeltaToolCall("b", "{}", tool_call_id="2"),
            }
        else:
            yield "done"

    async def call(item: CallItem) -> ResultItem:
        running.append(item.id)
        if len(running) == 2:
            both_run.set()
        await asyncio.wait_for(both_run.wait(), PATIENCE_S)
        return ResultItem(item.id, item.tool_name, is_error=item.tool_name == "b")

    async def run() -> list[Any]:
        request = ask("m", tools=(Tool("a"), Tool("b")), call=call)
        return [event async for event in with_function(stream).run(request)]

    told = asyncio.run(run())

    assert [type(event).__name__ for event in told] == [
        "MessageDone",
        "CallBegun",
        "CallBegun",
        "CallFinished",
        "CallFinished",
        "TextPiece",
        "MessageDone",
        "Finished",
    ]


def test_steering_messages_reach_the_model_before_it_ends() -> None:
    waiting = [(TextItem("user", "In French."),), ()]

    async def steer() -> tuple[TextItem, ...]:
        return waiting.pop(0)

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield f"answer {len(messages)}"

    async def run() -> list[Any]:
        return [event async for event in with_function(stream).run(ask("m", steer=steer))]

    told = asyncio.run(run())

    assert [event.text for event in told if isinstance(event, MessageDone)] == [
        "answer 1",
        "answer 3",
    ]


def test_a_context_becomes_messages_of_two_sides() -> None:
    items = (
        TextItem("user", "one"),
        ImageItem("https://host/a.png"),
        ImageItem("data:image/png;base64,AAAA"),
        ThinkingItem("hm", "sig", "anthropic"),
        TextItem("assistant", "two"),
        CallItem("c", "Read", '{"path": "a"}'),
        ResultItem("c", "text", images=(ImageItem("elsewhere"),)),
        ResultItem("gone", "no", is_error=True),
        TextItem("user", "three"),
    )

    first, said, last = to_messages(items)

    assert isinstance(first, ModelRequest)
    assert isinstance(said, ModelResponse)
    assert isinstance(last, ModelRequest)
    assert [part.part_kind for part in first.parts] == ["user-prompt"] * 3
    assert [part.part_kind for part in said.parts] == ["thinking", "text", "tool-call"]
    assert [part.part_kind for part in last.parts] == ["tool-return", "tool-return", "user-prompt"]
    assert getattr(last.parts[0], "tool_name", None) == "Read"
    assert getattr(last.parts[1], "outcome", None) == "failed"


@pytest.mark.parametrize(
    ("thinking", "said"),
    [(None, {}), (True, {"thinking": True}), ("high", {"thinking": "high"}),
     (500, {"thinking": "low"}), (5000, {"thinking": "medium"}), (50_000, {"thinking": "high"})],
)  # fmt: skip
def test_thinking_is_configured_per_provider(thinking: Any, said: Any) -> None:
    model = FunctionModel(lambda messages, info: ModelResponse([]))

    assert to_settings(ModelConfig("m", thinking), model) == said
