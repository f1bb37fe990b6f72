"""The words for the status of a turn."""

from __future__ import annotations

import pytest

from agents_ledger.model.turns import Turn
from agents_ledger.render.turn_status import turn_status


@pytest.mark.parametrize(
    ("status", "error", "projected", "expected"),
    [
        ("completed", None, True, "completed"),
        ("failed", "400 invalid request", True, "failed"),
        ("failed", None, False, "failed"),
        ("failed", "The connection was interrupted", True, "failed"),
        ("failed", "[Request interrupted by user for tool use]", True, "interrupted"),
        ("failed", "interrupted", True, "interrupted"),
        ("failed", "The operation was aborted.", True, "interrupted"),
        ("failed", "interrupted by a later message", False, "interrupted"),
        ("pending", None, True, "no answer recorded"),
        ("streaming", None, False, "being written"),
    ],
)
def test_a_status_says_what_is_known(
    status: str, error: str | None, projected: bool, expected: str
) -> None:
    turn = Turn(id="t", status=status, error=error, projected=projected)  # type: ignore[arg-type]
    assert turn_status(turn) == expected
