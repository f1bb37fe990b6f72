"""How trees are drawn."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from agents_ledger import Compaction, Ledger, Session, ToolCall, Usage
from agents_ledger.render.tree_layout import BRANCHES_MAX
from tests.builders import chain, grow
from tests.edges.conftest import Run

ID = re.compile(r" [0-9A-Z]{10,26}(?= |$)")


@pytest.fixture
def ledger(file: str) -> Any:
    with Ledger.open(file) as opened:
        yield opened


def drawn(run: Run, *words: str) -> list[str]:
    """The lines of one tree, without its heading, ids, figures and trailing space."""
    _, *lines = run("tree", *words).out.splitlines()
    return [re.sub(r"\s{2,}.*", "", ID.sub("", line)).rstrip() for line in lines]


def test_a_fork_leaves_the_straight_line_to_the_head(run: Run, ledger: Ledger) -> None:
    grow(ledger, "1-2-3, 2-a-b, 1-x")

    assert drawn(run, "3") == [
        "◆ 1",
        "├─● [x] x",
        "◆ 2",
        "├─● a",
        "│ ● [b] b",
        "● [3] 3",
    ]
    assert drawn(run, "b") == [
        "◆ 1",
        "├─● [x] x",
        "◆ 2",
        "├─● [3] 3",
        "● a",
        "● [b] b",
    ]


def test_long_runs_are_folded(run: Run, ledger: Ledger) -> None:
    ids = chain(ledger, "main", 50)
    ledger.fork(ids[9], label="side")

    assert drawn(run) == [
        "● question 1",
        "┆ 8 turns",
        "● [side] question 10",
        "┆ 39 turns",
        "● [main] question 50",
    ]
    assert len(drawn(run, "--all")) == 50
    assert drawn(run, ids[8], "--below")[0] == "● question 9"


def test_a_single_turn_is_shown_rather_than_folded(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 3)

    assert drawn(run) == ["● question 1", "● question 2", "● [main] question 3"]


def test_abandoned_branches_take_one_line(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 2)
    ledger.record("main", "this way", status="failed", error="overloaded")
    ledger.fork("main", label="gone")
    for text in ("aside", "further aside", "lost"):
        ledger.record("gone", text, "answer")
    ledger.clear("gone")
    ledger.record("main", "that way", "fine")

    answer = run("tree").out

    assert re.search(r"├─✕ \S+ this way  failed: overloaded", answer)
    assert re.search(r"├─● \S+ aside  3 turns, no session", answer)
    assert "lost" not in answer
    assert "lost" in run("tree", "--all").out


def test_compactions_are_seams_and_subagents_spurs(run: Run, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    ledger.record("main", compaction=Compaction("gist", first, second, 1, trigger="manual"))
    call = ToolCall("Task", "{}", spawned_session_label="helper")
    ledger.record("main", "delegate", "done", steps=[call], usage=Usage(3000, 100))
    ledger.update_session("helper", task_status="completed", task_description="look around")
    chain(ledger, "helper", 3)

    answer = run("tree").out

    assert re.search(r"▬ \S+ compacted 1 turn → summary · manual", answer)
    assert re.search(r"● \S+ \[main\] delegate +1 tool +3.1k", answer)
    spur = "╰┄◻ helper  subagent, completed · 3 turns · 0 tokens  look around"
    assert spur.replace(" · 0 tokens", "") in answer
    assert "question 3" not in answer  # the subagent's own tree is not one more tree
    assert "question 3" in run("tree", "helper").out
    assert "question 3" in run("tree", "--all").out


def test_live_turns_are_marked(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "working on it") as turn:
        pending = run("tree").out
        turn.stream("so far")
        streaming = run("tree").out
        turn.respond()

    assert re.search(r"◌ \S+ working on it  pending", pending)
    assert re.search(r"◌ \S+ working on it  streaming", streaming)


def test_archived_sessions_say_so_and_deleted_ones_are_gone(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    ledger.fork("main", label="old")
    ledger.archive("old")
    ledger.fork("main", label="gone")
    ledger.archive("gone", "deleted")

    assert drawn(run) == ["● [main] [old (archived)] question 1"]


def test_the_main_session_is_the_straight_line_not_its_latest_fork(
    run: Run, ledger: Ledger
) -> None:
    ids = grow(ledger, "1-2")
    ledger.create_session(Session("late", ids["1"], created_as="fork"))
    ledger.record("late", "later", "answer")

    assert drawn(run) == ["◆ 1", "├─● [late] later", "● [2] 2"]


def test_trees_come_newest_first(run: Run, ledger: Ledger) -> None:
    for number in range(4):
        ledger.record(f"s{number}", f"tree {number}", "answer")

    answer = run("tree", "--limit", "3")

    assert re.findall(r"\] tree (\d)", answer.out) == ["3", "2", "1"]
    assert "--limit" in answer.err
    assert run("tree", "--limit", "4").err == ""


@pytest.mark.usefixtures("ticking")
def test_of_many_branches_the_latest_are_drawn(run: Run, ledger: Ledger) -> None:
    [root] = chain(ledger, "main", 1)
    for number in range(BRANCHES_MAX + 4):
        ledger.fork(root, label=f"b{number}")
        ledger.record(f"b{number}", f"branch {number}", "answer")

    answer = run("tree", "main").out

    assert "… 3 older branches (--all)" in answer
    assert "older branches" not in run("tree", "main", "--all").out
    assert "[b0]" not in answer
    assert f"[b{BRANCHES_MAX + 3}]" in answer


@pytest.mark.usefixtures("ticking")
def test_branches_too_far_to_the_right_say_how_to_see_them(run: Run, ledger: Ledger) -> None:
    """A branch of a branch of a branch, each left for the one further out."""
    at = chain(ledger, "main", 2)[0]
    for number in range(30):
        ledger.create_session(Session(f"deep{number}", at, created_as="fork"))
        at = ledger.record(f"deep{number}", f"level {number}", "answer").id
    for number in reversed(range(30)):
        ledger.record(f"deep{number}", f"end {number}", "answer")

    answer = run("tree", "main")

    assert all(len(line) <= 100 for line in answer.out.splitlines())
    [short] = re.findall(r"agents-ledger tree (\S+) --below", answer.out)
    assert "end 29" in run("tree", short, "--below").out


def test_a_turn_without_messages_has_a_line_of_text(run: Run, ledger: Ledger) -> None:
    with ledger.turn("main") as turn:
        turn.respond("")

    assert f"{turn.id[:10]} [main] no message" in run("tree").out


def test_json_has_the_nodes_with_what_is_folded_between(run: Run, ledger: Ledger) -> None:
    ids = chain(ledger, "main", 10)

    answer = run("tree", "main", "--json").json

    assert answer["schema_version"] == 1
    [tree] = answer["trees"]
    assert tree["turn_count"] == 10
    assert [node["headline"]["turn"]["id"] for node in tree["nodes"]] == [ids[0], ids[-1]]
    assert tree["nodes"][1]["above_id"] == ids[0]
    assert tree["nodes"][1]["folded"] == 8
    assert tree["nodes"][1]["heads"][0]["label"] == "main"


def test_thousands_of_turns_are_drawn_quickly(run: Run, ledger: Ledger) -> None:
    from agents_ledger.ledger.turns import recording

    def record(tx: Any) -> None:
        for number in range(5000):
            recording.record(tx, recording.recording("main", f"question {number}", "answer", {}))

    ledger._write(record)
    ids = ledger.ancestry("main")
    for number in range(100):
        ledger.fork(ids[number * 49], label=f"fork{number}")
        ledger.record(f"fork{number}", "aside", "answer")

    begun = time.process_time()
    answer = run("tree")

    assert time.process_time() - begun < 5
    assert 200 < len(answer.out.splitlines()) < 500
    assert answer.out.splitlines()[0].startswith("5,100 turns · 101 sessions")


def test_the_suggestion_for_more_trees_keeps_the_filters(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        for number in range(3):
            ledger.record(f"s{number}", "q", "r")

    printed = run("tree", "--limit", "1", "--since", "2026-01-01T05:00:00Z", "--all").err

    assert "tree --limit 2 --since 2026-01-01T05:00:00Z --all`" in printed


def test_a_session_whose_turns_all_failed_is_shown_with_them(run: Run, ledger: Ledger) -> None:
    turn = ledger.record("bot", "Deploy it.", status="failed", error="no key")

    assert turn.id[:10] in run("tree", "bot").out
    shown = run("show", "bot")
    assert f"1 turn failed since, the latest:\n  {turn.id} no key" in shown.err
    assert run("show", "bot", "--json").json["failed_turns"] == [turn.id]
