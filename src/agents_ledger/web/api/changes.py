"""Live changes: server-sent events that can be resumed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated

from litestar import get
from litestar.params import FromQuery, HeaderParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Struct

from agents_ledger.model.errors import LedgerError, NotFound
from agents_ledger.model.sessions import Move
from agents_ledger.web.responses import ERRORS, as_json
from agents_ledger.web.site import Here, Site

POLL_S = 0.4
QUIET_S = 15  # then something is said, so that nobody between us thinks we are gone
OVERLAP = 200  # on a server a move may be seen after one with a higher number
TEXT_MAX = 20_000


class Writing(Struct, frozen=True):
    """A turn that is being written."""

    turn_id: str
    session_label: str
    steps: int
    text: str  # the end of what it has said so far


class Follower:
    """What one listener was told, and what is new since."""

    def __init__(self, site: Site, label: str | None, after: int | None) -> None:
        self._site = site
        self._label = label
        self._last = site.pages.last_move() if after is None else after
        self._floor = self._last
        self._told: deque[int] = deque(maxlen=4 * OVERLAP)
        self._writing: dict[str, Writing] = {}

    def news(self) -> list[ServerSentEventMessage]:
        """What happened since the last call."""
        return [*self._moves(), *self._live()]

    def _moves(self) -> list[ServerSentEventMessage]:
        found = []
        for move in self._site.pages.moves_since(max(self._floor, self._last - OVERLAP)):
            if move.id in self._told:
                continue
            self._told.append(move.id)
            self._last = max(self._last, move.id)
            if self._label in (None, move.session_label):
                found.append(_message("move", move, move.id))
        return found

    def _live(self) -> list[ServerSentEventMessage]:
        found = []
        now: dict[str, Writing] = {}
        for turn_id, label, steps in self._site.pages.live_progress(self._label):
            try:
                text = self._site.ledger.partial_text(turn_id)[-TEXT_MAX:]
            except LedgerError:  # it ended meanwhile
                continue
            now[turn_id] = Writing(turn_id, label, steps, text)
            if self._writing.get(turn_id) != now[turn_id]:
                found.append(_message("live", now[turn_id]))
        for turn_id, writing in self._writing.items():
            if turn_id not in now:
                found.append(_message("sealed", writing))
        self._writing = now
        return found


def _message(
    event: str, value: Move | Writing, number: int | None = None
) -> ServerSentEventMessage:
    identity = str(number) if number is not None else None
    return ServerSentEventMessage(data=as_json(value).decode(), event=event, id=identity)


@get("/changes", responses=ERRORS, media_type="text/event-stream")
async def follow(
    site: Here,
    session: FromQuery[str] = "",
    last_event_id: Annotated[str, HeaderParameter(name="Last-Event-ID")] = "",
) -> ServerSentEvent:
    """Moves of heads, and turns being written, as they happen: of one session, or of all.

    A listener that was cut off passes the id of the last move it was told as `Last-Event-ID`.
    """
    after = int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 16 else None  # noqa: PLR2004
    label = None
    if session:
        try:
            label = (await asyncio.to_thread(site.ledger.session, session)).label
        except NotFound:
            label = session  # it may come to be
    follower = await asyncio.to_thread(Follower, site, label, after)
    return ServerSentEvent(_events(follower), retry_duration=1000, comment_message="following")


async def _events(follower: Follower) -> AsyncIterator[ServerSentEventMessage]:
    quiet = 0.0
    while True:
        for message in await asyncio.to_thread(follower.news):
            quiet = 0
            yield message
        await asyncio.sleep(POLL_S)
        quiet += POLL_S
        if quiet > QUIET_S:
            quiet = 0
            yield ServerSentEventMessage(comment="still here")


ROUTES = (follow,)
