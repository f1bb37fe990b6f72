"""The output of the engine in one turn: streamed text is stored soon, messages when complete."""

from __future__ import annotations

import asyncio
from typing import Any

from agents_ledger.ledger.aio.async_ledger import AsyncLiveTurn
from agents_ledger.model.agents.engine import (
    CallBegun,
    CallFinished,
    EngineEvent,
    Finished,
    MessageDone,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.model.context.items import CallItem, Item, ResultItem, TextItem
from agents_ledger.model.turns import Message, to_json

# Each write is a commit: one for every piece of text would be a sync of the disk each.
STREAM_SECONDS = 0.25
# Characters of a tool result passed to the turn after an overflow: whole results could overflow it
# again.
CARRIED_MAX = 2000


class AssistantOutput:
    """Collects the assistant's messages, and stores them on the live turn."""

    def __init__(self, turn: AsyncLiveTurn) -> None:
        self._turn = turn
        self.text = ""  # of the current message
        self._thinking = ""
        self._complete: MessageDone | None = None
        self._unstored = ""
        self._stored_at = asyncio.get_running_loop().time()
        self._items: list[Item] = []

    async def add(self, event: EngineEvent) -> None:
        """Store an event; to be called before it is published."""
        if isinstance(event, TextPiece):
            await self._record_step()
            self.text += event.text
            self._unstored += event.text
            await self._store()
        elif isinstance(event, ThinkingPiece):
            await self._record_step()
            self._thinking += event.text
        elif isinstance(event, MessageDone):
            await self._record_step()
            self._complete = event
            self.text, self._thinking = event.text, event.thinking or ""
        elif isinstance(event, CallBegun):
            await self._record_step()
            self._items.append(event.call)
        elif isinstance(event, CallFinished):
            self._items.append(event.result)

    async def _store(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._stored_at >= STREAM_SECONDS:
            text, self._unstored, self._stored_at = self._unstored, "", now
            await self._turn.stream(text)

    async def _record_step(self) -> None:
        """Record the last complete message as a step; something follows, so it is no answer."""
        done, self._complete = self._complete, None
        if done is None:
            return
        self.text = self._thinking = self._unstored = ""
        if done.text or done.thinking:
            self._items.append(TextItem("assistant", done.text))
            await self._turn.message(_message(done, {}), streamed=True)

    def response(self, finished: Finished, reply_to: str | None) -> Message:
        """The answer, with its delivery if it goes to another session."""
        done = self._complete or MessageDone(self.text, self._thinking or None)
        delivery = {"delivery": {"session": reply_to}} if reply_to else {}
        return _message(done, {"stop_reason": finished.stop_reason, **delivery})

    def unfinished(self) -> Message | None:
        """The message that was being written when the turn ended early; None if there is none."""
        if not self.text and not self._thinking:
            return None
        whole = self._complete is not None
        done = self._complete or MessageDone(self.text, self._thinking or None)
        return _message(done, {} if whole else {"partial": True})

    def items(self) -> tuple[Item, ...]:
        """The steps so far, with long results truncated, for the turn after an overflow."""
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
    return ResultItem(item.call_id, f"{item.text[:CARRIED_MAX]}\n[{left} characters omitted]")


def _message(done: MessageDone, metadata: dict[str, Any]) -> Message:
    if done.signature is not None:
        metadata["thinking_signature"] = done.signature
    encoded = to_json(metadata) if metadata else None
    return Message("assistant", done.text, thinking=done.thinking, metadata_json=encoded)
