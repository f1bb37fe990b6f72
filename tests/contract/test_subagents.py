"""Subagents: a session and the call that spawned it name each other."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, Message, NameTaken, Refused, Session, ToolCall
from tests.builders import a_call, a_message, chain
from tests.raw import Raw


def agree(ledger: Ledger, child: str, parent: str, turn_id: str, call_id: str) -> None:
    """Both sides tell the same."""
    session = ledger.session(child)
    assert session.is_subagent
    assert session.parent_session_label == parent
    assert session.parent_turn_id == turn_id
    assert session.spawn_tool_call_id == call_id
    calls = {call.id: call for call in ledger.get_turn(turn_id).tool_calls}
    assert calls[call_id].spawned_session_label == child


def test_a_recorded_call_spawns_its_session(ledger: Ledger) -> None:
    call = a_call("Task", id="c", spawned_session_label="child")

    turn = ledger.record("main", "q", "r", steps=[call], persona_id="atlas")

    agree(ledger, "child", "main", turn.id, "c")
    child = ledger.session("child")
    assert (child.created_as, child.thread_id) == ("subagent", None)
    assert child.persona_id == "atlas"


def test_a_live_call_spawns_its_session_at_once(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        with turn.tool_call("Task", id="c") as call:
            child = call.spawn(Session("child", task_description="look", task_status="running"))
            agree(ledger, "child", "main", turn.id, "c")
            worked = ledger.record("child", "look", "found")
            call.complete("found")
        turn.respond("r")

    assert (child.task_description, child.task_status) == ("look", "running")
    agree(ledger, "child", "main", turn.id, "c")
    assert ledger.head("child") == worked.id
    assert [s.label for s in ledger.sessions(parent="main")] == ["child"]


def test_a_turn_that_fails_leaves_the_sessions_it_spawned(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        turn.tool_call("Task", id="c").spawn("child")
        turn.fail("no")

    agree(ledger, "child", "main", turn.id, "c")


def test_a_session_that_exists_can_be_spawned_once(ledger: Ledger) -> None:
    chain(ledger, "child", 1)
    turn = ledger.record("main", "q", "r", steps=[a_call(id="c", spawned_session_label="child")])
    agree(ledger, "child", "main", turn.id, "c")

    with pytest.raises(Refused, match="'child' was spawned by another call"):
        ledger.record("main", "q", "r", steps=[a_call(spawned_session_label="child")])

    agree(ledger, "child", "main", turn.id, "c")
    assert ledger.head("main") == turn.id


def test_a_call_spawns_one_session(ledger: Ledger) -> None:
    with ledger.turn("main", "q") as turn:
        call = turn.tool_call("Task", id="c")
        call.spawn("child")

        with pytest.raises(Refused, match="tool call c spawned another session already"):
            call.spawn("second")

        turn.respond("r")

    agree(ledger, "child", "main", turn.id, "c")
    assert [s.label for s in ledger.sessions()].count("second") == 0


def test_a_session_cannot_spawn_itself_nor_take_a_name(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 1)
    ledger.alias("nick", "main")
    before = raw.dump()

    with pytest.raises(Refused, match="'main' cannot spawn itself"):
        ledger.record("main", "q", "r", steps=[a_call(spawned_session_label="main")])
    with pytest.raises(NameTaken, match="'nick' is an alias already"):
        ledger.record("main", "q", "r", steps=[a_call(spawned_session_label="nick")])

    assert raw.dump() == before


def test_a_worker_inherits_its_managers_persona_unless_it_has_its_own(ledger: Ledger) -> None:
    with ledger.turn("main", "q", persona_id="atlas") as turn:
        inherited = turn.tool_call("Task").spawn("a")
        own = turn.tool_call("Task").spawn(Session("b", persona_id="hermes"))
        turn.respond("r")

    assert (inherited.persona_id, own.persona_id) == ("atlas", "hermes")


def test_subagents_of_subagents_are_linked_to_their_own_parent(ledger: Ledger) -> None:
    top = ledger.record("top", "q", "r", steps=[a_call(id="c", spawned_session_label="middle")])
    middle = ledger.record(
        "middle", "q", "r", steps=[a_call(id="c", spawned_session_label="bottom")]
    )

    agree(ledger, "middle", "top", top.id, "c")
    agree(ledger, "bottom", "middle", middle.id, "c")


def test_the_view_of_sessions_tells_the_message_a_subagent_came_from(ledger: Ledger) -> None:
    steps: list[Message | ToolCall] = [
        a_message("I delegate.", role="assistant"),
        a_call(id="c", spawned_session_label="child"),
    ]

    turn = ledger.record("main", "q", "r", steps=steps)

    _, rows = ledger.query(
        "SELECT parent_session_id, parent_message_id, tool_call_id, is_subagent"
        " FROM agent_sessions WHERE id = 'child'"
    )

    assert rows == [("main", turn.messages[1].id, "c", 1)]
