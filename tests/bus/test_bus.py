"""The bus itself: registering, finding, invoking, and what is said when something is wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from agents_ledger import Conflict, NotFound, Refused
from agents_ledger.bus import Ability, AgentBus, BusError

SUM_SCHEMA = {
    "type": "object",
    "properties": {
        "numbers": {"type": "array", "items": {"type": "number"}},
        "options": {"type": "object", "properties": {"digits": {"type": "integer"}}},
    },
    "required": ["numbers"],
    "additionalProperties": False,
}


class Text(Struct, forbid_unknown_fields=True):
    text: str


def add(given: dict[str, Any]) -> dict[str, float]:
    return {"sum": sum(given["numbers"])}


def letters(given: Text) -> Iterator[dict[str, str]]:
    for letter in given.text:
        if letter == "!":
            raise NotFound("no such letter", "Leave it out.")
        yield {"letter": letter}


SUM = Ability(
    id="math:sum", description="Add.", input=SUM_SCHEMA, output={"type": "object"}, function=add
)
LETTERS = Ability(
    id="text:letters",
    description="Spell.",
    input=Text,
    output={"type": "object"},
    function=letters,
    is_stream=True,
)


@pytest.fixture
def bus() -> AgentBus:
    made = AgentBus()
    made.register(SUM)
    made.register(LETTERS)
    return made


def failing(error: Exception) -> Ability:
    def fail(_: object) -> None:
        raise error

    return Ability(id="test:fail", description="", input=Text, output=Text, function=fail)


# -- registering ------------------------------------------------------------------------------


def test_an_ability_is_on_the_bus_until_it_is_unregistered(bus: AgentBus) -> None:
    assert bus.has("math:sum")
    assert bus.inspect("math:sum") is SUM
    assert [each.id for each in bus.list() if each.module_name != "bus"] == [
        "math:sum",
        "text:letters",
    ]

    bus.unregister("math:sum")

    assert not bus.has("math:sum")
    with pytest.raises(NotFound):
        bus.unregister("math:sum")
    bus.register(SUM)


def test_a_second_ability_of_the_same_id_is_refused(bus: AgentBus) -> None:
    with pytest.raises(Conflict, match="Ability already registered: math:sum"):
        bus.register(SUM)


@pytest.mark.parametrize("name", ["", "sum", "Math:sum", "math:", ":sum", "math:s um", "math::sum"])
def test_an_id_is_words_with_colons(bus: AgentBus, name: str) -> None:
    with pytest.raises(Refused, match="not a valid ability id"):
        bus.register(
            Ability(id=name, description="", input=Text, output=Text, function=lambda given: given)
        )


def test_a_coroutine_is_refused_as_a_function(bus: AgentBus) -> None:
    async def later(given: Text) -> Text:
        return given

    with pytest.raises(Refused, match="asynchronous"):
        bus.register(Ability(id="a:b", description="", input=Text, output=Text, function=later))


def test_what_is_no_schema_is_refused(bus: AgentBus) -> None:
    with pytest.raises(Refused, match="not a valid JSON Schema"):
        bus.register(
            Ability(id="a:b", description="", input={"type": 7}, output=Text, function=add)
        )


# -- invoking ---------------------------------------------------------------------------------


def test_json_goes_in_and_json_comes_out(bus: AgentBus) -> None:
    assert json.loads(bus.invoke("math:sum")('{"numbers": [1, 2, 4]}')) == {"sum": 7}
    assert bus.try_invoke("math:sum", b'{"numbers": []}').result == '{"sum":0}'


def test_an_ability_may_stream(bus: AgentBus) -> None:
    pieces = bus.invoke_stream("text:letters")('{"text": "ab"}')

    assert [json.loads(piece) for piece in pieces] == [{"letter": "a"}, {"letter": "b"}]


def test_pieces_come_before_a_failure(bus: AgentBus) -> None:
    pieces = bus.invoke_stream("text:letters")('{"text": "a!b"}')

    assert next(pieces) == '{"letter":"a"}'
    with pytest.raises(BusError) as caught:
        next(pieces)
    assert caught.value.code == "EXECUTION_ERROR"
    assert caught.value.details == {"kind": "NotFound", "hint": "Leave it out."}


def test_async_code_invokes_in_a_thread(bus: AgentBus) -> None:
    async def several() -> list[str]:
        call = bus.invoke("math:sum")
        return await asyncio.gather(
            *(asyncio.to_thread(call, f'{{"numbers": [{n}]}}') for n in range(3))
        )

    assert asyncio.run(several()) == ['{"sum":0}', '{"sum":1}', '{"sum":2}']


# -- what goes wrong --------------------------------------------------------------------------


WRONG = {
    "no such ability": ("math:product", "{}", "NOT_FOUND", "invalid-ability", None),
    "no JSON": ("math:sum", "{", "INVALID_INPUT", "invalid-input", "$"),
    "no object": ("math:sum", "[]", "INVALID_INPUT", "invalid-input", "$"),
    "missing": ("math:sum", "{}", "INVALID_INPUT", "invalid-input", "$"),
    "wrong item": (
        "math:sum", '{"numbers": [1, "x"]}', "INVALID_INPUT", "invalid-input", "$.numbers[1]",
    ),
    "wrong deeper": (
        "math:sum",
        '{"numbers": [], "options": {"digits": "x"}}',
        "INVALID_INPUT", "invalid-input", "$.options.digits",
    ),
    "unknown field": ("math:sum", '{"numbers": [], "x": 1}', "INVALID_INPUT", "invalid-input", "$"),
    "it streams": ("text:letters", '{"text": ""}', "TYPE_MISMATCH", "error", None),
    "not text": ("math:sum", {"numbers": []}, "INVALID_INPUT", "invalid-input", "$"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_raised_in_one_style_and_returned_in_the_other(
    bus: AgentBus, case: str
) -> None:
    ability_id, given, code, outcome, path = WRONG[case]

    with pytest.raises(BusError) as caught:
        bus.invoke(ability_id)(given)
    result = bus.try_invoke(ability_id, given)  # type: ignore[arg-type]

    assert (caught.value.code, caught.value.ability_id) == (code, ability_id)
    assert caught.value.details.get("path") == path
    assert result.type == outcome
    assert result.result is None
    assert caught.value.message in str(result.message)


def test_a_msgspec_type_reports_the_path_too(bus: AgentBus) -> None:
    bus.unregister("text:letters")
    bus.register(failing(ValueError("never reached")))

    with pytest.raises(BusError) as caught:
        bus.invoke("test:fail")('{"text": 7}')

    assert (caught.value.code, caught.value.details["path"]) == ("INVALID_INPUT", "$.text")


def test_streaming_what_does_not_stream_is_a_mismatch(bus: AgentBus) -> None:
    with pytest.raises(BusError) as caught:
        list(bus.invoke_stream("math:sum")('{"numbers": []}'))

    assert caught.value.code == "TYPE_MISMATCH"


def test_a_refusal_is_an_error_and_a_bug_an_unknown_failure(bus: AgentBus) -> None:
    bus.register(failing(Refused("not today")))
    refused = bus.try_invoke("test:fail", '{"text": ""}')
    bus.unregister("test:fail")
    bus.register(failing(ZeroDivisionError("oh")))
    broken = bus.try_invoke("test:fail", '{"text": ""}')

    assert (refused.type, refused.message) == ("error", "not today")
    assert refused.error
    assert refused.error["code"] == "EXECUTION_ERROR"
    assert (broken.type, broken.message) == ("unknown-failure", "ZeroDivisionError: oh")


def test_an_answer_that_is_no_json_is_the_abilitys_failure(bus: AgentBus) -> None:
    bus.register(
        Ability(id="a:b", description="", input=Text, output=Text, function=lambda _: object())
    )

    assert bus.try_invoke("a:b", '{"text": ""}').type == "unknown-failure"


# -- the bus about itself ---------------------------------------------------------------------


def test_the_bus_lists_its_modules_and_abilities(bus: AgentBus) -> None:
    def ask(ability_id: str, **given: str) -> Any:
        return json.loads(bus.invoke(ability_id)(json.dumps(given)))

    assert ask("bus:list")["modules"] == [
        {"name": "bus", "abilityCount": 4},
        {"name": "math", "abilityCount": 1},
        {"name": "text", "abilityCount": 1},
    ]
    assert ask("bus:abilities", moduleName="math") == {
        "abilities": [{"id": "math:sum", "description": "Add.", "isStream": False}]
    }
    assert ask("bus:schema", abilityId="math:sum")["inputSchema"] == SUM_SCHEMA
    inspected = ask("bus:inspect", abilityId="text:letters")
    assert inspected["moduleName"] == "text"
    assert inspected["abilityName"] == "letters"
    assert inspected["isStream"] is True
    assert bus.try_invoke("bus:abilities", '{"moduleName": "x"}').type == "error"
    assert bus.try_invoke("bus:inspect", '{"abilityId": "x:y"}').type == "invalid-ability"


def test_every_call_is_logged(bus: AgentBus) -> None:
    bus.invoke("math:sum")('{"numbers": []}', call_id="c1", caller_id="planner")
    bus.try_invoke("math:sum", "[]", caller_id="planner")
    list(bus.invoke_stream("text:letters")('{"text": "ab"}'))

    first, second, third = bus.log()
    assert (first.call_id, first.caller_id, first.ability_id, first.success) == (
        "c1",
        "planner",
        "math:sum",
        True,
    )
    assert not second.success
    assert str(second.error).startswith("INVALID_INPUT")
    assert (third.ability_id, third.success) == ("text:letters", True)
    assert first.duration_ms >= 0
    assert second.call_id
