"""Names can be corrected: aliases removed, labels renamed, merges reversed."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from agents_ledger import (
    Ask,
    AsyncLedger,
    Ledger,
    Message,
    NameTaken,
    NotFound,
    Queue,
    Refused,
    Session,
)
from tests.builders import chain
from tests.raw import Raw
from tests.tasking import a_task

pytestmark = [pytest.mark.finding("users-32"), pytest.mark.finding("spec-E")]


# -- aliases ----------------------------------------------------------------------------------


def test_a_removed_alias_leads_nowhere_and_is_free(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    alias = ledger.alias("nick", "main")

    assert ledger.remove_alias("nick") == alias

    assert ledger.aliases("main") == ()
    with pytest.raises(NotFound, match="no session 'nick'"):
        ledger.session("nick")
    assert ledger.create_session("nick").label == "nick"


def test_only_an_alias_is_removed(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    ledger.merge("stays", "goes")
    ledger.alias("file-name", "stays", reason="import_reconciliation")
    before = raw.dump()

    with pytest.raises(NotFound, match="no alias 'nobody'"):
        ledger.remove_alias("nobody")
    for label, problem in (
        ("stays", "is the label of a session, not an alias"),
        ("goes", "is the label of a session that was merged into 'stays'"),
        ("file-name", "is the name of session 'stays' in the files it is imported from"),
    ):
        with pytest.raises(Refused, match=f"'{label}' {problem}"):
            ledger.remove_alias(label)

    assert raw.dump() == before


# -- labels -----------------------------------------------------------------------------------


def test_a_renamed_session_has_everything_it_had_and_is_found_by_its_former_label(
    ledger: Ledger,
) -> None:
    turns = chain(ledger, "old", 3)
    ledger.roll_back("old", turns[1])
    ledger.annotate("old", title="A title", starred=True, note="A note")
    ledger.update_session("old", routing_key="r", agent_id="a")
    ledger.alias("nick", "old")
    fork = ledger.fork("old", label="fork")
    before, history = ledger.session("old"), ledger.history("old")

    renamed = ledger.rename("nick", "new")

    assert (renamed.label, renamed.title, renamed.starred, renamed.note) == (
        "new",
        "A title",
        True,
        "A note",
    )
    assert (renamed.thread_id, renamed.routing_key, renamed.agent_id, renamed.created_at) == (
        before.thread_id,
        "r",
        "a",
        before.created_at,
    )
    assert {ledger.session(key).label for key in ("old", "nick", "new")} == {"new"}
    assert [s.label for s in ledger.sessions(status=None)].count("old") == 0
    rename, *earlier = ledger.history("old")
    assert (rename.reason, rename.thread_id, rename.session_label) == ("rename", turns[1], "new")
    assert [(move.id, move.thread_id, move.reason) for move in earlier] == [
        (move.id, move.thread_id, move.reason) for move in history
    ]
    assert ledger.head("new", at=history[1].changed_at) == turns[2]
    assert [(a.alias, a.session_label, a.reason) for a in ledger.aliases("new")] == [
        ("nick", "new", "manual"),
        ("old", "new", "rename"),
    ]
    assert ledger.session("fork") == fork


def test_a_turn_recorded_under_the_former_label_continues_the_session(ledger: Ledger) -> None:
    first = ledger.record("old", "q", "r")
    ledger.rename("old", "new")

    second = ledger.record("old", "q2", "r2")

    assert second.parent_turn_id == first.id
    assert ledger.head("new") == second.id


def test_a_live_turn_ends_in_the_renamed_session(ledger: Ledger) -> None:
    with ledger.turn("old", "q") as turn:
        ledger.rename("old", "new")
        turn.respond("r")

    assert ledger.head("new") == turn.id


def test_waiting_messages_wait_in_the_renamed_session(ledger: Ledger) -> None:
    ledger.create_session("old")
    queue = Queue(ledger)
    entry = queue.enqueue("old", Ask((Message("user", "q"),)))

    ledger.rename("old", "new")

    assert [waiting.id for waiting in queue.entries("new")] == [entry.id]


def test_subagents_follow_their_renamed_parent_but_are_not_renamed(ledger: Ledger) -> None:
    with ledger.turn("old", "q") as turn:
        with turn.tool_call("Task") as call:
            call.spawn("helper")
            call.complete("done")
        turn.respond("r")

    ledger.rename("old", "new")

    assert ledger.session("helper").parent_session_label == "new"
    with pytest.raises(Refused, match="'helper' is a subagent's, named by the call"):
        ledger.rename("helper", "other")


def test_the_session_of_a_task_is_not_renamed(ledger: Ledger) -> None:
    with ledger.batch() as batch:
        batch.save(a_task())
    label = ledger.sessions()[0].label

    with pytest.raises(Refused, match="is a task's, named by the task"):
        ledger.rename(label, "other")


def test_a_session_is_renamed_back_and_to_its_own_alias(ledger: Ledger) -> None:
    turns = chain(ledger, "one", 2)
    ledger.alias("three", "one")

    for label in ("two", "one", "three", "three"):
        assert ledger.rename("one", label).label == label

    assert {ledger.head(key) for key in ("one", "two", "three")} == {turns[1]}
    assert [(alias.alias, alias.reason) for alias in ledger.aliases("three")] == [
        ("one", "rename"),
        ("two", "rename"),
    ]
    assert [move.reason for move in ledger.history("three")] == [
        *["rename"] * 3,
        "record",
        "record",
    ]
    assert ledger.undo("three").thread_id == turns[0]  # a new label is not a move of the head
    ledger.remove_alias("two")
    assert ledger.create_session("two").thread_id is None


def test_no_label_is_taken_from_another_session(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r")
    ledger.create_session("other")
    ledger.alias("nick", "other")
    ledger.create_session("merged")
    ledger.merge("main", "merged")
    before = raw.dump()

    for label in ("other", "nick", "merged", turn.id):
        with pytest.raises(NameTaken, match=f"'{label}'"):
            ledger.rename("main", label)
    with pytest.raises(Refused, match="1 to 512 characters"):
        ledger.rename("main", "")
    with pytest.raises(NotFound, match="no session 'nobody'"):
        ledger.rename("nobody", "somebody")
    with pytest.raises(Refused, match="reason is one of"):
        ledger.alias("former", "main", reason="rename")  # type: ignore[arg-type]

    assert raw.dump() == before


def test_an_archived_session_stays_archived_under_its_new_label(ledger: Ledger) -> None:
    chain(ledger, "old", 1)
    ledger.archive("old")

    assert ledger.rename("old", "new").status == "archived"


# -- merges -----------------------------------------------------------------------------------


def test_an_unmerged_session_is_as_it_was_before(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    turns = chain(ledger, "goes", 1)
    for alias, label in (("x", "goes"), ("y", "goes"), ("z", "stays")):
        ledger.alias(alias, label)
    before = ledger.session("goes")
    ledger.merge("stays", "goes")
    meanwhile = ledger.record("x", "q", "r")

    unmerged = ledger.unmerge("goes")

    assert (unmerged.status, unmerged.thread_id, unmerged.metadata_json) == (
        "active",
        before.thread_id,
        before.metadata_json,
    )
    assert {key: ledger.session(key).label for key in ("goes", "x", "y", "z")} == {
        "goes": "goes",
        "x": "goes",
        "y": "goes",
        "z": "stays",
    }
    assert ledger.head("stays") == meanwhile.id  # nothing is taken apart that was recorded
    assert [move.reason for move in ledger.history("goes")] == ["unmerge", "merge", "record"]
    assert ledger.record("goes", "q", "r").parent_turn_id == turns[0]
    assert ledger.merge("stays", "goes").label == "stays"


def test_merges_are_reversed_in_any_order(ledger: Ledger) -> None:
    for label, length in (("a", 1), ("b", 2), ("c", 3)):
        chain(ledger, label, length)
        ledger.alias(f"{label}-alias", label)
    keys = ("a", "a-alias", "b", "b-alias", "c", "c-alias")

    def leads() -> str:
        return "".join(ledger.session(key).label for key in keys)

    ledger.merge("a", "b")
    ledger.merge("b", "c")
    assert leads() == "cccccc"
    ledger.unmerge("b")
    assert leads() == "bbbbcc"
    ledger.unmerge("a")
    assert leads() == "aabbcc"

    ledger.merge("a", "b")
    ledger.merge("b", "c")
    ledger.unmerge("a")
    assert leads() == "aacccc"
    ledger.unmerge("b")
    assert leads() == "aabbcc"


def test_an_alias_that_leads_elsewhere_by_now_stays_there(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    chain(ledger, "third", 1)
    ledger.alias("x", "goes")
    ledger.merge("stays", "goes")
    ledger.remove_alias("x")
    ledger.alias("x", "third")

    ledger.unmerge("goes")

    assert ledger.session("x").label == "third"


def test_a_session_that_was_archived_or_has_metadata_gets_both_back(
    ledger: Ledger, raw: Raw
) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    raw.execute("""UPDATE sessions SET metadata_json = '{"project":"x"}' WHERE label = 'goes'""")
    ledger.archive("goes")
    ledger.merge("stays", "goes")

    unmerged = ledger.unmerge("goes")

    assert (unmerged.status, unmerged.metadata_json) == ("archived", '{"project":"x"}')


def test_a_merge_of_an_earlier_version_is_reversed_without_its_aliases(
    ledger: Ledger, raw: Raw
) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    ledger.alias("x", "goes")
    ledger.merge("stays", "goes")
    raw.execute("UPDATE sessions SET metadata_json = NULL WHERE label = 'goes'")

    assert ledger.unmerge("goes").status == "active"

    assert ledger.session("x").label == "stays"


def test_an_alias_that_became_a_label_stays_when_its_session_is_unmerged(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "goes", 1)
    ledger.alias("nick", "goes")
    ledger.alias("other", "goes")
    ledger.merge("stays", "goes")
    ledger.rename("stays", "nick")

    ledger.unmerge("goes")

    assert ledger.session("nick").label == ledger.session("stays").label == "nick"
    assert ledger.session("other").label == ledger.session("goes").label == "goes"
    assert ledger.audit() == ()


def test_only_a_merged_session_is_unmerged(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 1)
    ledger.alias("nick", "main")
    before = raw.dump()

    with pytest.raises(Refused, match="session 'main' is not merged"):
        ledger.unmerge("main")
    for label in ("nick", "nobody"):
        with pytest.raises(NotFound, match=f"no session '{label}'"):
            ledger.unmerge(label)

    assert raw.dump() == before


def test_a_merged_and_renamed_session_is_unmerged(ledger: Ledger) -> None:
    chain(ledger, "stays", 2)
    chain(ledger, "first", 1)
    ledger.rename("first", "goes")
    ledger.merge("stays", "goes")
    ledger.rename("stays", "other")

    ledger.unmerge("goes")

    assert {key: ledger.session(key).label for key in ("first", "goes", "stays")} == {
        "first": "goes",
        "goes": "goes",
        "stays": "other",
    }


def test_a_turn_is_recorded_while_its_session_is_being_renamed(ledger: Ledger) -> None:
    chain(ledger, "one", 1)

    def record(number: int) -> None:
        ledger.record("one", f"q{number}", "r")

    def rename(number: int) -> None:
        ledger.rename("one", "two" if number % 2 else "one")

    with ThreadPoolExecutor(8) as pool:
        works = [pool.submit(act, number) for number in range(40) for act in (record, rename)]
        for work in works:
            work.result()

    assert len(ledger.thread("one").turns) == 41
    assert len(ledger.sessions(status=None)) == 1


def test_the_asyncio_ledger_corrects_names_too(address: str) -> None:
    async def correct() -> None:
        async with AsyncLedger.open(address) as ledger:
            await ledger.create_session(Session("one"))
            await ledger.create_session("two")
            await ledger.alias("nick", "one")

            assert (await ledger.remove_alias("nick")).session_label == "one"
            assert (await ledger.rename("one", "three")).label == "three"
            merged = await ledger.merge("two", "three")
            (other,) = {"two", "three"} - {merged.label}
            assert (await ledger.unmerge(other)).status == "active"

    asyncio.run(correct())


def test_a_renamed_session_keeps_its_place_in_the_list(ledger: Ledger) -> None:
    chain(ledger, "older", 1)
    chain(ledger, "newer", 1)
    before = ledger.session("older")

    renamed = ledger.rename("older", "named")

    assert renamed.updated_at == before.updated_at
    assert [session.label for session in ledger.sessions()] == ["newer", "named"]
    assert ledger.history("named")[0].reason == "rename"
    assert list(ledger.audit()) == []


@pytest.mark.unsound  # its evidence shows that the history was rewritten
def test_a_rename_that_counted_as_an_update_passes_the_audit(ledger: Ledger, raw: Raw) -> None:
    """As versions before this one recorded it."""
    chain(ledger, "main", 1)
    renamed_at = ledger.session("main").updated_at + 60_000
    ledger.rename("main", "named")
    with raw.unguarded():
        raw.execute(f"UPDATE session_history SET changed_at = {renamed_at} WHERE reason = 'rename'")
        raw.execute(f"UPDATE sessions SET updated_at = {renamed_at}")
    assert list(ledger.audit()) == []

    with raw.unguarded():
        raw.execute(f"UPDATE sessions SET updated_at = {renamed_at + 1}")
    assert [finding.rule for finding in ledger.audit()] == ["history_time"]
    with raw.unguarded():
        raw.execute(f"UPDATE sessions SET updated_at = {renamed_at}")
