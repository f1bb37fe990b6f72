"""Fitting a context into a number of tokens. What is cut first, and what never:

1. long results of tool calls are shortened, oldest first;
2. images become words, oldest first;
3. turns are left out whole, oldest first, all but the newest;
4. steps of the newest turn are left out, oldest first, a call with its result; never what was asked
   in it and its last step;
5. the summary is left out, and then no more of the others than need be.

The system prompt, the query and the last turns are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import structs

from agents_ledger.context import images
from agents_ledger.model.context.items import (
    CallItem,
    Cut,
    CutKind,
    ImageItem,
    Item,
    Part,
    ResultItem,
    TextItem,
    ThinkingItem,
    item_tokens,
)
from agents_ledger.model.errors import Refused
from agents_ledger.model.text.tokens import BYTES_PER_TOKEN, Counter

# Tokens of a long result that stay at its beginning.
RESULT_HEAD = 100
RESULT_TAIL = 50


class ContextBlock(NamedTuple):
    """The items of one turn, of the summary or of the query, with their tokens."""

    part: Part
    turn_id: str | None
    items: tuple[Item, ...]
    tokens: int


def block(part: Part, turn_id: str | None, items: Iterable[Item], count: Counter) -> ContextBlock:
    held = tuple(items)
    return ContextBlock(part, turn_id, held, sum(item_tokens(item, count) for item in held))


def fit(
    blocks: Sequence[ContextBlock], room: int, last: int, count: Counter
) -> tuple[tuple[ContextBlock, ...], tuple[Cut, ...]]:
    """The blocks as they fit into `room`, and what was cut to that end."""
    held, saved, over = _cut(blocks, room, last, count)
    summary = [index for index, block in enumerate(blocks) if block.part == "summary"]
    if over > 0 and summary:
        # Cut again from the start without the summary, so that no more is cut than its absence
        # needs.
        bare = [block for block in blocks if block.part != "summary"]
        held, saved, over = _cut(bare, room, last, count)
        held = [_nothing(blocks[index], 0, count) for index in summary] + held
        saved = {index + len(summary): kinds for index, kinds in saved.items()}
        saved |= {index: {"summary": blocks[index].tokens} for index in summary}
    if over > 0:
        raise Refused(
            f"the parts that are never cut need {room + over} tokens beside the system prompt,"
            f" and there is room for {max(room, 0)}",
            "Give a larger budget, protect fewer turns with `last`, or compact the session.",
        )
    cuts = [cut for index in sorted(saved) for cut in _told(blocks[index], saved[index])]
    return tuple(block for block in held if block.items), tuple(cuts)


def _cut(
    blocks: Sequence[ContextBlock], room: int, last: int, count: Counter
) -> tuple[list[ContextBlock], dict[int, dict[CutKind, int]], int]:
    """The blocks cut as far as need be, what that saved by block and kind, and what is still too
    much."""
    held = list(blocks)
    over = sum(block.tokens for block in held) - room
    saved: dict[int, dict[CutKind, int]] = {}
    for kind, smaller in _STEPS:
        for index in _candidates(blocks, kind, last):
            if over <= 0:
                break
            cut = smaller(held[index], over, count)
            gain = held[index].tokens - cut.tokens
            if gain > 0:
                held[index] = cut
                over -= gain
                saved.setdefault(index, {})[kind] = gain
    return held, saved, over


def _candidates(blocks: Sequence[ContextBlock], kind: CutKind, last: int) -> list[int]:
    """Which blocks may be cut, in the order of cutting."""
    turns = [index for index, block in enumerate(blocks) if block.part in ("kept", "since")]
    if kind == "step":
        return [] if last else turns[-1:]
    if kind == "turn":
        last = max(last, 1)
    return turns[: len(turns) - last] if last else turns


def _told(whole: ContextBlock, saved: dict[CutKind, int]) -> Iterator[Cut]:
    """The cuts of a block; of one that was left out, only that."""
    if "turn" in saved:
        saved = {"turn": whole.tokens}
    for kind, gain in saved.items():
        yield Cut(kind, whole.turn_id, gain)


def _short_results(whole: ContextBlock, over: int, count: Counter) -> ContextBlock:
    return _changed(whole, _shortened, over, count)


def _changed(
    whole: ContextBlock, change: Callable[[Item], Item], over: int, count: Counter
) -> ContextBlock:
    """A block whose items are changed one after the other, until it is small enough."""
    items = list(whole.items)
    for index, item in enumerate(items):
        if over <= 0:
            break
        items[index] = change(item)
        if items[index] is not item:
            over -= item_tokens(item, count) - item_tokens(items[index], count)
    return block(whole.part, whole.turn_id, items, count)


def _shortened(item: Item) -> Item:
    if not isinstance(item, ResultItem):
        return item
    text = shorten(item.text, RESULT_HEAD, RESULT_TAIL)
    return item if text is item.text else structs.replace(item, text=text)


def shorten(text: str, head: int, tail: int) -> str:
    """A long text with its middle left out: about `head` and `tail` tokens stay."""
    first, end = head * BYTES_PER_TOKEN, tail * BYTES_PER_TOKEN
    left_out = len(text) - first - end
    if left_out <= first:
        return text
    return f"{text[:first]}\n[... {left_out} characters left out ...]\n{text[-end:]}"


def _images_in_words(whole: ContextBlock, over: int, count: Counter) -> ContextBlock:
    return _changed(whole, _in_words, over, count)


def _in_words(item: Item) -> Item:
    if isinstance(item, ImageItem):
        return TextItem(item.role, images.in_words(item), item.turn_id, item.part)
    if isinstance(item, ResultItem) and item.images:
        words = [item.text, *map(images.in_words, item.images)]
        return structs.replace(item, text="\n".join(filter(None, words)), images=())
    return item


def _without_steps(whole: ContextBlock, over: int, count: Counter) -> ContextBlock:
    """A turn without its oldest steps. What was asked in it stays, and its last step."""
    leading = 0
    while leading < len(whole.items) and getattr(whole.items[leading], "role", "") == "user":
        leading += 1
    steps = list(_steps(whole.items[leading:]))
    while over > 0 and len(steps) > 1:
        over -= sum(item_tokens(item, count) for item in steps.pop(0))
    left = (item for step in steps for item in step)
    return block(whole.part, whole.turn_id, (*whole.items[:leading], *left), count)


def _steps(items: Iterable[Item]) -> Iterator[list[Item]]:
    """What belongs together: calls and their results, thinking and what it led to."""
    step: list[Item] = []
    for item in items:
        joins = isinstance(item, ResultItem) or (
            bool(step) and isinstance(step[-1], (CallItem, ThinkingItem))
        )
        if step and not joins:
            yield step
            step = []
        step.append(item)
    if step:
        yield step


def _nothing(whole: ContextBlock, over: int, count: Counter) -> ContextBlock:
    return ContextBlock(whole.part, whole.turn_id, (), 0)


_STEPS: tuple[tuple[CutKind, Callable[[ContextBlock, int, Counter], ContextBlock]], ...] = (
    ("result", _short_results),
    ("image", _images_in_words),
    ("turn", _nothing),
    ("step", _without_steps),
)


def lightest(whole: ContextBlock, count: Counter) -> int:
    """The tokens of a block once everything in it is cut that can be: less would leave it out."""
    all_of_it = whole.tokens
    return _images_in_words(_short_results(whole, all_of_it, count), all_of_it, count).tokens
