"""sessions.import: how turns follow each other, and what happens to links that lead nowhere."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from agents_ledger import Ledger
from agents_ledger.importers.sources.import_requests.merge import MergedSession
from agents_ledger.model.imports.requests import ImportItem, ImportTurn
from tests.importers.test_requests import import_sessions, item, label, message, request, turn_id
from tests.raw import Raw


def turns(*names: str, **parents: str) -> dict[str, Any]:
    """The fields of an item whose turns have one question and one answer each."""
    return {
        "turns": [
            {"sourceTurnId": name, "parentSourceTurnId": parents.get(name)} for name in names
        ],
        "messages": [
            message(f"{name}-{role}", name, role, f"{role} of {name}", at)
            for name in names
            for at, role in enumerate(("user", "assistant"))
        ],
        "toolCalls": [],
    }


def parents(ledger: Ledger) -> dict[str, str | None]:
    """The parent of each turn, both by the ids that the source gave them."""
    rows = ledger.query(
        "SELECT t.source_event_id, p.source_event_id FROM turns t"
        " LEFT JOIN turns p ON p.id = t.parent_turn_id"
    )[1]
    return dict(rows)


@pytest.mark.finding("spec-A")
def test_turns_without_a_parent_follow_each_other_in_the_order_given(ledger: Ledger) -> None:
    answer = import_sessions(ledger, request(item(**turns("a", "b", "c", "d"))))

    assert answer["results"][0]["status"] == "imported"
    assert [turn.id for turn in ledger.thread(label()).turns] == [turn_id(name) for name in "abcd"]
    assert ledger.audit() == ()


@pytest.mark.finding("spec-A")
def test_a_parent_may_come_after_the_turns_that_follow_it(ledger: Ledger) -> None:
    import_sessions(ledger, request(item(**turns("a", "c", "b", "d", c="b"))))

    assert parents(ledger) == {"a": None, "b": "a", "c": "b", "d": "b"}


@pytest.mark.finding("spec-A")
@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (turns("c", "d"), {"a": None, "b": "a", "c": "b", "d": "c"}),
        (turns("a", "b", "c"), {"a": None, "b": "a", "c": "b"}),
        (turns("b", "c"), {"a": None, "b": "a", "c": "b"}),
        (turns("z", "a", "b"), {"z": None, "a": "z", "b": "a"}),
        (turns("a", "x", "b"), {"a": None, "x": "a", "b": "x"}),
        (turns("a", "x"), {"a": None, "b": "a", "x": "a"}),  # b was rewound
        (turns("b", "a"), {"b": None, "a": "b"}),
        (turns("c", c="a"), {"a": None, "b": "a", "c": "a"}),
    ],
    ids=["new", "grown", "overlap", "before", "between", "rewound", "turned round", "explicit"],
)
def test_a_later_request_continues_where_the_last_one_ended(
    ledger: Ledger, second: dict[str, Any], expected: dict[str, str | None]
) -> None:
    import_sessions(ledger, request(item(**turns("a", "b"))))

    answer = import_sessions(ledger, request(item(fingerprint="f2", **second), key="k2"))

    assert answer["upserted"] == 1
    assert parents(ledger) == expected
    assert ledger.audit() == ()


@pytest.mark.finding("spec-A")
def test_messages_without_a_turn_follow_the_last_turn(ledger: Ledger) -> None:
    import_sessions(ledger, request(item(**turns("a"))))
    said = [message("m8", None, "user", "And?", 0), message("m9", None, "assistant", "Yes.", 1)]
    later = item(fingerprint="f2", turns=[], messages=said, toolCalls=[])

    import_sessions(ledger, request(later, key="k2"))

    assert [turn.id for turn in ledger.thread(label()).turns] == [turn_id("a"), turn_id("__root__")]


@pytest.mark.finding("spec-A")
@pytest.mark.parametrize(
    ("links", "reason", "detail"),
    [
        (
            turns("a", "b", b="zz"),
            "turn_parent_unknown",
            '$.items[1].turns[1].parentSourceTurnId is "zz", which is not a turn of this session',
        ),
        (
            turns("a", "b", b="b"),
            "turn_parent_cycle",
            '$.items[1].turns[1].parentSourceTurnId is "b", which is or follows this turn',
        ),
        (
            turns("a", "b", "c", b="c", c="b"),
            "turn_parent_cycle",
            '$.items[1].turns[1].parentSourceTurnId is "c", which is or follows this turn',
        ),
    ],
    ids=["unknown", "itself", "cycle"],
)
def test_a_link_that_leads_nowhere_fails_its_session_alone(
    ledger: Ledger, raw: Raw, links: dict[str, Any], reason: str, detail: str
) -> None:
    bad = item("bad", **links)

    answer = import_sessions(ledger, request(item("good"), bad))

    assert answer["results"][1] == {
        "sourceProvider": "cursor",
        "sourceSessionId": "bad",
        "status": "failed",
        "reason": reason,
        "detail": detail,
    }
    assert (answer["imported"], answer["failed"]) == (1, 1)
    assert [session.label for session in ledger.sessions()] == [label("good")]
    assert raw.execute("SELECT path FROM source_files") == [("request:aix/cursor/good",)]


@pytest.mark.finding("spec-A")
def test_a_tail_is_accepted_once_its_parent_is_known(ledger: Ledger) -> None:
    tail = item(fingerprint="f2", **turns("b", b="a"))
    assert import_sessions(ledger, request(tail, key="k1", mode="tail"))["failed"] == 1

    import_sessions(ledger, request(item(**turns("a")), key="k2"))
    again = import_sessions(ledger, request(tail, key="k3", mode="tail"))

    assert again["upserted"] == 1
    assert parents(ledger) == {"a": None, "b": "a"}


@pytest.mark.finding("spec-A")
def test_every_turn_is_below_the_first_whatever_the_links() -> None:
    """Links without a cycle do not form one with the links that follow from the order."""
    for seed in range(500):
        check_links(random.Random(seed))


def check_links(chance: random.Random) -> None:
    merged = MergedSession()
    names = [f"t{number}" for number in range(chance.randint(1, 9))]
    chance.shuffle(names)
    rank = {name: number for number, name in enumerate(chance.sample(names, len(names)))}
    for _ in range(chance.randint(1, 3)):
        sent = chance.sample(names, chance.randint(1, len(names)))
        links = {}
        for name in sent:
            above = [other for other in {*sent, *merged.turns} if rank[other] < rank[name]]
            if above and name not in merged.turns and chance.random() < 0.4:
                links[name] = chance.choice(sorted(above))
        new = [ImportTurn(name, links.get(name)) for name in sent]
        merged.add(msgspec.structs.replace(EMPTY, turns=new))

        assert {name: merged.parents[name] for name in links} == links
        assert len({_root(merged.parents, name) for name in merged.turns}) == 1


EMPTY = ImportItem(source_provider="p", source_session_id="s", source_session_fingerprint="f")


def _root(links: dict[str, str | None], name: str) -> str:
    for _ in range(len(links) + 1):
        parent = links[name]
        if parent is None:
            return name
        name = parent
    raise AssertionError(f"a cycle: {links}")
