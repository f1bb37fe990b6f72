"""The HTTP API of live changes: server-sent events that can be resumed."""

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
from agents_ledger.web.site import Site, ThisSite

POLL_S = 0.4
KEEPALIVE_S = 15  # proxies close connections that stay silent
# On PostgreSQL a move may become visible after one with a higher number.
OVERLAP = 200
TEXT_MAX = 20_000


class LiveProgress(Struct, frozen=True):
    """A turn that is being written."""

    turn_id: str
    session_label: str
    steps: int
    text: str  # the end of its text so far


class ChangeFeed:
    """What was sent to one client, and what is new since."""

    def __init__(self, site: Site, label: str | None, after: int | None) -> None:
        self._site = site
        self._label = label
        self._last = site.pages.last_move() if after is None else after
        self._floor = self._last
        self._sent: deque[int] = deque(maxlen=4 * OVERLAP)
        self._live: dict[str, LiveProgress] = {}

    def news(self) -> list[ServerSentEventMessage]:
        """The events since the last call."""
        return [*self._moves(), *self._live_events()]

    def _moves(self) -> list[ServerSentEventMessage]:
        events = []
        # Read again what may have been committed late; what was sent already is skipped.
        for move in self._site.pages.moves_since(max(self._floor, self._last - OVERLAP)):
            if move.id in self._sent:
                continue
            self._sent.append(move.id)
            self._last = max(self._last, move.id)
            if self._label in (None, move.session_label):
                events.append(_message("move", move, move.id))
        return events

    def _live_events(self) -> list[ServerSentEventMessage]:
        events = []
        now: dict[str, LiveProgress] = {}
        for turn_id, label, steps in self._site.pages.live_progress(self._label):
            try:
                text = self._site.ledger.partial_text(turn_id)[-TEXT_MAX:]
            except LedgerError:  # it has just ended
                continue
            now[turn_id] = LiveProgress(turn_id, label, steps, text)
            if self._live.get(turn_id) != now[turn_id]:
                events.append(_message("live", now[turn_id]))
        for turn_id, turn in self._live.items():
            if turn_id not in now:
                events.append(_message("sealed", turn))
        self._live = now
        return events


def _message(
    event: str, value: Move | LiveProgress, number: int | None = None
) -> ServerSentEventMessage:
    identity = str(number) if number is not None else None
    return ServerSentEventMessage(data=as_json(value).decode(), event=event, id=identity)


@get("/changes", responses=ERRORS, media_type="text/event-stream")
async def follow(
    site: ThisSite,
    session: FromQuery[str] = "",
    last_event_id: Annotated[str, HeaderParameter(name="Last-Event-ID")] = "",
) -> ServerSentEvent:
    """Moves of heads, and turns being written, as they happen: of one session, or of all.

    After a disconnect, send the id of the last event as `Last-Event-ID`.
    """
    after = int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 16 else None  # noqa: PLR2004
    label = None
    if session:
        try:
            label = (await asyncio.to_thread(site.ledger.session, session)).label
        except NotFound:
            label = session  # it may be created later
    feed = await asyncio.to_thread(ChangeFeed, site, label, after)
    return ServerSentEvent(_events(feed), retry_duration=1000, comment_message="following")


async def _events(feed: ChangeFeed) -> AsyncIterator[ServerSentEventMessage]:
    quiet = 0.0
    while True:
        for message in await asyncio.to_thread(feed.news):
            quiet = 0
            yield message
        await asyncio.sleep(POLL_S)
        quiet += POLL_S
        if quiet > KEEPALIVE_S:
            quiet = 0
            yield ServerSentEventMessage(comment="still here")


ROUTES = (follow,)
