"""Following an entry that another process answers: what the ledger shows of it."""

from __future__ import annotations

from agents_ledger.broker.events import Completed, Failed, RunEvent, Started
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.model.agents.engine import TextPiece
from agents_ledger.model.errors import NotFound
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.turns import Turn, Usage


class Follower:
    """What was reported of one entry so far, by our own run or from the ledger."""

    def __init__(self, ledger: AsyncLedger, queue: AsyncQueue, entry_id: str) -> None:
        self._ledger = ledger
        self._queue = queue
        self._entry_id = entry_id
        self._started: str | None = None
        self._told = ""

    def note(self, event: RunEvent) -> None:
        """Remember what was reported, so that no look reports it again."""
        if isinstance(event, Started):
            self._started, self._told = event.turn_id, ""
        elif isinstance(event, TextPiece):
            self._told += event.text

    async def look(self) -> list[RunEvent]:
        """What the ledger shows and was not reported yet. It counts as reported once noted: while
        this looks, a run of our own may have begun to report the same."""
        entry = await self._queue.get(self._entry_id)
        if entry.status == "waiting":
            return []
        events: list[RunEvent] = []
        told = self._told
        turn = await self._turn(entry)
        if turn is not None and turn.id != self._started:
            events.append(Started(turn.id, entry.session_label, (entry.id,), turn.model))
            told = ""
        if entry.status != "claimed":
            events.append(_end(entry, turn))
        elif turn is not None:
            said = await self._ledger.partial_text(turn.id)
            if said.startswith(told) and said != told:
                events.append(TextPiece(said[len(told) :]))
        return events

    async def _turn(self, entry: QueueEntry) -> Turn | None:
        try:
            return None if entry.turn_id is None else await self._ledger.get_turn(entry.turn_id)
        except NotFound:  # claimed, and not begun yet
            return None


def _end(entry: QueueEntry, turn: Turn | None) -> RunEvent:
    """How it ended."""
    if turn is None or turn.status != "completed":
        kind = entry.status if entry.status in ("cancelled", "dropped") else "error"
        kept = turn.messages[-1].content or "" if turn and turn.messages else ""
        told = entry.error or (turn and turn.error) or entry.status
        return Failed(turn.id if turn else None, told, kind, kept)
    text = turn.response.content or "" if turn.response else ""
    usage = Usage(*(getattr(turn, name) for name in Usage.__struct_fields__))
    return Completed(turn.id, text, usage, turn.model)
