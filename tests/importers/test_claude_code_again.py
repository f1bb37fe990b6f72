"""Claude Code: a session that is resumed may stand in its file once more, under new ids."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.claude_log import Log, text, tool, uid
from tests.importers.helping import import_paths, result
from tests.statements import Meddled

LATER = {"timestamp": "2026-03-02T10:00:00.000Z"}  # as 2.0.29 wrote them; later ones keep the time


def new_names() -> Iterator[str]:
    return (f"c{n:x}" for n in itertools.count())


def two_turns(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", [text("Look at this."), text("Please.")])
    log.assistant("a2", text("I look."), api="m1")
    log.assistant("a3", tool("call-1", "Bash", command="ls"), api="m1")
    log.result("a4", "call-1", "file")
    log.assistant("a5", text("Seen."), api="m2")
    log.user("b1", "Again.")
    log.assistant("b2", text("Well."), tool("call-2", "Bash", command="ls"), api="m3")
    log.result("b3", "call-2", "file")
    log.add("system", "b4", subtype="api_error")
    log.assistant("b5", text("The same."), api="m4")
    return log


def turns(ledger: Ledger) -> dict[str, tuple[str | None, int]]:
    """Each turn's parent, and its tokens."""
    rows = ledger.query("SELECT id, parent_turn_id, total_tokens FROM turns ORDER BY id")[1]
    return {
        str(turn)[-2:]: (above and str(above)[-2:], int(tokens)) for turn, above, tokens in rows
    }


@pytest.mark.parametrize("fields", [{}, LATER])
@pytest.mark.parametrize("since", [0, 4, 6, 9])
def test_what_is_written_again_is_told_once_and_the_thread_goes_on(
    ledger: Ledger, tmp_path: Path, since: int, fields: dict[str, str]
) -> None:
    log, names = two_turns(tmp_path), new_names()
    import_paths(ledger, log.save())
    before = ledger.query("SELECT id, turn_id, content FROM messages ORDER BY id")[1]

    log.resume(names, since, **fields)
    log.user("d1", "And now?", **LATER)
    log.assistant("d2", text("Now this."), api="m5")
    log.resume(names, 0, **fields)
    log.user("e1", "And then?", **LATER)
    log.assistant("e2", text("Then that."), api="m6")
    import_paths(ledger, log.save())

    assert turns(ledger) == {
        "a1": (None, 30),
        "b1": ("a1", 30),
        "d1": ("b1", 15),
        "e1": ("d1", 15),
    }
    after = ledger.query("SELECT id, turn_id, content FROM messages ORDER BY id")[1]
    assert [row for row in after if row[1] in (uid("a1"), uid("b1"))] == before
    assert len(after) == len(before) + 4
    assert not ledger.audit()


def test_every_record_that_is_written_again_is_accounted_for(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names())
    report = import_paths(ledger, log.save())

    assert turns(ledger) == {"a1": (None, 30), "b1": ("a1", 30)}
    kept = {kind: n for (_, kind, fate), n in report.records.items() if fate == "derived"}
    assert kept == {"user": 4 + 5, "assistant": 5 + 6, "system": 1}


def test_of_what_is_written_again_only_what_is_new_is_noted(
    limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    ledger = limited(derived_turns=4)
    meddled, ledger._core.db = Meddled.over(ledger._core.db)
    log, names = two_turns(tmp_path), new_names()
    noted: list[tuple[int, int]] = []

    for since in (0, 6, None):
        if since is not None:
            log.resume(names, since)
        log.user(f"d{len(noted)}", "And now?", **LATER)
        log.assistant(f"e{len(noted)}", text("Now this."))
        meddled.writes.clear()
        report = import_paths(ledger, log.save())
        assert not report.faults
        repeated = ledger.query("SELECT id FROM repeated_records")[1]
        ran = sum(each.count("upsert_repeated_record") for each in meddled.writes)
        noted.append((ran, len(repeated)))

    assert noted == [(11, 11), (6, 17), (0, 17)]


@pytest.mark.parametrize("since", [0, 6])
def test_a_fork_of_what_was_written_again_is_the_same_in_any_order(
    ledger: Ledger, tmp_path: Path, since: int
) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names(), since)
    fork = Log(tmp_path, "00000000-2222-4222-8222-222222222222")
    fork.lines, fork.last = [json.dumps(record) for record in log.thread()], log.last
    fork.user("f1", "Otherwise?")
    fork.assistant("f2", text("So."), api="m7")
    paths = [log.save(), fork.save()]

    for path in paths:
        import_paths(ledger, path)

    assert turns(ledger) == {"a1": (None, 30), "b1": ("a1", 30), "f1": ("b1", 15)}
    for number, steps in enumerate(([paths], [paths[::-1]], [paths[1:], paths[:1]])):
        with Ledger.open(str(tmp_path / f"{number}.db")) as other:
            for step in steps:
                import_paths(other, *step)
            assert result(other) == result(ledger)
            assert not other.audit()


def test_who_stands_on_a_turn_follows_its_records_into_another(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names())
    copy = Log(tmp_path, "00000000-2222-4222-8222-222222222222")
    copy.lines = [json.dumps(record) for record in log.thread()]
    import_paths(ledger, copy.save())
    first, second = turns(ledger)
    ledger.fork(uid(second), label="mine")
    ledger.fork(uid(first), label="moved")
    ledger.move("moved", uid(second))

    import_paths(ledger, log.save())

    assert turns(ledger) == {"a1": (None, 30), "b1": ("a1", 30)}
    for label in ("mine", "moved"):
        assert ledger.session(label).thread_id == uid("b1")
    assert [move.thread_id for move in ledger.history("moved")] == [uid("b1"), uid("a1")]
    assert not ledger.audit()


def test_a_title_is_found_by_a_record_that_was_written_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names())
    import_paths(ledger, log.save())
    other = Log(tmp_path, "00000000-3333-4333-8333-333333333333")
    other.lines.append(json.dumps({"type": "summary", "summary": "Twice", "leafUuid": log.last}))

    import_paths(ledger, other.save())

    titles = ledger.query("SELECT source_title FROM sessions WHERE thread_id IS NOT NULL")[1]
    assert titles == [("Twice",)]


def test_a_subagent_is_linked_to_the_turn_that_stays_in_any_order(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Search.")
    log.assistant("a2", text("Well."), tool("call-1", "Task", prompt="Look."), api="m1")
    log.user("51", "Look.", isSidechain=True, parentUuid=None)
    log.assistant("52", text("Seen."), isSidechain=True, api="m2")
    helper = log.lines[-2:]
    log.result("a3", "call-1", "Seen.", parentUuid=uid("a2"))
    log.assistant("a4", text("Found."), api="m3")
    log.resume(new_names())
    fork = Log(tmp_path, "00000000-2222-4222-8222-222222222222")
    fork.lines, fork.last = helper + [json.dumps(each) for each in log.thread()], log.last
    fork.user("f1", "Otherwise?")
    fork.assistant("f2", text("So."), api="m4")

    import_paths(ledger, fork.save())  # its turn is known by the new ids alone
    import_paths(ledger, log.save())

    (call,) = ledger.get_turn(uid("a1")).tool_calls
    child = ledger.session(str(call.spawned_session_label))
    assert (child.parent_turn_id, child.spawn_tool_call_id) == (uid("a1"), "call-1")
    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, log.path, fork.path)
        assert result(other) == result(ledger)


def test_the_same_prompt_given_once_more_is_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names(), 6)  # so that answers come again
    log.last = uid("a5")
    log.user("d1", "Again.")
    log.assistant("d2", text("Otherwise."), api="m5")
    import_paths(ledger, log.save())

    assert turns(ledger) == {"a1": (None, 30), "b1": ("a1", 30), "d1": ("a1", 15)}


def test_pieces_of_one_answer_that_say_the_same_are_no_repetition(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = two_turns(tmp_path)
    log.resume(new_names())
    log.user("d1", "And now?")
    for name, tokens in (("d2", 1), ("d3", 200)):
        usage = {"input_tokens": 10, "output_tokens": tokens}
        log.assistant(name, text("Now this."), api="m5", usage=usage)
    import_paths(ledger, log.save())

    assert turns(ledger)["d1"] == ("b1", 210)


def test_one_answer_comes_again_without_what_hooks_left(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", [text("Look at this."), text("Please.")])
    log.add("attachment", "a2", attachment={"type": "hook_success"})
    log.assistant("a3", text("Seen."), api="m1")
    log.user("c1", [text("Look at this.")], parentUuid=None, **LATER)
    log.user("c2", [text("Please.")], **LATER)
    log.assistant("c3", text("Seen."), api="m1", **LATER)
    log.user("d1", "And now?")
    log.assistant("d2", text("Now this."), api="m2")
    import_paths(ledger, log.save())

    assert turns(ledger) == {"a1": (None, 15), "d1": ("a1", 15)}
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
