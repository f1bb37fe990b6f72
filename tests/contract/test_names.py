"""Names: a session answers to its label and its aliases, and no name hides another."""

from __future__ import annotations

from typing import Any

import pytest

from agents_ledger import Alias, Ambiguous, Ledger, NameTaken, NotFound, Refused, Session, ToolCall
from tests.builders import chain
from tests.raw import Raw


def test_a_key_leads_to_its_label_then_to_its_alias_then_to_a_new_session(ledger: Ledger) -> None:
    by_label = ledger.record("main", "q", "r")
    ledger.alias("nick", "main")

    by_alias = ledger.record("nick", "q", "r")
    by_neither = ledger.record("unknown", "q", "r")

    assert by_alias.parent_turn_id == by_label.id
    assert ledger.head("main") == ledger.head("nick") == by_alias.id
    assert ledger.head("unknown") == by_neither.id
    assert [s.label for s in ledger.sessions(status=None)].count("nick") == 0


@pytest.mark.parametrize(
    "reason", ["identity_promotion", "identity_merge", "import_reconciliation", "manual"]
)
def test_an_alias_keeps_the_reason_it_was_made_for(ledger: Ledger, reason: Any) -> None:
    ledger.create_session("main")

    alias = ledger.alias("nick", "main", reason=reason)

    assert alias == Alias("nick", "main", alias.created_at, reason)
    assert ledger.aliases("main") == (alias,)


def test_an_alias_for_a_reason_nobody_knows_is_refused(ledger: Ledger) -> None:
    ledger.create_session("main")

    with pytest.raises(Refused, match=r"reason is one of .* not 'whim'"):
        ledger.alias("nick", "main", reason="whim")  # type: ignore[arg-type]
    with pytest.raises(Refused, match="not 'whim'"):
        ledger.merge("main", "main", reason="whim")  # type: ignore[arg-type]


def test_an_alias_of_an_alias_leads_straight_to_the_session(ledger: Ledger, raw: Raw) -> None:
    ledger.create_session("main")
    ledger.alias("a", "main")

    alias = ledger.alias("b", "a")

    assert alias.session_label == "main"
    assert raw.execute("SELECT DISTINCT session_label FROM session_aliases") == [("main",)]


def test_saying_an_alias_again_changes_nothing(ledger: Ledger, raw: Raw) -> None:
    ledger.create_session("main")
    first = ledger.alias("nick", "main", reason="identity_promotion")
    before = raw.dump()

    assert ledger.alias("nick", "main") == first
    assert raw.dump() == before


def test_no_name_hides_another(ledger: Ledger, raw: Raw) -> None:
    ledger.create_session("main")
    ledger.create_session("other")
    ledger.alias("nick", "main")
    before = raw.dump()

    for alias, key in (("main", "other"), ("nick", "other"), ("main", "main")):
        with pytest.raises(NameTaken):
            ledger.alias(alias, key)

    assert raw.dump() == before


def test_no_name_of_a_session_hides_a_turn(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r", id="event-1")
    call = ToolCall("Task", spawned_session_label=turn.id, status="completed")
    before = raw.dump()

    for naming in (
        lambda: ledger.record(turn.id, "q", "r"),
        lambda: ledger.turn(turn.id, "q"),
        lambda: ledger.create_session(turn.id),
        lambda: ledger.fork("main", label=turn.id),
        lambda: ledger.alias(turn.id, "main"),
        lambda: ledger.promote("main", turn.id),
        lambda: ledger.record("main", "q", "r", steps=[call]),
    ):
        with pytest.raises(NameTaken, match="'event-1' is the id of a turn"):
            naming()

    assert raw.dump() == before


def test_no_turn_takes_an_id_that_names_a_session(ledger: Ledger, raw: Raw) -> None:
    ledger.record("main", "q", "r")
    ledger.alias("nick", "main")
    before = raw.dump()

    for session, turn_id in (("main", "main"), ("main", "nick"), ("new", "new")):
        with pytest.raises(NameTaken, match=f"'{turn_id}' is the name of a session"):
            ledger.record(session, "q", "r", id=turn_id)
        with pytest.raises(NameTaken, match=f"'{turn_id}' is the name of a session"):
            ledger.turn(session, "q", id=turn_id)

    assert raw.dump() == before


def test_a_turn_that_a_name_hides_since_long_ago_is_still_found_by_who_knows_its_id(
    ledger: Ledger, raw: Raw
) -> None:
    root = ledger.record("main", "q", "r", id="root")
    left = ledger.record("main", "left", "r", id="left")
    right = ledger.fork(root.id, label="right").label
    ledger.record(right, "right", "r")
    ledger.record("elsewhere", "q", "a longer text " * 50)
    raw.execute("INSERT INTO names VALUES ('left', 'elsewhere', 1, 'manual')")

    compared = ledger.compare("main", right)
    assert compared.ancestor is not None
    assert compared.ancestor.turn.id == root.id
    assert ledger.record("main", "left", "r", id="left").id == left.id
    assert ledger.compaction_due("main", window=100) is None


def test_an_alias_needs_a_session_and_a_name(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="no session 'main'"):
        ledger.alias("nick", "main")
    ledger.create_session("main")
    for empty_or_endless in ("", "x" * 513):
        with pytest.raises(Refused, match="1 to 512 characters"):
            ledger.alias(empty_or_endless, "main")


def test_a_merge_goes_on_with_the_longer_history(ledger: Ledger) -> None:
    chain(ledger, "short", 1)
    long = chain(ledger, "long", 2)
    chain(ledger, "other", 1)

    merged = ledger.merge("short", "long")

    assert (merged.label, merged.thread_id) == ("long", long[-1])
    assert ledger.merge("long", "other").label == "long"


def test_a_merge_of_equal_histories_goes_on_with_the_later_updated(ledger: Ledger) -> None:
    chain(ledger, "z-earlier", 1)
    chain(ledger, "a-later", 1)

    assert ledger.merge("z-earlier", "a-later").label == "a-later"


def test_a_merged_away_session_is_archived_and_all_its_keys_lead_on(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    ledger.alias("promoted", "goes", reason="identity_promotion")

    ledger.merge("goes", "promoted")
    ledger.merge("goes", "stays")

    for key in ("stays", "goes", "promoted"):
        assert ledger.session(key).label == "stays"
        assert ledger.head(key) == ledger.head("stays")
    assert {(a.alias, a.reason) for a in ledger.aliases("stays")} == {
        ("goes", "identity_merge"),
        ("promoted", "identity_promotion"),
    }


def test_nothing_of_a_merged_away_session_is_lost(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "stays", 2)
    turns = chain(ledger, "goes", 1)
    history = ledger.history("goes")
    before = raw.dump()

    ledger.merge("stays", "goes")

    gone = ledger.session("goes", exact=True)
    assert (gone.label, gone.status, gone.thread_id) == ("goes", "archived", turns[0])
    assert [turn.id for turn in ledger.thread("goes", exact=True).turns] == turns
    merge, *earlier = ledger.history("goes", exact=True)
    assert (merge.reason, merge.thread_id, tuple(earlier)) == ("merge", turns[0], history)
    after = raw.dump()
    changed = {table for table in after if after[table] != before[table]}
    assert changed == {"sessions", "names", "session_history", "evidence"}
    assert ledger.sessions_including(turns[0]) == ("goes",)


def test_a_merged_away_session_does_not_come_back_to_life(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    ledger.merge("stays", "goes")

    assert ledger.archive("goes", "active").label == "stays"

    assert ledger.session("goes", exact=True).status == "archived"
    turn = ledger.record("goes", "q", "r")
    assert ledger.head("stays") == turn.id


def test_merges_of_merges_leave_no_chain(ledger: Ledger, raw: Raw) -> None:
    for label, length in (("a", 1), ("b", 2), ("c", 3)):
        chain(ledger, label, length)

    ledger.merge("a", "b")
    ledger.merge("a", "c")

    assert {key: ledger.session(key).label for key in "abc"} == {"a": "c", "b": "c", "c": "c"}
    assert raw.one("SELECT count(*) FROM names WHERE session_label <> 'c'") == 0
    assert ledger.merge("a", "b").label == "c"


def test_a_person_who_becomes_known_keeps_the_session_of_the_channel(ledger: Ledger) -> None:
    chain(ledger, "telegram:1", 2)

    promoted = ledger.promote("telegram:1", "dm:ann")
    again = ledger.promote("telegram:1", "dm:ann")

    assert promoted == again
    assert promoted.label == ledger.session("dm:ann").label == "telegram:1"
    assert [a.reason for a in ledger.aliases("telegram:1")] == ["identity_promotion"]


def test_two_channels_of_one_person_become_one_session(ledger: Ledger) -> None:
    chain(ledger, "telegram:1", 2)
    chain(ledger, "discord:9", 3)
    ledger.promote("telegram:1", "dm:ann")

    merged = ledger.promote("discord:9", "dm:ann")

    keys = ("telegram:1", "discord:9", "dm:ann")
    assert {ledger.session(key).label for key in keys} == {merged.label} == {"discord:9"}
    assert ledger.session("telegram:1", exact=True).status == "archived"


def test_a_new_channel_of_somebody_known_leads_to_their_session(ledger: Ledger) -> None:
    chain(ledger, "dm:ann", 1)

    assert ledger.promote("signal:5", "dm:ann").label == "dm:ann"
    assert ledger.promote("signal:6", "dm:bob").label == "dm:bob"
    assert ledger.session("signal:6").thread_id is None


# -- what a person means ----------------------------------------------------------------------


def test_a_session_is_found_by_the_id_of_its_source_and_by_how_it_or_its_label_begins(
    ledger: Ledger,
) -> None:
    known = Session("agent:622ab40d-27a3", origin="agent", origin_session_id="622ab40d-27a3")
    ledger.create_session(known)
    turn = ledger.record("main", "q", "r")

    for typed in ("622ab40d-27a3", "622a", "agent:622ab40d", "agen"):
        assert ledger.lookup(typed) == "agent:622ab40d-27a3"
    assert ledger.lookup("622ab40d-27a3", beginnings=False) == "agent:622ab40d-27a3"
    assert ledger.lookup("main") == "main"
    ledger.record("other", "q", "r", id="622ab40d-27a3:@0")
    assert ledger.lookup("622ab40d-27a3") == "agent:622ab40d-27a3"
    assert ledger.lookup("622ab40d-27a3:") == "622ab40d-27a3:@0"
    assert ledger.lookup(turn.id[:20]) == turn.id
    for typed in ("6", "622", "a", "age"):
        assert ledger.lookup(typed) == "agent:622ab40d-27a3"
    for typed in ("", "22ab", "Main", "agent:622ab40d-27a3-"):
        with pytest.raises(NotFound, match="there is no session or turn"):
            ledger.lookup(typed)
    with pytest.raises(NotFound):
        ledger.lookup("agent:622ab40d", beginnings=False)
    with pytest.raises(NotFound):  # programs name it exactly
        ledger.session("agent:622a")


@pytest.mark.finding("users-21")
def test_an_ambiguous_prefix_says_what_it_could_be_and_what_is_missing(ledger: Ledger) -> None:
    for number in ("6b6f1", "6b6f2"):
        ledger.create_session(Session(f"cc:{number}", origin="cc", origin_session_id=number))
    for turn_id in ("turn-12", "turn-13"):
        ledger.record("main", "q", "r", id=turn_id)

    for typed, missing in (("6", 4), ("6b6f", 1), ("cc", 6), ("cc:6b6", 2)):
        named = f"several sessions fit '{typed}': cc:6b6f1, cc:6b6f2"
        with pytest.raises(Ambiguous, match=named) as error:
            ledger.lookup(typed)
        assert error.value.hint.startswith(f"Give at least {missing} more character")
    with pytest.raises(Ambiguous, match="several turns begin with 't': turn-12, turn-13") as error:
        ledger.lookup("t")
    assert error.value.hint == "Give at least 6 more characters."


def test_where_several_turns_begin_like_a_session_the_session_is_meant(ledger: Ledger) -> None:
    for number in (1, 2):
        ledger.record("agent:one", "q", "r", id=f"agent:one:{number}")
    assert ledger.lookup("agent:") == "agent:one"

    ledger.record("agent:two", "q", "r")
    with pytest.raises(Ambiguous, match="several sessions fit 'agent:': agent:one, agent:two"):
        ledger.lookup("agent:")
    with pytest.raises(Ambiguous, match="several turns begin with 'agent:one:'"):
        ledger.lookup("agent:one:")


def test_of_several_sessions_none_is_guessed_but_a_subagent_gives_way(ledger: Ledger) -> None:
    ledger.create_session(Session("shop-a", origin="agent", origin_session_id="same-id"))
    with ledger.turn("shop-a", "q") as turn:
        turn.tool_call("Task", id="c").spawn("shop-a-helper")
        turn.respond("r")
    assert ledger.lookup("shop") == "shop-a"

    ledger.create_session(Session("shop-b", origin="agent", origin_session_id="same-id"))

    for typed in ("shop", "same-id", "same"):
        with pytest.raises(Ambiguous, match=f"several sessions fit '{typed}': shop-a, shop-b(?!,)"):
            ledger.lookup(typed)
    ledger.create_session("shop-c")
    with pytest.raises(Ambiguous, match=r"several sessions fit 'shop': shop-a, shop-b, \.\.\."):
        ledger.lookup("shop")
    assert ledger.lookup("shop-a-h") == "shop-a-helper"
