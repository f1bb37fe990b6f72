"""Subagents of Claude Code, and the calls that spawned them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.reports.pages import Pages
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, result


def at_once(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """What an import of all files at once ends in."""
    with Ledger.open(str(folder / "whole.db")) as whole:
        import_paths(whole, *sorted(folder.rglob("*.jsonl")))
        return result(whole)


def test_a_subagent_that_names_no_session_is_of_the_one_its_folder_is_called_after(
    ledger: Ledger, tmp_path: Path
) -> None:
    agent = Log(tmp_path / SESSION / "subagents", "agent-abc")
    agent.user("e1", "Look.", sessionId=None)
    agent.assistant("e2", text("Seen."), sessionId=None)
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))

    import_paths(ledger, agent.save(), log.save())

    found = ledger.session("claude-code:agent-abc")
    assert found.parent_session_label == f"claude-code:{SESSION}"


def test_a_subagent_inside_a_session_may_have_several_turns_and_lost_records(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Task", prompt="Look."))
    for name, lost in (("51", None), ("61", uid("99"))):
        log.user(name, "Look.", isSidechain=True, parentUuid=lost)
        log.assistant(f"{name}a", text("Seen."), isSidechain=True)
    log.result("a3", "t1", "Seen.", parentUuid=uid("a2"))
    log.assistant("a4", text("Done."))

    report = import_paths(ledger, log.save())

    assert ledger.head(f"claude-code:{SESSION}:{uid('51')}") == uid("61")
    response = ledger.get_turn(uid("a1")).response
    assert response is not None
    assert response.content == "Done."
    assert [fault.line for fault in report.faults] == [5]


def test_a_subagent_at_work_is_known_by_its_progress(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Agent", prompt="Look."))
    child = Log(tmp_path / SESSION / "subagents", "agent-ab12")
    child.user("51", "Look.", isSidechain=True, agentId="ab12", sessionId=SESSION)
    child.assistant("52", text("Looking."), isSidechain=True, agentId="ab12", sessionId=SESSION)
    import_paths(ledger, log.save(), child.save())
    working = {"type": "agent_progress", "agentId": "ab12", "message": {}}
    log.add("progress", "a3", data=working, parentToolUseID="t1", toolUseID="agent_1")
    import_paths(ledger, log.save())

    (call,) = ledger.get_turn(uid("a1")).tool_calls
    assert call.spawned_session_label == "claude-code:agent-ab12"
    session = ledger.session("claude-code:agent-ab12")
    assert (session.parent_turn_id, session.spawn_tool_call_id) == (uid("a1"), "t1")
    assert result(ledger) == at_once(tmp_path)


def test_a_subagent_is_listed_once_its_file_was_seen(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Agent", prompt="Look."))
    log.result("a3", "t1", "Seen.", toolUseResult={"agentId": "ab12", "status": "completed"})
    child = Log(tmp_path / SESSION / "subagents", "agent-ab12")
    child.user("51", "Look.", isSidechain=True, agentId="ab12", sessionId=SESSION)
    child.assistant("52", text("Seen."), isSidechain=True, agentId="ab12", sessionId=SESSION)

    def listed() -> set[str]:
        lines = Pages(ledger._core).session_lines(subagents=True)
        return {line.session.label for line in lines}

    import_paths(ledger, log.save())
    assert ledger.session("claude-code:agent-ab12").thread_id is None
    assert listed() == {f"claude-code:{SESSION}"}
    import_paths(ledger, child.save())
    assert listed() == {f"claude-code:{SESSION}", "claude-code:agent-ab12"}


def test_subagents_given_the_same_prompt_are_told_apart(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Task", prompt="Look."), api="m1")
    log.assistant("a3", tool("t2", "Task", prompt="Look."), api="m1")
    import_paths(ledger, log.save())
    for name in ("51", "61"):
        log.user(name, "Look.", isSidechain=True, parentUuid=None)
        log.assistant(f"{name}a", text("Seen."), isSidechain=True)
        import_paths(ledger, log.save())

    spawned = [call.spawned_session_label for call in ledger.get_turn(uid("a1")).tool_calls]
    assert spawned == [f"claude-code:{SESSION}:{uid(name)}" for name in ("51", "61")]
    assert result(ledger) == at_once(tmp_path)


def test_what_a_subagent_was_given_a_copy_of_was_said_by_who_said_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    own = {"isSidechain": True, "agentId": "acompact-1", "sessionId": SESSION}
    helper = Log(tmp_path / SESSION / "subagents", "agent-acompact-1")
    helper.user("a1", "Begin.", **own)
    helper.assistant("a2", text("Begun."), **own)
    helper.user("51", "Sum it up.", **own)
    helper.assistant("52", text("It was begun."), **own)

    import_paths(ledger, helper.save())
    import_paths(ledger, log.save())

    (own_turn,) = ledger.thread("claude-code:agent-acompact-1").turns
    sources = [turn.query[0].source for turn in (ledger.get_turn(uid("a1")), own_turn)]
    assert sources == ["human", "agent"]
    assert result(ledger) == at_once(tmp_path)


def helper_of(log: Log, folder: Path, agent: str) -> Log:
    """A helper that was given all that was said."""
    given = {"isSidechain": True, "agentId": agent}
    helper = Log(folder / SESSION / "subagents", f"agent-{agent}")
    helper.lines = [json.dumps(json.loads(line) | given) for line in log.lines]
    helper.last, helper.session = log.last, SESSION
    return helper


@pytest.mark.parametrize("answered", [True, False])
def test_a_helper_that_goes_on_from_a_turn_is_no_branch_of_it(
    ledger: Ledger, tmp_path: Path, answered: bool
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    helper = helper_of(log, tmp_path, "aprompt_suggestion-1")
    own = {"isSidechain": True, "agentId": "aprompt_suggestion-1"}
    helper.user("51", "Suggest what comes next.", **own)
    if answered:
        helper.assistant("52", text("Go on."), **own)
    silent = helper_of(log, tmp_path, "acompact-2")
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    for path in (helper.save(), log.save(), silent.save()):
        import_paths(ledger, path)

    assert [turn.id for turn in ledger.children(uid("a1"))] == [uid("b1")]
    session = ledger.session("claude-code:agent-aprompt_suggestion-1")
    assert session.parent_turn_id == uid("a1")
    assert session.thread_id == (uid("51") if answered else None)
    assert ledger.get_turn(uid("51")).parent_turn_id is None
    assert ledger.session("claude-code:agent-acompact-2").thread_id is None
    assert result(ledger) == at_once(tmp_path)


def test_a_record_that_only_a_helper_has_a_copy_of_is_the_sessions(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    helper = helper_of(log, tmp_path, "aprompt_suggestion-1")
    own = {"isSidechain": True, "agentId": "aprompt_suggestion-1"}
    helper.user("51", "Suggest what comes next.", **own)
    helper.lines = helper.lines[1:]
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    del log.lines[1]
    import_paths(ledger, helper.save(), log.save())

    first, second = ledger.thread(f"claude-code:{SESSION}").turns

    assert [message.content for message in first.messages] == ["Begin.", "Begun."]
    assert second.query[0].content == "Go on."


@pytest.mark.parametrize("agents", [1, 2])
def test_a_subagent_without_a_result_is_of_the_call_that_gave_its_prompt_if_no_other_did(
    ledger: Ledger, tmp_path: Path, agents: int
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Agent", prompt="Look."))
    log.user("a3", "[Request interrupted by user]")
    import_paths(ledger, log.save())
    for name in [f"ab{number}" for number in range(agents)]:
        agent = Log(tmp_path / SESSION / "subagents", f"agent-{name}")
        given: dict[str, Any] = {"isSidechain": True, "agentId": name, "sessionId": SESSION}
        agent.user(f"e{name}", "Look.", **given)
        agent.assistant(f"f{name}", text("Looking."), **given)
        import_paths(ledger, agent.save())

    (call,) = ledger.get_turn(uid("a1")).tool_calls
    assert call.spawned_session_label == ("claude-code:agent-ab0" if agents == 1 else None)
    assert result(ledger) == at_once(tmp_path)


def test_a_subagent_of_a_turn_that_no_session_stands_on_answers_to_the_session_of_its_file(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    fork = Log(tmp_path, f"2{SESSION[1:]}")
    fork.lines, fork.last = list(log.lines), log.last
    fork.user("d1", "Go elsewhere.")
    fork.assistant("d2", text("Gone elsewhere."))
    log.user("b1", "Let somebody look.")
    log.assistant("b2", tool("t1", "Task", prompt="Look."))
    log.user("51", "Look.", isSidechain=True, parentUuid=None)
    log.assistant("52", text("Seen."), isSidechain=True)
    log.user("c1", "No, do it yourself.", parentUuid=uid("a2"))
    log.assistant("c2", text("Done."))

    import_paths(ledger, log.save(), fork.save())

    found = ledger.session(f"claude-code:{SESSION}:{uid('51')}")
    assert (found.parent_turn_id, found.spawn_tool_call_id) == (uid("b1"), "t1")
    assert found.parent_session_label == f"claude-code:{SESSION}"
    assert uid("b1") not in ledger.ancestry(f"claude-code:{SESSION}")


def test_a_fork_that_only_names_what_it_knows_hangs_on_the_turn_it_was_made_in(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    fork = Log(tmp_path / SESSION / "subagents", "agent-check-1")
    own = {"isSidechain": True, "agentId": "check-1", "sessionId": SESSION}
    fork.add("fork-context-ref", parentSessionId=SESSION, parentLastUuid=uid("a2"))
    fork.user("c1", "Your directive: check it.", **own)
    fork.assistant("c2", text("Checked."), **own)

    report = import_paths(ledger, fork.save(), log.save())

    session = ledger.session("claude-code:agent-check-1")
    assert (session.parent_session_label, session.parent_turn_id) == (
        f"claude-code:{SESSION}",
        uid("a1"),
    )
    (turn,) = ledger.thread("claude-code:agent-check-1").turns
    assert (turn.id, turn.parent_turn_id) == (uid("c1"), None)
    assert report.records["claude-code", "fork-context-ref", "derived"] == 1
    assert result(ledger) == at_once(tmp_path)
