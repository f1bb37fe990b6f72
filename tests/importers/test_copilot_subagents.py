"""Copilot CLI: prompts that open a subagent and do not say so (since 1.0.82)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.copilot_log import LABEL, Events
from tests.importers.helping import import_paths, packed_result, result


def delegated(folder: Path, arguments: Any, *, in_background: bool = False) -> Events:
    """A log up to the prompt that opens a subagent."""
    log = Events(folder)
    log.add("user.message", content="Let somebody look.")
    log.say("Asking.")
    log.add("tool.execution_start", toolCallId="s1", toolName="task", arguments=arguments)
    if in_background:
        log.add("tool.execution_complete", toolCallId="s1", success=True)
    log.add("subagent.started", toolCallId="s1", agentName="task")
    log.add("user.message", content="Look.")
    return log


@pytest.mark.finding("import-2")
@pytest.mark.parametrize("arguments", [{"prompt": "Look.\n"}, '{"prompt": "Look."}'])
def test_the_prompt_that_opens_a_subagent_is_no_turn_of_the_parent(
    ledger: Ledger, tmp_path: Path, arguments: Any
) -> None:
    log = delegated(tmp_path, arguments)
    log.say("Looking.", parentToolCallId="s1")
    log.add("tool.execution_complete", toolCallId="s1", success=True)
    log.add("subagent.completed", toolCallId="s1")
    log.say("Somebody looked.")
    log.add("user.message", content="Look.")  # by the person, later
    log.say("I look myself.")
    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert first.response is not None
    assert first.response.content == "Somebody looked."
    assert [(m.content, m.source) for m in second.query] == [("Look.", "human")]
    (turn,) = ledger.thread(f"{LABEL}:s1").turns
    assert [(m.content.strip(), m.source) for m in turn.query if m.content] == [("Look.", "agent")]
    assert [m.content for m in turn.messages[1:]] == ["Looking."]
    assert result(ledger) == packed_result(tmp_path, tmp_path)


@pytest.mark.finding("import-2")
def test_what_a_person_types_while_a_subagent_works_is_theirs(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = delegated(tmp_path, {"prompt": "Look."}, in_background=True)
    log.add("user.message", content="What time is it?")
    log.say("Four.")
    log.say("Looked.", parentToolCallId="s1")
    log.add("user.message", content="Look.")
    log.say("I look myself.")
    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    prompts = [[message.content for message in turn.query] for turn in turns]
    assert prompts == [["Let somebody look."], ["What time is it?"], ["Look."]]
    assert len(ledger.thread(f"{LABEL}:s1").turns) == 1


@pytest.mark.finding("import-2")
def test_a_subagent_that_works_without_an_opening_message_takes_none(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = delegated(tmp_path, {"prompt": "Look."})
    log.cut(len(log.lines) - 1)
    log.say("Looking.", parentToolCallId="s1")
    log.add("user.message", content="Look.")
    log.say("I look myself.")
    import_paths(ledger, log.save())

    assert len(ledger.thread(LABEL).turns) == 2
