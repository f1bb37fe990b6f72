"""What a subagent was asked, how it ended and what it answered, in a few words each."""

from __future__ import annotations

import re

from agents_ledger.model.reports.trees import Subagent
from agents_ledger.render.summaries import argument, fit_line, leading_text

NAME_MAX = 140
ANSWER_MAX = 600  # characters
ANSWER_LINES = 4
# Claude Code 2.1 answers a call that runs in the background with this, Codex 0.1 with the id of the
# agent: neither is what the agent answered.
_LAUNCHED = re.compile(r'Async agent launched|\{\s*"agent_id"')


def name(subagent: Subagent) -> str:
    """Its title or task, otherwise what the call that spawned it was about."""
    session = subagent.session
    text = session.title or session.task_description or argument(subagent.params_json or "{}")
    return fit_line(text or session.label, NAME_MAX)


def answer(subagent: Subagent) -> str:
    """The first lines of its last answer; of one without a log, those of the call's result."""
    text = subagent.answer or _result(subagent)
    lines = [line for line in text[:ANSWER_MAX].splitlines() if line.strip(" -#*=")]
    return "\n".join(lines[:ANSWER_LINES])


def status(subagent: Subagent) -> str:
    """What is known of its end: its own status, that of its last turn, or that of the call."""
    if subagent.session.task_status or subagent.head_status:
        return str(subagent.session.task_status or subagent.head_status)
    is_launched = _LAUNCHED.match(leading_text(subagent.result_json))
    return "started in the background" if is_launched else str(subagent.call_status or "")


def _result(subagent: Subagent) -> str:
    text = leading_text(subagent.result_json)
    return "" if _LAUNCHED.match(text) else text
