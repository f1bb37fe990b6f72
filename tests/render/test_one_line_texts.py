"""Injected texts and subagents in one line each."""

from __future__ import annotations

import json

import pytest

from agents_ledger import Message, Session
from agents_ledger.model.reports.trees import Subagent
from agents_ledger.render import subagents
from agents_ledger.render.injected import injected_name, is_folded
from agents_ledger.render.summaries import argument


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Base directory for this skill: D:\\a b\\skills\\code-changes\n\n# Code",
            "Skill code-changes",
        ),
        ("Base directory for this skill: /home/a/skills/review/\n", "Skill review"),
        ("<environment_context>\n<cwd>/a</cwd>", "Environment"),
        ("# AGENTS.md instructions for /a", "Instructions"),
        ("anything else", "User message"),
    ],
)
def test_injected_texts_have_a_name_and_are_folded(text: str, name: str) -> None:
    message = Message("user", text + " and more" * 40, source="event")
    assert is_folded(message)
    assert injected_name(Message("user", text, source="event")) == name
    assert not is_folded(Message("user", text + " and more" * 40, source="human"))


def test_a_subagent_is_named_by_its_call_and_answers_with_the_result() -> None:
    result = json.dumps([{"type": "text", "text": "# Found\n\nTwo faults." + " more" * 2000}])
    subagent = Subagent(
        Session("claude-code:agent-acbdb310235619315"),
        0,
        0,
        json.dumps({"description": "Review the parser", "prompt": "Read it"}),
        call_status="completed",
        result_json=result[:400],
    )
    assert subagents.name(subagent) == "Review the parser"
    assert subagents.status(subagent) == "completed"
    assert subagents.answer(subagent).startswith("# Found\nTwo faults.")


def test_an_agent_in_the_background_has_not_answered() -> None:
    result = json.dumps([{"type": "text", "text": "Async agent launched successfully."}])
    subagent = Subagent(Session("agent-1"), 0, 0, "{}", call_status="completed", result_json=result)
    assert subagents.status(subagent) == "started in the background"
    assert subagents.answer(subagent) == ""
    assert subagents.name(subagent) == "agent-1"


def test_calls_about_something_that_runs_say_what_they_do() -> None:
    assert argument('{"taskId": "4", "status": "in_progress"}') == "task 4 in progress"
    polled = '{"session_id": 9245, "yield_time_ms": 1000, "max_output_tokens": 4000}'
    assert argument(polled) == "waiting for session 9245"
