"""What a model is shown, as values of no provider: a row of items, each naming its turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from agents_ledger.model.text.tokens import Counter, estimate_tokens

# The message formats that a context can be rendered in; context/providers.py renders them.
ProviderFormat = Literal["anthropic", "openai", "openai-responses"]
PROVIDER_FORMATS: tuple[ProviderFormat, ...] = get_args(ProviderFormat)
Part = Literal["summary", "kept", "since", "query"]
Speaker = Literal["user", "assistant"]

IMAGE_TOKENS = 1500  # of about a megapixel, whichever provider
# What a provider adds around each item: role, name, separators.
ITEM_TOKENS = 4


class ImageItem(Struct, frozen=True, tag="image"):
    """An image, by reference: an address, a `data:` address, or words that say where it lies."""

    reference: str
    media_type: str | None = None
    role: Speaker = "user"
    turn_id: str | None = None
    part: Part = "since"


class TextItem(Struct, frozen=True, tag="text"):
    """Something said. `turn_id` is None while it is not recorded: the current query."""

    role: Speaker
    text: str
    turn_id: str | None = None
    part: Part = "since"


class ThinkingItem(Struct, frozen=True, tag="thinking"):
    """What the model thought; with the signature by which its provider knows it again, if any."""

    text: str
    signature: str | None = None
    provider: str | None = None
    turn_id: str | None = None
    part: Part = "since"


class CallItem(Struct, frozen=True, tag="call"):
    """A tool call: its id, the tool, its parameters as JSON text."""

    id: str
    tool_name: str
    params_json: str = "{}"
    turn_id: str | None = None
    part: Part = "since"


class ResultItem(Struct, frozen=True, tag="result"):
    """What came of a tool call."""

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[ImageItem, ...] = ()
    turn_id: str | None = None
    part: Part = "since"


Item = TextItem | ThinkingItem | ImageItem | CallItem | ResultItem


def item_tokens(item: Item, count: Counter = estimate_tokens) -> int:
    """The tokens of one item of a context."""
    if isinstance(item, CallItem):
        return ITEM_TOKENS + count(item.tool_name) + count(item.params_json)
    if isinstance(item, ImageItem):
        return ITEM_TOKENS + IMAGE_TOKENS
    images = IMAGE_TOKENS * len(item.images) if isinstance(item, ResultItem) else 0
    return ITEM_TOKENS + count(item.text) + images


def count_tokens(
    system_prompt: str | None, items: Iterable[Item], count: Counter = estimate_tokens
) -> int:
    """The tokens of a system prompt and a row of items."""
    prompt_tokens = count(system_prompt) + ITEM_TOKENS if system_prompt else 0
    return prompt_tokens + sum(item_tokens(item, count) for item in items)


class Repair(Struct, frozen=True):
    """Something a turn lacked: what was done, and for which call or message."""

    turn_id: str | None
    what: str
    id: str


CutKind = Literal["result", "image", "turn", "step", "summary"]


class Cut(Struct, frozen=True):
    """What a budget took away, from which turn, and how many tokens that saved."""

    kind: CutKind
    turn_id: str | None
    tokens: int


class Problem(Struct, frozen=True):
    """What a provider would refuse, and at which message; counted from 0."""

    index: int
    what: str
