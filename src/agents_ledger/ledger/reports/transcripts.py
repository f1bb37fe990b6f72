"""What was said on a thread, message by message, for those who need no more of its turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import NotFound
from agents_ledger.model.turns import MessageRole
from agents_ledger.store.database import Transaction


class Said(NamedTuple):
    """What a message says, and where."""

    depth: int
    sequence: int
    turn_id: str
    role: MessageRole
    content: str | None
    metadata_json: str | None


class Called(NamedTuple):
    """What a call was given, and what came of it."""

    turn_id: str
    id: str
    params_json: str
    result_json: str | None


class Page(NamedTuple):
    """Some turns of a thread: their messages in order, and their calls."""

    messages: list[Said]
    tool_calls: list[Called]


def backwards(tx: Transaction, target: str, *, page: int | None) -> Iterator[Page]:
    """A thread from its end: so many turns, then each time twice as many; None: all at once.
    Nothing, if there is no such thread or it is empty."""
    try:
        whole = threads.thread(tx, target, last=0)
    except NotFound:
        return
    last = whole.depth
    while last > 0:
        first = 1 if page is None else max(1, last - page + 1)
        within = {"turn_id": whole.turn_id, "from_depth": first, "to_depth": last}
        messages = sorted(tx.read_as("thread_said", Said, **within))
        yield Page(messages, tx.read_as("thread_called", Called, **within))
        last, page = first - 1, 2 * (page or 0)
