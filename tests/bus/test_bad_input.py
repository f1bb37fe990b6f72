"""Bad input on every ability: a clear error, and nothing is changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.bus import AgentBus, BusError
from agents_ledger.bus.abilities import ABILITIES
from tests.builders import chain
from tests.raw import Raw
from tests.tasking import a_talk, calls

BY_ID = {ability.id: ability for ability in ABILITIES}
TASK = {"id": "t9", "systemPrompt": "p", "createdAt": 1, "updatedAt": 1}
MESSAGE = {"id": "m9", "taskId": "t1", "role": "user", "content": "x", "timestamp": 1}
CALL = {
    "id": "c9", "taskId": "t1", "abilityName": "a:b", "parameters": "{}", "status": "pending",
    "details": "{}", "createdAt": 1, "updatedAt": 1, "startMessageId": "m2",
}  # fmt: skip

# An input of each ability that is right: what is wrong in the cases is one field of it.
GOOD: dict[str, dict[str, Any]] = {
    "ldg:task:save": {"task": TASK},
    "ldg:task:get": {"taskId": "t1"},
    "ldg:task:query": {"completionStatus": "null", "fromTime": 0, "limit": 5, "offset": 0},
    "ldg:call:save": {"call": CALL},
    "ldg:call:list": {"taskId": "t1", "status": "pending"},
    "ldg:msg:save": {"message": MESSAGE},
    "ldg:msg:list": {"taskId": "t1", "limit": 5, "offset": 0},
    "ldg:batch:save": {"saves": [{"task": TASK}]},
    "ldg:msg:begin": {"taskId": "t1", "messageId": "m9"},
    "ldg:msg:append": {"messageId": "s1", "text": "x"},
    "ldg:msg:finish": {"messageId": "s1"},
    "ldg:msg:partial": {"taskId": "t1"},
    "ldg:session:resolve": {"key": "main", "exact": True},
    "ldg:session:list": {"limit": 5, "status": "active"},
    "ldg:session:head": {"key": "main", "at": 5},
    "ldg:session:history": {"key": "main", "limit": 5, "before": 100},
    "ldg:session:fork": {"target": "main", "label": "new", "before": False},
    "ldg:session:smart_fork": {"text": "question", "label": "new", "budget": 500},
    "ldg:session:move": {"key": "main", "target": "main"},
    "ldg:session:archive": {"key": "main", "status": "archived"},
    "ldg:session:alias": {"alias": "nick", "key": "main", "reason": "manual"},
    "ldg:session:aliases": {"key": "main"},
    "ldg:session:remove_alias": {"alias": "nick"},
    "ldg:session:rename": {"key": "main", "label": "renamed"},
    "ldg:session:unmerge": {"label": "main"},
    "ldg:session:merge": {"first": "main", "second": "old", "reason": "manual"},
    "ldg:session:promote": {"channel": "telegram:1", "entity": "person:ada"},
    "ldg:session:import": {"request": {}},
    "ldg:session:route": {"target": "main", "persona_id": "main"},
    "ldg:turn:get": {"target": "main"},
    "ldg:turn:record": {
        "session": "main", "query": "q", "response": "r", "id": "turn-9",
        "usage": {"input_tokens": 1}, "config": {"directives": {}},
    },
    "ldg:turn:search": {"text": "question", "limit": 5, "order": "newest"},
    "ldg:thread:get": {"target": "main", "last": 5},
    "ldg:thread:stream": {"target": "main"},
    "ldg:thread:compare": {"a": "main", "b": "main", "limit": 5},
    "ldg:tree:get": {"target": "main", "limit": 5},
    "ldg:compaction:list": {"target": "main"},
    "ldg:compaction:record": {
        "session": "main", "summary": "s", "summarized_through_turn_id": "turn-1",
    },
    "ldg:compaction:run": {"session": "main", "strategy": "selective", "budget": 50},
    "ldg:context:get": {"target": "main", "budget": 500, "form": "openai"},
    "ldg:event:list": {"target": "main", "last": 5},
    "ldg:config:get": {"target": "main"},
    "ldg:permission:review": {"persona_id": "main", "since": 0, "until": 5},
    "ldg:file:list": {"path": "a.py", "limit": 5},
    "ldg:usage:get": {"by": "day", "since": 0, "limit": 5},
    "ldg:tool:list": {"since": 0, "limit": 5},
    "ldg:live:begin": {
        "session": "other", "query": "q", "id": "turn-8", "config": {"directives": {}},
        "idle_timeout_s": 60,
    },
    "ldg:live:message": {"turn_id": "live-1", "message": "x", "streamed": False},
    "ldg:live:tool_call": {"turn_id": "live-1", "tool_name": "Bash", "params": {}, "id": "c9"},
    "ldg:live:complete": {"turn_id": "live-1", "tool_call_id": "c1", "status": "completed"},
    "ldg:live:stream": {"turn_id": "live-1", "text": "x", "piece": 0},
    "ldg:live:respond": {"turn_id": "live-1", "response": "r", "usage": {"input_tokens": 1}},
    "ldg:live:fail": {"turn_id": "live-1", "error": "e", "usage": {"input_tokens": 1}},
    "ldg:ledger:audit": {},
    "ldg:ledger:recover": {},
}  # fmt: skip
HUGE = 10**30
DEEP = "[" * 100_000


def fields(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields of an input."""
    for name, part in schema.get("properties", {}).items():
        yield (*path, name)
        yield from fields(part, (*path, name))


def schema_at(ability_id: str, path: tuple[str, ...]) -> dict[str, Any]:
    schema = BY_ID[ability_id].input_schema
    for name in path:
        schema = schema["properties"][name]
    return schema


def with_value(given: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any] | None:
    """The input with another value in one place; None if the place is not in it."""
    changed = copy.deepcopy(given)
    part: Any = changed
    for name in path[:-1]:
        if not isinstance(part, dict) or name not in part:
            return None
        part = part[name]
    part[path[-1]] = value
    return changed


def without(given: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
    changed = with_value(given, path, None)
    if changed is None:
        return None
    part = changed
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    return changed


def kinds_of(schema: dict[str, Any]) -> set[str]:
    """The types a schema allows; none: any."""
    said = schema.get("type", ())
    kinds = {said} if isinstance(said, str) else set(said)
    for part in schema.get("anyOf", ()):
        kinds |= kinds_of(part) or {"string"}
    return kinds | ({"string"} if "enum" in schema else set())


SAMPLES: dict[str, Any] = {
    "string": "text", "integer": 7, "boolean": True, "array": [1], "object": {"x": 1}, "null": None,
}  # fmt: skip


def wrong_values(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that do not fit a schema, each with what is wrong with it."""
    kinds = kinds_of(schema)
    if not kinds:
        return
    yield from ((f"a {kind}", value) for kind, value in SAMPLES.items() if kind not in kinds)
    if "integer" in kinds:
        yield from (("negative", -1), ("huge", HUGE), ("a fraction", 1.5))
    if "enum" in json.dumps(schema) and "object" not in kinds:
        yield "an unknown word", "nonsense"
    if schema.get("minLength"):
        yield "an empty text", ""
    if schema.get("maxLength"):
        yield "a huge text", "x" * (schema["maxLength"] + 1)


def cases(ability_id: str) -> Iterator[tuple[str, str]]:
    """Inputs of an ability that are wrong in one place, as JSON."""
    given, ability = GOOD[ability_id], BY_ID[ability_id]
    yield "no JSON", "{"
    yield "nothing", ""
    yield "deep", DEEP
    yield "a list", "[]"
    yield "null", "null"
    yield "an unknown field", json.dumps({**given, "unknown": 1})
    yield "a broken character", '{"\ud800": 1}'
    for path in fields(ability.input_schema):
        where = ".".join(path)
        needed = schema_at(ability_id, path[:-1]).get("required", ())
        if path[-1] in needed and (missing := without(given, path)) is not None:
            yield f"{where} missing", json.dumps(missing)
        for what, value in wrong_values(schema_at(ability_id, path)):
            if (changed := with_value(given, path, value)) is not None:
                yield f"{where} {what}", json.dumps(changed)
        if "properties" in schema_at(ability_id, path):
            deeper = with_value(given, (*path, "unknown"), 1)
            if deeper is not None:
                yield f"{where}.unknown", json.dumps(deeper)


@pytest.fixture(scope="module")
def scene(shared_address: str) -> Iterator[tuple[AgentBus, Raw, Ledger]]:
    """A bus over a ledger with a thread, a task and a message that streams in."""
    with Ledger.open(shared_address) as ledger, Raw(shared_address) as raw:
        chain(ledger, "main", 3)
        ledger.record("main", "question", "answer", id="turn-1")
        tasks = a_talk(ledger)
        tasks.save(calls())
        tasks.stream("t1", "s1")
        bus = AgentBus(ledger)
        invoke(bus, "ldg:live:begin", '{"session": "live", "query": "q", "id": "live-1"}')
        invoke(bus, "ldg:live:tool_call", '{"turn_id": "live-1", "tool_name": "Bash", "id": "c1"}')
        yield bus, raw, ledger
        assert ledger.audit() == ()


def invoke(bus: AgentBus, ability_id: str, given: str) -> str:
    if BY_ID[ability_id].is_stream:
        return "".join(bus.invoke_stream(ability_id)(given))
    return bus.invoke(ability_id)(given)


def test_every_ability_has_its_cases() -> None:
    assert set(GOOD) == set(BY_ID)


@pytest.mark.parametrize("ability_id", GOOD)
def test_bad_input_is_reported_and_changes_nothing(
    scene: tuple[AgentBus, Raw, Ledger], ability_id: str
) -> None:
    bus, raw, _ = scene
    before = raw.dump()
    tried = list(cases(ability_id))

    for what, given in tried:
        with pytest.raises(BusError) as caught:
            invoke(bus, ability_id, given)
        assert caught.value.code == "INVALID_INPUT", (what, caught.value)
        assert str(caught.value.details["path"]).startswith("$"), what
        assert caught.value.message, what

    assert len(tried) >= 7
    # A server's lease is renewed meanwhile.
    assert {**raw.dump(), "writers": before["writers"]} == before


# What only the ledger can tell to be wrong.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ldg:task:save", {"task": {**TASK, "id": "nul\0"}}, "Refused"),
    ("ldg:task:save", {"task": {**TASK, "parentTaskId": "nobody"}}, "NotFound"),
    ("ldg:task:save", {"task": {**TASK, "completionStatus": "null"}}, "Refused"),
    ("ldg:msg:save", {"message": {**MESSAGE, "taskId": "nobody"}}, "NotFound"),
    ("ldg:msg:save", {"message": {**MESSAGE, "id": "m1"}}, "Conflict"),
    ("ldg:msg:save", {"message": {**MESSAGE, "id": "nul\0"}}, "Refused"),
    ("ldg:call:save", {"call": {**CALL, "startMessageId": "nobody"}}, "NotFound"),
    ("ldg:call:save", {"call": {**CALL, "id": "c1"}}, "Conflict"),
    ("ldg:batch:save",
     {"saves": [{"task": TASK}, {"message": {**MESSAGE, "id": "m1"}}]}, "Conflict"),
    ("ldg:batch:save", {"saves": [{}]}, "Refused"),
    ("ldg:msg:begin", {"taskId": "nobody"}, "NotFound"),
    ("ldg:msg:append", {"messageId": "nobody", "text": "x"}, "Conflict"),
    ("ldg:msg:finish", {"messageId": "nobody"}, "Conflict"),
    ("ldg:session:resolve", {"key": "nobody"}, "NotFound"),
    ("ldg:session:list", {"after": "nobody"}, "NotFound"),
    ("ldg:session:fork", {"target": "nobody"}, "NotFound"),
    ("ldg:session:fork", {"target": "main", "label": "main"}, "NameTaken"),
    ("ldg:session:move", {"key": "main", "target": "nobody"}, "NotFound"),
    ("ldg:session:move", {"key": "main", "target": "turn-1", "expected": "other"}, "HeadMoved"),
    ("ldg:session:alias", {"alias": "main", "key": "main"}, "NameTaken"),
    ("ldg:session:merge", {"first": "main", "second": "nobody"}, "NotFound"),
    ("ldg:session:remove_alias", {"alias": "nobody"}, "NotFound"),
    ("ldg:session:remove_alias", {"alias": "main"}, "Refused"),
    ("ldg:session:rename", {"key": "nobody", "label": "new"}, "NotFound"),
    ("ldg:session:rename", {"key": "main", "label": "live"}, "NameTaken"),
    ("ldg:session:unmerge", {"label": "main"}, "Refused"),
    ("ldg:session:promote", {"channel": "x", "entity": "x"}, "NameTaken"),
    ("ldg:event:list", {"target": "nobody"}, "NotFound"),
    ("ldg:config:get", {"target": "nobody"}, "NotFound"),
    ("ldg:session:import", {"request": {"source": "nobody"}}, "RequestRefused"),
    ("ldg:turn:get", {"target": "nobody"}, "NotFound"),
    ("ldg:turn:record", {"session": "main", "query": "q", "id": "turn-1"}, "Conflict"),
    ("ldg:turn:record", {"session": "main", "query": "q", "id": "has space"}, "Refused"),
    ("ldg:turn:record", {"session": "main", "query": "q", "parent": "other"}, "HeadMoved"),
    ("ldg:turn:record", {"session": "main", "query": "q", "status": "failed"}, "Refused"),
    ("ldg:turn:record", {"session": "main", "query": "q", "error": "e", "status": "completed"},
     "Refused"),
    ("ldg:live:begin", {"session": "live", "query": "other", "id": "live-1"}, "Conflict"),
    ("ldg:live:begin", {"session": "main", "query": "q", "parent": "other"}, "HeadMoved"),
    ("ldg:live:message", {"turn_id": "nobody", "message": "x"}, "NotFound"),
    ("ldg:live:message", {"turn_id": "turn-1", "message": "x"}, "Conflict"),
    ("ldg:live:message", {"turn_id": "live-", "message": "x"}, "NotFound"),
    ("ldg:live:tool_call", {"turn_id": "live-1", "tool_name": "Read", "id": "c1"}, "Conflict"),
    ("ldg:live:complete", {"turn_id": "live-1", "tool_call_id": "c2"}, "NotFound"),
    ("ldg:live:complete", {"turn_id": "live-1", "tool_call_id": "c1", "error": "e"}, "Refused"),
    ("ldg:live:complete", {"turn_id": "live-1", "tool_call_id": "c1", "status": "failed"},
     "Refused"),
    ("ldg:live:complete",
     {"turn_id": "live-1", "tool_call_id": "c1", "status": "rejected", "result": 1}, "Refused"),
    ("ldg:live:stream", {"turn_id": "live-1", "text": "x", "piece": 2}, "Conflict"),
    ("ldg:live:respond", {"turn_id": "live-1", "response": {"role": "user"}}, "Refused"),
    ("ldg:live:respond", {"turn_id": "turn-1", "response": "x"}, "Conflict"),
    ("ldg:live:fail", {"turn_id": "nobody", "error": "e"}, "NotFound"),
    ("ldg:compaction:record",
     {"session": "main", "summary": "s", "summarized_through_turn_id": "nobody"}, "Refused"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused_input_is_reported_and_changes_nothing(
    scene: tuple[AgentBus, Raw, Ledger], number: int
) -> None:
    bus, raw, _ = scene
    ability_id, given, kind = REFUSED[number]
    before = raw.dump()

    with pytest.raises(BusError) as caught:
        invoke(bus, ability_id, json.dumps(given))

    assert (caught.value.code, caught.value.details["kind"]) == ("EXECUTION_ERROR", kind)
    after = raw.dump()
    after["writers"] = before["writers"]  # a writer says that it lives, whatever it does
    assert after == before


@pytest.mark.parametrize("ability_id", [each for each in GOOD if not BY_ID[each].writes])
def test_what_only_reads_changes_nothing(
    scene: tuple[AgentBus, Raw, Ledger], ability_id: str
) -> None:
    bus, raw, _ = scene
    before = raw.dump()

    assert invoke(bus, ability_id, json.dumps(GOOD[ability_id]))

    # A server's lease is renewed meanwhile.
    assert {**raw.dump(), "writers": before["writers"]} == before
