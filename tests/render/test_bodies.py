"""Parameters of tool calls as HTML."""

from __future__ import annotations

import json

import pytest

from agents_ledger.render import conversation
from agents_ledger.render.bodies import ABOUT_MAX, cut_prompt, parameters, patch


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


def test_a_prompt_is_markdown_only_if_it_was_written_as_such() -> None:
    plan = conversation.whole_prompt("# Plan\n\nfirst\nsecond <b>x</b>")
    assert "<h1>Plan</h1>" in plan
    assert "first<br>" in plan
    assert "&lt;b&gt;" in plan
    plain = conversation.whole_prompt("2 * 3 * 4 and _a_\n#42 is closed")
    assert plain == '<div class="text-body">2 * 3 * 4 and _a_\n#42 is closed</div>'


def test_a_prompt_is_cut_between_paragraphs_and_not_within_code() -> None:
    text = "One\n\nTwo\n\n```\na\n\nb\n```\n\nThree"
    assert cut_prompt(text, 100) == (text[:-5], "Three")
    assert cut_prompt(text, text.index("b\n")) == ("One\n\nTwo\n\n", text[10:])
    assert cut_prompt("x" * 20, 5) == ("x" * 5, "x" * 15)


def test_a_diff_emphasises_the_words_that_changed() -> None:
    html = patch("@@\n same\n-keep = old(1)\n+keep = new(1)\n-gone\n+entirely other words")
    assert '<span class="del">-keep = <b>old</b>(1)</span>' in html
    assert '<span class="ins">+keep = <b>new</b>(1)</span>' in html
    assert '<span class="del">-gone</span>' in html
    assert "@@" not in html
