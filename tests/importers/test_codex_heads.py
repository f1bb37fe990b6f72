"""Codex: turns that ended without an answer can be heads of sessions."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.codex_log import THREAD, Rollout, thread_id, turn_id
from tests.importers.helping import import_paths, result

LABEL = f"codex:{THREAD}"
ENDINGS: list[tuple[dict[str, Any], str]] = [
    ({"kind": "turn_aborted", "reason": "interrupted"}, "interrupted"),
    ({"kind": "error", "message": "429 Too Many"}, "429 Too Many"),
    ({"kind": "task_complete", "last_agent_message": None}, "no answer recorded"),
]


@pytest.mark.parametrize(("ending", "error"), ENDINGS)
def test_a_session_whose_only_prompt_failed_has_that_turn_as_head(
    ledger: Ledger, tmp_path: Path, ending: dict[str, Any], error: str
) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.", answer=None)
    import_paths(ledger, log.save())
    assert ledger.head(LABEL) is None  # it may still be answered

    log.event(**ending)
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.id, turn.status, turn.error) == (turn_id(1), "failed", error)
    assert not ledger.audit()


def test_the_next_prompt_follows_a_failed_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.", answer=None)
    log.event("turn_aborted", reason="interrupted")
    log.exchange(2, "Two.", answer=None)
    import_paths(ledger, log.save())
    assert ledger.head(LABEL) == turn_id(1)  # the second waits

    log.say("Done.")
    import_paths(ledger, log.save())

    assert [turn.status for turn in ledger.thread(LABEL).turns] == ["failed", "completed"]


def test_a_failed_turn_that_was_rolled_back_is_not_the_head(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.exchange(2, "Two.", answer=None)
    log.event("turn_aborted", reason="interrupted")
    log.event("thread_rolled_back", num_turns=1)

    import_paths(ledger, log.save())

    assert ledger.head(LABEL) == turn_id(1)
    assert ledger.get_turn(turn_id(2)).status == "failed"


def test_an_ending_before_any_turn_does_not_end_a_later_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.start(2)
    log.event("turn_aborted", turn_id=turn_id(2), reason="interrupted")
    log.exchange(3, "Three.", answer=None)

    import_paths(ledger, log.save())

    assert ledger.head(LABEL) == turn_id(1)
    assert [m.content for m in ledger.get_turn(turn_id(3)).messages] == ["Three."]
    assert ledger.get_turn(turn_id(3)).status == "pending"


@pytest.mark.parametrize("kind", ["turn_aborted", "error"])
def test_without_turn_ids_a_prompt_after_a_failed_one_waits(
    ledger: Ledger, tmp_path: Path, kind: str
) -> None:
    log = Rollout(tmp_path)
    log.ask("One.")
    log.event(kind, reason="interrupted")
    log.ask("Two.")
    import_paths(ledger, log.save())

    assert ledger.head(LABEL) is None
    assert ledger.query("SELECT status, error FROM turns")[1] == [("pending", None)]

    log.event("turn_aborted", reason="interrupted")
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert (turn.status, turn.error) == ("failed", "interrupted")


def test_an_interrupted_subagent_ends_in_its_own_turn_in_any_order(tmp_path: Path) -> None:
    child = thread_id(5)
    parent = Rollout(tmp_path)
    parent.exchange(1, "Let somebody look.")
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}
    log = parent.fork(tmp_path, child, len(parent.lines), source=spawn)
    log.exchange(6, "Look.", answer=None)
    log.event("turn_aborted", reason="interrupted")
    fork = log.fork(tmp_path, thread_id(8), len(log.lines), source=spawn)
    fork.exchange(9, "Look again.")
    found = []
    for number, paths in enumerate(permutations([parent.save(), log.save(), fork.save()])):
        with Ledger.open(str(tmp_path / f"{number}.db")) as ledger:
            for path in paths:
                import_paths(ledger, path)
            found.append(result(ledger))
            assert ledger.head(LABEL) == turn_id(1)
            assert ledger.head(f"codex:{child}") == turn_id(6)
            assert ledger.head(f"codex:{thread_id(8)}") == turn_id(9)
            assert not ledger.audit()

    assert all(each == found[0] for each in found)


def test_files_without_metadata_are_separate_sessions(ledger: Ledger, tmp_path: Path) -> None:
    logs = [Rollout(tmp_path, thread_id(number)) for number in (5, 8)]
    for number, log in enumerate(logs):
        del log.lines[0]
        log.exchange(number + 1, f"Number {number}.")
        import_paths(ledger, log.save())
    before = {session.label for session in ledger.sessions()}
    logs[0].exchange(3, "Go on.")
    import_paths(ledger, logs[0].save())

    assert {session.label for session in ledger.sessions()} == before
    heads = sorted(str(ledger.head(label)) for label in before)
    assert heads == [turn_id(2), turn_id(3)]
