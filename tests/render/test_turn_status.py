"""The words for the status of a turn."""

from __future__ import annotations

import pytest

from agents_ledger.model.turns import Turn
from agents_ledger.render.turn_status import reason, turn_status


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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ('400 {"type":"error","error":{"type":"invalid","message":"too long"}}', "400 too long"),
        ('{"detail": "no credit"}', "no credit"),
        ('{"error": "overloaded"}', "overloaded"),
        ('{"error": {"code": 5}}', '{"error": {"code": 5}}'),
        ('429 {"error": {"mess', '429 {"error": {"mess'),
        ("a set {1, 2} of " + "x" * 99, "a set {1, 2} of " + "x" * 99),
        ("terminated", "terminated"),
        (None, ""),
    ],
)
def test_the_answer_of_a_provider_is_said_in_words(error: str | None, said: str) -> None:
    assert reason(error) == said


def test_an_error_nested_too_deep_is_left_as_it_is() -> None:
    deep = '{"error":' * 2000 + '"x"' + "}" * 2000
    assert reason(deep) in (deep, "x")
