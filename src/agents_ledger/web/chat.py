"""Going on with a session from a page or over HTTP, through the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final

from litestar import post
from litestar.exceptions import ClientException
from litestar.params import FromPath, JSONBody, URLEncodedBody
from litestar.response import Redirect, ServerSentEvent, ServerSentEventMessage
from msgspec import Meta, Struct

from agents_ledger.broker.broker import Broker
from agents_ledger.ledger.search.routing import parse
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.web.formats import session_url
from agents_ledger.web.responses import ERRORS, as_json
from agents_ledger.web.site import Asked, Here, Site, check_persona, named

TEXT_MAX = 200_000
SEE_OTHER: Final = 303


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says to a session."""

    text: Annotated[str, Meta(min_length=1, max_length=TEXT_MAX)]


class Stopped(Struct, frozen=True):
    """The turns that were asked to stop."""

    turn_ids: list[str]


def _broker(site: Site) -> Broker:
    if site.broker is None:
        raise Refused(
            "no engine is configured for this ledger",
            "Name one in its policy file: docs/how-to/run-turns-with-the-broker.md shows how.",
        )
    return site.broker


def _check_target(request: Asked, target: str) -> None:
    """Refuse to choose a persona, unless to an administrator: `persona:NAME` makes its session."""
    parsed = parse(target)
    if parsed.kind == "persona":
        check_persona(request, parsed.value, DEFAULT_PERSONA)


@post("/s/{label:str}/chat", status_code=SEE_OTHER, opt={"scope": "chat"})
async def say(
    request: Asked, site: Here, label: FromPath[str], data: URLEncodedBody[dict[str, str]]
) -> Redirect:
    """Say something to a session; its page shows the answer as it is written."""
    text = data.get("text", "").strip()
    if not text or len(text) > TEXT_MAX:
        raise ClientException(f"a message has 1 to {TEXT_MAX:,} characters")
    _check_target(request, named(label))
    await _broker(site).enqueue(named(label), text)
    return Redirect(session_url(named(label)), status_code=SEE_OTHER)


@post(
    "/chat/{key:str}",
    responses=ERRORS,
    status_code=200,
    media_type="text/event-stream",
    opt={"scope": "chat"},
)
async def send(
    request: Asked, site: Here, key: FromPath[str], data: JSONBody[Said]
) -> ServerSentEvent:
    """Say something to a session, and follow what happens until it is answered. The engine of the
    policy runs, with the tools it grants: this needs the scope `chat`."""
    _check_target(request, named(key))
    events = _broker(site).send(named(key), data.text)
    return ServerSentEvent(_told(events))


async def _told(events: AsyncIterator[object]) -> AsyncIterator[ServerSentEventMessage]:
    async for event in events:
        kind = type(event).__name__.lower()
        yield ServerSentEventMessage(data=as_json(event).decode(), event=kind)


@post(
    "/chat/{key:str}/stop",
    responses=ERRORS,
    status_code=200,
    opt={"scopes": ("write", "chat")},
)
async def stop(site: Here, key: FromPath[str]) -> Stopped:
    """Stop what runs on a session; what it said so far is kept."""
    return Stopped(list(await _broker(site).cancel(named(key))))


PAGES = (say,)
ROUTES = (send, stop)
