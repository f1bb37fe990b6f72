"""Parameters of tool calls as HTML."""

from __future__ import annotations

import json

import pytest

from agents_ledger.render.bodies import ABOUT_MAX, parameters


def test_a_prompt_is_prose_below_its_other_parameters() -> None:
    html = parameters(json.dumps({"subagent_type": "Explore", "prompt": "Find **it**"}))

    assert '<p class="about">subagent type: Explore</p>' in html
    assert "<strong>it</strong>" in html


@pytest.mark.parametrize("most", [1_000, 200_000])
@pytest.mark.parametrize(
    "params",
    [
        {"message": "hi", "body": "x" * 2_000_000},
        {"message": "x" * 2_000_000, "to": "me"},
        {"message": "x" * 2_000_000, **{f"name {n}": "y" * 100 for n in range(20)}},
        {"message": "hi", **{f"name {n}": "y" * 100 for n in range(20_000)}},
        {"message": "hi", "body": ["x" * 2_000_000]},
        {"message": "hi", "x" * 2_000_000: 1},
    ],
)
def test_parameters_beside_a_prompt_are_cut(params: dict[str, object], most: int) -> None:
    assert len(parameters(json.dumps(params), most).striptags()) <= most


@pytest.mark.parametrize("other", ["one\ntwo", "one\n", "a\u2028b", "x" * (ABOUT_MAX + 1)])
def test_long_parameters_beside_a_prompt_keep_their_lines(other: str) -> None:
    html = parameters(json.dumps({"message": "hi", "body": other}))

    assert '<pre class="code">' in html
    assert 'class="about"' not in html


def test_a_parameter_equal_to_the_prompt_is_shown() -> None:
    html = parameters(json.dumps({"prompt": "Tidy up", "description": "Tidy up"}))

    assert '<p class="about">description: Tidy up</p>' in html
    assert "<p>Tidy up</p>" in html
