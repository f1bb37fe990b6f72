"""Permissions: what was used without grant is found from the ledger alone."""

from __future__ import annotations

from typing import Any

import pytest

from agents_ledger import Grant, Layer, Ledger, MisusedCall, Permissions, Refused, Session
from agents_ledger.model.agents import permissions
from tests.builders import a_call, a_message
from tests.raw import Raw

GRANTED = {"tools": ["Read", "mcp__*"]}


def test_calls_are_judged_by_what_their_turn_had_and_was_granted(ledger: Ledger) -> None:
    ledger.create_session(Session("work", persona_id="atlas"))
    turn = ledger.record(
        "work",
        "q",
        "r",
        steps=[
            a_call("Read", id="fine"),
            a_call("mcp__x__y", id="fine-too"),
            a_call("Bash", id="ungranted"),
            a_call("Gone", id="unknown", status="rejected", error="no"),
        ],
        tools_available=["Read", "Bash", "mcp__x__y"],
        permissions_granted=GRANTED,
        started_at=1000,
    )
    ledger.record("main", "q", "r", steps=[a_call("Read"), a_call("Bash")], started_at=2000)

    review = ledger.review_permissions()

    at = {call.id: call.started_at for call in ledger.get_turn(turn.id).tool_calls}
    assert review.misuses == (
        MisusedCall(turn.id, "ungranted", "Bash", "atlas", at["ungranted"], "not granted"),
        MisusedCall(turn.id, "unknown", "Gone", "atlas", at["unknown"], "not available"),
        MisusedCall(turn.id, "unknown", "Gone", "atlas", at["unknown"], "rejected"),
    )
    counts = [
        (u.persona_id, u.tool_name, u.calls, u.not_granted, u.not_available, u.rejected)
        for u in review.uses
    ]
    assert counts == [
        ("atlas", "Bash", 1, 1, 0, 0),
        ("atlas", "Gone", 1, 0, 1, 1),
        ("atlas", "Read", 1, 0, 0, 0),
        ("atlas", "mcp__x__y", 1, 0, 0, 0),
    ]
    assert review.unchecked == 2


def test_a_review_is_of_a_persona_and_a_time(ledger: Ledger) -> None:
    for at in (1000, 2000, 3000):
        ledger.record(
            "main", a_message(), "r", steps=[a_call("X")], permissions_granted={}, started_at=at
        )

    assert len(ledger.review_permissions(since=2000, until=3000).misuses) == 1
    assert len(ledger.review_permissions(persona_id="main").misuses) == 3
    assert ledger.review_permissions(persona_id="other").uses == ()


@pytest.mark.parametrize("granted", [{"tools": "Grep"}, "Grep", ["Grep"], '["Grep"]', {"tools": 5}])
def test_grants_in_another_shape_are_refused(ledger: Ledger, granted: Any) -> None:
    with pytest.raises(Refused, match="permissions_granted is") as refused:
        ledger.record("main", "q", "r", steps=[a_call("Read")], permissions_granted=granted)
    with pytest.raises(Refused, match="permissions_granted is"):
        ledger.turn("main", "q", permissions_granted=granted)

    assert '{"tools": ["Read", "mcp__*"]}' in refused.value.hint
    assert ledger.roots() == ()


@pytest.mark.parametrize("available", ["Read", {"Read": True}, '"Read"', [1]])
def test_available_tools_are_a_list_of_names(ledger: Ledger, available: Any) -> None:
    with pytest.raises(Refused, match="tools_available is") as refused:
        ledger.record("main", "q", "r", tools_available=available)

    assert refused.value.hint == 'It is a list of names, as in ["Read", "Bash"].'


@pytest.mark.unsound
def test_stored_grants_in_another_shape_count_as_unchecked(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record(
        "main", "q", "r", steps=[a_call("X"), a_call("Y")], permissions_granted={"tools": ["*"]}
    )
    assert ledger.review_permissions().unchecked == 0
    with raw.unguarded():
        raw.execute(
            "UPDATE turns SET permissions_granted = ? WHERE id = ?", ['["not", "ours"]', turn.id]
        )

    review = ledger.review_permissions()

    assert (review.misuses, review.unchecked) == ((), 2)


def test_a_period_that_is_no_time_is_refused(ledger: Ledger) -> None:
    for name in ("since", "until"):
        with pytest.raises(Refused, match=f"{name} is 'x'"):
            ledger.review_permissions(**{name: "x"})  # type: ignore[arg-type]


def test_a_tool_with_an_odd_name_is_judged(ledger: Ledger) -> None:
    ledger.record(
        "main", "q", "r", steps=[a_call("a\ud800")], permissions_granted={"tools": ["a\ud800"]}
    )

    assert ledger.review_permissions().misuses == ()
    assert ledger.review_permissions().unchecked == 0


def test_every_layer_must_let_a_tool_pass_and_deny_wins() -> None:
    may = Permissions(
        layers=(
            Layer("persona", allow=("Read", "mcp__*"), deny=("mcp__secret__*",)),
            Layer("manager", allow=("*",), deny=("Read",), credentials=("github",)),
        )
    )

    assert may.stopped_by("mcp__web__get") is None
    assert may.stopped_by("mcp__secret__get") == "persona"
    assert may.stopped_by("Bash") == "persona"
    assert may.stopped_by("Read") == "manager"
    assert may.stopped_by("mcp__web__get", ["github"]) is None
    assert may.stopped_by("mcp__web__get", ["aws"]) == "manager (credential aws)"


def test_what_is_stored_is_read_again() -> None:
    granted = Permissions(
        ("Read",), ("github",), "atlas", {"files": "read"}, (Grant("atlas", ("Bash",)),), ()
    )

    assert permissions.decode(permissions.encode(granted).decode()) == granted
