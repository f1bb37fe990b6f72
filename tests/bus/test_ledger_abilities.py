"""What the ledger offers over the bus does what its verbs do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agents_ledger import Config, Ledger, NotFound, ToolCall
from agents_ledger.bus import AgentBus, BusError
from agents_ledger.bus.abilities import ABILITIES
from tests.broker.loopback import loopback, responses_text
from tests.builders import A_USAGE, a_call, chain
from tests.bus.conftest import Ask
from tests.importers.test_request_chunks import chunk, halves
from tests.importers.test_requests import item


def test_a_turn_is_recorded_and_read_back(ask: Ask, ledger: Ledger) -> None:
    turn = ask(
        "ldg:turn:record",
        session="main",
        query="How many?",
        response="Two.",
        tool_calls=[{"tool_name": "count", "params": {"of": "x"}, "result": "2"}],
        usage={"input_tokens": 3, "output_tokens": 4},
        id="turn-1",
    )["turn"]

    assert turn["total_tokens"] == 7
    stored = ledger.get_turn("turn-1")
    assert (stored.tool_calls[0].params_json, stored.tool_calls[0].result_json) == (
        '{"of":"x"}',
        '"2"',
    )
    assert ask("ldg:turn:get", target="main")["turn"]["id"] == "turn-1"


def test_recording_the_same_id_twice_stores_once(ask: Ask, ledger: Ledger) -> None:
    said = {"session": "main", "query": "q", "response": "r", "id": "turn-1"}

    ask("ldg:turn:record", **said)
    ask("ldg:turn:record", **said)
    with pytest.raises(BusError, match="with other content"):
        ask("ldg:turn:record", **{**said, "response": "other"})

    assert len(ledger.thread("main").turns) == 1


def test_a_parent_that_is_not_the_head_is_refused(ask: Ask, ledger: Ledger) -> None:
    first, _ = chain(ledger, "main", 2)

    with pytest.raises(BusError) as caught:
        ask("ldg:turn:record", session="main", query="q", response="r", parent=first)

    assert caught.value.details["kind"] == "HeadMoved"


def test_sessions_are_resolved_listed_forked_named_and_moved(ask: Ask, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    fork = ask("ldg:session:fork", target=first, label="other")["session"]
    assert (fork["label"], fork["thread_id"]) == ("other", first)
    assert ask("ldg:session:alias", alias="me", key="other")["alias"]["session_label"] == "other"
    assert ask("ldg:session:resolve", key="me")["session"]["label"] == "other"
    assert [a["alias"] for a in ask("ldg:session:aliases", key="other")["aliases"]] == ["me"]
    assert ask("ldg:session:head", key="main")["turn_id"] == second
    ask("ldg:session:move", key="main", target=first, expected=second)
    with pytest.raises(BusError, match="is at"):
        ask("ldg:session:move", key="main", target=first, expected=second)
    reasons = [m["reason"] for m in ask("ldg:session:history", key="main")["moves"]]
    assert reasons == ["move", "record", "record"]
    ask("ldg:session:archive", key="other")
    assert [s["label"] for s in ask("ldg:session:list")["sessions"]] == ["main"]


def test_lists_are_paged_to_their_end(ask: Ask, ledger: Ledger) -> None:
    for number in range(5):
        chain(ledger, f"s{number}", 2)

    seen: list[str] = []
    page: dict[str, Any] = {"after": None}
    while True:
        page = ask("ldg:session:list", limit=2, after=page["after"])
        seen += [session["label"] for session in page["sessions"]]
        if page["after"] is None:
            break
    moves = ask("ldg:session:history", key="s1", limit=1)
    rest = ask("ldg:session:history", key="s1", limit=5, before=moves["before"])

    assert sorted(seen) == ["s0", "s1", "s2", "s3", "s4"]
    assert len(rest["moves"]) == 1
    assert rest["before"] is None


def test_a_thread_is_read_in_parts_and_streamed_whole(
    ask: Ask, ledger: Ledger, ledger_bus: AgentBus
) -> None:
    ids = chain(ledger, "main", 120)

    last = ask("ldg:thread:get", target="main", last=2)["thread"]
    between = ask("ldg:thread:get", target="main", from_depth=3, to_depth=4)["thread"]
    streamed = ledger_bus.invoke_stream("ldg:thread:stream")('{"target": "main"}')

    assert (last["depth"], [t["id"] for t in last["turns"]]) == (120, ids[-2:])
    assert [t["id"] for t in between["turns"]] == ids[2:4]
    assert [json.loads(piece)["turn"]["id"] for piece in streamed] == ids
    assert ask("ldg:tree:get", target=ids[0])["tree"]["turn_count"] == 120


def test_an_empty_thread_streams_nothing(ledger: Ledger, ledger_bus: AgentBus) -> None:
    ledger.create_session("empty")

    assert list(ledger_bus.invoke_stream("ldg:thread:stream")('{"target": "empty"}')) == []


def test_a_compaction_is_recorded_and_listed(ask: Ask, ledger: Ledger) -> None:
    first, second, third = chain(ledger, "main", 3)

    ask(
        "ldg:compaction:record",
        session="main",
        summary="They counted.",
        summarized_through_turn_id=second,
        first_kept_turn_id=third,
    )

    [compaction] = ask("ldg:compaction:list", target="main")["compactions"]
    assert compaction["summary"] == "They counted."
    assert ledger.thread("main").compaction_count == 1
    assert first


def test_a_session_is_compacted_without_a_model(ask: Ask, ledger: Ledger) -> None:
    chain(ledger, "main", 30)

    turn = ask("ldg:compaction:run", session="main", budget=100)["turn"]

    assert turn["turn_type"] == "compaction"
    assert ledger.head("main") == turn["id"]


def test_sessions_are_imported(ask: Ask) -> None:
    request = {
        "source": "aix",
        "runId": "r1",
        "mode": "backfill",
        "idempotencyKey": "k1",
        "items": [item()],
    }

    response = ask("ldg:session:import", request=request)["response"]
    with pytest.raises(BusError) as caught:
        ask("ldg:session:import", request={"source": "nobody"})

    assert (response["imported"], response["failed"]) == (1, 0)
    assert caught.value.code == "EXECUTION_ERROR"
    assert len(ask("ldg:session:list")["sessions"]) == 1


def test_the_audit_and_the_recovery_say_what_they_found(ask: Ask) -> None:
    assert ask("ldg:ledger:audit") == {"findings": []}
    assert ask("ldg:ledger:recover") == {"turn_ids": []}


def test_a_context_a_comparison_and_what_was_used(ask: Ask, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    ledger.fork(first, label="other")
    ledger.record("other", "q", "r", usage=A_USAGE, steps=[a_call("Read")])

    shown = ask("ldg:context:get", target="main", query="And now?", form="openai")
    compared = ask("ldg:thread:compare", a="main", b="other")["comparison"]
    used = ask("ldg:usage:get", by="session")["usage"]
    tools = ask("ldg:tool:list")["tools"]

    assert [m["content"] for m in shown["context"]["messages"]][-1] == "And now?"
    assert shown["turn_id"] == second
    assert compared["ancestor"]["turn"]["id"] == first
    assert used["total"]["total_tokens"] == A_USAGE.total
    assert [(tool["tool_name"], tool["calls"]) for tool in tools] == [("Read", 1)]


def test_turns_are_found_by_words_files_and_targets(ask: Ask, ledger: Ledger) -> None:
    chain(ledger, "main", 3)
    steps = [ToolCall.of("Read", {"file_path": "/src/parser.py"}, {"text": "x"})]
    turn = ledger.record("main", "Where is the parser?", "In parser.py.", steps=steps)

    assert [hit["turn_id"] for hit in ask("ldg:turn:search", text="parser")["hits"]] == [turn.id]
    page = ask("ldg:turn:search", text="question", limit=2)
    rest = ask("ldg:turn:search", text="question", limit=2, after=page["next"])
    assert len(page["hits"]) + len(rest["hits"]) == 3
    [touch] = ask("ldg:file:list", path="parser.py")["touches"]
    assert (touch["turn_id"], touch["action"]) == (turn.id, "read")
    assert ask("ldg:session:route", target="main")["route"]["turn_id"] == turn.id
    assert ask("ldg:session:route")["route"]["kind"] == "persona"


def test_a_smart_fork_goes_where_the_context_fits_or_only_proposes(
    ask: Ask, ledger: Ledger
) -> None:
    chain(ledger, "main", 2)
    fits = ledger.record("bread", "How does sourdough rise?", "With wild yeast and patience.")

    made = ask("ldg:session:smart_fork", text="sourdough yeast", label="baking")
    nothing = ask("ldg:session:smart_fork", text="helicopter")

    assert made["session"]["thread_id"] == fits.id
    assert made["proposals"][0]["turn_id"] == fits.id
    assert ledger.session("baking").thread_id == fits.id
    assert nothing["session"] is None


def test_a_summary_needs_an_engine_that_can_and_a_fallback_needs_none(
    ask: Ask, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        ledger.record("main", f"question {n} " + "q" * 300, "answer")
    with pytest.raises(BusError, match="no model is configured"):
        ask("ldg:compaction:run", session="main", strategy="summary")
    policy = tmp_path / "said.toml"
    policy.write_text('[engine]\nname = "pydantic-ai"\nmodel = "nobody:model"\n')
    monkeypatch.setenv("AGENTS_LEDGER_POLICY", str(policy))
    with pytest.raises(BusError, match="nothing was changed"):
        ask("ldg:compaction:run", session="main", strategy="summary", budget=300)
    assert ledger.get_turn("main").turn_type == "normal"

    turn = ask(
        "ldg:compaction:run",
        session="main",
        strategy="summary",
        budget=300,
        fallback="sliding_window",
    )["turn"]

    assert turn["compaction"]["compaction_type"] == "sliding_window"


def test_a_model_s_words_become_the_summary(
    ask: Ask, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        ledger.record("main", f"question {n} " + "q" * 300, "answer")
    policy = tmp_path / "said.toml"
    policy.write_text('[engine]\nname = "pydantic-ai"\nmodel = "openai:gpt-test"\n')
    monkeypatch.setenv("AGENTS_LEDGER_POLICY", str(policy))
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    async def within() -> tuple[Any, list[dict[str, Any]]]:
        async with loopback(responses_text("They spoke ", "of bread.")) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1")
            given = {"session": "main", "strategy": "summary", "budget": 300}
            turn = await asyncio.to_thread(
                ask, "ldg:compaction:run", **given, instructions="Keep names."
            )
            return turn["turn"], server.asked

    turn, asked = asyncio.run(within())

    assert turn["compaction"]["summary"] == "They spoke of bread."
    assert "Keep names." in str(asked[0]["input"])


def test_every_schema_is_a_schema() -> None:
    for ability in ABILITIES:
        for schema in (ability.input_schema, ability.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        assert ability.input_schema["additionalProperties"] is False
        assert ability.description.endswith(".")


@pytest.mark.finding("spec-E")
def test_sessions_are_merged_promoted_and_renamed(ask: Ask, ledger: Ledger) -> None:
    chain(ledger, "long", 3)
    chain(ledger, "short", 1)

    merged = ask("ldg:session:merge", first="short", second="long")["session"]
    assert merged["label"] == "long"
    assert ledger.session("short").label == "long"

    assert ask("ldg:session:unmerge", label="short")["session"]["label"] == "short"
    assert ledger.session("short").label == "short"
    assert ask("ldg:session:rename", key="short", label="brief")["session"]["label"] == "brief"
    assert ledger.session("short").label == "brief"
    ledger.alias("nick", "brief")
    assert ask("ldg:session:remove_alias", alias="nick")["alias"]["session_label"] == "brief"
    with pytest.raises(NotFound):
        ledger.session("nick")

    ledger.record("telegram:42", "q", "r")
    promoted = ask("ldg:session:promote", channel="telegram:42", entity="person:ada")["session"]
    assert ledger.session("telegram:42").label == ledger.session("person:ada").label
    assert promoted["label"] == ledger.session("person:ada").label


@pytest.mark.finding("spec-E")
def test_events_configuration_and_permissions_are_read(ask: Ask, ledger: Ledger) -> None:
    config = Config(directives={"model": "a", "max_tokens": 9}, constraints={"max_tokens": 5})
    first = ledger.record("main", "How many?", "Two.", config=config)
    ledger.record(
        "main", "And now?", "Three.", steps=[a_call()], config=Config(), tools_available=[]
    )

    events = ask("ldg:event:list", target="main", last=1)["events"]
    assert [(e["direction"], e["content"]) for e in events] == [
        ("inbound", "And now?"),
        ("outbound", "Three."),
    ]
    settings = ask("ldg:config:get", target=first.id)["config"]
    assert settings["max_tokens"] == {
        "value": 5, "by": "permission", "turn_id": None,
        "instead_of": {"value": 9, "by": "directive", "turn_id": None},
    }  # fmt: skip
    inherited = ask("ldg:config:get", target="main")["config"]["model"]
    assert (inherited["by"], inherited["turn_id"]) == ("inherited", first.id)
    [misuse] = ask("ldg:permission:review", persona_id="main")["misuses"]
    assert misuse["what"] == "not available"


@pytest.mark.finding("spec-F")
def test_a_session_is_imported_in_chunks(ask: Ask) -> None:
    parts = halves(item())
    first, last = (
        ask("ldg:session:import", request=chunk(part, index, 2))["response"]
        for index, part in enumerate(parts)
    )

    assert (first["status"], first["received"]) == ("staged", 1)
    assert (last["status"], last["import"]["imported"]) == ("completed", 1)
    assert len(ask("ldg:session:list")["sessions"]) == 1


@pytest.mark.finding("spec-docs-request")
def test_the_input_of_the_import_has_the_schema_of_requests(ledger: Ledger) -> None:
    ability = next(a for a in ABILITIES if a.id == "ldg:session:import")
    request = {"source": "aix", "idempotencyKey": "k1", "items": [item()]}

    jsonschema.validate({"request": request}, ability.input_schema)
    jsonschema.validate({"request": chunk("x", 0, 1)}, ability.input_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"request": {**request, "items": [{}]}}, ability.input_schema)
