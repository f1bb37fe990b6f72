"""A session marked as deleted is hidden from searches, pages and agents; nothing of it is gone."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, NotFound, Session, ToolCall
from agents_ledger.mcp.tools import SearchArguments, search_results, shown
from tests.builders import chain


def hits(ledger: Ledger, text: str) -> list[str]:
    return [hit.turn_id for hit in search_results(ledger, SearchArguments(text)).hits]


@pytest.fixture(params=["waiting", "indexed"])
def told(request: pytest.FixtureRequest, ledger: Ledger) -> Ledger:
    error = ToolCall.of(
        "Bash", {"command": "make juniper"}, None, error="juniper: not reached here"
    )
    fixed = ToolCall.of("Bash", {"command": "make juniper"}, {"out": "juniper was reached"})
    ledger.record("gone", "juniper first", "an answer", steps=[error])
    ledger.record("gone", "juniper second", "another answer", steps=[fixed])
    ledger.record("stays", "juniper elsewhere", "an answer")
    if request.param == "indexed":
        ledger._core.index(least=1)
    return ledger


def test_its_turns_are_not_found(told: Ledger) -> None:
    stays = told.thread("stays").turns[0].id
    told.archive("gone", "deleted")

    assert hits(told, "juniper") == [stays]
    assert hits(told, "session:gone juniper") == []
    assert [p.turn_id for p in told.recall("juniper second").passages] in ([], [stays])
    assert told.fix("juniper: not reached here").fixes == ()
    assert told.how("make juniper").examples == ()
    assert [turn.id for turn in told.thread("gone").turns]


def test_it_is_found_again_when_it_is_active_again(told: Ledger) -> None:
    before = hits(told, "juniper")
    told.archive("gone", "deleted")
    told.archive("gone", "active")

    assert hits(told, "juniper") == before
    assert len(before) == 3


def test_what_other_sessions_have_stays(told: Ledger) -> None:
    first, second = told.thread("gone").turns
    told.fork(first.id, label="fork")
    told.archive("gone", "deleted")

    assert first.id in hits(told, "juniper")
    assert second.id not in hits(told, "juniper")
    assert shown(told, first.id) == first.id
    with pytest.raises(NotFound, match="marked as deleted"):
        shown(told, second.id)


def test_what_it_left_behind_is_hidden_too(told: Ledger) -> None:
    first, second = told.thread("gone").turns
    told.roll_back("gone", first.id)
    failed = told.record("gone", "juniper failed", status="failed", error="no")
    told.archive("gone", "deleted")

    assert not {second.id, failed.id} & set(hits(told, "juniper"))
    assert failed.id not in [line.turn.id for line in told.pages.failed_turns()]


def test_its_subagents_are_hidden_with_it(ledger: Ledger) -> None:
    with ledger.turn("gone", "start") as turn:
        with turn.tool_call("Task", {}) as call:
            call.spawn(Session("helper", is_subagent=True))
            ledger.record("helper", "juniper below", "done")
        turn.respond("done")
    ledger.archive("gone", "deleted")

    assert hits(ledger, "juniper") == []
    with pytest.raises(NotFound, match="marked as deleted"):
        shown(ledger, "helper")


def test_agents_are_told_that_nothing_was_erased(told: Ledger) -> None:
    told.archive("gone", "deleted")

    with pytest.raises(NotFound) as refused:
        shown(told, "gone")
    assert "Nothing of it was erased" in str(refused.value.hint)
    assert shown(told, "stays") == "stays"


def test_what_it_has_cannot_be_forked_by_its_words(ledger: Ledger) -> None:
    chain(ledger, "gone", 3)
    ledger.record("gone", "juniper and hawthorn by the walnut", "yes")
    ledger.archive("gone", "deleted")

    assert ledger.smart_fork("juniper hawthorn walnut").proposals == ()
