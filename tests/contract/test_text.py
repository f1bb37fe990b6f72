"""Text of every kind survives: what a database cannot hold comes back all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agents_ledger import (
    Alias,
    Compaction,
    Config,
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    Session,
    ToolCall,
)
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance.copying import copy
from agents_ledger.store.database import Database
from tests.builders import chain
from tests.raw import Raw
from tests.statements import Meddled, fail_each_statement

ODD = "a\x00b\ud800c\x1ad\x1a0000e\U0001f600f\udfff\ud83d\ude00ß\u2028\r\n'\"\\%s ?:x $1\x7f\x1a"
# JSON has no way to tell a pair written as two from the character it makes.
ODD_JSON = json.dumps(ODD, ensure_ascii=False)
JSON_ODD = ODD.replace("\ud83d\ude00", "")
KINDS = {
    "NUL": "a\x00b",
    "only NUL": "\x00",
    "lone surrogates": "\ud800 \udfff \udc80",
    "a pair written as two": "\ud83d\ude00",
    "the escape itself": "\x1a",
    "what looks escaped": "\x1a0000 \x1ad800 \x1a001a",
    "four bytes": "\U0001f600\U0010ffff\U00020000",
    "everything": ODD,
    "empty": "",
    "noncharacters": "\ufffe\uffff\ufeff",
    "combining": "e\u0301 \u200d \u202e",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_text_comes_back_as_it_was(ledger: Ledger, kind: str) -> None:
    text = KINDS[kind]
    turn = ledger.record("main", text, text, steps=[ToolCall.of("Read", {}, "done")])
    with ledger.turn("main", text) as live:
        live.stream(text)
        live.stream(text)
        streamed = ledger.partial_text(live.id)
        live.respond()

    stored = ledger.get_turn(turn.id)
    assert [message.content for message in stored.messages] == [text, text]
    assert streamed == text + text
    response = ledger.get_turn(live.id).response
    assert (response.content if response else "") == text + text


def test_odd_text_survives_in_every_field_of_a_turn(ledger: Ledger, raw: Raw) -> None:
    first, second = chain(ledger, "main", 2)
    message = Message(
        "assistant",
        ODD,
        thinking=ODD,
        context_json=ODD_JSON,
        metadata_json=ODD_JSON,
        tool_call_id=ODD,
        files=(MessageFile("read", ODD, 1, 2),),
        lints=(MessageLint(ODD, ODD, ODD),),
        codeblocks=(MessageCodeblock(ODD, ODD, ODD),),
    )
    call = ToolCall(
        ODD, ODD_JSON, ODD_JSON, ODD, id=ODD, source_status=ODD, spawned_session_label=ODD
    )
    compaction = Compaction(
        ODD, first, second, compaction_type=ODD, model=ODD, provider=ODD, trigger=ODD,
        metadata_json=ODD,
    )  # fmt: skip
    said: dict[str, Any] = {
        "model": ODD,
        "provider": ODD,
        "toolset_name": ODD,
        "tools_available": f"[{ODD_JSON}]",
        "permissions_granted": json.dumps({"tools": [ODD]}, ensure_ascii=False),
        "permissions_used": ODD_JSON,
        "source_event_id": ODD,
        "workspace_path": ODD,
        "system_prompt": ODD,
        "thread_key": ODD,
        "status": "failed",
        "error": ODD,
        "compaction": compaction,
        "config": Config({JSON_ODD: JSON_ODD}),
    }

    recorded = ledger.record("main", ODD, message, steps=[call], **said)

    stored = ledger.get_turn(recorded.id)
    assert stored == recorded
    assert {name: getattr(stored, name) for name in said if hasattr(stored, name)} == {
        name: value if name != "compaction" else msgspec.structs.replace(value, turn_id=stored.id)
        for name, value in said.items()
        if hasattr(stored, name)
    }
    assert stored.response == msgspec.structs.replace(
        message,
        id=stored.messages[-1].id,
        turn_id=stored.id,
        sequence=2,
        created_at=stored.messages[-1].created_at,
    )
    assert stored.tool_calls[0].id == ODD
    assert ledger.system_prompt(recorded.id) == ODD
    assert ledger.effective_config(recorded.id)[JSON_ODD].value == JSON_ODD
    assert ledger.thread(recorded.id).thread_key == ODD
    assert ledger.session(ODD).spawn_tool_call_id == ODD


def test_odd_text_survives_in_labels_and_every_field_of_a_session(ledger: Ledger) -> None:
    said = Session(
        ODD, persona_id=ODD, agent_id=ODD, task_description=ODD, routing_key=ODD, origin=ODD,
        origin_session_id=ODD, title=ODD, note=ODD,
    )  # fmt: skip
    ledger.create_session(said)
    turn = ledger.record(ODD, "q", "r")
    alias = ledger.alias(ODD + "!", ODD)

    session = ledger.session(ODD + "!")
    kept = {"created_at": session.created_at, "updated_at": session.updated_at}
    assert session == msgspec.structs.replace(said, thread_id=turn.id, **kept)
    assert ledger.sessions(persona_id=ODD, origin=ODD) == (session,)
    assert ledger.aliases(ODD) == (alias,)
    assert alias == Alias(ODD + "!", ODD, alias.created_at, "manual")
    assert ledger.history(ODD)[0].session_label == ODD
    assert ledger.sessions_including(turn.id) == (ODD,)
    assert ledger.thread(ODD).persona_id == ODD
    assert ledger.fork(ODD, label=ODD + "?").label == ODD + "?"
    assert ledger.merge(ODD, ODD + "?").label in (ODD, ODD + "?")


def test_odd_text_survives_in_a_live_turn(ledger: Ledger) -> None:
    with ledger.turn("main", ODD, model=ODD) as turn:
        turn.message(ODD)
        call = turn.tool_call(ODD, {"text": ODD}, id=ODD)
        call.fail(ODD, {"text": ODD})
        turn.tool_call("Task", id="t").spawn(ODD)
        turn.respond(ODD, provider=ODD, permissions_used=[ODD])
    with pytest.raises(ValueError, match="a"), ledger.turn("main", "q", id="failed"):
        raise ValueError(ODD)

    stored = ledger.get_turn(turn.id)
    assert [message.content for message in stored.messages] == [ODD, ODD, ODD]
    assert (stored.tool_calls[0].id, stored.tool_calls[0].error) == (ODD, ODD)
    assert stored.provider == ODD
    assert ledger.get_turn("failed").error == f"ValueError: {ODD}"
    assert ledger.session(ODD).parent_turn_id == turn.id


def test_odd_values_of_json_fields_are_json_again(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", permissions_granted={"k\x00": JSON_ODD})

    assert json.loads(turn.permissions_granted or "") == {"k\x00": JSON_ODD}
    assert ledger.get_turn(turn.id) == turn


def test_the_same_odd_text_again_is_the_same_turn(ledger: Ledger) -> None:
    first = ledger.record(ODD, ODD, ODD, id="chosen")

    assert ledger.record(ODD, ODD, ODD, id="chosen") == first


def test_stored_text_is_escaped_alike_on_both_engines(ledger: Ledger, raw: Raw) -> None:
    ledger.record("main", "a\x00\ud800\x1ab")

    assert raw.one("SELECT content FROM messages") == "a\x1a0000\x1ad800\x1a001ab"


def test_a_reader_learns_of_the_first_escape_that_another_writes(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    ledger.record("main", "plain")
    assert [turn.messages[0].content for turn in ledger.thread("main").turns] == ["plain"]

    open_ledger().record("main", ODD)

    found = [turn.messages[0].content for turn in ledger.thread("main").turns]
    assert found == ["plain", ODD]
    assert [message.content for message in ledger.get_turn("main").messages] == [ODD]


def test_many_rows_written_at_once_tell_of_their_escapes(ledger: Ledger) -> None:
    ledger.record("main", "plain", steps=[ToolCall(name, "{}", ODD_JSON) for name in "ab"])

    (turn,) = ledger.thread("main").turns
    assert [call.result_json for call in turn.tool_calls] == [ODD_JSON, ODD_JSON]


def test_a_copy_tells_of_the_escapes_it_took_over(
    ledger: Ledger, address: str, new_address: Callable[[], str]
) -> None:
    ledger.record("main", "q", provider=ODD)  # which the word index does not hold
    there = new_address()
    copy(address, there)

    with Ledger.open(there) as copied:
        assert [turn.provider for turn in copied.thread("main").turns] == [ODD]


def test_an_escape_that_was_rolled_back_changes_nothing(db: Database, raw: Raw) -> None:
    def marked() -> object:
        return raw.engine == "sqlite" and raw.one("PRAGMA user_version")

    statements, database = Meddled.over(db)
    with Ledger(Core(database)) as ledger:
        ledger.record("main", "plain")
        before, plain = ledger.thread("main"), marked()

        def unchanged(failed: str) -> None:
            assert (ledger.thread("main"), marked()) == (before, plain), failed

        ran = fail_each_statement(statements, lambda: ledger.record("main", ODD), unchanged)

        assert "insert_message" in ran[:-1]
        assert ledger.thread("main").turns[-1].messages[0].content == ODD
        assert raw.engine != "sqlite" or marked() != plain


def test_json_is_kept_with_its_bytes_as_they_came(ledger: Ledger) -> None:
    text = '{ "b":1,  "a": 1.0, "b": "\\u00e9" }'

    turn = ledger.record("main", Message("user", "q", metadata_json=text), permissions_used=text)

    stored = ledger.get_turn(turn.id)
    assert stored.messages[0].metadata_json == text
    assert stored.permissions_used == text


def test_a_message_of_50_megabytes_survives(ledger: Ledger) -> None:
    text = "0123456789abcde\u00e9\U0001f600\n" * 3_000_000
    assert len(text.encode()) > 50_000_000

    turn = ledger.record("main", "q", text)

    response = ledger.get_turn(turn.id).response
    assert response is not None
    assert response.content == text
