"""A prompt that only failed is a turn that can be a head, in every source that tells of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers import test_cline, test_cline_sessions, test_cursor_agent, test_gemini
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.copilot_log import Events
from tests.importers.helping import import_paths
from tests.importers.test_pi import Transcript

Write = Callable[[Path, int], Path]
"""Writes so many of: a prompt, its failure, another prompt, its answer."""


def claude_code_interrupted(folder: Path, number: int) -> Path:
    return _claude_code(folder, number, interrupted=True)


def claude_code_given_up(folder: Path, number: int) -> Path:
    return _claude_code(folder, number, interrupted=False)


def _claude_code(folder: Path, number: int, *, interrupted: bool) -> Path:
    log = Log(folder)
    log.user("a1", "Begin.")
    if interrupted:
        log.user("a2", [text("[Request interrupted by user]")])
    else:
        tried = {"retryAttempt": 3, "maxRetries": 3, "error": {"message": "Overloaded"}}
        log.add("system", "a2", subtype="api_error", **tried)
    log.user("b1", "Again.")
    log.assistant("b2", text("Done."))
    del log.lines[number:]
    return log.save()


def cline_failed(folder: Path, number: int) -> Path:
    failed = {"ts": 1002, "type": "ask", "ask": "api_req_failed", "text": "Overloaded"}
    return _cline(folder, number, failed)


def cline_cancelled(folder: Path, number: int) -> Path:
    return _cline(folder, number, test_cline.request(1002, cancelReason="user_cancelled"))


def _cline(folder: Path, number: int, failed: dict[str, Any]) -> Path:
    said = (test_cline.say(1003, "user_feedback", "Again."), test_cline.say(1004, "text", "Done."))
    return test_cline.write(folder, [test_cline.TASK, failed, *said][:number])


def cline_session(folder: Path, number: int) -> Path:
    said = test_cline_sessions
    words = said.text("Overloaded")
    messages = [
        said.user("u1", said.wrapped("Begin.")),
        said.user("e1", words, metadata={"displayRole": "error"}),
        said.user("u2", said.wrapped("Again.")),
        said.agent("a2", said.text("Done.")),
    ]
    return said.write(folder, messages[:number])


def copilot(folder: Path, number: int) -> Path:
    log = Events(folder)
    log.add("user.message", content="Begin.")
    log.add("session.error", errorType="query", message="Overloaded")
    log.add("user.message", content="Again.")
    log.say("Done.")
    del log.lines[number + 1 :]
    return log.save()


def cursor_agent(folder: Path, number: int) -> Path:
    made = test_cursor_agent
    lines = (
        made.said("user", made.text("Begin.")),
        {"type": "error", "error": "Overloaded"},
        made.said("user", made.text("Again.")),
        made.said("assistant", made.text("Done.")),
    )
    path = folder / made.PROJECT / made.SESSION / f"{made.SESSION}.jsonl"
    return made.transcript(path, *lines[:number])


def gemini_cancelled(folder: Path, number: int) -> Path:
    return _gemini(folder, number, test_gemini.said("i1", "info", "Request cancelled."))


def gemini_failed(folder: Path, number: int) -> Path:
    return _gemini(folder, number, test_gemini.said("e1", "error", "Overloaded"))


def _gemini(folder: Path, number: int, failed: dict[str, Any]) -> Path:
    said = (test_gemini.ASK, failed, test_gemini.ASK2, test_gemini.TELL2)
    return test_gemini.document(folder, *said[:number])


def pi(folder: Path, number: int) -> Path:
    log = Transcript(folder)
    log.user("Begin.")
    log.say("", message={"stopReason": "error", "errorMessage": "Overloaded"})
    log.user("Again.")
    log.say("Done.")
    del log.lines[number + 1 :]
    return log.save()


@pytest.mark.parametrize(
    "write",
    [
        claude_code_given_up,
        claude_code_interrupted,
        cline_cancelled,
        cline_failed,
        cline_session,
        copilot,
        cursor_agent,
        gemini_cancelled,
        gemini_failed,
        pi,
    ],
    ids=lambda write: write.__name__,
)
def test_a_prompt_that_only_failed_is_a_head_until_the_next_is_answered(
    write: Write, ledger: Ledger, tmp_path: Path
) -> None:
    def told(number: int) -> tuple[list[str], str | None]:
        """The turns, and the one the session points at, when so much is written."""
        import_paths(ledger, write(tmp_path, number))
        assert not ledger.audit()
        turns = ledger.query("SELECT status FROM turns ORDER BY parent_turn_id IS NOT NULL")[1]
        heads = "SELECT t.status FROM sessions s LEFT JOIN turns t ON t.id = s.thread_id"
        ((head,),) = ledger.query(heads)[1]
        return [status for (status,) in turns], head

    assert told(1) == (["pending"], None)
    assert told(2) == (["failed"], "failed")
    (error,) = ledger.query("SELECT error FROM turns")[1][0]
    assert any(word in error.lower() for word in ("overloaded", "interrupted", "cancelled"))
    assert told(3) == (["failed", "pending"], "failed")
    assert told(4) == (["failed", "completed"], "completed")


@pytest.mark.parametrize("answered", [False, True])
def test_a_command_of_the_program_behind_a_failure_takes_nothing_back(
    ledger: Ledger, tmp_path: Path, answered: bool
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    if answered:
        log.assistant("a2", text("Overloaded"), model="<synthetic>", isApiErrorMessage=True)
    else:
        log.user("a2", "[Request interrupted by user]")
    log.user("b1", "<command-name>/cost</command-name>")
    log.user("b2", "<local-command-stdout>$1</local-command-stdout>")

    import_paths(ledger, log.save())

    assert ledger.head(f"claude-code:{SESSION}") == uid("a1")
    assert ledger.get_turn(uid("a1")).status == "failed"


def test_a_failure_of_nothing_that_was_asked_is_no_turn_to_stand_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "[Request interrupted by user]")
    import_paths(ledger, log.save())
    assert ledger.head(f"claude-code:{SESSION}") is None

    log.user("b1", "Begin.")
    log.assistant("b2", text("Begun."))
    import_paths(ledger, log.save())

    assert ledger.query("SELECT id, status FROM turns")[1] == [(uid("b1"), "completed")]


def test_claude_code_says_in_its_own_words_why_it_gave_up(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    tried = {"retryAttempt": 3, "maxRetries": 3, "error": {"message": "Overloaded"}}
    log.add("system", "a2", subtype="api_error", content="Try again later.", **tried)
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert (turn.status, turn.error) == ("failed", "Try again later.")


def test_a_command_of_claude_code_that_only_an_error_answered_failed(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-name>/model</command-name>")
    log.user("a2", "<local-command-stdout>Set model to opus</local-command-stdout>")
    log.assistant("a3", text("Please run /login"), isApiErrorMessage=True)
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert (turn.status, turn.error) == ("failed", "Please run /login")
