"""The HTTP API of chats: send a message, stop the answer, and the queue of waiting messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from litestar import Response, post
from litestar.params import FromPath, FromQuery, JSONBody
from litestar.response import ServerSentEvent, ServerSentEventMessage
from msgspec import Meta, Struct

from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.queue import QueueEntry
from agents_ledger.web.requests import WebRequest, check_target, decode_part
from agents_ledger.web.responses import ERRORS, PER_PAGE, Limit, answer, as_json, reads, removes
from agents_ledger.web.site import ThisSite

TEXT_MAX = 200_000


class ChatMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message to a session."""

    text: Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]


class StoppedTurns(Struct, frozen=True):
    """The turns that were asked to stop."""

    turn_ids: list[str]


@post(
    "/chat/{key:str}",
    responses=ERRORS,
    status_code=200,
    media_type="text/event-stream",
    opt={"scope": "chat"},
)
async def send(
    request: WebRequest, site: ThisSite, key: FromPath[str], data: JSONBody[ChatMessage]
) -> ServerSentEvent:
    """Send a message to a session, and follow the events until it is answered. The engine of the
    policy runs with the tools that the policy grants: this needs the scope `chat`."""
    target, broker = decode_part(key), site.required_broker()
    check_target(request, target)
    await broker.check(target)  # an error after the first byte could not have a status
    events = broker.send(target, data.text)
    return ServerSentEvent(_as_messages(events))


async def _as_messages(events: AsyncIterator[object]) -> AsyncIterator[ServerSentEventMessage]:
    async for event in events:
        kind = type(event).__name__.lower()
        yield ServerSentEventMessage(data=as_json(event).decode(), event=kind)


@post("/chat/{key:str}/stop", responses=ERRORS, status_code=200, opt={"scopes": ("write", "chat")})
async def stop(site: ThisSite, key: FromPath[str]) -> StoppedTurns:
    """Stop the answer that a session is giving; the text so far is kept."""
    return StoppedTurns(list(await site.required_broker().cancel(decode_part(key))))


@reads("/queue")
def list_queue(
    request: WebRequest,
    site: ThisSite,
    session: FromQuery[str | None] = None,
    limit: Limit = PER_PAGE,
) -> Response[list[QueueEntry]]:
    """The messages that wait to be sent, of one session or of all."""
    return answer(list(Queue(site.ledger).entries(session, limit=limit)), request)


@removes("/queue/{entry:str}")
def cancel_entry(site: ThisSite, entry: FromPath[str]) -> Response[QueueEntry]:
    """Cancel a waiting message."""
    return answer(Queue(site.ledger).cancel(decode_part(entry)))


ROUTES = (send, stop, list_queue, cancel_entry)
