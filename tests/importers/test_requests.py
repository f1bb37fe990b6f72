"""Sessions that another program hands over: the answers it gets, and the rows they end in."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from agents_ledger import Ledger, RequestRefused
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.import_requests.records import ImportKey, in_camel
from agents_ledger.importers.sources.import_requests.rules import STATUSES
from agents_ledger.ledger.projection import import_requests
from tests.importers.helping import result
from tests.raw import Raw


def import_sessions(ledger: Ledger, request: Any) -> dict[str, Any]:
    """The answer to a request, as a program in another language gets it."""
    answer: dict[str, Any] = msgspec.to_builtins(ledger.import_sessions(request))
    return answer


def item(name: str = "s1", fingerprint: str = "f1", **parts: Any) -> dict[str, Any]:
    said = {
        "sourceProvider": "cursor",
        "sourceSessionId": name,
        "sourceSessionFingerprint": fingerprint,
        "importedAtMs": 5_000,
        "session": {"createdAtMs": 1_000, "updatedAtMs": 4_000, "workspacePath": "/home/dev/shop"},
        "turns": [
            {
                "sourceTurnId": "t1",
                "startedAtMs": 1_000,
                "completedAtMs": 2_000,
                "model": "model-a",
                "inputTokens": 10,
                "outputTokens": 5,
                "queryMessageSourceIds": ["m1"],
                "responseMessageSourceId": "m2",
                "metadata": {"effort": "low"},
            },
            {
                "sourceTurnId": "t2",
                "parentSourceTurnId": "t1",
                "startedAtMs": 3_000,
                "completedAtMs": 4_000,
                "inputTokens": 20,
                "outputTokens": 7,
                "totalTokens": 30,
            },
        ],
        "messages": [
            message("m1", "t1", "user", "Count the apples.", 0),
            message("m2", "t1", "assistant", "Seven.", 1),
            message("m3", "t2", "user", "And the pears?", 2),
            message("m4", "t2", "assistant", "Four.", 4),
        ],
        "toolCalls": [call("c1", "t2", sequence=3)],
    }
    return {**said, **parts}


def message(name: str, turn: str | None, role: str, text: str, at: int) -> dict[str, Any]:
    return {
        "sourceMessageId": name,
        "sourceTurnId": turn,
        "role": role,
        "content": text,
        "sequence": at,
        "createdAtMs": 1_000 + at,
    }


def call(name: str, turn: str | None, **more: Any) -> dict[str, Any]:
    return {
        "sourceToolCallId": name,
        "sourceTurnId": turn,
        "toolName": "count",
        "paramsJson": '{"what":"pears"}',
        "resultJson": {"number": 4},
        "status": "completed",
        "startedAtMs": 3_100,
        "completedAtMs": 3_200,
        "sequence": 3,
        **more,
    }


def request(*items: Any, key: str = "k1", **more: Any) -> dict[str, Any]:
    return {
        "source": "aix",
        "mode": "backfill",
        "idempotencyKey": key,
        "items": list(items),
        **more,
    }


def turn_id(name: str, session: str = "s1") -> str:
    return ImportKey("aix", "cursor", session).id_of("turn", name)


def label(session: str = "s1") -> str:
    return ImportKey("aix", "cursor", session).label()


def test_full_graph(ledger: Ledger) -> None:
    answer = import_sessions(ledger, request(item(), runId="run-7"))
    assert answer == {
        "ok": True,
        "runId": "run-7",
        "imported": 1,
        "upserted": 0,
        "skipped": 0,
        "failed": 0,
        "results": [
            {
                "sourceProvider": "cursor",
                "sourceSessionId": "s1",
                "sessionLabel": label(),
                "status": "imported",
            }
        ],
    }
    session = ledger.session(label())
    assert (session.origin, session.origin_session_id) == ("cursor", "s1")
    assert session.routing_key == "/home/dev/shop"
    thread = ledger.thread(label())
    assert [turn.id for turn in thread.turns] == [turn_id("t1"), turn_id("t2")]
    assert (thread.depth, thread.input_tokens, thread.total_tokens) == (2, 30, 45)
    first, second = thread.turns
    assert (first.source_event_id, first.effective_config_json) == ("t1", '{"effort":"low"}')
    assert [m.content for m in first.query] == ["Count the apples."]
    assert first.response is not None
    assert first.response.content == "Seven."
    assert second.tool_call_count == 1
    assert second.tool_calls[0].result_json == '{"number":4}'
    assert [step.sequence for step in second.steps] == [2, 3, 4]
    assert ledger.audit() == ()


def test_the_ids_and_labels_are_those_of_the_contract(ledger: Ledger) -> None:
    key = ImportKey("aix", "cursor", "Some Session/ID")
    assert key.id_of("turn", "t1").startswith("imp_turn_")
    assert len(key.id_of("message", "m1")) == len("imp_message_") + 24
    assert key.label().startswith("import:cursor:some-session-id:")
    assert len(key.label().rsplit(":", 1)[1]) == 10
    import_sessions(ledger, request(item("Some Session/ID")))
    rows = ledger.query(
        "SELECT source, source_provider, source_session_id, session_label,"
        " source_session_fingerprint FROM session_imports"
    )[1]
    assert rows == [("aix", "cursor", "Some Session/ID", key.label(), "f1")]


def test_the_same_request_again_gets_the_same_answer(ledger: Ledger) -> None:
    first = import_sessions(ledger, request(item()))
    before = result(ledger)
    assert import_sessions(ledger, request(item())) == first
    later = request(item(importedAtMs=9_999), runId="another-run")
    assert import_sessions(ledger, later) == first  # when and in which run does not matter
    assert result(ledger) == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mode": "tail"}, "idempotency_key_mode_mismatch"),
        ({"personaId": "other"}, "idempotency_key_payload_mismatch"),
        ({"items": [item(fingerprint="f2")]}, "idempotency_key_payload_mismatch"),
    ],
)
def test_a_key_stands_for_one_request(ledger: Ledger, change: dict[str, Any], code: str) -> None:
    import_sessions(ledger, request(item()))
    with pytest.raises(RequestRefused) as caught:
        import_sessions(ledger, {**request(item()), **change})
    assert caught.value.code == str(caught.value) == code


def test_a_key_stands_for_one_source(ledger: Ledger, raw: Raw) -> None:
    import_sessions(ledger, request(item()))
    raw.execute("UPDATE session_import_requests SET source = 'other'")
    with pytest.raises(RequestRefused, match=r"^idempotency_key_source_mismatch\b"):
        import_sessions(ledger, request(item()))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"source": "else where"}, "source_unsupported"),
        ({"mode": "sideways"}, "mode_unsupported"),
        ({"idempotencyKey": " "}, "idempotency_key_required"),
        ({"items": []}, "items_required"),
        ({"items": None}, "items_required"),
    ],
)
def test_a_request_is_refused(ledger: Ledger, change: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestRefused, match=rf"^{code}\b"):
        import_sessions(ledger, {**request(item()), **change})
    assert ledger.sessions() == ()


def test_another_key_skips_what_is_unchanged_and_upserts_what_changed(ledger: Ledger) -> None:
    import_sessions(ledger, request(item()))
    before = result(ledger)
    again = import_sessions(ledger, request(item(), key="k2", personaId="other"))
    assert again["skipped"] == 1
    assert again["results"][0]["reason"] == "fingerprint_unchanged"
    assert again["results"][0]["sessionLabel"] == label()
    assert result(ledger) == before
    assert ledger.session(label()).persona_id == "main"
    grown = item(fingerprint="f2")
    grown["turns"].append(
        {"sourceTurnId": "t3", "parentSourceTurnId": "t2", "startedAtMs": 5, "completedAtMs": 6}
    )
    grown["messages"] += [
        message("m5", "t3", "user", "Thanks.", 5),
        message("m6", "t3", "assistant", "Gladly.", 6),
    ]
    answer = import_sessions(ledger, request(grown, key="k3", runId="run-3"))
    assert answer["upserted"] == 1
    assert ledger.session(label()).thread_id == turn_id("t3")
    runs = ledger.query("SELECT last_run_id, source_session_fingerprint FROM session_imports")[1]
    assert runs == [("run-3", "f2")]
    assert ledger.audit() == ()


def test_a_long_name_is_kept_without_being_taken_apart() -> None:
    name = "_" * 2_000_000
    tracemalloc.start()

    assert in_camel({name: 1, "source_turn_id": 2}, ["sourceTurnId"]) == {
        name: 1,
        "sourceTurnId": 2,
    }

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_snake_case_is_the_same_request(ledger: Ledger) -> None:
    def snake(value: Any) -> Any:
        if isinstance(value, list):
            return [snake(each) for each in value]
        if isinstance(value, dict):
            return {
                "".join(f"_{c.lower()}" if c.isupper() else c for c in name): snake(each)
                for name, each in value.items()
            }
        return value

    first = import_sessions(ledger, request(item()))
    assert import_sessions(ledger, snake(request(item()))) == first


BAD: dict[str, tuple[Any, str]] = {
    "no provider": (item(sourceProvider=""), "source_provider_required"),
    "no session": (item(sourceSessionId=None), "source_session_id_required"),
    "no fingerprint": (item(sourceSessionFingerprint=7), "source_session_fingerprint_required"),
    "no object": ("s1", "item_invalid"),
    "a role nobody knows": (
        item("bad", messages=[message("m1", "t1", "narrator", "Once upon a time", 0)]),
        "message_role_unsupported",
    ),
    "a turn nobody knows": (
        item("bad", messages=[message("m1", "t9", "user", "Hello", 0)]),
        "message_turn_unknown",
    ),
    "turns in a circle": (
        item(
            "bad",
            turns=[
                {"sourceTurnId": "t1", "parentSourceTurnId": "t2"},
                {"sourceTurnId": "t2", "parentSourceTurnId": "t1"},
            ],
        ),
        "turn_parent_cycle",
    ),
    "one id for two messages": (
        item(
            "bad",
            messages=[message("m1", "t1", "user", "One", 0), message("m1", "t1", "user", "Two", 1)],
        ),
        "message_id_duplicate",
    ),
    "a number for a list": (item("bad", turns=7), "payload_invalid"),
    "tokens below nothing": (
        item("bad", turns=[{"sourceTurnId": "t1", "inputTokens": -1}], messages=[], toolCalls=[]),
        "payload_invalid",
    ),
    "a time beyond all times": (
        item(
            "bad", turns=[{"sourceTurnId": "t1", "startedAtMs": 1 << 70}], messages=[], toolCalls=[]
        ),
        "payload_invalid",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_item_fails_alone(ledger: Ledger, name: str) -> None:
    bad, reason = BAD[name]
    answer = import_sessions(ledger, request(item("a"), bad, item("b")))
    assert [each["status"] for each in answer["results"]] == ["imported", "failed", "imported"]
    assert answer["results"][1]["reason"] == reason
    assert "sessionLabel" not in answer["results"][1]
    assert (answer["imported"], answer["failed"]) == (2, 1)
    assert {s.label for s in ledger.sessions()} == {label("a"), label("b")}
    assert ledger.audit() == ()


def test_an_item_of_very_many_levels_fails_alone(ledger: Ledger) -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"in": deep}
    bad = item("bad", session={"metadata": deep})
    answer = import_sessions(ledger, request(bad, item("a")))
    assert [each["status"] for each in answer["results"]] == ["failed", "imported"]


def test_an_interrupted_request_ends_with_the_same_answer(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("the power is gone")

    monkeypatch.setattr(import_requests.ImportRequests, "answer", broken)
    with pytest.raises(OSError, match="power"):
        import_sessions(ledger, request(item()))
    monkeypatch.undo()
    answer = import_sessions(ledger, request(item()))
    assert [each["status"] for each in answer["results"]] == ["imported"]
    assert ledger.query("SELECT count(*) FROM source_files")[1] == [(1,)]


def test_a_parent_may_come_after_its_child(ledger: Ledger) -> None:
    said = item()
    said["turns"].reverse()
    import_sessions(ledger, request(said))
    assert [turn.id for turn in ledger.thread(label()).turns] == [turn_id("t1"), turn_id("t2")]


def family() -> list[dict[str, Any]]:
    """A parent with a child and a grandchild; each names its parent in another way."""
    parent = item(
        "parent",
        toolCalls=[
            call("c1", "t2", sequence=3, sourceMessageId="m4"),
            call("c2", "t1", sequence=1, sourceMessageId="m2"),
        ],
    )
    by_call = item(
        "by-call",
        session={
            "isSubagent": True,
            "parentSourceSessionId": "parent",
            "spawnToolCallId": "c1",
        },
    )
    by_message = item(
        "by-message",
        toolCalls=[],
        session={
            "parentSourceSessionId": "by-call",
            "parentSourceMessageId": "m2",
        },
    )
    by_parent = item("by-parent", session={})
    by_parent["toolCalls"] = []
    parent["toolCalls"][1]["spawnedSourceSessionId"] = "by-parent"
    return [parent, by_call, by_message, by_parent]


def check_family(ledger: Ledger) -> None:
    spawned = {s.label: s for s in ledger.sessions()}
    child = spawned[label("by-call")]
    assert child.is_subagent
    assert child.parent_session_label == label("parent")
    assert child.parent_turn_id == turn_id("t2", "parent")
    assert child.spawn_tool_call_id == "c1"
    named = spawned[label("by-parent")]
    assert named.spawn_tool_call_id == "c2"
    assert named.parent_turn_id == turn_id("t1", "parent")
    grandchild = spawned[label("by-message")]
    assert grandchild.parent_session_label == label("by-call")
    assert grandchild.parent_turn_id == turn_id("t1", "by-call")
    assert grandchild.spawn_tool_call_id is None
    calls = ledger.query(
        "SELECT id, spawned_session_label FROM tool_calls"
        " WHERE spawned_session_label IS NOT NULL ORDER BY 2"
    )[1]
    assert [row[1] for row in calls] == [label("by-call"), label("by-parent")]
    assert ledger.audit() == ()


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1), (1, 2, 0, 3)])
def test_children_and_parents_find_each_other(ledger: Ledger, order: tuple[int, ...]) -> None:
    items = family()
    for number in order:
        import_sessions(ledger, request(items[number], key=f"k{number}"))
    check_family(ledger)
    grown = item("parent", "f2", toolCalls=items[0]["toolCalls"])
    grown["messages"][1]["content"] = "Eight."
    import_sessions(ledger, request(grown, key="later"))
    check_family(ledger)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_session_is_not_below_one_that_it_spawned(ledger: Ledger, order: tuple[int, ...]) -> None:
    spawning = call("c1", "t1", sequence=1, sourceMessageId="m2", spawnedSourceSessionId="a")
    above = item("b", toolCalls=[spawning], session={"parentSourceSessionId": "a"})
    below = item("a", toolCalls=[], session={})
    for number in order:
        import_sessions(ledger, request((above, below)[number], key=f"k{number}"))

    parents = {session.label: session.parent_session_label for session in ledger.sessions()}
    assert parents == {label("a"): label("b"), label("b"): None}


def test_children_and_parents_of_one_request_find_each_other(ledger: Ledger) -> None:
    import_sessions(ledger, request(*reversed(family())))
    check_family(ledger)


def test_a_child_named_later_by_a_call_leaves_the_turn_it_hung_on(ledger: Ledger) -> None:
    hung = {"parentSourceSessionId": "s1", "parentSourceMessageId": "m2"}
    import_sessions(ledger, request(item(), item("child", session=hung)))
    assert ledger.session(label("child")).parent_turn_id == turn_id("t1")
    named = {**hung, "spawnToolCallId": "c1"}
    import_sessions(ledger, request(item("child", "f2", session=named), key="k2"))
    child = ledger.session(label("child"))
    assert child.parent_turn_id == turn_id("t2")
    assert child.spawn_tool_call_id == "c1"
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("completed", "completed"),
        ("failed", "failed"),
        ("error", "failed"),
        ("cancelled", "cancelled"),
        ("rejected", "rejected"),
        (" Success ", "completed"),
        ("", "completed"),  # it has a result
        ("running", "cancelled"),  # its turn is over
    ],
)
def test_a_status_is_kept_in_the_words_of_its_source(
    ledger: Ledger, said: str, status: str
) -> None:
    import_sessions(ledger, request(item(toolCalls=[call("c1", "t2", status=said)])))
    assert ledger.query("SELECT status, source_status FROM tool_calls")[1] == [(status, said)]


@pytest.mark.parametrize(
    ("wrong", "code", "path"),
    [
        ({"toolCalls": [{"status": "ok"}]}, "tool_call_status_unsupported", "toolCalls[0].status"),
        ({"turns": [{"startedAtMs": 1_700_000_000}]}, "time_in_seconds", "turns[0].startedAtMs"),
        ({"messages": [{"createdAtMs": 1.7e9}]}, "time_in_seconds", "messages[0].createdAtMs"),
    ],
)
def test_a_value_that_would_be_misread_fails_its_session_alone(
    ledger: Ledger, wrong: dict[str, list[dict[str, Any]]], code: str, path: str
) -> None:
    bad = item("s2", toolCalls=[call("c1", "t2")])
    for name, [field] in wrong.items():
        bad[name][0] |= field

    answer = import_sessions(ledger, request(item(), bad))

    assert (answer["ok"], answer["imported"], answer["failed"]) == (False, 1, 1)
    result = answer["results"][1]
    assert (result["status"], result["reason"]) == ("failed", code)
    assert result["detail"].startswith(f"$.items[1].{path} is ")
    assert len(ledger.sessions()) == 1
    assert ledger.audit() == ()


def test_an_archived_status_is_still_read(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATUSES, "ok", "completed")
    sent = item(toolCalls=[call("c1", "t2", status="ok")])
    assert import_sessions(ledger, request(sent))["ok"]
    monkeypatch.delitem(STATUSES, "ok")

    again = import_sessions(ledger, request(item(fingerprint="f2", toolCalls=[]), key="k2"))

    assert (again["ok"], again["upserted"]) == (True, 1)
    assert ledger.query("SELECT source_status FROM tool_calls")[1] == [("ok",)]


def test_nothing_vanishes_with_a_later_item(ledger: Ledger) -> None:
    import_sessions(ledger, request(item()))
    less = item(fingerprint="f2")
    del less["messages"][2]
    less["messages"][0]["content"] = "Count the apples, please."
    import_sessions(ledger, request(less, key="k2"))
    rows = dict(ledger.query("SELECT content, metadata_json FROM messages")[1])
    assert "import_gone" in rows["And the pears?"]
    assert "import_gone" not in rows["Count the apples, please."]
    assert len(rows) == 4
    assert ledger.query("SELECT count(*) FROM source_files")[1] == [(2,)]  # both are kept
    assert ledger.audit() == ()


def test_messages_without_turns_are_one_turn(ledger: Ledger) -> None:
    said = [message("m1", None, "user", "Hello", 0), message("m2", None, "assistant", "Hi", 1)]
    loose = call("c1", None, sourceMessageId="m2", sequence=0)
    import_sessions(ledger, request(item(turns=[], messages=said, toolCalls=[loose])))
    (turn,) = ledger.thread(label()).turns
    assert turn.id == turn_id("__root__")
    assert turn.tool_calls[0].message_id == turn.messages[1].id


def test_an_unanswered_prompt_is_pending_and_no_head(ledger: Ledger) -> None:
    said = item()
    said["messages"] = said["messages"][:3]
    said["toolCalls"] = []
    import_sessions(ledger, request(said))
    assert ledger.session(label()).thread_id == turn_id("t1")
    assert ledger.get_turn(turn_id("t2")).status == "pending"
    assert ledger.audit() == ()


def test_metadata_is_kept_whatever_it_is(ledger: Ledger) -> None:
    said = item()
    said["messages"][0]["metadataJson"] = "[1,2]"
    said["messages"][1] |= {"metadataJson": {"lang": "en"}, "contextJson": {"files": ["a.py"]}}
    said["messages"][3]["content"] = "half a \ud83d pair, and a \x00"
    import_sessions(ledger, request(said))
    first, second = ledger.get_turn(turn_id("t1")).messages
    assert first.metadata_json is not None
    assert '"_raw":[1,2]' in first.metadata_json
    assert '"source_message_id":"m1"' in first.metadata_json
    assert second.metadata_json is not None
    assert '"lang":"en"' in second.metadata_json
    assert second.context_json == '{"files":["a.py"]}'
    assert rederive(ledger).written_turns == 0


def test_all_is_derived_again_from_what_was_kept(ledger: Ledger, raw: Raw) -> None:
    imports = "SELECT * FROM session_imports ORDER BY source_session_id"
    import_sessions(ledger, request(*family(), runId="run-1"))
    before, known = result(ledger), ledger.query(imports)
    report = rederive(ledger)
    assert report.written_turns == 0
    assert report.faults == []
    assert result(ledger) == before
    assert ledger.query(imports) == known


@pytest.mark.parametrize("order", list(itertools.permutations(range(3)))[::2])
def test_many_providers_and_any_order_end_in_the_same_rows(
    ledger: Ledger, order: tuple[int, ...]
) -> None:
    items = [item("x"), item("x", sourceProvider="codex"), item("y", sourceProvider="clawdbot")]
    for number in order:
        import_sessions(ledger, request(items[number], key=f"k{number}"))
    origins = {s.label: s.origin for s in ledger.sessions()}
    assert sorted(origins.values(), key=str) == ["clawdbot", "codex", "cursor"]
    assert len(ledger.query("SELECT id FROM turns")[1]) == 6
    assert ledger.audit() == ()


def test_the_same_request_from_many_at_once(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    handles = [open_ledger() for _ in range(4)]
    said = request(*family())
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda handle: import_sessions(handle, said), handles))
    assert all(answer == answers[0] for answer in answers)
    check_family(ledger)
    assert import_sessions(ledger, said) == answers[0]


def test_a_provider_and_a_session_are_told_apart_wherever_a_slash_stands(ledger: Ledger) -> None:
    items = [item("c", sourceProvider="a/b"), item("b/c", sourceProvider="a")]

    answer = import_sessions(ledger, request(*items))

    labels = {result["sessionLabel"] for result in answer["results"]}
    assert (answer["imported"], len(labels)) == (2, 2)
    assert {session.label for session in ledger.sessions()} == labels
