"""fix(), how() and recall(): what the ledger answers from the calls and passages it has."""

from __future__ import annotations

from typing import Any

import pytest

from agents_ledger import Ledger, Message, Refused, ToolCall
from agents_ledger.ledger.ask import examples, fixes
from agents_ledger.ledger.ask.calls import problem_lines, simple_commands
from agents_ledger.model.text.tokens import estimate_tokens

MISSING = "ModuleNotFoundError: No module named 'frobnicate'"
EXIT_1 = "Process exited with code 1\nOutput:\n"


def sh(command: str, output: str = "ok", error: str | None = None) -> ToolCall:
    return ToolCall.of("Bash", {"command": command}, output, error)


def work(ledger: Ledger, label: str, *steps: Any) -> str:
    return ledger.record(label, "Make it work.", "Done.", steps=list(steps)).id


# -- fix --------------------------------------------------------------------------------------


def test_the_fix_is_the_change_between_the_error_and_the_success(ledger: Ledger) -> None:
    turn_id = work(
        ledger,
        "main",
        sh("cd app && python run.py", MISSING, MISSING),
        sh("ls site-packages"),
        sh("pip install frobnicate"),
        sh("cd app && python run.py"),
    )

    [fix] = ledger.fix(f"Traceback (most recent call last):\n  File x, line 9\n{MISSING}")

    assert (fix.turn_id, fix.session_label, fix.error) == (turn_id, "main", MISSING)
    assert fix.fixed_by.command == "pip install frobnicate"
    assert [step.command for step in fix.steps] == ["pip install frobnicate"]
    assert fix.succeeded.command == "cd app && python run.py"
    assert fix.succeeded.status == "completed"
    assert fix.likeness == 1.0


def test_a_corrected_command_is_its_own_fix(ledger: Ledger) -> None:
    refused = "fatal: The current branch has no upstream branch."
    work(ledger, "main", sh("git push", refused, refused), sh("git push -u origin main"))

    [fix] = ledger.fix("fatal: the current branch topic has no upstream branch")

    assert fix.fixed_by == fix.succeeded
    assert fix.fixed_by.command == "git push -u origin main"


def test_a_look_is_the_fix_where_the_same_call_succeeds_after_it(ledger: Ledger) -> None:
    unread = "File has not been read yet."
    edit = ("Edit", {"file_path": "/a.py", "old_string": "x"})
    read = ToolCall.of("Read", {"file_path": "/a.py"}, "x")
    work(ledger, "main", ToolCall.of(*edit, None, unread), read, ToolCall.of(*edit, "ok"))

    [fix] = ledger.fix(unread)

    assert (fix.fixed_by.tool_name, fix.fixed_by.command) == ("Read", "/a.py")


def test_an_error_that_came_again_was_not_ended_by_what_was_tried_before(ledger: Ledger) -> None:
    work(
        ledger,
        "main",
        sh("npm start", MISSING, MISSING),
        sh("rm -rf node_modules"),
        sh("npm start", MISSING, MISSING),
        sh("npm install"),
        sh("npm start"),
    )

    [fix] = ledger.fix(MISSING)

    assert (fix.fixed_by.command, fix.times) == ("npm install", 1)
    assert [step.command for step in fix.steps] == ["npm install"]


def test_of_several_changes_the_last_is_taken_for_the_fix(ledger: Ledger) -> None:
    changes = [sh("rm -rf node_modules"), sh("npm install"), sh("npm test")]
    work(ledger, "main", sh("npm start", MISSING, MISSING), *changes, sh("npm start"))

    [fix] = ledger.fix(MISSING)

    assert [step.command for step in fix.steps] == ["rm -rf node_modules", "npm install"]
    assert fix.fixed_by == fix.steps[-1]


def test_the_end_of_an_error_may_be_in_a_later_turn(ledger: Ledger) -> None:
    first = work(ledger, "main", sh("make", EXIT_1 + "error: frobnicate undeclared"))
    second = work(ledger, "main", sh("apt-get install libfrob"), sh("make"))

    [fix] = ledger.fix("error: 'frobnicate' undeclared (first use in this function)")

    assert (fix.turn_id, fix.fixed_by.turn_id) == (first, second)


def test_an_error_without_an_end_and_an_unknown_error_have_no_fix(ledger: Ledger) -> None:
    work(ledger, "main", sh("python run.py", MISSING, MISSING), sh("ls"))

    assert len(ledger.fix(MISSING)) == 0
    assert len(ledger.fix("segmentation fault in zlib")) == 0


def test_equal_fixes_are_counted_and_others_follow_on_the_next_page(ledger: Ledger) -> None:
    for label, remedy in (("a", "pip install x"), ("b", "pip install x"), ("c", "uv sync now")):
        failing = sh("python run.py", MISSING, MISSING)
        work(ledger, label, failing, sh(remedy), sh("python run.py"))

    page = ledger.fix(MISSING, limit=1)
    rest = ledger.fix(MISSING, limit=1, after=page.next)

    times = {fix.fixed_by.command: fix.times for fix in (*page, *rest)}
    assert times == {"pip install x": 2, "uv sync now": 1}
    assert rest.next is None


def test_the_same_remedy_on_other_files_leaves_room_for_other_remedies(ledger: Ledger) -> None:
    unread = "File has not been read yet."

    def edit(path: str, *outcome: str | None) -> ToolCall:
        return ToolCall.of("Edit", {"file_path": path, "old_string": "x"}, *outcome)

    for path in ("/a.py", "/b.py", "/c.py"):
        read = ToolCall.of("Read", {"file_path": path}, "x")
        work(ledger, path, edit(path, None, unread), read, edit(path, "ok"))
    work(ledger, "other", edit("/d.py", None, unread), sh("touch /d.py"), edit("/d.py", "ok"))

    times = {fix.fixed_by.tool_name: fix.times for fix in ledger.fix(unread)}

    assert times == {"Read": 3, "Bash": 1}


def test_an_answer_reads_a_bounded_number_of_turns(ledger: Ledger) -> None:
    for number in range(70):
        failing = sh("python run.py", MISSING, MISSING)
        work(ledger, f"s{number}", failing, sh("pip install x"), sh("python run.py"))

    assert ledger.fix(MISSING).fixes[0].times == fixes.TURNS_READ
    assert ledger.how("pip install").examples[0].succeeded == examples.TURNS_READ


@pytest.mark.parametrize("verb", ["fix", "how"])
def test_bad_input_is_refused(ledger: Ledger, verb: str) -> None:
    for text, options in (("...", {}), ("word", {"limit": 0}), ("word", {"after": "x"})):
        with pytest.raises(Refused):
            getattr(ledger, verb)(text, **options)


# -- how --------------------------------------------------------------------------------------


def test_a_command_is_found_by_its_first_words_and_failures_are_left_out(ledger: Ledger) -> None:
    work(ledger, "main", sh("git rebase --onto main a b"), sh("git rebase --onto main a b"))
    work(ledger, "main", sh("cd x && git rebase -i HEAD~2"), sh("git rebase nowhere", "", "bad"))
    work(ledger, "main", sh("echo git rebase"), ToolCall.of("Read", {"path": "git rebase"}, "x"))

    examples = ledger.how("git rebase")

    assert [(one.call.command, one.succeeded, one.failed) for one in examples] == [
        ("git rebase --onto main a b", 2, 0),
        ("echo git rebase", 1, 0),
        ("cd x && git rebase -i HEAD~2", 1, 0),
    ]


def test_a_failure_behind_a_pipe_is_no_success(ledger: Ledger) -> None:
    rejected = "fatal: unable to access 'https://git.example/': 403"
    work(ledger, "main", sh("git push 2>&1 | tail -3", rejected), sh("git push; date", rejected))
    work(ledger, "main", sh("git push origin main", "error: is a word of the log\nok"))
    work(ledger, "main", sh("git push --help | cat", "prints fatal: here"))
    work(ledger, "main", sh("grep 'git push' log | head", rejected))

    commands = {one.call.command for one in ledger.how("git push")}

    assert commands == {
        "git push origin main",
        "git push --help | cat",
        "grep 'git push' log | head",
    }


def test_a_tool_is_found_by_its_name_in_either_case(ledger: Ledger) -> None:
    turn_id = work(ledger, "main", ToolCall.of("WebFetch", {"url": "https://a.example"}, "page"))

    [example] = ledger.how("webfetch")

    assert (example.call.turn_id, example.call.command) == (turn_id, "https://a.example")
    assert example.output == "page"
    assert len(ledger.how("nonsense")) == 0


# -- recall -----------------------------------------------------------------------------------


def test_passages_have_their_context_and_fit_the_budget(ledger: Ledger) -> None:
    long = "padding " * 400
    steps = [Message("assistant", f"{long} The cache key is the content hash. {long}")]
    turn_id = ledger.record("main", "Speed it up.", "All faster now.", steps=steps).id
    for number in range(20):
        ledger.record(f"other-{number}", f"About the cache, part {number}", long)

    recalled = ledger.recall("what is the cache key?", budget=700)

    first = recalled.passages[0]
    assert (first.turn_id, first.prompt, first.answer) == (
        turn_id,
        "Speed it up.",
        "All faster now.",
    )
    assert "The cache key is the content hash." in first.text
    assert len(first.text) < 1300
    assert 0 < recalled.tokens <= 700
    assert recalled.tokens >= sum(estimate_tokens(passage.text) for passage in recalled)
    rest = ledger.recall("what is the cache key?", budget=700, after=recalled.next)
    assert {p.turn_id for p in recalled}.isdisjoint(p.turn_id for p in rest)


def test_the_first_passage_is_shortened_to_a_small_budget(ledger: Ledger) -> None:
    ledger.record("main", "q " * 500, f"The zebra is striped. {'more ' * 1000}")

    recalled = ledger.recall("zebra", budget=200)

    [passage] = recalled
    assert "zebra" in passage.text
    assert recalled.tokens <= 200
    with pytest.raises(Refused, match="budget is 5"):
        ledger.recall("zebra", budget=5)


# -- commands ---------------------------------------------------------------------------------


def test_commands_are_read_without_options_folders_and_wrappers() -> None:
    chain = "cd /x && CI=1 sudo npm run -s build:all 2>&1 | tail -5; ./node_modules/.bin/tsc -p ."
    ran = list(simple_commands(chain))
    assert ran[:3] == [("cd",), ("npm", "run", "build:all"), ("tail",)]
    assert ran[3][0] == "tsc"
    assert list(simple_commands("echo 'open")) == [("echo",)]
    assert list(simple_commands("")) == []


def test_the_lines_that_report_a_problem_are_the_error() -> None:
    output = "Compiling\nProcess exited with code 1\nerror: no such file\n0 errors\nDone"
    assert problem_lines(output) == "error: no such file"
    assert problem_lines("plain\nlast") == "plain\nlast"
