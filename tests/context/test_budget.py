"""Fitting a context into a budget: what is cut first, and what never."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agents_ledger import CallItem, ImageItem, Refused, ResultItem, TextItem, ThinkingItem
from agents_ledger.context.budget import ContextBlock, block, fit, shorten
from agents_ledger.model.context.items import Item, item_tokens
from agents_ledger.model.text.tokens import estimate_tokens

LONG = "x" * 6000  # 2000 tokens


def a_turn(turn_id: str, *items: Item) -> ContextBlock:
    said = TextItem("user", "y" * 300)
    return block("since", turn_id, (said, *items), estimate_tokens)


def with_result(turn_id: str) -> ContextBlock:
    return a_turn(turn_id, CallItem("1", "Read"), ResultItem("1", LONG))


SUMMARY = block("summary", "c", [TextItem("user", "s" * 300)], estimate_tokens)
QUERY = block("query", None, [TextItem("user", LONG)], estimate_tokens)
THREAD = (
    SUMMARY,
    with_result("1"),
    a_turn("2", ImageItem("a.png")),
    with_result("3"),
    a_turn("4"),
    with_result("5"),
    QUERY,
)
TOTAL = sum(each.tokens for each in THREAD)


def cuts_for(
    room: int, last: int = 2
) -> tuple[Sequence[ContextBlock], list[tuple[str, str | None]]]:
    blocks, cuts = fit(THREAD, room, last, estimate_tokens)
    assert sum(each.tokens for each in blocks) <= room
    assert TOTAL - sum(cut.tokens for cut in cuts) == sum(each.tokens for each in blocks)
    return blocks, [(cut.kind, cut.turn_id) for cut in cuts]


def test_nothing_is_cut_from_what_fits() -> None:
    assert cuts_for(TOTAL) == (THREAD, [])


def test_results_of_older_turns_are_shortened_first_oldest_first() -> None:
    assert cuts_for(TOTAL - 1)[1] == [("result", "1")]
    blocks, cuts = cuts_for(TOTAL - 2000)

    assert cuts == [("result", "1"), ("result", "3")]
    shortened = blocks[1].items[-1]
    assert isinstance(shortened, ResultItem)
    assert shortened.text == f"{'x' * 300}\n[... 5550 characters left out ...]\n{'x' * 150}"
    assert blocks[-2:] == THREAD[-2:]


def test_then_images_become_words_then_turns_are_left_out_and_last_the_summary() -> None:
    light = 1838 * 2
    assert cuts_for(TOTAL - light - 10)[1] == [("result", "1"), ("image", "2"), ("result", "3")]
    assert cuts_for(TOTAL - light - 1600)[1] == [("turn", "1"), ("image", "2"), ("result", "3")]

    blocks, cuts = cuts_for(sum(each.tokens for each in THREAD[-3:]))

    assert cuts == [("summary", "c"), ("turn", "1"), ("turn", "2"), ("turn", "3")]
    assert blocks == THREAD[-3:]


def test_the_query_and_the_last_turns_are_never_touched() -> None:
    protected = sum(each.tokens for each in THREAD[-3:])

    with pytest.raises(Refused, match=f"need {protected} tokens .* room for {protected - 1}"):
        cuts_for(protected - 1)
    with pytest.raises(Refused, match="room for 0"):
        cuts_for(-5, last=0)


def test_within_a_turn_no_more_results_are_shortened_than_need_be() -> None:
    results = (ResultItem("1", LONG), ResultItem("2", LONG), ResultItem("3", LONG))
    turn = a_turn("1", *results)

    [cut], _ = fit([turn], turn.tokens - 2000, 0, estimate_tokens)

    assert [item.text == LONG for item in cut.items[1:]] == [False, False, True]  # type: ignore[union-attr]


def test_without_protection_the_newest_turn_loses_its_oldest_steps_but_not_its_question() -> None:
    asked, said = TextItem("user", "why?"), TextItem("assistant", "because")
    calls: list[Item] = [
        CallItem("1", "f"),
        CallItem("2", "f"),
        ResultItem("1", "a"),
        ResultItem("2", "b"),
    ]
    more: list[Item] = [ThinkingItem("hm"), CallItem("3", "f"), ResultItem("3", "c")]
    turn = block("since", "t", [asked, *calls, *more, said], estimate_tokens)
    older = a_turn("1")
    fits: list[list[Item]] = [[asked, *more, said], [asked, said]]

    for left in fits:
        room = sum(item_tokens(item) for item in left)
        blocks, cuts = fit([older, turn], room, 0, estimate_tokens)
        assert blocks == (block("since", "t", left, estimate_tokens),)
        assert [cut.kind for cut in cuts] == ["turn", "step"]
    with pytest.raises(Refused):
        fit([older, turn], room - 1, 0, estimate_tokens)
    with pytest.raises(Refused):
        fit([older, turn], room, 1, estimate_tokens)


def test_a_summary_that_must_go_makes_room_for_the_others() -> None:
    summary = block("summary", "c", [TextItem("user", LONG)], estimate_tokens)
    turns = [a_turn("1"), a_turn("2")]
    room = sum(each.tokens for each in turns)

    blocks, cuts = fit([summary, *turns], room, 1, estimate_tokens)

    assert blocks == tuple(turns)
    assert [cut.kind for cut in cuts] == ["summary"]


def test_what_is_only_a_little_too_long_is_not_shortened() -> None:
    assert shorten("x" * 750, 100, 50) == "x" * 750
    assert len(shorten("x" * 751, 100, 50)) < 500
