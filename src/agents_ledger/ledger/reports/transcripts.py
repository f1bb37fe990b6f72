"""The messages and calls of a thread, for readers that need nothing else of its turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from agents_ledger.ledger.turns import threads, unfinished
from agents_ledger.model.errors import NotFound
from agents_ledger.model.turns import MessageRole, Turn
from agents_ledger.store.database import Transaction


class TranscriptMessage(NamedTuple):
    depth: int
    sequence: int
    turn_id: str
    role: MessageRole
    content: str | None
    metadata_json: str | None


class TranscriptCall(NamedTuple):
    turn_id: str
    id: str
    params_json: str
    result_json: str | None


class TranscriptPage(NamedTuple):
    """Consecutive turns of a thread: their messages in order, and their calls."""

    messages: list[TranscriptMessage]
    tool_calls: list[TranscriptCall]


def backwards(tx: Transaction, target: str, *, page: int | None) -> Iterator[TranscriptPage]:
    """A thread's pages, the last first; see Ledger.read_transcript."""
    growing = unfinished.find(tx, target)
    if growing is not None:
        yield _page_of(growing)
    try:
        whole = threads.thread(tx, target, last=0)
    except NotFound:
        return
    last = whole.depth
    while last > 0:
        first = 1 if page is None else max(1, last - page + 1)
        within = {"turn_id": whole.turn_id, "from_depth": first, "to_depth": last}
        messages = sorted(tx.read_as("thread_said", TranscriptMessage, **within))
        yield TranscriptPage(messages, tx.read_as("thread_called", TranscriptCall, **within))
        last, page = first - 1, 2 * (page or 0)


def _page_of(turn: Turn) -> TranscriptPage:
    return TranscriptPage(
        [
            TranscriptMessage(turn.depth, m.sequence, turn.id, m.role, m.content, m.metadata_json)
            for m in turn.messages
        ],
        [TranscriptCall(turn.id, c.id, c.params_json, c.result_json) for c in turn.tool_calls],
    )
