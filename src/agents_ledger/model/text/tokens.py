"""How many tokens a text has, estimated without a network and without a model's own vocabulary.

A token is taken as three bytes of UTF-8. Between the requests of real coding sessions one was
counted for every 2.9 bytes that were added (604 steps with Claude, code and JSON mostly); prose has
about four to a token, so that it is counted too high rather than too low. What a provider counted
is known afterwards, in a turn's usage.
"""

from __future__ import annotations

from collections.abc import Callable

from agents_ledger.model.errors import Refused

BYTES_PER_TOKEN = 3
# Never cut for a budget, unless the caller says otherwise.
LAST_TURNS = 3

Counter = Callable[[str], int]


def check_counter(count: object) -> None:
    """Refuse what does not count tokens."""
    if not callable(count):
        raise Refused(f"count is {count!r:.80}", "It is a function from a text to its tokens.")


def estimate_tokens(text: str | None) -> int:
    """The tokens of a text, about."""
    if not text:
        return 0
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (size + BYTES_PER_TOKEN - 1) // BYTES_PER_TOKEN
