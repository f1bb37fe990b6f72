"""Limits of JSON: values and depth are counted on the bytes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_ledger.model.text.json_limits import PIECE, JsonLimits, JsonTooLarge, check_json

TEXTS = st.text(alphabet='a"\\[]{},:é', max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


def fits(data: bytes, **limits: int) -> bool:
    try:
        check_json(data, JsonLimits(**limits))
    except JsonTooLarge:
        return False
    return True


@given(VALUES, st.integers(0, 40))
def test_depth_is_counted_outside_of_strings(value: Any, shift: int) -> None:
    # A long string before it puts the rest across the boundary of two pieces.
    filler = ["\\" * (PIECE // 2 - shift)]
    data = json.dumps([filler, value]).encode()
    depth = depth_of([filler, value])

    assert fits(data, depth=depth)
    assert not fits(data, depth=depth - 1)


@pytest.mark.parametrize("text", ["[],{}:" * 1000, '\\"[' * 1000, "\\\\" * 1001, '"' * 1001])
def test_what_stands_in_strings_does_not_count(text: str) -> None:
    data = json.dumps({"text": text, "n": [1, 2]}).encode()

    assert fits(data, values=7, depth=2)
    assert not fits(data, values=6)


def test_the_bounds_are_exact() -> None:
    assert fits(b"[" * 200 + b"]" * 200)
    assert not fits(b"[" * 201 + b"]" * 201)
    assert fits(b"[" + b"1," * 999_998 + b"1]")
    assert not fits(b"[" + b"1," * 1_000_000 + b"1]")


def test_closing_brackets_after_the_end_cost_no_time() -> None:
    data = b"[" + b"1," * 300 + b"]" * 20_000_000
    began = time.thread_time()

    assert fits(data)

    assert time.thread_time() - began < 1.0  # a loop over every bracket takes three seconds


def test_what_was_too_deep_before_a_surplus_bracket_is_refused() -> None:
    assert not fits(b"[" * 201 + b"]" * 202)
    assert fits(b"[" * 200 + b"]" * 201)
