"""What an agent builder passes in the first hour: plain values in, plain values out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import (
    Ask,
    AsyncLedger,
    Broker,
    Config,
    EngineError,
    Ledger,
    LedgerError,
    Message,
    MessageFile,
    NotALedger,
    NotFound,
    Queue,
    ReadOnly,
    Refused,
    Session,
    ToolCall,
    Usage,
    add_strategy,
)
from agents_ledger.broker.engines.echo import EchoEngine
from tests.builders import A_USAGE
from tests.raw import Raw

# -- values of JSON fields --------------------------------------------------------------------


@pytest.mark.finding("users-9")
def test_a_dictionary_is_encoded_where_json_text_is_stored(ledger: Ledger) -> None:
    params: Any = {"a": 1}
    message = Message("assistant", "ok", metadata_json=params, context_json=params)

    result: Any = ["out"]
    call = ToolCall("Bash", params, result)
    turn = ledger.record("main", message_of(params), message, steps=[call])

    (call,) = turn.tool_calls
    assert (call.params_json, call.result_json) == ('{"a":1}', '["out"]')
    for stored in turn.messages:
        assert stored.metadata_json == '{"a":1}'
    assert ledger.get_turn(turn.id) == turn


def message_of(metadata: Any) -> Message:
    return Message("user", "q", metadata_json=metadata)


@pytest.mark.finding("users-9")
def test_the_words_of_a_model_or_a_tool_become_json_text(ledger: Ledger) -> None:
    call = ToolCall("Bash", '{"command": "ls', "no such file")

    turn = ledger.record("main", "q", steps=[call])

    stored = turn.tool_calls[0]
    assert json.loads(stored.params_json) == '{"command": "ls'
    assert json.loads(stored.result_json or "") == "no such file"
    assert ledger.audit() == ()


@pytest.mark.finding("users-9")
def test_a_dictionary_and_its_json_text_are_the_same_turn(ledger: Ledger) -> None:
    params: Any = {"a": 1}

    first = ledger.record("main", "q", steps=[ToolCall("Bash", params, id="c")], id="one")
    again = ledger.record("main", "q", steps=[ToolCall("Bash", '{"a":1}', id="c")], id="one")

    assert first.id == again.id


WRONG: dict[str, dict[str, Any]] = {
    "params_json is None": {"steps": [ToolCall("Bash", None)]},  # type: ignore[arg-type]
    "params_json cannot be encoded as JSON": {"steps": [ToolCall("Bash", object())]},  # type: ignore[arg-type]
    "metadata_json is '{'": {"query": message_of("{")},
    "context_json is 'x'": {"response": Message("assistant", "r", context_json="x")},
    "content is {'a': 1}": {"query": Message("user", {"a": 1})},  # type: ignore[arg-type]
    "thinking is 5": {"response": Message("assistant", "r", thinking=5)},  # type: ignore[arg-type]
    "a turn's config is a Config, not {}": {"config": {}},
    "workspace_path is PosixPath": {"workspace_path": Path("/tmp")},  # noqa: S108
    "model is 5": {"model": 5},
    "permissions_granted cannot be encoded": {"permissions_granted": object()},
    "a message's source is one of agent, cron, .*, not 'robot'": {
        "query": Message("user", "q", "robot")  # type: ignore[arg-type]
    },
}


@pytest.mark.finding("users-9")
@pytest.mark.parametrize("problem", WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_name(
    ledger: Ledger, raw: Raw, problem: str
) -> None:
    before = raw.dump()

    with pytest.raises(Refused, match=problem):
        ledger.record("main", **{"query": "q", **WRONG[problem]})

    assert raw.dump() == before


@pytest.mark.finding("users-9")
def test_a_live_call_takes_any_value_that_json_can_hold(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.tool_call("Bash", {"command": "pytest"}).complete("14 passed")
        turn.tool_call("Bash", '{"command": "make"}').complete('{"exit": 0}')
        turn.tool_call("Bash", "ls").fail("exit 1", "no such file")
        with pytest.raises(Refused, match="params cannot be encoded as JSON"):
            turn.tool_call("Bash", object())
        with pytest.raises(Refused, match="result cannot be encoded as JSON"):
            turn.tool_call("Bash").complete(object())
        turn.respond("done")

    stored = ledger.get_turn(turn.id).tool_calls
    assert [(call.params_json, call.result_json) for call in stored] == [
        ('{"command":"pytest"}', '"14 passed"'),
        ('{"command": "make"}', '{"exit": 0}'),
        ('"ls"', '"no such file"'),
        ("{}", None),
    ]
    assert all(json.loads(call.params_json) is not None for call in stored)


# -- the source of a message ------------------------------------------------------------------

ROBOT = Message("user", "q", "robot")  # type: ignore[arg-type]


def in_a_live_turn(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.message(ROBOT)


def sent_to_a_broker(ledger: Ledger) -> None:
    async def send() -> None:
        async with Broker.open(ledger.address, engine=EchoEngine()) as broker:
            async for _ in broker.send("main", ROBOT):
                pass

    asyncio.run(send())


SENDERS: dict[str, Callable[[Ledger], object]] = {
    "recorded": lambda ledger: ledger.record("main", ROBOT, "r"),
    "begun": lambda ledger: ledger.turn("main", ROBOT),
    "in a live turn": in_a_live_turn,
    "queued": lambda ledger: Queue(ledger).enqueue("main", Ask((ROBOT,))),
    "sent to a broker": sent_to_a_broker,
    "in a context": lambda ledger: ledger.context("main", query=ROBOT),
}


@pytest.mark.finding("spec-9")
@pytest.mark.parametrize("way", SENDERS)
def test_an_unknown_source_is_refused_the_same_way_everywhere(ledger: Ledger, way: str) -> None:
    with pytest.raises(LedgerError) as refused:
        SENDERS[way](ledger)

    assert type(refused.value) is Refused
    assert str(refused.value) == (
        "a message's source is one of agent, cron, event, human, trigger, webhook, not 'robot'"
    )


# -- what is queued ----------------------------------------------------------------------------

WRONG_ASKS: dict[str, dict[str, Any]] = {
    "a turn's role is one of manager, unified, worker, not 'boss'": {"role": "boss"},
    "source_event_id is 5": {"source_event_id": 5},
    "workspace_path is 5": {"workspace_path": 5},
    "workspace_path is PosixPath": {"workspace_path": Path("/tmp")},  # noqa: S108
    "reply_to is 5": {"reply_to": 5},
    "there is no directive 'modle'": {"directives": {"modle": 1}},
    "max_tokens is 'many'": {"directives": {"max_tokens": "many"}},
}


@pytest.mark.parametrize("problem", WRONG_ASKS)
@pytest.mark.parametrize("target", ["main", "turn"])
def test_a_wrong_value_of_a_queued_message_is_refused_before_anything_is_written(
    ledger: Ledger, raw: Raw, problem: str, target: str
) -> None:
    turn = ledger.record("main", "q", "r")
    ledger.record("main", "q", "r")
    key = turn.id if target == "turn" else target  # a turn would be forked
    before = raw.dump()

    async def send() -> None:
        async with Broker.open(ledger.address, engine=EchoEngine()) as broker:
            async for _ in broker.send(key, "hi", **WRONG_ASKS[problem]):
                pass

    with pytest.raises(Refused, match=problem):
        asyncio.run(send())
    with pytest.raises(Refused, match=problem):
        Queue(ledger).enqueue("main", Ask((Message("user", "x"),), **WRONG_ASKS[problem]))

    assert raw.dump() == before


def test_a_queued_message_that_could_not_be_decoded_is_refused(ledger: Ledger, raw: Raw) -> None:
    before = raw.dump()
    file = MessageFile("read", "a.py", line_start="3")  # type: ignore[arg-type]

    with pytest.raises(Refused, match="the message cannot be stored"):
        Queue(ledger).enqueue("main", Ask((Message("user", "x", files=(file,)),)))
    with pytest.raises(Refused, match="an entry asks an Ask, not 'hi'"):
        Queue(ledger).enqueue("main", "hi")  # type: ignore[arg-type]

    assert raw.dump() == before


# -- usage, ids, hits -------------------------------------------------------------------------


@pytest.mark.finding("users-30")
def test_usage_comes_out_as_it_went_in(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", usage=A_USAGE)
    with ledger.turn("main", "q") as live:
        live.respond("r", usage=Usage(5, 6))

    assert turn.usage == ledger.get_turn(turn.id).usage == A_USAGE
    assert ledger.get_turn(live.id).usage == Usage(5, 6, total_tokens=11)
    assert ledger.record("main", "q", "r").usage == Usage()


@pytest.mark.finding("users-30")
def test_a_finished_call_keeps_the_id_of_the_provider(ledger: Ledger) -> None:
    call = ToolCall.of("Bash", {"command": "ls"}, "a.py", id="toolu_1")

    turn = ledger.record("main", "q", "r", steps=[call])

    assert (turn.tool_calls[0].id, turn.tool_calls[0].result_json) == ("toolu_1", '"a.py"')


@pytest.mark.finding("users-7")
def test_hits_and_touches_are_iterated(ledger: Ledger) -> None:
    call = ToolCall.of("Read", {"path": "cart.py"}, "class Cart")
    turn = ledger.record("main", "Where is the cart?", "Here.", steps=[call])

    assert [hit.turn_id for hit in ledger.search("cart")] == [turn.id]
    assert [touch.turn_id for touch in ledger.files("cart.py")] == [turn.id]
    assert list(ledger.search("nothing")) == []


# -- contexts and compactions -----------------------------------------------------------------


@pytest.mark.finding("users-7")
def test_the_context_of_a_new_session_is_its_query(ledger: Ledger, raw: Raw) -> None:
    before = raw.dump()

    context = ledger.context("new-session", query="Hello?")

    assert context.as_openai() == {"messages": [{"role": "user", "content": "Hello?"}]}
    assert context.turn_id is None
    assert raw.dump() == before
    with pytest.raises(NotFound, match="no session or turn 'new-session'"):
        ledger.context("new-session")


@pytest.mark.finding("users-7")
def test_the_context_within_a_live_turn_has_its_steps(ledger: Ledger) -> None:
    with ledger.turn("main", "Run the tests.", system_prompt="Be brief.") as turn:
        turn.message("I will run them.")
        turn.tool_call("Bash", {"command": "pytest"}, id="c1").complete("14 passed")
        request = ledger.context(turn.id).as_openai()["messages"]
        turn.respond("All pass.")

    assert [message["role"] for message in request] == ["system", "user", "assistant", "tool"]
    assert request[2]["tool_calls"][0]["id"] == "c1"


def long_session(ledger: Ledger) -> None:
    for number in range(8):
        ledger.record("long", f"Question {number}: " + "why? " * 50, "Because.")


async def later(prompt: str) -> str:
    return f"{prompt.count('Question')} questions."


@pytest.mark.finding("users-11")
@pytest.mark.parametrize(
    "function", [lambda prompt: f"{prompt.count('Question')} questions.", later]
)
def test_a_plain_function_summarises(ledger: Ledger, function: Any) -> None:
    long_session(ledger)

    turn = ledger.compact("long", engine=function, budget=400)

    assert turn.compaction is not None
    count = turn.compaction.turns_summarized
    assert turn.compaction.summary == f"{count} questions."
    assert turn.compaction.model == function.__name__
    texts = [item.text for item in ledger.context("long").items if hasattr(item, "text")]
    assert any(f"{count} questions." in text for text in texts)


@pytest.mark.finding("users-11")
def test_a_function_that_fails_or_gives_no_text_changes_nothing(ledger: Ledger) -> None:
    long_session(ledger)
    head = ledger.head("long")

    def broken(prompt: str) -> str:
        raise ConnectionError("no network")

    def silent(prompt: str) -> str:
        return None  # type: ignore[return-value]

    with pytest.raises(ConnectionError, match="no network"):
        ledger.compact("long", engine=broken)
    with pytest.raises(EngineError, match="silent returned None, not text"):
        ledger.compact("long", engine=silent)
    with pytest.raises(Refused, match="an engine is an Engine or a function, not 'gpt-5'"):
        ledger.compact("long", engine="gpt-5")  # type: ignore[arg-type]
    assert ledger.head("long") == head
    turn = ledger.compact("long", engine=broken, fallback="sliding_window")
    assert turn.compaction is not None
    assert turn.compaction.compaction_type == "sliding_window"


@pytest.mark.finding("users-11")
def test_a_plain_function_summarises_for_asyncio_too(ledger: Ledger, address: str) -> None:
    long_session(ledger)

    async def compact() -> str:
        async with AsyncLedger.open(address) as face:
            turn = await face.compact("long", engine=lambda prompt: "Eight whys.", budget=400)
            return turn.compaction.summary if turn.compaction else ""

    assert asyncio.run(compact()) == "Eight whys."


# -- arguments of verbs -----------------------------------------------------------------------

WRONG_CALLS: dict[str, Callable[[Any], object]] = {
    "a turn has no field 'modle'": lambda ledger: ledger.record("main", "q", modle="m"),
    "budget is '5'": lambda ledger: ledger.context("main", budget="5"),
    "last is 'x'": lambda ledger: ledger.context("main", last="x"),
    "limit is '3'; it must be between": lambda ledger: ledger.search("q", limit="3"),
    "limit is '4'; it must be between": lambda ledger: ledger.files("q", limit="4"),
    "status is 'gone'": lambda ledger: ledger.archive("main", "gone"),
    "task_status is 'dunno'": lambda ledger: ledger.update_session("main", task_status="dunno"),
    "directives of a Config are": lambda ledger: ledger.record(
        "main",
        "q",
        config=Config(directives=["model"]),  # type: ignore[arg-type]
    ),
    "a strategy is a Strategy, not 'x'": lambda ledger: add_strategy("x"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("problem", WRONG_CALLS)
def test_a_wrong_argument_is_refused_by_name(ledger: Ledger, raw: Raw, problem: str) -> None:
    ledger.record("main", "q", "a")
    before = raw.dump()

    with pytest.raises(Refused, match=problem):
        WRONG_CALLS[problem](ledger)

    assert raw.dump() == before


def test_a_misspelt_field_has_a_suggestion(ledger: Ledger) -> None:
    wrong: Any = {"modle": "m"}

    with pytest.raises(Refused) as refused:
        ledger.record("main", "q", **wrong)

    assert refused.value.hint.startswith("Did you mean 'model'? The fields are ")


def test_a_write_to_a_ledger_opened_for_reading_says_how_to_open_it(
    ledger: Ledger, address: str
) -> None:
    with (
        Ledger.open(address, read_only=True) as reader,
        pytest.raises(ReadOnly) as refused,
    ):
        reader.record("main", "q")

    assert refused.value.hint == "Open it without read_only=True."


def test_the_root_folder_is_no_ledger() -> None:
    with pytest.raises(NotALedger, match="/ is a folder"):
        Ledger.open("/")


def add(a: int, b: int) -> int:
    return a + b


WRONG_BROKERS: dict[str, dict[str, Any]] = {
    "a tool is an OfferedTool": {"tools": [add]},
    "an engine is an Engine": {"engine": object()},
    "model is 5": {"model": 5},
}


@pytest.mark.parametrize("problem", WRONG_BROKERS)
def test_a_broker_refuses_what_it_cannot_use(ledger: Ledger, problem: str) -> None:
    async def opened() -> None:
        async with Broker.open(ledger.address, **WRONG_BROKERS[problem]):
            pass

    with pytest.raises(Refused, match=problem) as refused:
        asyncio.run(opened())

    assert refused.value.hint
    if "tools" in WRONG_BROKERS[problem]:
        assert refused.value.hint == "Use offer(add)."


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, 3])
@pytest.mark.parametrize(
    "verb",
    [
        lambda ledger, name: ledger.turn(name, "q"),
        lambda ledger, name: ledger.get_turn(name),
        lambda ledger, name: ledger.thread(name),
        lambda ledger, name: ledger.context(name, query="q"),
        lambda ledger, name: ledger.head(name),
        lambda ledger, name: ledger.session(name),
        lambda ledger, name: ledger.move("main", name),
        lambda ledger, name: ledger.move(name, "main"),
        lambda ledger, name: ledger.create_session(Session(name)),
        lambda ledger, name: ledger.alias(name, "main"),
        lambda ledger, name: ledger.rename("main", name),
        lambda ledger, name: ledger.search(name),
        lambda ledger, name: ledger.files(name),
    ],
)
def test_a_name_that_is_not_text_is_refused_by_every_verb(
    ledger: Ledger, raw: Raw, verb: Callable[..., object], name: object
) -> None:
    ledger.record("main", "q", "a")
    before = raw.dump()

    with pytest.raises(Refused, match=f"is {name}") as caught:
        verb(ledger, name)

    assert caught.value.hint == "It is text."
    assert raw.dump() == before
