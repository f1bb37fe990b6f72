"""Claude Code: helpers that are given copies of a session's records, and the threads they begin."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, packed_result, result

LABEL = f"claude-code:{SESSION}"
SIDE_QUESTION = (
    "<system-reminder>This is a side question from the user. You must answer this question"
    " directly in a single response.\n\nSimply answer.</system-reminder>\n\n"
)
SUMMARISE = "Your task is to create a detailed summary of the conversation so far."


def a_session(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "Go on.")
    log.assistant("b2", tool("t1", "Bash", command="make"))
    return log


class Helper(Log):
    """A helper's log: copies of another's records, and its own."""

    def __init__(self, log: Log, folder: Path, agent: str, copies: int | None = None) -> None:
        super().__init__(folder / SESSION / "subagents", f"agent-{agent}")
        self.own: dict[str, Any] = {"isSidechain": True, "agentId": agent, "sessionId": SESSION}
        self.label = f"claude-code:agent-{agent}"
        self.lines = [json.dumps(json.loads(line) | self.own) for line in log.lines[:copies]]
        self.last = json.loads(self.lines[-1])["uuid"]
        self.clock = len(self.lines)

    def ask(self, name: str, words: str, answer: str) -> None:
        self.user(name, words, **self.own)
        self.assistant(f"{name}f", text(answer), usage={"output_tokens": 7}, **self.own)


@pytest.mark.finding("import-1")
@pytest.mark.parametrize("is_meta", [False, True])
@pytest.mark.parametrize("order", [*permutations((0, 1))])
def test_a_side_question_is_a_thread_of_its_own(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...], is_meta: bool
) -> None:
    log = a_session(tmp_path)
    helper = Helper(log, tmp_path, "aside_question-1")
    helper.own |= {"isMeta": True} if is_meta else {}
    helper.ask("51", SIDE_QUESTION + "What was that file?", "till.py")
    log.result("b3", "t1", "made")
    log.assistant("b4", text("Gone on."), usage={"output_tokens": 5})
    paths = log.save(), helper.save()
    for number in order:
        import_paths(ledger, paths[number])

    first, second = ledger.thread(LABEL).turns
    assert [m.content for m in second.messages if m.content] == ["Go on.", "Gone on."]
    assert second.output_tokens == 10
    session = ledger.session(helper.label)
    assert (session.parent_turn_id, session.thread_id) == (second.id, uid("51"))
    (side,) = ledger.thread(helper.label).turns
    (question,) = side.query
    assert (question.content, question.source) == ("What was that file?", "human")
    assert json.loads(question.context_json or "{}")["sent"].startswith(SIDE_QUESTION)
    assert (side.output_tokens, side.parent_turn_id) == (7, None)
    assert len(ledger.children(first.id)) == 1
    assert result(ledger) == packed_result(tmp_path, tmp_path)
    assert ledger.audit() == ()


@pytest.mark.finding("import-1")
def test_side_questions_asked_one_after_another_are_one_thread(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = a_session(tmp_path)
    helper = Helper(log, tmp_path, "aside_question-1")
    helper.ask("51", "What was that file?", "till.py")
    helper.ask("61", SIDE_QUESTION + "Where is it?", "Here.")
    import_paths(ledger, log.save(), helper.save())

    assert [turn.id for turn in ledger.thread(helper.label).turns] == [uid("51"), uid("61")]
    assert len(ledger.thread(LABEL).turns) == 2


@pytest.mark.finding("import-5")
def test_a_helper_below_a_record_that_only_it_has_makes_no_fork(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = a_session(tmp_path)
    helper = Helper(log, tmp_path, "acompact-1")
    reminder = "<system-reminder>The task list is empty.</system-reminder>"
    helper.user("50", reminder, isMeta=True, **helper.own)
    helper.ask("51", SUMMARISE, "It was begun.")
    log.result("b3", "t1", "made")
    log.assistant("b4", text("Gone on."))
    log.user("c1", "Thanks.")
    log.assistant("c2", text("You are welcome."))
    import_paths(ledger, log.save(), helper.save())

    assert [turn.id for turn in ledger.children(uid("b1"))] == [uid("c1")]
    (own,) = ledger.thread(helper.label).turns
    assert (own.id, own.parent_turn_id) == (uid("51"), None)
    assert ledger.session(helper.label).parent_turn_id == uid("b1")


@pytest.mark.finding("import-5")
def test_a_helper_of_a_subagent_makes_no_fork_of_it(ledger: Ledger, tmp_path: Path) -> None:
    log = a_session(tmp_path)
    agent = Log(tmp_path / SESSION / "subagents", "agent-ab12")
    own: dict[str, Any] = {"isSidechain": True, "agentId": "ab12", "sessionId": SESSION}
    agent.user("e1", "Look.", **own)
    agent.assistant("e2", text("Looking."), **own)
    helper = Helper(agent, tmp_path, "acompact-1")
    helper.ask("51", SUMMARISE, "It looks.")
    agent.user("f1", "Look closer.", **own)
    agent.assistant("f2", text("Seen."), **own)
    import_paths(ledger, log.save(), agent.save(), helper.save())

    assert [turn.id for turn in ledger.thread("claude-code:agent-ab12").turns] == [
        uid("e1"),
        uid("f1"),
    ]
    assert [turn.id for turn in ledger.children(uid("e1"))] == [uid("f1")]
    assert ledger.session(helper.label).parent_turn_id == uid("e1")


@pytest.mark.finding("import-5")
def test_helpers_of_a_session_without_its_file_make_no_fork(ledger: Ledger, tmp_path: Path) -> None:
    log = a_session(tmp_path)
    helpers = [Helper(log, tmp_path, f"acompact-{number}") for number in (1, 2)]
    for number, helper in enumerate(helpers):
        helper.ask(f"5{number}", SUMMARISE, "It was begun.")
    import_paths(ledger, *(helper.save() for helper in helpers))

    assert ledger.children(uid("b1")) == ()
    assert [ledger.get_turn(uid(f"5{number}")).parent_turn_id for number in (0, 1)] == [None, None]
    assert [turn.id for turn in ledger.thread(LABEL).turns] == [uid("a1"), uid("b1")]
    sessions = [ledger.session(helper.label) for helper in helpers]
    assert {session.parent_session_label for session in sessions} == {LABEL}
    assert {session.parent_turn_id for session in sessions} == {uid("b1")}

    import_paths(ledger, log.save())
    assert result(ledger) == packed_result(tmp_path, tmp_path)
    assert ledger.audit() == ()


@pytest.mark.finding("import-5")
def test_one_helper_of_a_session_without_its_file_shows_all_of_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    helper = Helper(a_session(tmp_path), tmp_path, "acompact-1")
    helper.ask("51", SUMMARISE, "It was begun.")
    import_paths(ledger, helper.save())

    assert len(ledger.thread(helper.label).turns) == 3
