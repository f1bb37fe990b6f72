"""What the status of a turn says to a reader."""

from __future__ import annotations

import re

from agents_ledger.model.files.file_tools import decoded
from agents_ledger.model.turns import Turn

# How agents record that a person stopped a turn: Claude Code 2.1 "[Request interrupted by user]",
# also "... for tool use]"; Codex 0.1 "interrupted" and "turn_aborted"; Gemini CLI and Copilot "The
# operation was aborted."; the broker "cancelled" and "interrupted by a later message".
_INTERRUPTED = re.compile(
    r"\[Request interrupted by user|interrupted\b|turn_aborted|cancell?ed\b"
    r"|(the |this )?(operation|request) was (aborted|cancell?ed)",
    re.IGNORECASE,
)

NUMBER_MAX = 60  # characters before the JSON
DECODED_MAX = 20_000


def turn_status(turn: Turn) -> str:
    """`completed`, `failed`, `interrupted`, `no answer recorded` or `being written`."""
    if turn.status == "failed":
        return "interrupted" if _INTERRUPTED.match(turn.error or "") else "failed"
    if turn.status == "completed":
        return "completed"
    # The source of an imported turn ends with its prompt; nothing here is writing it.
    return "no answer recorded" if turn.projected else "being written"


def reason(error: str | None) -> str:
    """Why a turn failed. Providers answer in JSON, often behind a number: what it says in words."""
    error = error or ""
    number, brace, rest = error.partition("{")
    if not brace or len(number) > NUMBER_MAX or len(error) > DECODED_MAX:
        return error
    answer = decoded(brace + rest)
    while isinstance(answer, dict):
        answer = answer.get("error") or answer.get("message") or answer.get("detail")
    return f"{number}{answer}" if isinstance(answer, str) else error
