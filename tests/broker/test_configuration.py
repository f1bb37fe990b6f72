"""The configuration of a turn: checked before anything is written, constrained by permissions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import (
    AsyncLedger,
    Config,
    EngineError,
    EngineEvent,
    Finished,
    Ledger,
    MessageDone,
    Queue,
    Refused,
    Request,
)
from agents_ledger.broker import policy as policies
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.policy import (
    ContextLimits,
    EngineChoice,
    Identity,
    Persona,
    PersonaModel,
    PersonaPermissions,
    Policy,
)
from agents_ledger.broker.rerun import rerun
from tests.broker.conftest import WithBroker, answer_of
from tests.broker.test_workers import settled, spawn
from tests.raw import Raw
from tests.waiting import PATIENCE_S


def constrained(*models: str, max_tokens: int | None = None, default: str | None = None) -> Policy:
    may = PersonaPermissions(models=models or ("*",), max_tokens=max_tokens)
    return Policy(personas={"main": Persona(permissions=may, model=PersonaModel(default))})


# -- no model, and models that cannot run -----------------------------------------------------


def without_engine(address: str, policy: Policy | None, act: Any) -> Any:
    async def within() -> Any:
        async with AsyncLedger.open(address) as ledger, Broker(ledger, policy) as broker:
            return await act(broker)

    return asyncio.run(asyncio.wait_for(within(), PATIENCE_S))


@pytest.mark.finding("users-3")
@pytest.mark.finding("users-25")
def test_without_a_model_the_broker_refuses_and_names_where_to_set_it(
    address: str, ledger: Ledger, raw: Raw
) -> None:
    turn = ledger.record("main", "q", "r")
    before = raw.dump()

    for target in ("main", "new", turn.id, None):
        with pytest.raises(Refused, match="no model is configured") as refused:
            without_engine(address, None, lambda b, target=target: b.enqueue(target, "x"))
        assert "--model provider:name" in refused.value.hint
        assert "under [engine] in" in refused.value.hint
        assert "policy.toml" in refused.value.hint

    assert raw.dump() == before
    echoed = without_engine(
        address, Policy(engine=EngineChoice(model="echo")), lambda b: answer_of(b, "main", "x")
    )
    assert (echoed.text, echoed.model) == ("x", "echo")


@pytest.mark.finding("users-24")
def test_a_model_without_a_key_leaves_nothing_behind(
    address: str, ledger: Ledger, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    turn = ledger.record("main", "q", "r")
    before = raw.dump()
    policy = Policy(engine=EngineChoice(model="openai:gpt-5"))

    async def again(broker: Broker) -> None:
        async for _ in rerun(broker, "main"):
            pass

    for act in (lambda b: b.enqueue(turn.id, "x"), again):
        with pytest.raises(EngineError, match="OPENAI_API_KEY") as failed:
            without_engine(address, policy, act)
        assert failed.value.kind == "auth"
    assert raw.dump() == before


class Picky(EchoEngine):
    """Knows the models it can run."""

    def check(self, model: str) -> None:
        if model != "good":
            raise EngineError(f"no model {model!r} here", "bad_request")


def test_an_engine_of_your_own_may_check_the_model_too(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> Any:
        with pytest.raises(EngineError, match="no model 'bad' here"):
            await broker.enqueue("main", "x", directives={"model": "bad"})
        with pytest.raises(Refused, match="no model is configured"):
            await broker.enqueue("main", "x")
        return await answer_of(broker, "main", "x", directives={"model": "good"})

    assert with_broker(act, engine=Picky()).model == "good"
    assert len(Queue(ledger).entries(everything=True)) == 1


# -- directives -------------------------------------------------------------------------------


@pytest.mark.finding("spec-8")
@pytest.mark.parametrize(
    ("directives", "error", "hint"),
    [
        ({"modle": "x"}, "no directive 'modle'", "Did you mean 'model'"),
        ({"maxTokens": 5}, "no directive 'maxTokens'", "Did you mean 'max_tokens'"),
        ({"colour": "x"}, "no directive 'colour'", "The directives are model, thinking"),
        ({"max_tokens": "many"}, "max_tokens is 'many'", ""),
        ({"max_tokens": 0}, "max_tokens is 0", ""),
        ({"temperature": "warm"}, "temperature is 'warm'", ""),
        ({"model": 5}, "model is 5", ""),
        ({"toolset": "gone"}, "no toolset 'gone'", "[toolsets]"),
    ],
)
def test_directives_that_nobody_would_follow_are_refused(
    with_broker: WithBroker, raw: Raw, directives: dict[str, Any], error: str, hint: str
) -> None:
    before = raw.dump()

    with pytest.raises(Refused) as refused:
        with_broker(lambda b: b.enqueue("main", "x", directives=directives))

    assert error in str(refused.value)
    assert hint in refused.value.hint
    assert raw.dump() == before


@pytest.mark.finding("spec-8")
def test_a_recorded_configuration_is_checked_too(ledger: Ledger) -> None:
    for config in (
        Config({"modle": "x"}),
        Config(defaults={"maxTokens": 3}),
        Config(constraints={"max_tokens": "many"}),
    ):
        with pytest.raises(Refused):
            ledger.record("main", "q", "r", config=config)
    turn = ledger.record("main", "q", "r", config=Config({"top_p": 0.9, "mode": "plan"}))

    assert ledger.effective_config(turn.id)["mode"].value == "plan"


def test_a_misspelt_key_of_the_policy_is_suggested(tmp_path: Path) -> None:
    file = tmp_path / "ledger.policy.toml"
    file.write_text('[engine]\nmodle = "echo"\n', encoding="utf-8")

    with pytest.raises(Refused, match="modle") as refused:
        policies.read(file)

    assert "Did you mean 'mode' or 'model'?" in refused.value.hint


# -- permissions ------------------------------------------------------------------------------


@pytest.mark.finding("spec-O")
def test_a_model_that_is_not_permitted_is_refused(with_broker: WithBroker, raw: Raw) -> None:
    before = raw.dump()

    with pytest.raises(Refused, match="'openai:gpt-5' is not permitted: stopped by persona") as why:
        with_broker(
            lambda b: b.enqueue("main", "x", directives={"model": "openai:gpt-5"}),
            constrained("anthropic:*", "local:*"),
        )
    with pytest.raises(Refused, match="model 'echo' is not permitted"):
        with_broker(lambda b: b.enqueue("main", "x"), constrained("anthropic:*"))

    assert "anthropic:* or local:*" in why.value.hint
    assert raw.dump() == before


@pytest.mark.finding("spec-O")
def test_a_model_of_the_thread_gives_way_to_the_permitted_default(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def first(broker: Broker) -> Any:
        return await answer_of(broker, "main", "x", directives={"model": "big:one"})

    before = with_broker(first)
    done = with_broker(
        lambda b: answer_of(b, "main", "y"), constrained("small:*", default="small:one")
    )

    assert done.model == "small:one"
    setting = ledger.effective_config(done.turn_id)["model"]
    assert (setting.value, setting.by) == ("small:one", "permission")
    assert setting.instead_of is not None
    assert (setting.instead_of.value, setting.instead_of.turn_id) == ("big:one", before.turn_id)
    with pytest.raises(Refused, match="'big:one' is not permitted"):
        with_broker(lambda b: b.enqueue(before.turn_id, "z"), constrained("small:*"))


@pytest.mark.finding("spec-O")
@pytest.mark.parametrize(
    ("asked", "runs_with"), [({}, 2), ({"max_tokens": 9}, 2), ({"max_tokens": 1}, 1)]
)
def test_max_tokens_is_lowered_to_what_is_permitted(
    with_broker: WithBroker, ledger: Ledger, asked: dict[str, int], runs_with: int
) -> None:
    done = with_broker(
        lambda b: answer_of(b, "main", "a long answer", directives=asked), constrained(max_tokens=2)
    )

    assert done.stop_reason == "max_tokens"
    assert ledger.effective_config(done.turn_id)["max_tokens"].value == runs_with
    layer = json.loads(ledger.get_turn(done.turn_id).permissions_granted or "")["layers"][0]
    assert layer["max_tokens"] == 2


@pytest.mark.finding("spec-O")
def test_a_worker_runs_no_model_that_its_manager_could_not(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def delegate(broker: Broker) -> None:
        await answer_of(broker, "main", spawn("x"))
        await settled(broker)

    with_broker(delegate, constrained("small:*", default="small:one"))
    (worker,) = (s for s in ledger.sessions() if s.is_subagent)

    with pytest.raises(Refused, match="stopped by manager"):
        with_broker(lambda b: b.enqueue(worker.label, "y", directives={"model": "big:one"}))


@pytest.mark.finding("spec-O")
def test_a_persona_that_may_not_run_its_own_model_is_a_mistake_of_the_policy(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ledger.policy.toml"
    file.write_text(
        '[engine]\nmodel = "openai:gpt-5"\n[personas.main.permissions]\nmodels = ["anthropic:*"]\n'
    )

    with pytest.raises(Refused, match="'main' may not run its own model 'openai:gpt-5'"):
        policies.read(file)


# -- the persona ------------------------------------------------------------------------------


@pytest.mark.finding("spec-R")
def test_without_a_target_the_persona_of_a_trigger_answers(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    policy = Policy(personas={"main": Persona(), "atlas": Persona(session="office")})

    async def act(broker: Broker) -> list[Any]:
        with pytest.raises(Refused, match="no persona 'ghost'"):
            await broker.enqueue(query="x", persona_id="ghost")
        with pytest.raises(Refused, match="the message is empty"):
            await broker.enqueue(persona_id="atlas")
        return [
            await answer_of(broker, None, "Good morning", source="cron", persona_id=persona)
            for persona in ("atlas", None)
        ]

    to_atlas, to_main = with_broker(act, policy)

    assert ledger.head("office") == to_atlas.turn_id
    assert ledger.session("office").persona_id == "atlas"
    assert ledger.head("main") == to_main.turn_id
    message = ledger.get_turn(to_atlas.turn_id).query[0]
    assert message.source == "cron"
    assert json.loads(message.metadata_json or "")["routing"] == {"target": "persona:atlas"}


class Shown:
    """Notes what it is shown."""

    name = "shown"

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        self.requests.append(request)
        yield MessageDone("ok")
        yield Finished()


@pytest.mark.finding("spec-4")
def test_the_system_prompt_counts_on_the_first_turn_too(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    soul = "Be very exact. " * 200
    policy = Policy(personas={"main": Persona(identity=Identity(soul))})
    engine = Shown()

    done = with_broker(lambda b: answer_of(b, "main", "hello"), policy, engine)

    context = json.loads(ledger.get_turn(done.turn_id).query[0].context_json or "")
    assert context["assembled"]["tokens"]["system"] >= 200
    assert engine.requests[0].system_prompt == soul.strip()


@pytest.mark.finding("spec-4")
def test_a_new_system_prompt_counts_towards_the_window(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    for number in range(4):
        ledger.record("main", f"question {number} " + "why? " * 40, "because " * 40)
    size = ledger.context("main").total_tokens
    persona = Persona(identity=Identity("Be very exact. " * 200))
    limits = ContextLimits(window_tokens=size * 2, strategy="sliding_window")

    for policy in (Policy(context=limits), Policy(personas={"main": persona}, context=limits)):
        with_broker(lambda b: answer_of(b, "main", "hello"), policy, Shown())

    assert len(ledger.compactions("main")) == 1  # with the prompt alone
