"""A run: from a message to a sealed turn, with everything recorded that the contract asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import (
    Ask,
    CallBegun,
    CallFinished,
    EngineError,
    Ledger,
    Message,
    MessageFile,
    NotFound,
    Queue,
    Refused,
    Request,
    Session,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.engines.registry import choose
from agents_ledger.broker.events import Completed, Failed, Queued, Started
from agents_ledger.broker.policy import (
    EngineChoice,
    Identity,
    Persona,
    PersonaModel,
    Policy,
    Workers,
)
from agents_ledger.broker.policy import PersonaPermissions as May
from agents_ledger.broker.policy import ToolRules as Rules
from agents_ledger.broker.tools import offer
from agents_ledger.model.agents.engine import EngineEvent
from tests.broker.conftest import WithBroker, answer_of, events_of

Said = Callable[..., list[tuple[str, str | None]]]


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


async def explode() -> None:
    """Always fails."""
    raise RuntimeError("boom")


def test_a_message_is_answered_with_events(
    with_broker: WithBroker, said: Said, ledger: Ledger
) -> None:
    told = with_broker(lambda b: events_of(b, "main", "/think Hm.\nHello\nthere"))

    assert [type(event) for event in told] == [
        Queued,
        Started,
        ThinkingPiece,
        TextPiece,
        TextPiece,
        Completed,
    ]
    done = told[-1]
    assert done.text == "Hello\nthere"
    assert ledger.head("main") == done.turn_id == told[1].turn_id
    turn = ledger.get_turn(done.turn_id)
    assert turn.response is not None
    assert (turn.response.content, turn.response.thinking) == ("Hello\nthere", "Hm.")
    assert (turn.model, turn.provider, turn.status) == ("echo", "echo", "completed")
    assert turn.total_tokens == done.usage.total
    assert said("main") == [("user", "/think Hm.\nHello\nthere"), ("assistant", "Hello\nthere")]


def test_the_next_turn_hangs_on_the_one_before_and_sees_it(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    seen: list[Request] = []

    class Seeing(Echoing):
        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            seen.append(request)
            async for event in super().run(request):
                yield event

    async def act(broker: Broker) -> None:
        await answer_of(broker, "main", "one")
        await answer_of(broker, "main", "two")

    with_broker(act, engine=Seeing())

    assert [getattr(item, "text", "") for item in seen[1].items] == ["one", "one", "two"]
    assert ledger.thread("main", last=0).depth == 2


def test_tools_are_executed_and_recorded(with_broker: WithBroker, ledger: Ledger) -> None:
    told = with_broker(
        lambda b: events_of(b, "main", '/call add {"a": 2, "b": 3}\n/call explode\ndone'),
        tools=[offer(add), offer(explode)],
    )

    results = [event.result for event in told if isinstance(event, CallFinished)]
    assert [(r.text, r.is_error) for r in results] == [("5", False), ("RuntimeError: boom", True)]
    assert len([event for event in told if isinstance(event, CallBegun)]) == 2
    turn = ledger.get_turn(told[-1].turn_id)
    assert [(c.tool_name, c.params_json, c.result_json, c.status) for c in turn.tool_calls] == [
        ("add", '{"a": 2, "b": 3}', "5", "completed"),
        ("explode", "{}", None, "failed"),
    ]
    assert json.loads(turn.permissions_used or "") == {"tools": {"add": 1, "explode": 1}}


def test_a_result_that_is_no_json_is_the_model_s_to_see(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    def look() -> Path:
        return Path("a")

    def count() -> Iterator[int]:
        return iter(range(3))

    def pairs() -> dict[tuple[int, int], int]:
        return {(1, 2): 3}

    done = with_broker(
        lambda b: answer_of(b, "main", "/call look\n/call count\n/call pairs\nok"),
        tools=[offer(look), offer(count), offer(pairs)],
    )

    assert done.text == "ok"
    errors = [(call.status, call.error or "") for call in ledger.get_turn(done.turn_id).tool_calls]
    for (status, error), start in zip(
        errors,
        ("tool look returned PosixPath", "tool count returned", "tool pairs returned dict"),
        strict=True,
    ):
        assert status == "failed"
        assert error.startswith(f"TypeError: {start}")
        assert "not JSON" in error


@pytest.mark.parametrize("query", ["", [], Message("user"), [Message("user", "")]])
def test_an_empty_message_is_refused(with_broker: WithBroker, ledger: Ledger, query: Any) -> None:
    with pytest.raises(Refused, match="the message is empty"):
        with_broker(lambda b: answer_of(b, "main", query))

    assert ledger.sessions() == ()


def test_an_empty_target_is_refused(with_broker: WithBroker) -> None:
    with pytest.raises(Refused, match="the target is empty") as refused:
        with_broker(lambda b: answer_of(b, "", "hello"))

    assert refused.value.hint == "Leave it out for the main session of a persona."


def test_a_denied_call_is_recorded_as_rejected_and_never_executed(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    ran: list[str] = []
    main = Persona(permissions=May(Rules(deny=("da*",))))
    policy = Policy(personas={"main": main}, workers=Workers(depth_max=0))

    async def danger() -> None:
        ran.append("danger")

    done = with_broker(
        lambda b: answer_of(b, "main", "/call danger\n/call nothing\nok"),
        policy,
        tools=[offer(danger), offer(add)],
    )

    assert ran == []
    turn = ledger.get_turn(done.turn_id)
    assert [(c.status, c.error) for c in turn.tool_calls] == [
        ("rejected", "not permitted: stopped by persona main"),
        ("rejected", "no tool 'nothing'"),
    ]
    assert json.loads(turn.tools_available or "") == ["danger", "add"]
    assert json.loads(turn.permissions_granted or "")["tools"] == ["add"]
    assert json.loads(turn.permissions_used or "") == {"rejected": {"danger": 1, "nothing": 1}}
    review = ledger.review_permissions()
    assert {misuse.what for misuse in review.misuses} == {"rejected", "not available"}


def test_parameters_that_are_no_json_are_the_model_s_to_see(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    done = with_broker(lambda b: answer_of(b, "main", "/call add {oops\nok"), tools=[offer(add)])

    (call,) = ledger.get_turn(done.turn_id).tool_calls
    assert (call.status, call.params_json) == ("failed", '"{oops"')


def test_the_configuration_is_folded_and_can_be_read_from_the_ledger_alone(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(
        personas={
            "main": Persona(
                model=PersonaModel(model="small", temperature=0.5),
                permissions=May(sandbox={"files": "read"}),
            )
        }
    )

    async def act(broker: Broker) -> list[Completed]:
        directed = {"model": "big"}
        return [
            await answer_of(broker, "main", "one", directives=directed),
            await answer_of(broker, "main", "two", directives={"max_tokens": 1}),
        ]

    first, second = with_broker(act, policy)

    assert (first.model, second.model) == ("big", "big")
    assert second.stop_reason == "end"
    settings = ledger.effective_config(second.turn_id)
    assert {name: (s.value, s.by) for name, s in settings.items()} == {
        "engine": ("echo", "default"),
        "temperature": (0.5, "default"),
        "model": ("big", "inherited"),
        "max_tokens": (1, "directive"),
        "sandbox": ({"files": "read"}, "permission"),
    }
    assert settings["model"].turn_id == first.turn_id


def test_messages_tell_how_they_came_and_in_which_context(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(personas={"main": Persona(identity=Identity("Be kind.", name="Atlas"))})
    message = Message(
        "user", "look", "webhook", files=(MessageFile("attached", "a.md"),), metadata_json='{"n":1}'
    )

    done = with_broker(
        lambda b: answer_of(b, "persona:main", message, source_event_id="ev-1"), policy
    )

    turn = ledger.get_turn(done.turn_id)
    asked = turn.query[0]
    context = json.loads(asked.context_json or "")
    assert context["event"] == {"source": "webhook", "id": "ev-1"}
    assert context["attachments"] == ["a.md"]
    assert context["persona"]["id"] == "main"
    assert context["assembled"]["turn_id"] is None
    metadata = json.loads(asked.metadata_json or "")
    assert metadata["n"] == 1
    assert metadata["queue"]["mode"] == "followup"
    assert turn.source_event_id == "ev-1"
    assert ledger.system_prompt(turn.id) == "Be kind.\n\nYour name is Atlas."


def test_an_engine_s_error_leaves_a_failed_turn_with_all_that_was_recorded(
    with_broker: WithBroker, ledger: Ledger, said: Said
) -> None:
    async def act(broker: Broker) -> Any:
        failed = await answer_of(broker, "main", '/call add {"a":1,"b":1}\n/fail rate Slow down.')
        return failed, await answer_of(broker, "main", "again")

    failed, done = with_broker(act, tools=[offer(add)])

    assert (failed.kind, failed.error) == ("rate", "Slow down.")
    turn = ledger.get_turn(failed.turn_id)
    assert (turn.status, turn.error, len(turn.tool_calls)) == ("failed", "Slow down.", 1)
    assert said("main") == [("user", "again"), ("assistant", "again")]
    assert ledger.get_turn(done.turn_id).parent_turn_id is None


def test_text_before_a_failure_is_recorded_as_partial(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    failed = with_broker(lambda b: answer_of(b, "main", "x"), engine=HalfSaid())

    assert (failed.kind, failed.kept) == ("unavailable", "half an ans")
    last = ledger.get_turn(failed.turn_id).messages[-1]
    assert (last.content, last.thinking, last.metadata_json) == (
        "half an ans",
        "hm",
        '{"partial":true}',
    )


def test_a_turn_that_takes_too_long_is_failed(with_broker: WithBroker, ledger: Ledger) -> None:
    policy = Policy(engine=EngineChoice(timeout_seconds=0.05))

    failed = with_broker(lambda b: answer_of(b, "main", "/wait 10000"), policy)

    assert failed.kind == "timeout"
    assert ledger.get_turn(failed.turn_id).error == "timed out"


def test_a_turn_can_be_cancelled_by_session_or_by_id(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> list[Failed]:
        ended = []
        for by_id in (False, True):
            async for event in broker.send("main", "/wait 10000"):
                if isinstance(event, Started):
                    target = event.turn_id if by_id else "main"
                    assert await broker.cancel(target) == (event.turn_id,)
                if isinstance(event, Failed):
                    ended.append(event)
        return ended

    ended = with_broker(act)

    assert [event.kind for event in ended] == ["cancelled", "cancelled"]
    assert {ledger.get_turn(e.turn_id or "").error for e in ended} == {"cancelled"}
    assert ledger.head("main") is None


def test_closing_fails_running_turns_and_requeues_their_messages(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> str:
        async for event in broker.send("main", "/wait 10000\nlater"):
            if isinstance(event, Started):
                return event.turn_id
        raise AssertionError

    turn_id = with_broker(act)

    assert ledger.get_turn(turn_id).error == "the broker was closed"
    assert [entry.status for entry in entries(ledger)] == ["waiting"]


def test_an_answer_is_recorded_off_the_head_if_it_moved(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> Completed:
        async for event in broker.send("main", "/wait 100\nlate"):
            if isinstance(event, Started):
                await broker.ledger.record("main", "q", "r")
            if isinstance(event, Completed):
                return event
        raise AssertionError

    done = with_broker(act)

    assert done.beside
    assert ledger.get_turn(done.turn_id).status == "completed"
    assert ledger.head("main") != done.turn_id


def test_a_turn_that_cannot_begin_is_reported_and_blocks_nothing(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(personas={"main": Persona()})
    # Queued past the broker, which would have refused it.
    entry = Queue(ledger).enqueue("other", Ask((Message("user", "x"),)), persona_id="ghost")

    async def act(broker: Broker) -> Any:
        await broker.work(until_idle=True)
        return await answer_of(broker, "main", "fine")

    done = with_broker(act, policy)

    assert done.text == "fine"
    refused = Queue(ledger).get(entry.id)
    assert (refused.status, refused.error) == ("failed", "the policy has no persona 'ghost'")
    assert ledger.head("other") is None


def test_a_turn_s_id_as_target_is_a_fork(with_broker: WithBroker, ledger: Ledger) -> None:
    first = ledger.record("main", "one", "r")
    ledger.record("main", "two", "r")

    done = with_broker(lambda b: answer_of(b, first.id, "otherwise"))

    assert ledger.get_turn(done.turn_id).parent_turn_id == first.id
    assert ledger.thread("main", last=0).depth == 2


def test_a_target_may_be_a_key_or_a_persona_but_not_nothing(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    ledger.record("main", "q", "r", thread_key="release")
    ledger.record("main", "more", "r")
    ledger.create_session(Session("desk", routing_key="support"))
    policy = Policy(personas={"main": Persona(), "atlas": Persona(session="office")})

    async def act(broker: Broker) -> list[str]:
        targets = ("thread_key:release", "routing_key:support", "persona:atlas", "session:new")
        labels = [
            event.session_label
            for target in targets
            async for event in broker.send(target, "x")
            if isinstance(event, Queued)
        ]
        for target in ("thread:gone", "routing_key:gone", "smart:zzzz"):
            with pytest.raises(NotFound):
                await broker.enqueue(target, "x")
        with pytest.raises(Refused, match="no persona 'ghost'"):
            await broker.enqueue("persona:ghost", "x")
        return labels

    fork, *others = with_broker(act, policy)

    assert others == ["desk", "office", "new"]
    assert ledger.thread(fork, last=0).depth == 2
    assert ledger.session("office").persona_id == "atlas"


def test_the_same_message_again_is_answered_once(with_broker: WithBroker, ledger: Ledger) -> None:
    async def act(broker: Broker) -> list[Any]:
        return [await answer_of(broker, "main", "x", id="e") for _ in range(2)]

    first, again = with_broker(act)

    assert first.turn_id == again.turn_id
    assert again.text == "x"
    assert ledger.thread("main", last=0).depth == 1


def test_whoever_leaves_early_stops_nothing(with_broker: WithBroker, ledger: Ledger) -> None:
    async def act(broker: Broker) -> None:
        async for event in broker.send("main", "/wait 50\nsaid"):
            if isinstance(event, Started):
                break
        while await broker.queue.entries():
            await asyncio.sleep(0.02)

    with_broker(act)

    assert ledger.thread("main", last=0).depth == 1


def entries(ledger: Ledger) -> Any:
    return Queue(ledger).entries(everything=True)


class Echoing:
    """The echo engine, to be built upon."""

    name = "echo"

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        async for event in EchoEngine().run(request):
            yield event


class HalfSaid:
    """Fails in the middle of a sentence."""

    name = "half"

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        yield ThinkingPiece("hm")
        yield TextPiece("half an ans")
        raise EngineError("gone")


class Careless:
    name = "careless"

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        yield request.last_message  # type: ignore[misc]


def test_an_engine_that_yields_no_events_fails_its_turn(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    failed = with_broker(lambda b: answer_of(b, "main", "x"), engine=Careless())

    assert failed.error == "an engine yields TextPiece, MessageDone, ..., not 'x'"
    assert ledger.get_turn(failed.turn_id).status == "failed"


def test_an_engine_is_an_object_not_its_class(with_broker: WithBroker) -> None:
    with pytest.raises(Refused, match="an engine is an Engine, not <class"):
        with_broker(lambda b: answer_of(b, "main", "x"), engine=Careless)


def test_an_engine_that_is_not_there_is_refused() -> None:
    with pytest.raises(Refused, match="no engine 'nonsense'"):
        choose("nonsense")
