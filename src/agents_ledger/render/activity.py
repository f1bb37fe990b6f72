"""What an agent is doing now, from the turn that it is writing."""

from __future__ import annotations

from typing import Literal, NamedTuple

from agents_ledger.model.turns import OPEN_CALL, SEALED, Message, ToolCall, Turn

GROWING_MS = 120_000  # an agent whose log had a new record since then is running
ASKING_MS = 3_600_000  # a question waits longer than a tool runs

# Tools whose result is the answer of a person: AskUserQuestion and ExitPlanMode of Claude Code,
# request_user_input of Codex, ask_user of Gemini and Copilot, question of OpenCode,
# ask_followup_question of Cline.
QUESTIONS = frozenset(
    {
        "AskUserQuestion", "ExitPlanMode", "request_user_input", "ask_user", "question",
        "ask_followup_question",
    }
)  # fmt: skip


class Activity(NamedTuple):
    state: Literal["running", "waiting"]  # waiting: for a person
    call: ToolCall | None = None  # that has not ended


def activity(turn: Turn, quiet_ms: int = 0) -> Activity | None:
    """What the agent of a turn does. `quiet_ms`: how long its log has had no new record. None if
    it has ended, as far as can be known."""
    calls = open_calls(turn)
    question = next((call for call in calls if call.tool_name in QUESTIONS), None)
    if question:
        return Activity("waiting", question) if quiet_ms <= ASKING_MS else None
    if quiet_ms > GROWING_MS:
        return None
    has_answered = turn.status in SEALED and not calls and _ends_with_answer(turn)
    return (
        Activity("waiting") if has_answered else Activity("running", calls[-1] if calls else None)
    )


def open_calls(turn: Turn) -> list[ToolCall]:
    """The calls of a turn that is being written that have not ended."""
    return [call for call in turn.tool_calls if _is_open(turn, call)]


def _is_open(turn: Turn, call: ToolCall) -> bool:
    # Importers store a call without a result as cancelled; in a growing log it still runs.
    has_ended = call.completed_at is not None or call.result_json is not None
    return call.status in OPEN_CALL or (turn.projected and not has_ended)


def _ends_with_answer(turn: Turn) -> bool:
    last = turn.steps[-1] if turn.steps else None
    return turn.status == "failed" or (isinstance(last, Message) and last.role == "assistant")


def written_tokens(turn: Turn, partial: str = "") -> int:
    """About how many tokens an unfinished turn has written: four characters each."""
    texts = [
        len(m.content or "") + len(m.thinking or "") for m in turn.messages if m.role == "assistant"
    ]
    calls = [len(call.params_json) for call in turn.tool_calls]
    return (sum(texts) + sum(calls) + len(partial)) // 4
