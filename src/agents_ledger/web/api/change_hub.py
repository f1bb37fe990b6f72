"""What changes in a ledger, read once per process however many listen."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import NamedTuple
from weakref import WeakSet

from msgspec import Struct

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Move
from agents_ledger.render.activity import GROWING_MS

POLL_S = 0.4
# On PostgreSQL a move may become visible after one with a higher number.
OVERLAP = 200
TEXT_MAX = 20_000
QUEUE_MAX = 2000  # changes that a client has not read
MISSED_MAX = 500  # moves read at a time for a client that reconnects
_log = logging.getLogger("agents_ledger.web")


class LiveProgress(Struct, frozen=True):
    """A turn that is being written."""

    turn_id: str
    session_label: str
    steps: int  # grows with each step
    text: str  # the end of its text so far


class Change(NamedTuple):
    """A move of a head, or the progress or end of a live turn."""

    kind: str  # move, live or sealed
    value: Move | LiveProgress

    @property
    def move_id(self) -> int | None:
        return self.value.id if isinstance(self.value, Move) else None


class ChangeListener:
    """The changes that one client has not received yet."""

    def __init__(self, label: str | None) -> None:
        self._label = label
        self._queue: asyncio.Queue[Change] = asyncio.Queue()
        self._missed: frozenset[int | None] = frozenset()
        self.overflowed = False

    def put(self, changes: list[Change]) -> None:
        for change in changes:
            if self._label not in (None, change.value.session_label):
                continue
            if change.move_id is not None and change.move_id in self._missed:
                continue
            self._queue.put_nowait(change)
        self.overflowed = self._queue.qsize() > QUEUE_MAX

    def put_missed(self, moves: list[Move]) -> None:
        """Moves since the last connection, which the next polls may report again."""
        self.put([Change("move", move) for move in moves])
        self._missed = frozenset(move.id for move in moves)

    async def next(self) -> Change:
        return await self._queue.get()


class ChangeHub:
    """Reads the ledger while anybody listens, and passes each change to all listeners."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        # The stream of a client has the only other reference: when it ends, its listener is gone.
        self._listeners: WeakSet[ChangeListener] = WeakSet()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._last = self._floor = 0
        self._sent: deque[int] = deque(maxlen=4 * OVERLAP)
        self._live: dict[str, LiveProgress] = {}

    async def listen(self, label: str | None, after: int | None) -> ChangeListener:
        """Listen to one session or all, from now or from `after` a move."""
        listener = ChangeListener(label)
        async with self._starting:
            if self._task is None or self._task.done():
                self._last = self._floor = await asyncio.to_thread(self._ledger.pages.last_move)
                self._live = {}
                self._task = asyncio.create_task(self._run())
            self._listeners.add(listener)
            listener.put([Change("live", turn) for turn in self._live.values()])
        if after is not None:
            listener.put_missed(await asyncio.to_thread(self._moves_after, after))
        return listener

    async def _run(self) -> None:
        while self._listeners:
            try:
                changes = await asyncio.to_thread(self.poll)
            except LedgerError:
                _log.warning("reading changes failed; trying again", exc_info=True)
                changes = []
            for listener in list(self._listeners):
                listener.put(changes)
            await asyncio.sleep(POLL_S)

    def poll(self) -> list[Change]:
        """The changes since the last poll."""
        return [*self._moves(), *self._live_changes()]

    def _moves_after(self, move_id: int) -> list[Move]:
        moves: list[Move] = []
        while batch := self._ledger.pages.moves_since(move_id, limit=MISSED_MAX):
            moves += batch
            move_id = batch[-1].id
            if len(moves) > QUEUE_MAX:
                break
        return moves

    def _moves(self) -> list[Change]:
        changes = []
        # Read again what may have been committed late; what was sent already is skipped.
        for move in self._ledger.pages.moves_since(max(self._floor, self._last - OVERLAP)):
            if move.id in self._sent:
                continue
            self._sent.append(move.id)
            self._last = max(self._last, move.id)
            changes.append(Change("move", move))
        return changes

    def _live_changes(self) -> list[Change]:
        changes = []
        now: dict[str, LiveProgress] = {}
        for turn_id, label, steps in self._ledger.pages.live_progress():
            try:
                text = self._ledger.partial_text(turn_id)[-TEXT_MAX:]
            except LedgerError:  # it has just ended
                continue
            now[turn_id] = LiveProgress(turn_id, label, steps, text)
        # An agent that writes a log of its own: its last turn changes with each import.
        for turn_id, label, at in self._ledger.pages.growing_sessions(now_ms() - GROWING_MS):
            now.setdefault(turn_id, LiveProgress(turn_id, label, at, ""))
        changes += [
            Change("live", turn) for turn in now.values() if turn != self._live.get(turn.turn_id)
        ]
        for turn_id, turn in self._live.items():
            if turn_id not in now:
                changes.append(Change("sealed", turn))
        self._live = now
        return changes
