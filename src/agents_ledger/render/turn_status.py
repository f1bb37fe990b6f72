"""What the status of a turn says to a reader."""

from __future__ import annotations

import re

from agents_ledger.model.turns import Turn

# How agents record that a person stopped a turn: Claude Code 2.1 "[Request interrupted by user]",
# also "... for tool use]"; Codex 0.1 "interrupted" and "turn_aborted"; Gemini CLI and Copilot "The
# operation was aborted."; the broker "cancelled" and "interrupted by a later message".
_INTERRUPTED = re.compile(
    r"\[Request interrupted by user|interrupted\b|turn_aborted|cancell?ed\b"
    r"|(the |this )?(operation|request) was (aborted|cancell?ed)",
    re.IGNORECASE,
)


def turn_status(turn: Turn) -> str:
    """`completed`, `failed`, `interrupted`, `no answer recorded` or `being written`."""
    if turn.status == "failed":
        return "interrupted" if _INTERRUPTED.match(turn.error or "") else "failed"
    if turn.status == "completed":
        return "completed"
    # The source of an imported turn ends with its prompt; nothing here is writing it.
    return "no answer recorded" if turn.projected else "being written"
