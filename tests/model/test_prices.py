"""Prices and what a call touches: tables by name, and no guesses."""

from __future__ import annotations

from datetime import date

import pytest

from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.reports import prices


def test_the_table_says_its_day() -> None:
    assert date.fromisoformat(prices.as_of()) > date(2026, 1, 1)


@pytest.mark.finding("users-19")
@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5",
        "claude-opus-4.5",
        "Claude-Opus-4-5",
        "claude-opus-4-5-20251101",
        "claude-opus-4-5@20251101",
        "claude-opus-4-5[1m]",
        "anthropic/claude-opus-4-5",
        "openrouter/anthropic/claude-opus-4.5",
        "anthropic:claude-opus-4-5",
        "us.anthropic.claude-opus-4-5-20251101-v1:0",
        "bedrock/us.anthropic.claude-opus-4-5-v1",
        "vertex_ai/claude-opus-4-5@default",
    ],
)
def test_a_model_is_found_however_its_name_is_spelled(name: str) -> None:
    assert prices.price(name) == prices.Price(5, 0.5, 6.25, 25, 10)


def test_the_table_has_no_name_in_two_spellings() -> None:
    rows = [
        line
        for line in prices._FILE.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]

    assert len(prices._table()[1]) == len(rows) - 1


@pytest.mark.parametrize(
    "name", [None, "", "claude", "opus", "claude-opus-4-55", "gpt-5-20", "gpt-oss:20b"]
)
def test_a_name_that_is_only_alike_has_no_price(name: str | None) -> None:
    assert prices.price(name) is None


def test_a_kind_without_a_price_costs_as_input() -> None:
    assert prices.price("gpt-5-pro") == prices.Price(15, 15, 15, 120, 15)


def test_no_price_is_negative_and_a_cached_token_never_dearer() -> None:
    for price in prices._table()[1].values():
        assert 0 < price.cached_input <= price.input <= price.output
        assert price.cache_write > 0


@pytest.mark.parametrize(
    ("tool", "params", "files"),
    [
        ("Read", '{"file_path": "a.py"}', (("read", "a.py"),)),
        ("read_file", '{"path": "a.py"}', (("read", "a.py"),)),
        ("MultiEdit", '{"file_path": "a.py"}', (("written", "a.py"),)),
        ("write_to_file", '{"path": "a.py"}', (("written", "a.py"),)),
        ("Grep", '{"path": "a.py"}', ()),
        ("Read", '{"file_path": 3}', ()),
        ("Read", "[]", ()),
        ("Read", "not json", ()),
        (
            "apply_patch",
            '"*** Add File: x\\n*** Delete File: y"',
            (("written", "x"), ("written", "y")),
        ),
        ("shell_patch", '{"command": ["apply", "*** Update File: x"]}', (("written", "x"),)),
        (
            "apply_patch",
            '{"changes": {"x": {"type": "update", "move_path": "y"}, "z": {"type": "add"}}}',
            (("written", "x"), ("written", "y"), ("written", "z")),
        ),
        ("apply_patch", "3", ()),
    ],
)
def test_a_call_touches_the_files_it_names(tool: str, params: str, files: object) -> None:
    assert touched(tool, params) == files
