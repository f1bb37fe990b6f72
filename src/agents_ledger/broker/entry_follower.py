"""Follow a queue entry that another process answers, by polling the ledger."""

from __future__ import annotations

from agents_ledger.broker.events import Completed, Failed, RunEvent, Started
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.aio.async_queue import AsyncQueue
from agents_ledger.model.agents.engine import TextPiece
from agents_ledger.model.errors import NotFound
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.turns import Turn, Usage


class EntryFollower:
    """Tracks what was reported of one entry, by a run of this process or from the ledger."""

    def __init__(self, ledger: AsyncLedger, queue: AsyncQueue, entry_id: str) -> None:
        self._ledger = ledger
        self._queue = queue
        self._entry_id = entry_id
        self._started: str | None = None
        self._reported = ""

    def note(self, event: RunEvent) -> None:
        """Note a reported event, so that `look` does not report it again."""
        if isinstance(event, Started):
            self._started, self._reported = event.turn_id, ""
        elif isinstance(event, TextPiece):
            self._reported += event.text

    async def look(self) -> list[RunEvent]:
        """The events that were not reported yet. They count as reported once noted: a run of this
        process may begin to report the same during this call."""
        entry = await self._queue.get(self._entry_id)
        if entry.status == "waiting":
            return []
        events: list[RunEvent] = []
        reported = self._reported
        turn = await self._turn(entry)
        if turn is not None and turn.id != self._started:
            events.append(Started(turn.id, entry.session_label, (entry.id,), turn.model))
            reported = ""
        # A message that steers is done as soon as a turn takes it, which goes on.
        runs = turn is not None and turn.status in ("pending", "streaming")
        if entry.status != "claimed" and not runs:
            events.append(_end(entry, turn))
        elif turn is not None:
            text = await self._ledger.partial_text(turn.id)
            if text.startswith(reported) and text != reported:
                events.append(TextPiece(text[len(reported) :]))
        return events

    async def _turn(self, entry: QueueEntry) -> Turn | None:
        try:
            return None if entry.turn_id is None else await self._ledger.get_turn(entry.turn_id)
        except NotFound:  # claimed, but not begun yet
            return None


def _end(entry: QueueEntry, turn: Turn | None) -> RunEvent:
    if turn is None or turn.status != "completed":
        kind = entry.status if entry.status in ("cancelled", "dropped") else "error"
        text = turn.messages[-1].content or "" if turn and turn.messages else ""
        error = entry.error or (turn and turn.error) or entry.status
        return Failed(turn.id if turn else None, error, kind, text)
    text = turn.response.content or "" if turn.response else ""
    usage = Usage(*(getattr(turn, name) for name in Usage.__struct_fields__))
    return Completed(turn.id, text, usage, turn.model)
