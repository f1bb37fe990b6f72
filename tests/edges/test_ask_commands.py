"""fix, how and recall as a user calls them."""

from __future__ import annotations

import json

from agents_ledger import Ledger, ToolCall
from tests.edges.conftest import Run

ERROR = "fatal: \x1b[31mno upstream branch\x1b[0m"


def fill(file: str) -> str:
    steps = [
        ToolCall.of("Bash", {"command": "git push"}, None, ERROR),
        ToolCall.of("Bash", {"command": "git push -u origin topic"}, "pushed"),
    ]
    with Ledger.open(file) as ledger:
        return ledger.record("main", "Publish the branch.", "It is published.", steps=steps).id


def test_a_fix_is_shown_with_its_turn_and_its_calls(run: Run, file: str) -> None:
    turn_id = fill(file)

    answer = run("fix", "fatal: no upstream branch")

    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[0].startswith(turn_id)
    assert "100% alike" in lines[0]
    assert "failed    Bash git push" in answer.out
    assert "fixed by  Bash git push -u origin topic" in answer.out
    assert "\x1b" not in answer.out
    [fix] = json.loads(run("fix", ERROR, "--json").out)["fixes"]
    assert fix["fixed_by"]["turn_id"] == turn_id


def test_examples_and_passages_are_shown_with_their_turns(run: Run, file: str) -> None:
    turn_id = fill(file)

    how = run("how", "git", "push")
    recalled = run("recall", "which", "branch", "was", "published?")

    assert how.out.startswith(turn_id)
    assert "call      Bash git push -u origin topic" in how.out
    assert recalled.out.startswith(turn_id)
    assert "answered: It is published." in recalled.out


def test_nothing_found_is_an_exit_code_of_1(run: Run, file: str) -> None:
    fill(file)

    for arguments in (("fix", "segfault"), ("how", "kubectl"), ("recall", "walrus")):
        answer = run(*arguments)
        assert (answer.code, answer.out) == (1, "")
    assert run("recall", "walrus", "--budget", "3").code == 2


def test_label_and_title_of_a_passage_are_apart(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "Where is the zebra?", "The zebra is in the shed.")
        ledger.annotate("main", title="Find the zebra")

    assert "  main  Find the zebra\n" in run("recall", "zebra").out
