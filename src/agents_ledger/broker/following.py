"""Following an entry that another process answers: what the ledger shows of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agents_ledger.broker.events import Completed, Failed, RunEvent, Started
from agents_ledger.ledger.async_ledger import AsyncLedger
from agents_ledger.ledger.async_queue import AsyncQueue
from agents_ledger.model.engine import TextPiece
from agents_ledger.model.errors import NotFound
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.turns import Turn, Usage


class Follower:
    """What was told of one entry so far."""

    def __init__(self, ledger: AsyncLedger, queue: AsyncQueue, entry_id: str) -> None:
        self._ledger = ledger
        self._queue = queue
        self._entry_id = entry_id
        self._started: str | None = None
        self._told = ""

    async def look(self) -> AsyncIterator[RunEvent]:
        """What happened since the last look."""
        entry = await self._queue.get(self._entry_id)
        if entry.status == "waiting":
            return
        turn = await self._turn(entry)
        if turn is not None and turn.id != self._started:
            self._started, self._told = turn.id, ""
            yield Started(turn.id, entry.session_label, (entry.id,), turn.model)
        if entry.status == "claimed":
            if turn is not None:
                said = await self._ledger.partial_text(turn.id)
                if said.startswith(self._told) and said != self._told:
                    yield TextPiece(said[len(self._told) :])
                    self._told = said
            return
        yield _end(entry, turn)

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
