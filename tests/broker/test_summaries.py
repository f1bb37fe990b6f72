"""Summaries by a model, through the engine for every provider."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents_ledger import EngineError, Ledger
from agents_ledger.broker.engines.providers import ProviderEngine
from tests.raw import Raw


def test_a_model_is_shown_the_transcript_and_its_words_become_the_summary(
    ledger: Ledger,
) -> None:
    heard: list[str] = []

    async def summarise(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        [request] = messages
        assert isinstance(request, ModelRequest)
        [asked] = request.parts
        assert isinstance(asked, UserPromptPart)
        heard.extend([str(request.instructions), str(asked.content)])
        assert not info.function_tools
        yield "They spoke "
        yield "of bread."

    for n in range(5):
        ledger.record("main", f"question {n} about bread " + "q" * 300, "answer")
    engine = ProviderEngine(lambda name: FunctionModel(stream_function=summarise, model_name=name))

    turn = ledger.compact("main", engine=engine, model="small", budget=300)

    assert turn.compaction is not None
    assert turn.compaction.summary == "They spoke of bread."
    assert turn.compaction.model == "small"
    assert (turn.compaction.summarization_output_tokens or 0) > 0
    prompt, asked = heard
    assert prompt.startswith("You summarise conversations")
    assert "USER: question 0 about bread" in asked


def test_a_model_that_breaks_off_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    async def broken(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "They "
        raise ConnectionError("reset by peer")

    for n in range(5):
        ledger.record("main", f"question {n} " + "q" * 300, "answer")
    before = raw.dump()
    engine = ProviderEngine(lambda name: FunctionModel(stream_function=broken, model_name=name))

    with pytest.raises((EngineError, ConnectionError)):
        ledger.compact("main", engine=engine, model="small", budget=300)

    assert raw.dump() == before
