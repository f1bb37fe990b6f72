"""Turns that failed are found from their session, also if it was never answered."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.turns.unfinished import FAILED_MAX


def fail(ledger: Ledger, session: str, why: str, *, live: bool) -> str:
    if not live:
        return ledger.record(session, "Deploy it.", status="failed", error=why).id
    turn = ledger.turn(session, "Deploy it.")
    turn.fail(why)
    return turn.id


@pytest.mark.parametrize("live", [False, True])
def test_the_failed_turns_of_a_session_are_listed_latest_first(
    ledger: Ledger, *, live: bool
) -> None:
    first = fail(ledger, "bot", "no key", live=live)
    second = fail(ledger, "bot", "still no key", live=live)
    fail(ledger, "other", "no key", live=live)

    failed = ledger.failed_turns("bot")

    assert [(turn.id, turn.error) for turn in failed] == [
        (second, "still no key"),
        (first, "no key"),
    ]
    assert failed[0].query[0].content == "Deploy it."
    assert ledger.head("bot") is None

    ledger.record("bot", "Deploy it.", "Done.")
    assert ledger.failed_turns("bot") == ()
    third = fail(ledger, "bot", "too late", live=live)
    assert [turn.id for turn in ledger.failed_turns("bot")] == [third]
    assert ledger.audit() == ()


def test_only_the_last_of_many_are_listed(ledger: Ledger) -> None:
    ids = [fail(ledger, "bot", "no key", live=False) for _ in range(FAILED_MAX + 2)]

    assert [turn.id for turn in ledger.failed_turns("bot")] == ids[:1:-1]


def test_metadata_of_a_session_stays(ledger: Ledger) -> None:
    ledger.create_session("bot")
    ledger.update_session("bot", origin="elsewhere")
    fail(ledger, "bot", "no key", live=True)

    assert ledger.session("bot").origin == "elsewhere"
    assert len(ledger.failed_turns("bot")) == 1
    assert ledger.unfinished("bot") is None
