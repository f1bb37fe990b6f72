"""Which questions the benchmarks of recall ask of real sessions, and what they count as right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents_ledger import Ledger, Session, ToolCall
from benchmarks import fix, routing
from benchmarks.routing import Case

MISSING = "ModuleNotFoundError: No module named 'frobnicate'"
ANSWER = "Done."


def sh(command: str, output: str = "ok", error: str | None = None) -> ToolCall:
    return ToolCall.of("Bash", {"command": command}, output, error)


def cases(ledger: Ledger) -> list[str]:
    return [case.text for case in ledger._core.db.read(lambda tx: list(routing.cases(tx)))]


def test_only_prompts_that_can_be_placed_are_asked(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "a.db")) as ledger:
        for prompt in (
            "Explain the parser of the settings file",
            "Rename the parser of the settings file",
            "Test the parser of the settings file",
            "Why does the parser refuse tabs in names?",
            "can you do it for me now please?",
            "<command-name>/review the parser again</command-name>",
            "Add page 12 of the printed manual",
        ):
            ledger.record("parser", prompt, ANSWER)
        ledger.record("manual", "Add page 99 of the printed manual", ANSWER)

        assert cases(ledger) == ["Why does the parser refuse tabs in names?"]


def test_prompts_of_subagents_are_not_asked(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "a.db")) as ledger:
        for number in range(3):
            ledger.record("main", f"Part {number} of the long beginning", ANSWER)
        ledger.record("main", "Look for the slow queries in reports", ANSWER)
        ledger.create_session(Session("sub", is_subagent=True))
        for word in ("alpha", "beta", "gamma", "delta"):
            ledger.record("sub", f"Look for {word} queries in the big reports", ANSWER)

        assert cases(ledger) == ["Look for the slow queries in reports"]


def test_any_turn_of_the_session_is_right_about_the_session() -> None:
    sessions = {"a1": "a", "a2": "a", "branch": "a", "b1": "b"}

    ranks = routing.ranks(["b1", "branch", "a2"], Case("a3", "a2", "text"), sessions)

    assert (ranks.turn, ranks.session) == (3, 2)


def work(ledger: Ledger, label: str, at: int, *steps: Any) -> None:
    ledger.record(label, "Make it work.", ANSWER, steps=list(steps), started_at=at)


def test_a_remedy_is_asked_at_its_error_and_only_where_it_can_be_known(tmp_path: Path) -> None:
    failing, works = sh("python run.py", MISSING, MISSING), sh("python run.py")
    with Ledger.open(str(tmp_path / "past.db")) as ledger:
        work(ledger, "first", 1000, failing, sh("pip install frobnicate"), works)
        work(ledger, "second", 2000, failing, sh("pip install other"), works)
        work(ledger, "third", 3000, failing, sh("apt-get install frob"), works)
        past = fix.past_turns(ledger)

    with Ledger.open(str(tmp_path / "growing.db")) as ledger:
        second, third = fix.replayed(ledger, past)

    assert [one.label for one in second.case.known] == ["first"]
    assert [answer.fixed_by.command for answer in second.answers] == ["pip install frobnicate"]
    assert second.rank == 1
    assert [one.label for one in third.case.likes] == ["first", "second"]
    assert not third.case.known
    assert third.rank == 0


def test_a_corrected_command_must_share_a_word_of_the_correction() -> None:
    def call(command: str) -> Any:
        return fix._call(sh(command))

    failed, pushed = call("git push"), call("git push -u origin main")

    assert fix.is_same_remedy(call("git push -u me main"), call("git push"), pushed, failed)
    assert not fix.is_same_remedy(call("git push --force"), call("git push"), pushed, failed)
    assert not fix.is_same_remedy(call("git pull"), call("git push"), pushed, failed)
