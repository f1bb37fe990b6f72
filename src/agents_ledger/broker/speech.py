"""What the engine says in one turn: durable soon after it is said, and put together at its end."""

from __future__ import annotations

import asyncio
from typing import Any

from agents_ledger.ledger.aio.async_ledger import AsyncLiveTurn
from agents_ledger.model.agents.engine import (
    CallBegun,
    CallFinished,
    Event,
    Finished,
    MessageDone,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.model.context import CallItem, Item, ResultItem, TextItem
from agents_ledger.model.turns import Message, to_json

STREAM_SECONDS = 0.25  # how long a piece may wait for others before it is stored
CARRIED_MAX = 2000  # characters of a result that a turn takes along when it is begun anew


class Speech:
    """Messages of the assistant as they arise: pieces, whole messages, the answer."""

    def __init__(self, turn: AsyncLiveTurn) -> None:
        self._turn = turn
        self.text = ""  # of the message that is being said
        self._thinking = ""
        self._done: MessageDone | None = None
        self._unstored = ""
        self._stored_at = asyncio.get_running_loop().time()
        self._items: list[Item] = []

    async def hear(self, event: Event) -> None:
        """Take in what happened, before anybody is told of it."""
        if isinstance(event, TextPiece):
            await self._settle_done()
            self.text += event.text
            self._unstored += event.text
            await self._store()
        elif isinstance(event, ThinkingPiece):
            await self._settle_done()
            self._thinking += event.text
        elif isinstance(event, MessageDone):
            await self._settle_done()
            self._done = event
            self.text, self._thinking = event.text, event.thinking or ""
        elif isinstance(event, CallBegun):
            await self._settle_done()
            self._items.append(event.call)
        elif isinstance(event, CallFinished):
            self._items.append(event.result)

    async def _store(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._stored_at >= STREAM_SECONDS:
            pieces, self._unstored, self._stored_at = self._unstored, "", now
            await self._turn.stream(pieces)

    async def _settle_done(self) -> None:
        """A message that something follows was not the answer: it is a step of the turn."""
        done, self._done = self._done, None
        if done is None:
            return
        self.text = self._thinking = self._unstored = ""
        if done.text or done.thinking:
            self._items.append(TextItem("assistant", done.text))
            await self._turn.message(_message(done, {}), streamed=True)

    def response(self, finished: Finished, reply_to: str | None) -> Message:
        """The answer, and where it goes if not to whoever asked."""
        done = self._done or MessageDone(self.text, self._thinking or None)
        delivery = {"delivery": {"session": reply_to}} if reply_to else {}
        return _message(done, {"stop_reason": finished.stop_reason, **delivery})

    def unfinished(self) -> Message | None:
        """What was being said when it ended too early; None: nothing."""
        if not self.text and not self._thinking:
            return None
        whole = self._done is not None
        done = self._done or MessageDone(self.text, self._thinking or None)
        return _message(done, {} if whole else {"partial": True})

    def items(self) -> tuple[Item, ...]:
        """What was done so far, for a turn that goes on from it: long results cut."""
        return tuple(_shortened(item) for item in self._answered())

    def _answered(self) -> list[Item]:
        answered = {item.call_id for item in self._items if isinstance(item, ResultItem)}
        return [
            item for item in self._items if not isinstance(item, CallItem) or item.id in answered
        ]


def _shortened(item: Item) -> Item:
    if not isinstance(item, ResultItem) or len(item.text) <= CARRIED_MAX:
        return item
    left = len(item.text) - CARRIED_MAX
    return ResultItem(item.call_id, f"{item.text[:CARRIED_MAX]}\n[{left} characters cut]")


def _message(done: MessageDone, told: dict[str, Any]) -> Message:
    if done.signature is not None:
        told["thinking_signature"] = done.signature
    metadata = to_json(told) if told else None
    return Message("assistant", done.text, thinking=done.thinking, metadata_json=metadata)
