"""pi's transcripts together: copies of entries, and what one file has that another lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.model.turns import Turn
from tests.importers.helping import import_paths
from tests.importers.test_pi import ONE, TWO, Transcript, call

LATER = 40  # seconds


def copy_of(log: Transcript, session: str) -> Transcript:
    """A fork that was made later, with all that its origin has."""
    fork = Transcript(log.path.parent, session, timestamp="2026-03-01T10:00:30.000Z")
    fork.lines += log.lines[1:]
    fork.last, fork.clock = log.last, LATER
    return fork


def turns_of(ledger: Ledger, session: str) -> tuple[Turn, ...]:
    return tuple(ledger.thread(f"pi:{session}").turns)


def asked(turns: tuple[Turn, ...]) -> list[str | None]:
    return [turn.query[0].content for turn in turns]


def test_entries_that_say_the_same_are_told_apart_in_every_file(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path)
    moment = log.now()
    for answer in ("First.", "Second."):
        log.user("Again.", timestamp=moment)
        log.say(answer)
    fork = copy_of(log, TWO)
    fork.user("Other.")
    fork.say("Third.")

    import_paths(ledger, log.save(), fork.save())

    first, second = turns_of(ledger, ONE)
    assert second.id == f"{first.id}:2"
    assert [turn.id for turn in turns_of(ledger, TWO)][:2] == [first.id, second.id]
    assert ledger.query("SELECT count(*) FROM turn_sources")[1] == [(5,)]


def test_what_a_file_lost_is_had_from_its_copy(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("First.")
    log.user("Two.")
    log.say("Running.", call("t1", "bash", command="make"))
    log.user("Three.")
    log.result("t1", "done")
    log.say("Third.")
    fork = copy_of(log, TWO)
    del log.lines[3:5]

    import_paths(ledger, log.save(), fork.save())

    turns = turns_of(ledger, ONE)
    assert asked(turns) == ["One.", "Two.", "Three."]
    assert "done" in [m.content for m in turns[1].messages]
    assert [m.content for m in turns[2].messages] == ["Three.", "Third."]


def test_a_late_result_belongs_to_its_call_in_every_copy(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("Running.", call("t1", "bash", command="make"))
    log.user("Two.")
    log.result("t1", "done")
    log.say("Second.")
    fork = copy_of(log, TWO)
    fork.user("Three.")
    fork.say("Third.")

    import_paths(ledger, log.save(), fork.save())

    for session in (ONE, TWO):
        one, two, *_ = turns_of(ledger, session)
        assert [c.status for c in one.tool_calls] == ["completed"]
        assert [m.content for m in two.messages] == ["Two.", "Second."]


def test_a_result_after_a_compaction_goes_on_there(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("Running.", call("t1", "bash", command="make"))
    log.add("compaction", summary="It ran.")
    log.result("t1", "done")
    log.say("First.")

    import_paths(ledger, log.save())

    _, _, on = turns_of(ledger, ONE)
    assert [m.content for m in on.messages] == ["done", "First."]


def test_a_turn_has_its_entries_in_the_order_of_files_by_age(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path, TWO)  # the file with the later name is the older one
    log.user("One.")
    log.say("First.")
    fork = copy_of(log, ONE)
    fork.say("More.")
    fork.user("Two.")

    import_paths(ledger, log.save(), fork.save())

    one, *_ = turns_of(ledger, TWO)
    assert [m.content for m in one.messages] == ["One.", "First.", "More."]


def test_what_a_fork_kept_may_stand_in_its_origin(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("First.")
    kept = log.user("Two.")
    log.say("Second.")
    fork = copy_of(log, TWO)
    fork.add("compaction", summary="It began.", firstKeptEntryId=kept)

    import_paths(ledger, log.save(), fork.save())

    _, two, last = turns_of(ledger, TWO)
    assert last.compaction is not None
    assert last.compaction.first_kept_turn_id == two.id


@pytest.mark.parametrize(
    ("kept", "found"), [("Zero.", None), ("One.", "One."), ("Two.", None), ("Other.", "Other.")]
)
def test_what_a_compaction_kept_is_above_it(
    ledger: Ledger, tmp_path: Path, kept: str, found: str | None
) -> None:
    log = Transcript(tmp_path)
    ids = {}
    for text in ("Zero.", "One.", "Two.", "Three."):
        ids[text] = log.user(text)
        if log.say("Yes.") and text == "One.":
            fork = log.last
    log.last = fork
    for text in ("Other.", "Another."):
        ids[text] = log.user(text)
        log.say("Yes.")
    log.add("compaction", summary="So far.", firstKeptEntryId=ids[kept])

    import_paths(ledger, log.save())

    *turns, last = turns_of(ledger, ONE)
    assert asked(tuple(turns)) == ["Zero.", "One.", "Other.", "Another."]
    assert last.compaction is not None
    names = {turn.id: turn.query[0].content for turn in turns}
    assert names.get(last.compaction.first_kept_turn_id or "") == found


def test_the_order_of_files_of_one_age_does_not_depend_on_their_names(tmp_path: Path) -> None:
    heads = set()
    for first in (ONE, TWO):
        folder = tmp_path / first
        log = Transcript(folder)
        log.user("One.")
        other = Transcript(folder)
        other.path = folder / f"{TWO}.jsonl"
        other.lines, other.last, other.clock = list(log.lines), log.last, log.clock
        log.say("Mine.")
        other.say("Another.")
        if first == TWO:
            log.path, other.path = other.path, log.path
        with Ledger.open(str(tmp_path / f"{first}.db")) as ledger:
            import_paths(ledger, log.save(), other.save())
            (turn,) = turns_of(ledger, ONE)
            heads.add(tuple(m.content for m in turn.messages))

    assert len(heads) == 1


def test_of_entries_with_one_id_the_last_is_meant(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    said = log.say("First.")
    log.user("Two.")
    log.say("Second.", id=said)
    log.user("Three.")
    log.say("Third.")

    import_paths(ledger, log.save())

    assert asked(turns_of(ledger, ONE)) == ["One.", "Two.", "Three."]


def test_what_hangs_on_nothing_has_no_settings(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.add("thinking_level_change", thinkingLevel="high")
    log.user("One.")
    log.say("First.")
    log.user("Anew.", parentId=None)
    log.say("Second.")

    import_paths(ledger, log.save())

    (turn,) = turns_of(ledger, ONE)
    assert asked((turn,)) == ["Anew."]
    assert turn.effective_config_json is None


def test_an_id_with_half_a_letter_is_mended(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.", id="\ud83d")
    log.say("First.")

    import_paths(ledger, log.save())

    (turn,) = turns_of(ledger, ONE)
    assert '"entry_id":"\ufffd"' in (turn.query[0].metadata_json or "")
