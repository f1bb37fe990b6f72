"""pydantic-ai's ConversationStore over the ledger, beside its own in-memory store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from agents_ledger import Ledger, Message, ResultItem
from agents_ledger.integrations.pydantic_ai import LedgerConversationStore
from agents_ledger.model.turns import MessageRole


def run(work: Any) -> Any:
    return asyncio.run(work)


def exchange(number: int) -> list[ModelMessage]:
    """A question, a call, its result and an answer; the same ones for the same number."""
    return list(_exchange(number))


@cache
def _exchange(number: int) -> tuple[ModelMessage, ...]:
    call = ToolCallPart("add", {"a": number}, tool_call_id=f"c{number}")
    returned = ToolReturnPart("add", {"sum": number}, tool_call_id=f"c{number}")
    return (
        ModelRequest([UserPromptPart(f"question {number}")]),
        ModelResponse(
            [TextPart("Let me add."), call], model_name="m", usage=RequestUsage(input_tokens=5)
        ),
        ModelRequest([returned]),
        ModelResponse(
            [TextPart(f"answer {number}")],
            model_name="m",
            usage=RequestUsage(input_tokens=10, output_tokens=5),
        ),
    )


@pytest.mark.finding("users-14")
def test_an_exchange_is_one_turn_with_model_and_tokens(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)
    entries = run(store.save(Conversation(messages=exchange(1) + exchange(2), conversation_id="c")))

    turns = ledger.thread("pydantic-ai:c").turns
    assert [turn.id for turn in turns] == [entries[0].id, entries[4].id]
    first = turns[0]
    assert [message.content for message in first.messages] == [
        "question 1",
        "Let me add.",
        '{"sum":1}',
        "answer 1",
    ]
    assert first.response
    assert first.response.content == "answer 1"
    [call] = first.tool_calls
    assert (call.id, call.tool_name, call.params_json, call.status) == (
        "c1",
        "add",
        '{"a":1}',
        "completed",
    )
    assert (first.model, first.input_tokens, first.output_tokens) == ("m", 15, 5)
    shown = ledger.context("pydantic-ai:c").items
    assert sum(isinstance(item, ResultItem) for item in shown) == 2
    assert ledger.session("pydantic-ai:c").origin_session_id == "c"
    assert run(store.load("c")).messages == exchange(1) + exchange(2)
    assert ledger.audit() == ()


def test_a_run_of_an_agent_with_a_tool_is_one_turn(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)
    agent = Agent(TestModel())

    @agent.tool_plain
    def add(a: int) -> int:
        return a + 1

    result = run(agent.run("One?"))
    run(store.save(result))

    [turn] = ledger.thread(f"pydantic-ai:{result.conversation.conversation_id}").turns
    assert turn.query[0].content == "One?"
    assert [call.tool_name for call in turn.tool_calls] == ["add"]
    assert turn.response
    assert turn.model == "test"
    assert turn.total_tokens == result.usage.total_tokens


def test_an_exchange_that_is_retried_in_the_middle_is_a_branch(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)
    first = Conversation(messages=exchange(1) + exchange(2), conversation_id="c")
    entries = run(store.save(first))
    original = ledger.head("pydantic-ai:c")

    back = run(store.branch("c", at=6, expected_revision=first.revision))
    assert ledger.head("pydantic-ai:c") == entries[0].id  # what remains is recorded with the rest
    assert run(store.load("c")).messages == (exchange(1) + exchange(2))[:6]
    back.messages.append(ModelResponse([TextPart("another answer")], model_name="m"))
    [entry] = run(store.save(back))

    first_turn, retried = ledger.thread("pydantic-ai:c").turns
    assert retried.id == entry.id
    assert [message.content for message in retried.messages] == [
        "question 2",
        "Let me add.",
        "another answer",
    ]
    history = run(store.load_entries("c"))
    assert [e.id for e in history] == [*(e.id for e in entries[:6]), entry.id]
    assert [e.parent_id for e in history] == [None, *(e.id for e in history[:-1])]
    assert run(store.read_entry(entry.id)).parent_id == entries[5].id
    assert original
    assert ledger.get_turn(original).parent_turn_id == first_turn.id
    assert retried.input_tokens == 0  # what was copied counts where it was recorded first
    assert ledger.audit() == ()


def test_conversations_with_a_turn_for_every_entry_are_read_and_continued(ledger: Ledger) -> None:
    """As earlier versions wrote them."""
    store = LedgerConversationStore(ledger)
    run(store.save(Conversation(messages=[], conversation_id="c")))
    record = run(store.read_record("c"))
    for number, message in enumerate(exchange(1)):
        stored = ModelMessagesTypeAdapter.dump_json([message]).decode()[1:-1]
        role: MessageRole = "user" if isinstance(message, ModelRequest) else "assistant"
        ledger.record(
            "pydantic-ai:c", Message(role, str(number), metadata_json=stored), id=f"entry-{number}"
        )
    revision = record.revision
    record = replace(record, head_id="entry-3", revision="next")
    run(store.write_record(record, expected_revision=revision))

    conversation = run(store.load("c"))
    assert conversation.messages == exchange(1)
    conversation.messages.extend(exchange(2))
    run(store.save(conversation))

    assert run(store.load("c")).messages == exchange(1) + exchange(2)
    assert len(ledger.thread("pydantic-ai:c").turns) == 5
    assert run(store.read_entry("entry-2")).parent_id == "entry-1"


def test_an_agents_runs_are_saved_loaded_branched_and_forked(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)
    agent = Agent(TestModel())

    async def talk() -> None:
        result = await agent.run("One?")
        await store.save(result, scope="me")
        conversation_id = result.conversation.conversation_id
        loaded = await store.load(conversation_id, scope="me")
        assert loaded
        assert loaded.messages == result.all_messages()
        again = await agent.run("Two?", conversation=loaded)
        await store.save(again)
        assert len(await store.load_entries(conversation_id) or []) == 4
        back = await store.branch(
            conversation_id, at=2, expected_revision=again.conversation.revision
        )
        await store.save(await agent.run("Three?", conversation=back))
        record = await store.read_record(conversation_id)
        assert record
        assert len(record.branches) == 1
        fork = await store.fork(conversation_id)
        assert len(await store.load_entries(fork.conversation_id) or []) == 4
        assert await store.load(conversation_id, scope="you") is None

    run(talk())

    assert ledger.audit() == ()
    assert len(ledger.sessions(origin="pydantic-ai")) == 2


def test_of_two_writers_one_is_told(ledger: Ledger, open_ledger: Callable[[], Ledger]) -> None:
    stores = [LedgerConversationStore(ledger), LedgerConversationStore(open_ledger())]
    run(stores[0].save(Conversation(messages=exchange(0), conversation_id="c")))

    async def both() -> list[Any]:
        loaded = [await store.load("c") for store in stores]
        for number, conversation in enumerate(loaded, 1):
            assert conversation
            conversation.messages.extend(exchange(number))
        return await asyncio.gather(
            *(s.save(c) for s, c in zip(stores, loaded, strict=True) if c),
            return_exceptions=True,
        )

    answers = run(both())

    assert sum(isinstance(answer, ConversationConflict) for answer in answers) == 1
    assert len(run(stores[0].load("c")).messages) == 8


def test_a_deleted_conversation_can_be_made_again_and_its_entries_stay(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)
    first = Conversation(messages=exchange(1), conversation_id="c")
    entries = run(store.save(first))
    assert first.revision

    run(store.delete_record("c", expected_revision=first.revision))

    assert run(store.load("c")) is None
    assert run(store.read_records()) == []
    assert ledger.session("pydantic-ai:c", exact=True).status == "deleted"
    assert run(store.read_entry(entries[0].id)).message == exchange(1)[0]
    with pytest.raises(ConversationConflict):
        run(store.delete_record("c", expected_revision=first.revision))
    again = Conversation(messages=exchange(2), conversation_id="c")
    run(store.save(again))
    assert run(store.load("c")).messages == exchange(2)
    assert ledger.audit() == ()


def test_what_is_not_there_is_told(ledger: Ledger) -> None:
    store = LedgerConversationStore(ledger)

    with pytest.raises(KeyError):
        run(store.read_entry("nobody"))
    with pytest.raises(KeyError):
        run(store.read_history("nobody"))
    assert run(store.read_history(None)) == []
    assert run(store.read_record("nobody")) is None
    orphan = ConversationRecord(conversation_id="c", head_id="nobody")
    with pytest.raises(ConversationConflict):
        run(store.write_record(orphan, expected_revision=None))
    lost = ConversationEntry(parent_id="nobody", message=exchange(1)[0])
    with pytest.raises(ConversationConflict):
        run(
            store.write_record(
                replace(orphan, head_id=lost.id), new_entries=[lost], expected_revision=None
            )
        )
    assert ledger.sessions(status=None) == ()


@pytest.mark.parametrize("seed", range(4))
def test_it_does_what_the_in_memory_store_does(ledger: Ledger, seed: int) -> None:
    """The same random saves, branches, forks, rewrites and deletions on both."""
    chance = random.Random(seed)
    stores = [LedgerConversationStore(ledger), InMemoryConversationStore()]
    names = ["a", "b"]
    for number in range(25):
        act = chance.choice(["save", "save", "rewrite", "branch", "fork", "delete", "stale"])
        name = chance.choice(names)
        kept = chance.randrange(6)
        answers = [run(step(store, act, name, kept=kept, number=number)) for store in stores]
        assert answers[0] == answers[1], (act, name)
        if act == "fork" and answers[0] != "UserError":
            names.append(f"f{number}")
    told = [
        {name: run(history(store, name)) for name in names} | {"all": run(listed(store))}
        for store in stores
    ]
    assert told[0] == told[1]
    assert ledger.audit() == ()


async def step(store: Any, act: str, name: str, *, kept: int, number: int) -> Any:
    """Do something, and say what came of it in words that do not depend on ids."""
    try:
        if act in ("save", "rewrite"):
            conversation = await store.load(name) or Conversation(conversation_id=name)
            if act == "rewrite":
                conversation = Conversation(
                    messages=[*conversation.messages[:kept], *exchange(number)],
                    conversation_id=name,
                    revision=conversation.revision,
                )
            else:
                conversation.messages.extend(exchange(number)[: kept or 1])
            return len(await store.save(conversation, scope="s" if number % 2 else None))
        record = await store.read_record(name)
        revision = record.revision if record else "none"
        if act == "branch":
            branched = await store.branch(name, at=kept, expected_revision=revision)
            return branched.messages
        if act == "fork":
            forked = await store.fork(name, new_conversation_id=f"f{number}", at=kept)
            return forked.messages
        if act == "delete":
            if number % 3 == 0:
                await store.delete_record(name, expected_revision=revision)
            return None
        await store.delete_record(name, expected_revision="stale")
    except (UserError, ConversationConflict) as error:
        return type(error).__name__
    return None


async def history(store: Any, name: str) -> Any:
    entries = await store.load_entries(name)
    record = await store.read_record(name)
    last = await store.load(name, limit=2)
    return (
        None if entries is None else [entry.message for entry in entries],
        None if record is None else (record.scope, len(record.branches), record.forked_from),
        None if last is None else last.messages,
    )


async def listed(store: Any) -> Any:
    return [
        [record.conversation_id for record in await store.read_records(scope=scope, limit=limit)]
        for scope in (None, "s")
        for limit in (None, 1)
    ]
