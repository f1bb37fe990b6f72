"""Imports beside what people do on imported turns: forks follow, turns of ours stay as they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.store.database import Work
from tests.exhaustive import exhaustive
from tests.importers import test_any_order
from tests.importers.claude_log import Log, text, uid
from tests.importers.helping import import_paths, result
from tests.importers.test_any_order import a_world, import_in_steps
from tests.importers.test_any_order_elsewhere import said
from tests.statements import Meddled

T = TypeVar("T")

FIRST, SECOND, THIRD = (f"0000000{number}-0000-4000-8000-000000000000" for number in (1, 2, 3))


def two_prompts(folder: Path) -> Log:
    """The second is answered: as far as this file says, both ask for that."""
    log = Log(folder, FIRST)
    log.user("a", "What is it?")
    log.user("b", "And why?")
    log.assistant("c", text("Because."))
    log.save()
    return log


def another_way(folder: Path) -> Path:
    """A copy of the first prompt shows that the second is one of two ways to go on from it."""
    log = Log(folder, SECOND)
    log.user("a", "What is it?")
    log.user("e", "Or else?")
    log.assistant("f", text("Elsewhere."))
    log.save()
    return log.path


def queries(ledger: Ledger, session: str) -> list[str | None]:
    return [turn.query[0].content if turn.query else None for turn in ledger.thread(session).turns]


def test_a_fork_follows_the_answer_it_stood_on(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, two_prompts(tmp_path).path)
    ledger.fork(f"claude-code:{FIRST}", label="mine")

    import_paths(ledger, another_way(tmp_path))

    assert ledger.head("mine") == ledger.head(f"claude-code:{FIRST}")
    assert ledger.get_turn("mine").status == "completed"
    assert queries(ledger, "mine") == ["What is it?", "And why?"]
    assert [move.thread_id for move in ledger.history("mine")] == [ledger.head("mine")]


def test_a_turn_that_ours_stands_on_stays_and_the_source_goes_on_beside_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_prompts(tmp_path)
    import_paths(ledger, log.path)
    ledger.fork(f"claude-code:{FIRST}", label="mine")
    ledger.record("mine", "Go on.", "Done.")
    before = ledger.thread("mine")

    report = import_paths(ledger, another_way(tmp_path))
    log.user("g", "Next?")
    log.assistant("h", text("Newer."))
    log.save()
    import_paths(ledger, log.path)

    assert (report.counts.failed, report.faults) == (0, [])
    assert ledger.thread("mine") == before
    assert [len(ledger.search(word).hits) for word in ("Elsewhere", "Newer")] == [1, 1]
    last = ledger.get_turn(ledger.thread(f"claude-code:{FIRST}").turns[-2].id)
    assert [message.content for message in last.messages] == ["And why?", "Because."]
    assert last.response is not None
    assert last.response.content == "Because."
    assert import_paths(ledger, tmp_path).written_turns == 0


def test_a_fork_follows_its_answer_into_a_turn_whose_question_comes_late(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, FIRST)
    for name in "abc":
        log.user(f"{name}1", f"Question {name}")
        log.assistant(f"{name}2", text(f"Answer {name}"))
    whole = list(log.lines)
    del log.lines[:3]  # it begins with the second answer
    import_paths(ledger, log.save())
    ledger.fork(uid("b2"), label="mine")

    log.lines = whole
    import_paths(ledger, log.save())

    assert queries(ledger, "mine") == ["Question a", "Question b"]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(3,)]


@pytest.mark.parametrize("steps", [(3,), (1, 2, 3)])
@pytest.mark.parametrize(("told", "kept"), [(3, 2), (1, 1)])
def test_a_fork_stays_at_its_question_where_another_file_tells_the_session_anew(
    ledger: Ledger, tmp_path: Path, steps: tuple[int, ...], told: int, kept: int
) -> None:
    folder = tmp_path / "projects" / "w-app" / "agent-transcripts"
    folder.mkdir(parents=True)
    spoken, lines = folder / "s0.txt", folder / "s0.jsonl"
    for count in steps:
        spoken.write_text("".join(f"user:\nquestion {n}\nassistant:\nyes\n" for n in range(count)))
        import_paths(ledger, spoken)
    ledger.fork(ledger.thread("cursor:s0").turns[1].id, label="mine")

    lines.write_text(
        "".join(
            said("user", f"question {n}") + said("assistant", "hm") + said("assistant", "yes")
            for n in range(told)
        )
    )
    import_paths(ledger, lines)

    assert queries(ledger, "mine") == [f"question {n}" for n in range(kept)]
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(told,)]


@pytest.mark.parametrize("ours", [False, True], ids=["forks", "turns of ours"])
@pytest.mark.parametrize(
    "seed", [0, 68, 109, *exhaustive(range(1, 4))]
)  # 68: a past that comes late; 109: an answer that goes
def test_random_sessions_while_people_fork_and_go_on(
    seed: int, ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, people = random.Random(seed), random.Random(seed + 7)
    paths = a_world(chance, tmp_path / "world")
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        wanted = result(whole)

    def import_and_fork(ledger: Ledger, *some: Path) -> None:
        assert import_paths(ledger, *some).counts.failed == 0
        for session in ledger.sessions(limit=100):
            if session.created_as != "fork" and session.thread_id and people.random() < 0.4:
                fork = ledger.fork(session.label)
                if ours and people.random() < 0.2:
                    ledger.record(fork.label, "mine", "ok")

    monkeypatch.setattr(test_any_order, "import_paths", import_and_fork)
    with Ledger.open(str(tmp_path / "steps.db")) as ledger:
        import_in_steps(ledger, chance, paths, tmp_path / "world", tmp_path / "grown")

        assert not ledger.audit()
        found = result(ledger)
        labels = {row[0] for row in wanted["sessions"]}
        found["sessions"] = [row for row in found["sessions"] if row[0] in labels]
        assert ours or found == wanted


def test_what_ours_stand_on_stays_frozen_where_a_turn_above_it_is_answered_later(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_prompts(tmp_path)
    import_paths(ledger, log.path, another_way(tmp_path))
    ledger.fork(f"claude-code:{FIRST}", label="mine")
    ledger.record("mine", "Go on.", "Done.")
    before = ledger.thread("mine").turns[1:]

    late = Log(tmp_path, THIRD)
    late.user("a", "What is it?")
    late.assistant("z", text("This."))
    late.save()
    import_paths(ledger, late.path)
    log.assistant("h", text("And so on."))
    log.save()
    import_paths(ledger, log.path)

    assert ledger.thread("mine").turns[1:] == before
    assert ledger.session(f"claude-code:{FIRST}").source_has_more


def test_a_fork_follows_an_answer_that_stands_beside_a_frozen_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, FIRST)
    for name in "abd":
        log.user(name, f"Prompt {name}")
    log.assistant("c", text("Because."))
    log.save()
    import_paths(ledger, log.path)
    ledger.fork(f"claude-code:{FIRST}", label="frozen")
    ledger.record("frozen", "Go on.", "Done.")
    import_paths(ledger, another_way(tmp_path))
    ledger.fork(f"claude-code:{FIRST}", label="mine")

    third = Log(tmp_path, THIRD)
    third.user("a", "Prompt a")
    third.user("b", "Prompt b")
    third.user("x", "Or this?")
    third.assistant("y", text("That."))
    third.save()
    import_paths(ledger, third.path)

    assert ledger.head("mine") == ledger.head(f"claude-code:{FIRST}")
    assert ledger.get_turn("mine").status == "completed"


def test_a_turn_loses_its_answer_in_the_commit_that_gives_it_to_another(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(batch_turns=1)
    import_paths(ledger, two_prompts(tmp_path).path)
    ledger.fork(f"claude-code:{FIRST}", label="mine")
    seen: list[list[str | None]] = []

    class LookedAt(Meddled):
        """A database whose fork is looked at after each write."""

        def write(self, work: Work[T]) -> T:
            done = super().write(work)
            turn = ledger.get_turn("mine")
            seen.append([turn.status, turn.response.content if turn.response else None])
            return done

    _, ledger._core.db = LookedAt.over(ledger._core.db)
    import_paths(ledger, another_way(tmp_path))

    assert seen
    assert all(each == ["completed", "Because."] for each in seen)


def test_a_prompt_stays_above_a_compaction_that_somebody_continued(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path, FIRST)
    log.user("a", "Begin.")
    log.assistant("b", text("Begun."))
    log.user("c", "Go on.")
    above: dict[str, Any] = {"parentUuid": None, "logicalParentUuid": log.last}
    metadata = {"trigger": "auto"}
    log.add("system", "d", subtype="compact_boundary", compactMetadata=metadata, **above)
    log.user("e", "So far.", isCompactSummary=True)
    import_paths(ledger, log.save())
    ledger.fork(uid("d"), label="mine")
    ledger.record("mine", "And then?", "That is all.")
    before = [turn.id for turn in ledger.thread("mine").turns]
    log.assistant("f", text("Gone on."))

    import_paths(ledger, log.save())

    assert [turn.id for turn in ledger.thread("mine").turns] == before
    assert queries(ledger, f"claude-code:{FIRST}") == ["Begin.", "Go on."]
    response = ledger.get_turn(uid("c")).response
    assert response is not None
    assert response.content == "Gone on."
    rows = result(ledger)
    rederive(ledger)
    assert result(ledger) == rows
    assert ledger.audit() == ()
