"""What a model is shown of a thread:

[system prompt] + [latest compaction's summary] + [turns it kept] + [turns since] + [current query]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

from msgspec import Struct

from agents_ledger.context.budget import ContextBlock, block, fit, lightest
from agents_ledger.context.items import ItemBuilder
from agents_ledger.model.context.items import (
    ITEM_TOKENS,
    CallItem,
    Cut,
    Item,
    Part,
    Repair,
    TextItem,
)
from agents_ledger.model.text.tokens import BYTES_PER_TOKEN, Counter, estimate_tokens
from agents_ledger.model.turns import SEALED, Message, Turn

SUMMARY = "[Previous conversation summary]"
NO_QUERY = "[no query recorded]"
ITEM_CHARS = 200  # what an item takes in memory besides its text, in characters


class BlockCache(Protocol):
    """Values by key, as long as there is room for them."""

    def get(self, key: str, /) -> Any: ...

    def keep(self, key: str, value: Any, length: int, /) -> None: ...


class VisibleThread(Struct, frozen=True):
    """What is visible of a thread: the summary and whose it is, single turns that the latest
    compaction picked out, those it kept, and those since."""

    system_prompt: str | None = None
    summary: str = ""
    summary_turn_id: str | None = None
    picked: Sequence[Turn] = ()
    kept: Sequence[Turn] = ()
    since: Sequence[Turn] = ()
    query: Sequence[Message] = ()


class Assembled(Struct, frozen=True):
    """A context, in blocks; with what had to be repaired and what was cut."""

    system_prompt: str | None
    blocks: tuple[ContextBlock, ...]
    repairs: tuple[Repair, ...] = ()
    cuts: tuple[Cut, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        """The items in order. A conversation begins with the user."""
        items = tuple(chain.from_iterable(block.items for block in self.blocks))
        if items and not _by_user(items[0]):
            first = items[0]
            return (TextItem("user", NO_QUERY, first.turn_id, first.part), *items)
        return items


def _by_user(item: Item) -> bool:
    return getattr(item, "role", None) == "user"


def assemble(
    history: VisibleThread,
    *,
    budget: int | None = None,
    last: int = 0,
    count: Counter = estimate_tokens,
    cache: BlockCache | None = None,
) -> Assembled:
    """The context of a thread; within `budget` tokens, if that is given."""
    builder = ItemBuilder()
    if count is not estimate_tokens:
        cache = None
    blocks = tuple(block for block in _blocks(history, builder, count, cache) if block.items)
    cuts: tuple[Cut, ...] = ()
    if budget is not None:
        room = budget - prompt_tokens(history.system_prompt, count)
        blocks, cuts = fit(blocks, room, last, count)
    visible_ids = {block.turn_id for block in blocks}
    repairs = tuple(repair for repair in builder.repairs if repair.turn_id in visible_ids)
    return Assembled(history.system_prompt, blocks, repairs, cuts)


def _blocks(
    history: VisibleThread, builder: ItemBuilder, count: Counter, cache: BlockCache | None
) -> Iterator[ContextBlock]:
    if history.summary:
        turn_id = history.summary_turn_id
        words = f"{SUMMARY}\n{history.summary}"
        yield block("summary", turn_id, [TextItem("user", words, turn_id, "summary")], count)
    for turn in (*history.picked, *history.kept):
        yield _turn_block(turn, "kept", builder, count, cache)
    for turn in history.since:
        yield _turn_block(turn, "since", builder, count, cache)
    if history.query:
        yield block("query", None, builder.messages(history.query, "query"), count)


def _turn_block(
    turn: Turn, part: Part, builder: ItemBuilder, count: Counter, cache: BlockCache | None
) -> ContextBlock:
    """The block of a turn; that of a sealed turn is made once."""
    if cache is None or turn.status not in SEALED or turn.projected:
        return block(part, turn.id, builder.turn(turn, part), count)
    key = f"{part} {turn.id}"
    cached = cache.get(key)
    if cached is not None and builder.reuses(cached[1]):
        saved: ContextBlock = cached[0]
        return saved
    repairs = len(builder.repairs)
    made = block(part, turn.id, builder.turn(turn, part), count)
    if len(builder.repairs) == repairs:  # else it depends on the turns before
        call_ids = frozenset(item.id for item in made.items if isinstance(item, CallItem))
        chars = made.tokens * BYTES_PER_TOKEN + ITEM_CHARS * (1 + len(made.items))
        cache.keep(key, (made, call_ids), chars)
    return made


def prompt_tokens(system_prompt: str | None, count: Counter = estimate_tokens) -> int:
    return count(system_prompt) + ITEM_TOKENS if system_prompt else 0


def summary_overhead(count: Counter = estimate_tokens) -> int:
    """The tokens that a summary takes beside its own."""
    return count(f"{SUMMARY}\n") + ITEM_TOKENS


def least_tokens(turn: Turn, count: Counter = estimate_tokens) -> int:
    """The fewest tokens a turn can have in a context that shows it."""
    return lightest(block("since", turn.id, ItemBuilder().turn(turn, "since"), count), count)
