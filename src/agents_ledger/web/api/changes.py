"""The HTTP API of live changes: server-sent events that can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from litestar import get
from litestar.params import FromQuery, HeaderParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import structs

from agents_ledger.model.errors import NotFound
from agents_ledger.web.api.change_hub import Change, ChangeListener, LiveProgress
from agents_ledger.web.responses import ERRORS, as_json
from agents_ledger.web.site import ThisSite

KEEPALIVE_S = 15  # proxies close connections that stay silent


@get("/changes", responses=ERRORS, media_type="text/event-stream")
async def follow(
    site: ThisSite,
    session: FromQuery[str] = "",
    text: FromQuery[bool] = True,
    last_event_id: Annotated[str, HeaderParameter(name="Last-Event-ID")] = "",
) -> ServerSentEvent:
    """Moves of heads, and turns being written, as they happen: of one session, or of all.

    After a disconnect, send the id of the last event as `Last-Event-ID`. With `text=false`, the
    text of a turn being written is left out.
    """
    after = int(last_event_id) if last_event_id.isdecimal() and len(last_event_id) < 16 else None  # noqa: PLR2004
    label = None
    if session:
        try:
            label = (await asyncio.to_thread(site.ledger.session, session)).label
        except NotFound:
            label = session  # it may be created later
    listener = await site.changes.listen(label, after)
    return ServerSentEvent(
        _events(listener, with_text=text), retry_duration=1000, comment_message="following"
    )


async def _events(
    listener: ChangeListener, *, with_text: bool
) -> AsyncIterator[ServerSentEventMessage]:
    # A client that reads too slowly is disconnected: it reconnects with its last event id.
    while not listener.overflowed:
        try:
            async with asyncio.timeout(KEEPALIVE_S):
                change = await listener.next()
        except TimeoutError:
            yield ServerSentEventMessage(comment="still here")
            continue
        yield _message(change, with_text=with_text)


def _message(change: Change, *, with_text: bool) -> ServerSentEventMessage:
    value = change.value
    if isinstance(value, LiveProgress) and not with_text:
        value = structs.replace(value, text="")
    identity = None if change.move_id is None else str(change.move_id)
    return ServerSentEventMessage(data=as_json(value).decode(), event=change.kind, id=identity)


ROUTES = (follow,)
