"""sessions.import: sources, ids and sequences, and what its types and its JSON Schema allow."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import msgspec
import pytest

from agents_ledger import (
    AsyncLedger,
    ImportChunk,
    ImportItem,
    ImportMessage,
    ImportRequest,
    ImportResponse,
    ImportToolCall,
    ImportTurn,
    Ledger,
    RequestRefused,
    import_schema,
)
from agents_ledger.exporters.exporting import Export
from tests.importers.test_request_chunks import chunk, packed
from tests.importers.test_requests import BAD, call, import_sessions, item, label, message, request

ITEM = ImportItem(
    source_provider="my-agent",
    source_session_id="s1",
    source_session_fingerprint="1",
    turns=[ImportTurn("t1")],
    messages=[
        ImportMessage("m1", "user", "t1", "Count."),
        ImportMessage("m2", "assistant", content="1"),
    ],
    tool_calls=[ImportToolCall("call_1", source_message_id="m2", tool_name="count")],
)


# -- sources ----------------------------------------------------------------------------------


@pytest.mark.finding("spec-F")
@pytest.mark.parametrize("source", ["my-agent", "Acme_2", "cursor", "claude-code", "x" * 64])
def test_any_source_is_accepted(ledger: Ledger, source: str) -> None:
    answer = import_sessions(ledger, request(item(), source=source))

    assert answer["imported"] == 1
    assert ledger.query("SELECT source, source_provider FROM session_imports")[1] == [
        (source, "cursor")
    ]
    assert [session.origin for session in ledger.sessions()] == ["cursor"]


@pytest.mark.finding("spec-F")
def test_the_same_session_of_two_sources_is_two_sessions(ledger: Ledger) -> None:
    first = import_sessions(ledger, request(item(), source="one"))
    second = import_sessions(ledger, request(item(), source="two", key="k2"))

    assert first["results"][0]["sessionLabel"] != second["results"][0]["sessionLabel"]
    assert len(ledger.sessions()) == 2
    assert ledger.audit() == ()


@pytest.mark.finding("spec-F")
@pytest.mark.parametrize("source", ["", "two words", "a/b", "aix.db", "aix\n", "-x", "x" * 65, 7])
def test_a_source_of_other_characters_is_refused_by_its_value(ledger: Ledger, source: Any) -> None:
    with pytest.raises(RequestRefused) as caught:
        ledger.import_sessions(request(item(), source=source))

    assert caught.value.code == "source_unsupported"
    assert f"$.source is {json.dumps(source)}" in caught.value.hint


# -- ids and sequences ------------------------------------------------------------------------


@pytest.mark.finding("spec-G")
def test_tool_calls_keep_their_ids_wherever_they_are_read(ledger: Ledger) -> None:
    import_sessions(ledger, request(item(toolCalls=[call("toolu_01", "t2", sequence=3)])))

    turn = ledger.thread(label()).turns[1]
    assert [step.id for step in turn.tool_calls] == ["toolu_01"]
    assert ledger.query("SELECT id FROM agent_tool_calls")[1] == [("toolu_01",)]
    assert "toolu_01" in json.dumps(ledger.context(label()).as_anthropic())
    exported = "".join(Export(ledger, label(), "json"))
    assert "toolu_01" in exported
    assert "imp_tool" not in exported


@pytest.mark.finding("spec-G")
def test_two_sessions_may_use_the_same_call_ids(ledger: Ledger) -> None:
    answer = import_sessions(ledger, request(item("a"), item("b")))

    assert answer["imported"] == 2
    assert ledger.query("SELECT id FROM tool_calls")[1] == [("c1",), ("c1",)]
    assert ledger.audit() == ()


@pytest.mark.finding("spec-G")
@pytest.mark.parametrize("name", ["a\x00b", "half \ud83d", "x" * 5000, " ", "../etc"])
def test_any_id_of_a_call_is_stored(ledger: Ledger, name: str) -> None:
    answer = import_sessions(ledger, request(item(toolCalls=[call(name, "t2")])))

    assert answer["imported"] == 1, answer
    assert ledger.audit() == ()


@pytest.mark.finding("spec-G")
def test_sequences_are_kept_and_give_way_only_to_equal_ones(ledger: Ledger) -> None:
    said = [
        message("m1", "t1", "user", "q", 10),
        message("m2", "t1", "assistant", "r", 20),
        message("m3", "t1", "assistant", "s", 40),
    ]
    calls = [
        call("c1", "t1", sourceMessageId="m2", sequence=20),
        call("c2", "t1", sourceMessageId="m2", sequence=30),
    ]
    turns = [{"sourceTurnId": "t1"}]

    import_sessions(ledger, request(item(turns=turns, messages=said, toolCalls=calls)))

    [turn] = ledger.thread(label()).turns
    sequences = [(step.sequence, step.id) for step in turn.steps]
    assert [number for number, _ in sequences] == [10, 20, 21, 30, 40]
    assert sequences[2:4] == [(21, "c1"), (30, "c2")]
    assert ledger.audit() == ()


# -- types ------------------------------------------------------------------------------------


@pytest.mark.finding("spec-docs-import")
def test_a_request_of_types_is_the_same_as_one_of_json(ledger: Ledger) -> None:
    typed = ImportRequest(source="my-agent", idempotency_key="k1", items=[ITEM])

    answer = ledger.import_sessions(typed)
    as_json = json.loads(msgspec.json.encode(typed))

    assert isinstance(answer, ImportResponse)
    assert (answer.imported, answer.results[0].status) == (1, "imported")
    assert ledger.import_sessions(as_json) == answer
    assert ledger.session(str(answer.results[0].session_label)).origin == "my-agent"


@pytest.mark.finding("spec-docs-import")
def test_the_verbs_of_asyncio_import_too(address: str) -> None:
    async def imported() -> tuple[int, str]:
        async with AsyncLedger.open(address) as ledger:
            one = ImportRequest(source="my-agent", idempotency_key="k1", items=[ITEM])
            answer = await ledger.import_sessions(one)
            staged = await ledger.import_chunk(ImportChunk(**CHUNK))
            return answer.imported, staged.status

    assert asyncio.run(imported()) == (1, "completed")


CHUNK: dict[str, Any] = {
    "source": "aix",
    "idempotency_key": "k2",
    "upload_id": "u1",
    "chunk_index": 0,
    "chunk_total": 1,
    "data": packed(item()),
    "source_provider": "cursor",
    "source_session_id": "s1",
    "source_session_fingerprint": "f1",
}


# -- the schema -------------------------------------------------------------------------------


def is_allowed(value: object) -> bool:
    return bool(jsonschema.Draft202012Validator(import_schema()).is_valid(value))


@pytest.mark.finding("spec-docs-request")
def test_the_schema_allows_what_is_imported_and_refuses_what_is_not(ledger: Ledger) -> None:
    jsonschema.Draft202012Validator.check_schema(import_schema())
    assert is_allowed(request(item(), runId="r", personaId=None))
    assert is_allowed(chunk("x", 0, 1))
    assert not is_allowed(request(item(), source="two words"))
    assert not is_allowed(request())
    assert not is_allowed(chunk("x", 0, 1, encoding="plain"))


@pytest.mark.finding("spec-docs-request")
@pytest.mark.parametrize(
    ("where", "value", "detail"),
    [
        (("turns", 1, "inputTokens"), -1, "turns[1].inputTokens is -1: expected `number` >= 0.0"),
        (("turns", 0, "model"), 7, "turns[0].model is 7: expected `string | null`, got `integer`"),
        (("messages", 2, "role"), "x", "messages[2].role is \"x\": invalid enum value 'x'"),
        (("messages", 0), 7, "messages[0] is 7: expected `object`, got `integer`"),
        (
            ("session", "isSubagent"),
            1,
            "session.isSubagent is 1: expected `boolean | null`, got `integer`",
        ),
        (
            ("toolCalls", 0, "sourceToolCallId"),
            "",
            'toolCalls[0].sourceToolCallId is "": expected `string` of length >= 1',
        ),
    ],
)
def test_errors_name_the_path_and_the_value(
    ledger: Ledger, where: tuple[Any, ...], value: object, detail: str
) -> None:
    bad: Any = item()
    part = bad
    for step in where[:-1]:
        part = part[step]
    part[where[-1]] = value

    [answer] = ledger.import_sessions(request(bad)).results

    assert (answer.status, answer.detail) == ("failed", f"$.items[0].{detail}")
    assert not is_allowed(request(bad))


@pytest.mark.finding("spec-docs-request")
def test_a_missing_field_is_named(ledger: Ledger) -> None:
    bad = item()
    del bad["turns"][0]["sourceTurnId"]

    assert ledger.import_sessions(request(bad)).results[0].detail == (
        "$.items[0].turns[0].sourceTurnId is missing"
    )


@pytest.mark.finding("spec-docs-request")
@pytest.mark.parametrize("name", BAD)
def test_every_failure_has_a_detail(ledger: Ledger, name: str) -> None:
    [answer] = ledger.import_sessions(request(BAD[name][0])).results

    assert str(answer.detail).startswith("$.items[0]")


def test_unknown_fields_are_reported(ledger: Ledger) -> None:
    misspelt = item(extra=1)
    misspelt["turns"][1]["parent"] = "t1"
    misspelt["session"]["titel"] = "Fruit"

    [answer] = ledger.import_sessions(request(misspelt)).results

    assert answer.status == "imported"
    assert answer.ignored == ["extra", "session.titel", "turns[].parent"]
