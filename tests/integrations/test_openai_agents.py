"""The OpenAI Agents SDK's Session over the ledger, beside the SDK's own SQLite session."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
)
from agents.memory import Session as SdkSession
from agents.memory import SessionSettings
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from agents_ledger import Ledger, Message, ResultItem, TextItem
from agents_ledger.integrations.openai_agents import ExchangeItems, LedgerSession
from agents_ledger.ledger.core import Core
from tests.builders import A_USAGE


def said(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def called(name: str = "add", call_id: Any = "c1", output: Any = "3") -> list[Any]:
    return [
        {"type": "function_call", "call_id": call_id, "name": name, "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


def run(work: Any) -> Any:
    return asyncio.run(work)


def test_it_is_a_session_of_the_sdk(ledger: Ledger) -> None:
    assert isinstance(LedgerSession("main", ledger), SdkSession)


@pytest.mark.parametrize("call_id", ["c1", "", None, 7, ["c"], {"c": 1}, math.nan])
def test_a_context_shows_each_result_once(ledger: Ledger, call_id: Any) -> None:
    session = LedgerSession("main", ledger)
    one, two = called(call_id=call_id), called(call_id=call_id, output="4")

    run(session.add_items([said("user", "1+2?"), *one, *two, said("assistant", "3")]))

    assert in_words(ledger) == ["1+2?", "3", "4", "3"]
    assert [call.result_json for call in ledger.get_turn("main").tool_calls] == ['"3"', '"4"']


def in_words(ledger: Ledger) -> list[str]:
    """What is said in the context of main, calls aside."""
    shown = ledger.context("main").items
    return [item.text for item in shown if isinstance(item, TextItem | ResultItem)]


def test_calls_made_at_once_are_one_message_of_the_context(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    (call, one), (other_call, two) = called(), called(call_id="c2", output="4")
    later = called(call_id="c3", output="5")
    run(session.add_items([said("user", "1+2?"), call, other_call, one, two]))
    run(session.add_items([*later, said("assistant", "3")]))

    messages = ledger.context("main").as_openai()["messages"]

    assert [message["role"] for message in messages] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool", "assistant")
    ]
    ids = [[c["id"] for c in message.get("tool_calls", ())] for message in messages]
    assert ids == [[], ["c1", "c2"], [], [], ["c3"], [], []]


def test_outputs_of_calls_made_at_once_under_one_id_are_taken_in_their_order(
    ledger: Ledger,
) -> None:
    session = LedgerSession("main", ledger)
    (call, one), (_, two) = called(), called(output="4")

    run(session.add_items([said("user", "1+2?"), call, call, one, two, said("assistant", "3")]))

    calls = ledger.get_turn("main").tool_calls
    assert [call.result_json for call in calls] == ['"3"', '"4"']
    assert calls[0].id == "c1"


def test_an_output_that_is_of_no_call_added_with_it_is_shown_beside_them(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    late, more = called(output="late")[1], called(output="more")[1]

    run(session.add_items([said("user", "1+2?"), late, *called(), more, said("assistant", "3")]))

    shown = in_words(ledger)
    assert [text.splitlines()[-1] for text in shown] == ["1+2?", "late", "3", "more", "3"]


def test_items_come_back_word_for_word_and_are_turns(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    first = [said("user", "1+2?"), *called(), said("assistant", "3")]
    second = [
        {"role": "user", "content": [{"type": "input_text", "text": "Thanks \ud800"}]},
        {"type": "reasoning", "id": "r", "summary": [], "odd": {"x": None}},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "!"}]},
    ]

    run(session.add_items(first))
    run(session.add_items(second))  # type: ignore[arg-type]

    assert run(session.get_items()) == first + second
    one, two = ledger.thread("main").turns
    assert one.query[0].content == "1+2?"
    assert one.response
    assert one.response.content == "3"
    assert [(c.tool_name, c.result_json, c.status) for c in one.tool_calls] == [
        ("add", '"3"', "completed")
    ]
    assert two.query[0].content == "Thanks \ud800"
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    "item",
    [
        said("user", ""),
        {"role": "user", "content": None},
        {"type": "message", "role": "assistant", "content": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": ""}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"text": "b"}]},
        {"type": "function_call_output", "call_id": "c", "output": {"text": "a"}},
        {"type": "function_call_output", "call_id": "c", "output": [{"text": "a", "more": 1}]},
        {"type": "odd", "content": None, "output": "said"},
        {"type": "function_call_output", "call_id": ["c"], "output": "a"},
        {"type": "odd", "score": math.inf, "content": [{"text": "\ud800", "at": [-math.inf]}]},
    ],
)
def test_an_item_of_any_shape_comes_back_as_it_was(ledger: Ledger, item: Any) -> None:
    session = LedgerSession("main", ledger)

    run(session.add_items([item]))

    assert run(session.get_items()) == [item]


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"arguments": "{}", "id": "fc"}, {"output": [{"type": "input_text", "text": "a"}]}),
        ({"arguments": "not JSON"}, {"output": {"text": "a \ud800"}, "status": "completed"}),
        ({"arguments": None}, {"output": None}),
        ({"arguments": {"a": 1}}, {}),
        ({}, {"output": ""}),
        ({"arguments": "{}", "call_id": 7}, {"output": "a", "call_id": 7}),
        ({"arguments": "{}", "call_id": ""}, {"output": "a", "call_id": ""}),
        ({"arguments": "{}", "call_id": ["c"]}, {"output": "a", "call_id": ["c"]}),
        ({"arguments": "{}", "call_id": {"c": 1}}, {"output": "a", "call_id": {"c": 1}}),
        ({"arguments": {"a": math.inf}}, {"output": [-math.inf]}),
    ],
)
def test_a_call_and_its_output_come_back_as_they_were(
    ledger: Ledger, call: Any, output: Any
) -> None:
    session = LedgerSession("main", ledger)
    items: Any = [
        {"type": "function_call", "call_id": "c", "name": "f", **call},
        {"type": "function_call_output", "call_id": "c", **output},
    ]

    run(session.add_items(items))

    assert run(session.get_items()) == items
    assert len(ledger.get_turn("main").tool_calls) == 1


def test_what_is_no_number_comes_back_from_records_that_are_json(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    items: Any = [
        {"role": "user", "content": "?", "score": math.nan},
        *called(output=[math.nan]),
        said("assistant", "!"),
    ]

    run(session.add_items(items))

    assert repr(run(session.get_items())) == repr(items)
    turn = ledger.get_turn("main")
    kept = [message.metadata_json for message in turn.messages]
    for text in (*kept, *(call.result_json for call in turn.tool_calls)):
        msgspec.json.decode(text or "")


def test_an_item_of_another_program_is_none_of_ours(ledger: Ledger) -> None:
    for foreign in (
        '{"openai_call":{"call_id":"?"}}',
        '{"openai_call":7}',
        '{"openai_json":"}"}',
        "[]",
    ):
        ledger.record("main", Message("user", foreign, metadata_json=foreign))

    items = run(LedgerSession("main", ledger).get_items())

    assert [item["content"][-1] for item in items] == ["}", "}", "}", "]"]


def test_a_text_is_not_kept_twice_by_its_message(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    answer: Any = {"role": "assistant", "content": [{"type": "output_text", "text": "yes, it is"}]}

    run(session.add_items([said("user", "is it so?"), *called(), answer]))

    turn = ledger.get_turn("main")
    for message in turn.messages:
        assert message.content is None or message.content not in str(message.metadata_json)
    texts = [message.content for message in turn.messages if message.content]
    assert texts == ["is it so?", "yes, it is"]
    assert [call.params_json for call in turn.tool_calls] == ['{"a":1}']
    assert all("1" not in str(message.metadata_json).replace("c1", "") for message in turn.messages)


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 7, 100])
def test_the_latest_are_given_in_their_order(ledger: Ledger, limit: int | None) -> None:
    session = LedgerSession("main", ledger)
    items = [said("user", str(number)) for number in range(50)]
    for item in items:
        run(session.add_items([item]))

    assert run(session.get_items(limit)) == (
        items if limit is None else items[50 - min(limit, 50) :]
    )
    settled = LedgerSession("main", ledger, session_settings=SessionSettings(limit=2))
    assert run(settled.get_items()) == items[-2:]


def test_an_unknown_or_empty_session_has_nothing(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)

    assert run(session.get_items()) == []
    assert run(session.pop_item()) is None
    run(session.clear_session())
    run(session.add_items([]))
    assert ledger.sessions() == ()


@pytest.mark.parametrize("kind", [ValueError, TypeError, LookupError])
def test_an_error_of_the_caller_starts_no_audit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    audits: list[None] = []
    monkeypatch.setattr(Core, "_broken_rule", lambda _: audits.append(None))
    ledger.record("main", "hello", "hi")

    def read(pages: object) -> None:
        raise kind("of the caller")

    with pytest.raises(kind, match="of the caller"):
        ledger.read_transcript("main", read, page=None)
    assert audits == []


def test_popping_and_clearing_move_the_pointer_and_delete_nothing(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    run(session.add_items([said("user", "one"), said("assistant", "two")]))
    run(session.add_items([said("user", "three"), *called(), said("assistant", "four")]))
    head = ledger.head("main")
    assert head

    assert run(session.pop_item()) == said("assistant", "four")
    assert run(session.get_items(2)) == called()
    assert [run(session.pop_item()) for _ in range(3)][-1] == said("user", "three")
    run(session.clear_session())
    assert run(session.get_items()) == []

    assert ledger.get_turn(head).messages[-1].content == "four"
    run(session.branch(head))
    assert len(run(session.get_items())) == 6
    assert ledger.audit() == ()


def test_a_fork_goes_its_own_way(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    run(session.add_items([said("user", "one"), said("assistant", "two")]))
    other = run(session.fork("other"))
    run(other.add_items([said("user", "three")]))

    assert len(run(session.get_items())) == 2
    assert len(run(other.get_items())) == 3


def test_turns_of_other_programs_are_items_too(ledger: Ledger) -> None:
    ledger.record("main", "Hello", "Hi")

    assert run(LedgerSession("main", ledger).get_items()) == [
        said("user", "Hello"),
        said("assistant", "Hi"),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_it_does_what_the_sdks_own_session_does(ledger: Ledger, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    ours, theirs = LedgerSession("main", ledger), SQLiteSession("main", tmp_path / "sdk.db")
    for number in range(30):
        act = chance.choice(["add", "add", "add", "pop", "get", "clear"])
        if act == "add":
            items = [
                chance.choice([said("user", f"q{number}-{n}"), said("assistant", f"a{number}-{n}")])
                for n in range(chance.randrange(4))
            ] + (called(call_id=f"c{number}") if chance.random() < 0.3 else [])
            answers = [run(each.add_items(items)) for each in (ours, theirs)]
        elif act == "pop":
            answers = [run(each.pop_item()) for each in (ours, theirs)]
        elif act == "clear" and chance.random() < 0.3:
            answers = [run(each.clear_session()) for each in (ours, theirs)]
        else:
            limit = chance.choice([None, 1, 2, 5])
            answers = [run(each.get_items(limit)) for each in (ours, theirs)]
        assert answers[0] == answers[1], act
    assert run(ours.get_items()) == run(theirs.get_items())
    theirs.close()


def test_writers_at_once_lose_nothing(ledger: Ledger, open_ledger: Callable[[], Ledger]) -> None:
    sessions = [LedgerSession("main", ledger), LedgerSession("main", open_ledger())]

    async def add() -> None:
        await asyncio.gather(
            *(
                session.add_items([said("user", f"{n}"), said("assistant", f"{n}!")])
                for n, session in enumerate(sessions * 4)
            )
        )

    run(add())

    items = run(sessions[0].get_items())
    assert len(items) == 16
    assert all(
        b["content"] == a["content"] + "!" for a, b in zip(items[::2], items[1::2], strict=True)
    )


class Scripted(Model):
    """Calls a tool once, then answers."""

    model = "gpt-scripted"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self.seen.append(list(input))
        answered = any(item.get("type") == "function_call_output" for item in input[-1:])
        output: Any
        if answered:
            text = ResponseOutputText(text="It is 3.", type="output_text", annotations=[])
            output = ResponseOutputMessage(
                id="m", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            output = ResponseFunctionToolCall(
                call_id=f"c{len(self.seen)}", name="add", arguments="{}", type="function_call"
            )
        usage = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)
        return ModelResponse(output=[output], usage=usage, response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest.mark.finding("users-14")
def test_a_run_of_the_sdk_is_one_turn_with_model_and_tokens(ledger: Ledger) -> None:
    @function_tool
    def add() -> str:
        return "3"

    model = Scripted()
    agent = Agent(name="a", model=model, tools=[add])
    config = RunConfig(tracing_disabled=True)

    async def talk() -> None:
        for question in ("1+2?", "And again?"):
            session = LedgerSession("main", ledger)  # as a server does, anew for each request
            result = await Runner.run(
                agent, question, session=session, hooks=session.hooks, run_config=config
            )
            assert result.final_output == "It is 3."

    run(talk())

    assert [item.get("content") for item in model.seen[2][:1]] == ["1+2?"]
    assert len(run(LedgerSession("main", ledger).get_items())) == 8
    turns = ledger.thread("main").turns
    assert [turn.query[0].content for turn in turns] == ["1+2?", "And again?"]
    assert [turn.response and turn.response.content for turn in turns] == ["It is 3."] * 2
    assert [(turn.model, turn.input_tokens, turn.output_tokens) for turn in turns] == [
        ("gpt-scripted", 20, 4)
    ] * 2
    calls = [call for turn in turns for call in turn.tool_calls]
    assert [(call.tool_name, call.result_json) for call in calls] == [("add", '"3"')] * 2
    assert ledger.audit() == ()


def test_a_run_that_raised_is_a_failed_turn_with_its_tokens(ledger: Ledger) -> None:
    @function_tool(failure_error_function=None)
    def add() -> str:
        raise RuntimeError("no such number")

    agent = Agent(name="a", model=Scripted(), tools=[add])
    config = RunConfig(tracing_disabled=True)
    session = LedgerSession("main", ledger)
    with pytest.raises(Exception, match="no such number"):
        run(Runner.run(agent, "1+2?", session=session, hooks=session.hooks, run_config=config))
    run(session.add_items([said("user", "And now?"), said("assistant", "3")]))

    first, second = ledger.thread("main").turns
    assert (first.status, first.error) == ("failed", "the run ended without an answer")
    assert (first.model, first.input_tokens, second.input_tokens) == ("gpt-scripted", 10, None)


def test_a_turn_grows_with_each_batch_and_is_sealed_by_the_answer(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    session, elsewhere = LedgerSession("main", ledger), LedgerSession("main", open_ledger())
    call, output = called()
    batches: list[list[Any]] = [[said("user", "1+2?")], [call], [output]]

    for number, batch in enumerate(batches, 1):
        run(session.add_items(batch))
        items = [item for batch in batches[:number] for item in batch]
        assert run(session.get_items()) == items
        assert run(elsewhere.get_items()) == items  # another process sees them too
        assert ledger.head("main") is None
    run(session.add_items([said("assistant", "3")]))

    [turn] = ledger.thread("main").turns
    assert [(c.id, c.status, c.result_json) for c in turn.tool_calls] == [
        ("c1", "completed", '"3"')
    ]
    assert in_words(ledger) == ["1+2?", "3", "3"]
    assert run(elsewhere.get_items()) == [*(i for b in batches for i in b), said("assistant", "3")]


@pytest.mark.parametrize("moved", [False, True])
def test_an_exchange_without_an_answer_fails_at_the_next_question(
    ledger: Ledger, moved: bool
) -> None:
    session = LedgerSession("main", ledger)
    run(session.add_items([said("user", "one")]))
    run(session.add_items(called()[:1]))
    others: list[Any] = []
    if moved:  # by another writer
        ledger.record("main", "zero", "0")
        others = [said("user", "zero"), said("assistant", "0")]
    run(session.add_items([said("user", "two"), said("assistant", "2")]))

    *_, first, second = ledger.thread("main").turns
    assert (first.status, first.error) == ("failed", "the run ended without an answer")
    assert (first.response, [c.status for c in first.tool_calls]) == (None, ["cancelled"])
    assert second.response
    assert ledger.audit() == ()
    assert run(session.get_items()) == [
        *others,
        said("user", "one"),
        called()[0],
        said("user", "two"),
        said("assistant", "2"),
    ]


def test_what_is_taken_back_during_a_run_stays_as_a_branch(ledger: Ledger) -> None:
    session = LedgerSession("main", ledger)
    run(session.add_items([said("user", "one"), said("assistant", "1")]))
    parent = ledger.head("main")
    run(session.add_items([said("user", "two")]))
    run(session.add_items(called()))

    assert [run(session.pop_item()) for _ in range(3)] == [*reversed(called()), said("user", "two")]
    assert run(session.get_items()) == [said("user", "one"), said("assistant", "1")]
    assert ledger.head("main") == parent

    run(session.add_items([said("user", "three"), said("assistant", "3")]))
    assert len(ledger.thread("main").turns) == 2
    abandoned = ledger.search("two").hits
    assert abandoned
    assert ledger.get_turn(abandoned[0].turn_id).error == "the last item was taken back"


def test_a_writer_that_was_first_loses_nothing_of_the_other(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    session, other = LedgerSession("main", ledger), LedgerSession("main", open_ledger())
    run(session.add_items([said("user", "one")]))
    run(other.add_items([said("user", "two"), said("assistant", "2")]))
    session.hooks.model, session.hooks.usage = "gpt-scripted", A_USAGE
    run(session.add_items([said("assistant", "1")]))

    assert ledger.get_turn("main").model == "gpt-scripted"
    assert ledger.usage("model").total.turns == 3
    assert ledger.usage("model").total.input_tokens == A_USAGE.input_tokens  # spent once
    assert run(other.get_items()) == [
        said("user", "two"),
        said("assistant", "2"),
        said("user", "one"),
        said("assistant", "1"),
    ]


KILLED = """
import asyncio, os, signal, sys
from agents_ledger import Ledger
from agents_ledger.integrations.openai_agents import LedgerSession

session = LedgerSession("main", Ledger.open(sys.argv[1]))
asyncio.run(session.add_items([{"role": "user", "content": "1+2?"}]))
call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
asyncio.run(session.add_items([call]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_whose_process_was_killed_is_continued(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    killed = subprocess.run([sys.executable, "-c", KILLED, address], check=False)
    assert killed.returncode == -signal.SIGKILL

    with Ledger.open(address) as ledger:
        session = LedgerSession("main", ledger)
        question, call = run(session.get_items())
        assert (question["content"], call["call_id"]) == ("1+2?", "c1")
        output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
        run(session.add_items([output]))  # type: ignore[list-item]
        run(session.add_items([said("assistant", "3")]))

        [turn] = ledger.thread("main").turns
        assert [c.result_json for c in turn.tool_calls] == ['"3"']
        assert run(session.get_items()) == [question, call, output, said("assistant", "3")]
        run(session.clear_session())
        assert run(session.get_items()) == []
        assert ledger.audit() == ()


def test_a_killed_run_that_is_cleared_does_not_come_back(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    subprocess.run([sys.executable, "-c", KILLED, address], check=False)

    with Ledger.open(address) as ledger:
        session = LedgerSession("main", ledger)
        run(session.clear_session())
        assert run(session.get_items()) == []
        run(session.add_items([said("user", "again"), said("assistant", "yes")]))
        assert run(session.get_items()) == [said("user", "again"), said("assistant", "yes")]


def test_items_of_a_killed_run_that_are_taken_back_do_not_come_back(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    subprocess.run([sys.executable, "-c", KILLED, address], check=False)

    with Ledger.open(address) as ledger:
        session = LedgerSession("main", ledger)
        question, call = run(session.get_items())
        assert run(session.pop_item()) == call
        assert run(session.get_items()) == [question]
        assert run(session.pop_item()) == question
        assert run(session.get_items()) == []
        assert run(session.pop_item()) is None


def test_exchanges_of_several_turns_from_before_are_read_and_continued(ledger: Ledger) -> None:
    """Earlier versions recorded each batch as a turn."""
    items = [said("user", "1+2?"), *called(), said("assistant", "3")]
    for batch in (items[:1], items[1:3], items[3:]):
        query, steps, response = ExchangeItems().add(batch, live=False)
        ledger.record("main", query, response, steps=steps)
    session = LedgerSession("main", ledger)

    assert run(session.get_items()) == items
    run(session.add_items([said("user", "4?")]))
    assert run(session.pop_item()) == said("user", "4?")
    assert run(session.pop_item()) == items[-1]
    assert run(session.get_items()) == items[:-1]
