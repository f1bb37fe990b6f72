"""Permissions: what was used without grant is found from the ledger alone."""

from __future__ import annotations

from agents_ledger import Grant, Layer, Ledger, MisusedCall, Permissions, Session
from agents_ledger.model.agents import permissions
from tests.builders import a_call, a_message

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


def test_a_shape_that_is_not_ours_is_not_judged(ledger: Ledger) -> None:
    ledger.record(
        "main",
        "q",
        "r",
        steps=[a_call("X")],
        permissions_granted='["not", "ours"]',
        tools_available='"one"',
    )

    assert ledger.review_permissions().misuses == ()


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
