"""sessions.import: hints at the label that a session shall get."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, Session
from tests.importers.test_requests import import_sessions, item, label, request, turn_id


def test_a_label_hint_names_a_session_that_is_there(ledger: Ledger) -> None:
    ledger.create_session("shop")
    said = item(session={"labelHint": "shop"})
    answer = import_sessions(ledger, request(said))
    assert answer["results"][0]["sessionLabel"] == "shop"
    assert [s.label for s in ledger.sessions()] == ["shop"]
    assert ledger.session("shop").thread_id == turn_id("t2")
    assert ledger.session(label()).label == "shop"  # its own name is an alias
    assert ledger.session("shop").origin == "native"  # what was said of it stays
    later = import_sessions(ledger, request({**said, "sourceSessionFingerprint": "f2"}, key="k2"))
    assert later["results"][0]["sessionLabel"] == "shop"
    assert ledger.audit() == ()


def test_a_label_hint_overwrites_nothing(ledger: Ledger) -> None:
    with ledger.turn("shop", "Who has the keys?") as turn:
        turn.respond("The owner.")
    head = ledger.session("shop").thread_id
    import_sessions(ledger, request(item(session={"labelHint": "shop"})))
    assert ledger.session("shop").thread_id == head
    assert ledger.session("shop~source").thread_id == turn_id("t2")
    assert ledger.audit() == ()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_label_hint_never_names_a_session_that_another_was_imported_as(
    at_once: bool, ledger: Ledger
) -> None:
    ledger.record("shop", "q", "r")
    first = item(session={"labelHint": "shop"})
    second = item("two", session={"labelHint": "shop"})
    child = item("child", session={"parentSourceSessionId": first["sourceSessionId"]})
    if at_once:
        import_sessions(ledger, request(child, first, second))
    else:
        import_sessions(ledger, request(child, first, key="k1"))
        import_sessions(ledger, request(second, key="k2"))

    found = dict(
        ledger.query("SELECT source_session_id, session_label FROM session_imports")[1],
    )
    assert found[first["sourceSessionId"]] == "shop"
    assert found["two"] == label("two")


@pytest.mark.parametrize("hint", ["nobody", "theirs", "gone"])
def test_a_label_hint_that_fits_nothing_is_ignored(ledger: Ledger, hint: str) -> None:
    ledger.create_session(Session("theirs", persona_id="other"))
    ledger.create_session("gone")
    ledger.archive("gone")
    answer = import_sessions(ledger, request(item(session={"labelHint": hint})))
    assert answer["results"][0]["sessionLabel"] == label()
    assert ledger.session(label()).title == hint


def test_a_parent_that_took_a_hinted_label_is_found(ledger: Ledger) -> None:
    ledger.create_session("shop")
    child = item("child", session={"parentSourceSessionId": "s1", "spawnToolCallId": "c1"})
    import_sessions(ledger, request(child))
    import_sessions(ledger, request(item(session={"labelHint": "shop"}), key="k2"))
    found = ledger.session(label("child"))
    assert (found.parent_session_label, found.parent_turn_id) == ("shop", turn_id("t2"))
    assert ledger.audit() == ()
