"""How many tokens a text has, estimated without a network and without a model's own vocabulary.

A token is taken as three bytes of UTF-8. Between the requests of real coding sessions one was
counted for every 2.9 bytes that were added (604 steps with Claude, code and JSON mostly); prose has
about four to a token, so that it is counted too high rather than too low. What a provider counted
is known afterwards, in a turn's usage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents_ledger.model.context import Item

BYTES_PER_TOKEN = 3
IMAGE_TOKENS = 1500  # of about a megapixel, whichever provider
# What a provider adds around each item: role, name, separators.
ITEM_TOKENS = 4
# Never cut for a budget, unless the caller says otherwise.
LAST_TURNS = 3

Counter = Callable[[str], int]


def estimate_tokens(text: str | None) -> int:
    """The tokens of a text, about."""
    if not text:
        return 0
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // BYTES_PER_TOKEN)


def item_tokens(item: Item, count: Counter = estimate_tokens) -> int:
    """The tokens of one item of a context."""
    # Not above: hooks only estimate texts, and must not load msgspec.
    from agents_ledger.model.context import CallItem, ImageItem, ResultItem

    if isinstance(item, ImageItem):
        return ITEM_TOKENS + IMAGE_TOKENS
    if isinstance(item, CallItem):
        return ITEM_TOKENS + count(item.tool_name) + count(item.params_json)
    images = IMAGE_TOKENS * len(item.images) if isinstance(item, ResultItem) else 0
    return ITEM_TOKENS + count(item.text) + images


def count_tokens(
    system_prompt: str | None, items: Iterable[Item], count: Counter = estimate_tokens
) -> int:
    """The tokens of a system prompt and a row of items."""
    prompt_tokens = count(system_prompt) + ITEM_TOKENS if system_prompt else 0
    return prompt_tokens + sum(item_tokens(item, count) for item in items)
