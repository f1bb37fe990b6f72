"""Copies of one log, of which one is damaged: each record is of one turn, whichever came first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.exhaustive import exhaustive
from tests.importers import copilot_log, test_aix, test_gemini
from tests.importers.claude_log import Log, text, tool
from tests.importers.codex_log import Rollout
from tests.importers.copilot_log import LABEL, Events
from tests.importers.helping import import_paths, result
from tests.importers.test_pi import Transcript, call

Lines = list[str]
Result = dict[str, list[tuple[Any, ...]]]
EVERY = pytest.mark.parametrize("every", [3, *exhaustive([1])])  # so many records
ORDERS = [(0, 1), (1, 0)]


def claude_code(folder: Path) -> tuple[Path, Lines]:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", {"type": "thinking", "thinking": "Hm."}, api="m1")
    log.assistant("a3", tool("t1", "Read", file_path="/x"), api="m1")
    log.result("a4", "t1", "x")
    log.assistant("a5", text("Begun."))
    log.user("b1", "And?")
    log.assistant("b2", text("So."))
    log.user("c1", "More?")
    log.assistant("c2", text("Done."))
    return log.path, log.lines


def codex(folder: Path) -> tuple[Path, Lines]:
    log = Rollout(folder)
    log.exchange(1, "Begin.")
    log.start(2)
    log.ask("And?")
    log.call("c1", output="Exit code: 0", cmd="ls")
    log.tokens(300)
    log.add("compacted", message="So far.", replacement_history=[])
    log.say("So.")
    log.end(2)
    log.exchange(3, "More?")
    return log.path, log.lines


def copilot(folder: Path) -> tuple[Path, Lines]:
    log = Events(folder)
    log.add("user.message", content="Begin.")
    log.say("Reading.", copilot_log.request("t1", "view", path="cart.py"))
    log.add("tool.execution_start", toolCallId="t1", toolName="view", arguments={"path": "x"})
    log.add("tool.execution_complete", toolCallId="t1", success=True, result={"content": "x"})
    log.say("Begun.")
    log.add("user.message", content="And?")
    log.say("So.")
    log.add("session.compaction_complete", summaryContent="So far.", preCompactionTokens=10)
    log.add("user.message", content="More?")
    log.say("Done.")
    log.add("session.shutdown", modelMetrics=copilot_log.metrics(10, 20))
    return log.path, log.lines


def copilot_with_subagents(folder: Path) -> tuple[Path, Lines]:
    log = copilot_log.helped(folder)
    log.say("Looked.")
    log.add("user.message", content="More?")
    log.say("Done.")
    return log.path, log.lines


def gemini(folder: Path) -> tuple[Path, Lines]:
    said = (test_gemini.ASK, test_gemini.LOOK, test_gemini.TELL, test_gemini.ASK2)
    path = test_gemini.lines(folder, *said, test_gemini.TELL2)
    return path, path.read_text().splitlines()


def pi(folder: Path) -> tuple[Path, Lines]:
    log = Transcript(folder)
    log.user("Begin.")
    log.say("Look.", call("k1", "bash", command="ls"))
    log.result("k1", "a.py")
    first = log.say("Begun.")
    log.user("And?")
    log.say("So.")
    log.add("compaction", summary="So far.", firstKeptEntryId=first, tokensBefore=9)
    log.user("More?")
    log.say("Done.")
    return log.path, log.lines


def damages(lines: Lines) -> list[Lines]:
    """The same with each record lost, or under another name."""
    found = []
    for at, line in enumerate(lines):
        found.append(lines[:at] + lines[at + 1 :])
        for name in ("id", "uuid"):
            if name in (record := json.loads(line)):
                found.append([*lines[:at], json.dumps(record | {name: "x"}), *lines[at + 1 :]])
    return found


def save(folder: Path, name: str, *copies: Lines) -> list[Path]:
    """Write copies of a log, each into a folder of its own."""
    paths = []
    for at, lines in enumerate(copies):
        paths.append(folder / str(at) / "x" / name)
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_text("".join(line + "\n" for line in lines))
    return paths


def ends_in(empty_file: Path, *paths: Path) -> Result:
    """What imports of these end in, one after the other."""
    at = shutil.copy(empty_file, paths[0].with_suffix(".db"))
    with Ledger.open(str(at)) as ledger:
        for path in paths:
            import_paths(ledger, path)
        assert not ledger.audit()
        return result(ledger)


@pytest.mark.parametrize(
    "log",
    [claude_code, codex, copilot, copilot_with_subagents, gemini, pi],
    ids=lambda f: f.__name__,
)
@EVERY
def test_whatever_one_copy_lost_both_orders_end_in_the_same(
    log: Callable[[Path], tuple[Path, Lines]], every: int, empty_file: Path, tmp_path: Path
) -> None:
    path, lines = log(tmp_path / "world")
    for at, damaged in enumerate(damages(lines)[::every]):
        folder = tmp_path / str(at)
        whole, copy = save(folder, path.name, lines, damaged)

        assert ends_in(empty_file, whole, copy) == ends_in(empty_file, copy, whole)
        shutil.rmtree(folder)


@pytest.mark.parametrize("log", [claude_code, codex, copilot, gemini, pi], ids=lambda f: f.__name__)
@EVERY
def test_two_halves_of_a_log_that_share_no_record_end_in_the_same(
    log: Callable[[Path], tuple[Path, Lines]], every: int, empty_file: Path, tmp_path: Path
) -> None:
    path, lines = log(tmp_path / "world")
    header = [] if log is claude_code else lines[:1]
    for at in range(1, len(lines), every):
        folder = tmp_path / str(at)
        first, second = save(folder, path.name, lines[:at], header + lines[at:])

        assert ends_in(empty_file, first, second) == ends_in(empty_file, second, first)
        shutil.rmtree(folder)


def codex_with_totals(folder: Path) -> tuple[Path, Lines]:
    log = Rollout(folder)
    log.exchange(1, "Begin.")
    log.start(2)
    log.ask("And?")
    log.tokens(150)
    log.tokens(150)  # said again
    log.say("So.")
    log.tokens(200)
    log.end(2)
    log.exchange(3, "More?")
    log.tokens(50)  # begun anew
    log.exchange(4, "Still?")
    return log.path, log.lines


def copilot_with_totals(folder: Path) -> tuple[Path, Lines]:
    log = Events(folder)
    for number in range(1, 5):
        log.add("user.message", content="Go on.")
        log.say("Going on.")
        log.say("Done.", outputTokens=20)
        log.add("session.shutdown", modelMetrics=copilot_log.metrics(500 * number, 37 * number))
        log.add("session.resume")
    return log.path, log.lines


@pytest.mark.parametrize("log", [codex_with_totals, copilot_with_totals], ids=lambda f: f.__name__)
def test_what_a_copy_lost_counts_once(
    log: Callable[[Path], tuple[Path, Lines]], empty_file: Path, tmp_path: Path
) -> None:
    path, lines = log(tmp_path / "world")
    counted = [at for at, line in enumerate(lines) if "okens" in line]
    spent = ends_in(empty_file, *save(tmp_path / "whole", path.name, lines))["threads"]
    for lost in counted:
        folder = tmp_path / str(lost)
        whole, copy = save(folder, path.name, lines, lines[:lost] + lines[lost + 1 :])

        assert ends_in(empty_file, whole, copy)["threads"] == spent
        assert ends_in(empty_file, copy, whole)["threads"] == spent
        shutil.rmtree(folder)


def test_halves_of_a_log_of_claude_code_are_in_order_though_the_second_is_read_first(
    empty_file: Path, tmp_path: Path
) -> None:
    path, lines = claude_code(tmp_path / "world")
    whole = ends_in(empty_file, *save(tmp_path / "whole", path.name, lines))
    for at in range(1, len(lines)):
        halves = save(tmp_path / str(at), path.name, lines[at:], lines[:at])

        found = ends_in(empty_file, *halves)
        for table in ("turns", "messages", "tool_calls"):
            assert found[table] == whole[table], at


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("damage", ["lost", "no record", "of no known kind", "under another id"])
def test_an_answer_is_of_the_prompt_that_only_one_copy_has(
    damage: str, order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    path, lines = copilot(tmp_path / "world")
    asked, prompt = 6, json.loads(lines[6])
    damaged = {
        "lost": [],
        "no record": [lines[asked][:40]],
        "of no known kind": [json.dumps(prompt | {"type": "x"})],
        "under another id": [json.dumps(prompt | {"id": "x"})],
    }[damage]
    copies = save(tmp_path, path.name, lines, [*lines[:asked], *damaged, *lines[asked + 1 :]])

    for number in order:
        import_paths(ledger, copies[number])

    said = [[m.content for m in turn.messages] for turn in ledger.thread(LABEL).turns]
    assert said == [
        ["Begin.", "Reading.", "Begun."],
        ["And?", "So."],
        ["So far."],
        ["More?", "Done."],
    ]
    spent = ledger.query("SELECT sum(output_tokens), sum(input_tokens) FROM turns")[1]
    assert spent == [(40, 10)]
    assert not ledger.audit()


@pytest.mark.parametrize("order", ORDERS)
def test_a_log_that_goes_on_behind_a_damaged_prompt_goes_on_from_that_prompt(
    order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path / "world")
    first = log.add("user.message", content="Begin.")
    log.say("Begun.")
    second = log.add("user.message", content="And?")
    log.say("So.")
    whole = list(log.lines)
    log.say("And so on.")
    third = log.add("user.message", content="More?")
    log.say("Done.")
    copies = save(tmp_path, log.path.name, whole, log.lines[:3] + log.lines[4:])

    for number in order:
        import_paths(ledger, copies[number])

    turns = ledger.thread(LABEL).turns
    assert [turn.id for turn in turns] == [first, second, third]
    assert sum(turn.output_tokens or 0 for turn in turns) == 40
    assert {m.content for turn in turns for m in turn.messages} >= {"So.", "And so on."}
    assert not ledger.audit()


@pytest.mark.parametrize("order", ORDERS)
def test_a_rest_that_goes_on_hangs_on_what_it_is_the_rest_of(
    order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path / "world")
    asked = log.add("user.message", content="Begin.")
    log.say("One.")
    whole = list(log.lines)
    log.say("Two.")
    last = log.add("user.message", content="And?")
    log.say("Done.")
    copies = save(tmp_path, log.path.name, whole, [log.lines[0], *log.lines[2:]])

    for number in order:
        import_paths(ledger, copies[number])

    turns = ledger.thread(LABEL).turns
    assert [[m.content for m in turn.messages] for turn in turns] == [
        ["Begin.", "One."],
        ["Two."],
        ["And?", "Done."],
    ]
    assert (turns[0].id, turns[2].id) == (asked, last)
    assert not ledger.audit()


@pytest.mark.parametrize("order", ORDERS)
def test_files_of_a_message_stay_behind_in_the_turn_it_is_taken_from(
    order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    path, lines = gemini(tmp_path / "world")
    asked, looked = (json.loads(lines[at]) for at in (1, 2))
    no_prompt = [lines[0], json.dumps(asked | {"type": "x"}), *lines[2:]]
    no_answer = [*lines[:2], json.dumps(looked | {"type": None}), *lines[3:]]
    copies = save(tmp_path, path.name, no_prompt, no_answer)

    for number in order:
        import_paths(ledger, copies[number])

    assert ledger.query("SELECT count(*) FROM message_files")[1] == [(0,)]
    assert not ledger.audit()


@pytest.mark.parametrize("order", ORDERS)
def test_two_copies_of_a_database_tell_each_message_once(
    order: tuple[int, int], ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    copies = [test_aix.sample(tmp_path / "a" / "aix.db"), tmp_path / "b" / "aix.db"]
    shutil.copy(*copies)
    import_paths(ledger, copies[order[0]])
    before = {name: rows for name, rows in result(ledger).items() if name != "turns"}

    import_paths(ledger, copies[order[1]])

    assert {name: rows for name, rows in result(ledger).items() if name != "turns"} == before
    assert not ledger.audit()
