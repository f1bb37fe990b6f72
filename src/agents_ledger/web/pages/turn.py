"""The pages of one turn: inspector, tool calls, messages and steps."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery

from agents_ledger.ledger.context.contexts import Context
from agents_ledger.model.errors import NotFound
from agents_ledger.model.files.file_tools import decoded
from agents_ledger.model.turns import ToolCall, Turn
from agents_ledger.render import bodies
from agents_ledger.render.timeline import timeline_of
from agents_ledger.web.pages.cards import card_of
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

PER_PAGE = 50
TABS = ("overview", "tools", "files", "context", "raw")


def inspect(site: Site, turn: Turn, tab: str, *, whole: bool = False) -> dict[str, Any]:
    """The values of the inspector; `whole` assembles a context however large it is."""
    tab = tab if tab in TABS else "overview"
    values: dict[str, Any] = {"tab": tab, "tabs": TABS, "turn": turn}
    if tab == "overview":
        values["spent"] = site.ledger.turn_usage([turn.id]).get(turn.id)
    if tab in ("tools", "files"):
        values["turn"] = site.ledger.get_turn(turn.id)
    if tab == "tools":
        values["timeline"] = timeline_of(values["turn"])
    if tab == "files":
        values["files"] = _files(values["turn"])
    if tab == "context":
        values["config"] = site.ledger.effective_config(turn.id)
        values["system_prompt"] = site.ledger.system_prompt(turn.id)
        values["place"] = site.ledger.thread(turn.id, last=0)
        values["context"] = _context(site, turn, whole=whole)
    if tab == "raw":
        values["sources"] = site.pages.files_of_turn(turn.id)
    return values


def _context(site: Site, turn: Turn, *, whole: bool) -> Context | None:
    """The context of a model at a turn; None if assembling it takes long."""
    if not whole and site.pages.is_long(turn.id, visible=True):
        return None
    return site.ledger.context(turn.id)


def _files(turn: Turn) -> list[tuple[str, str]]:
    """Kind and path of the files of a turn, ordered by path."""
    files = {(file.kind, file.file_path) for message in turn.messages for file in message.files}
    return sorted(files, key=lambda file: (file[1], file[0]))


@get("/t/{turn:str}/inspect", sync_to_thread=True)
def inspector_fragment(
    request: WebRequest, site: ThisSite, turn: FromPath[str], tab: FromQuery[str] = "overview"
) -> Response[str]:
    inspected = site.ledger.get_turn(decode_part(turn))
    return site.page("inspector.html", request, inspector=inspect(site, inspected, tab))


@get("/t/{turn:str}/call/{call:str}", sync_to_thread=True)
def call_page(
    request: WebRequest,
    site: ThisSite,
    turn: FromPath[str],
    call: FromPath[str],
    part: FromQuery[bool] = False,
) -> Response[str]:
    """A tool call with its parameters and result; `part` is the fragment for an open page."""
    parent = site.ledger.get_turn(decode_part(turn))
    tool_call = _call(parent, decode_part(call))
    image_url = f"{request.scope['path']}/image"
    return site.page(
        "call_body.html" if part else "call.html",
        request,
        title=tool_call.tool_name,
        turn=parent,
        call=tool_call,
        parameters=bodies.parameters(tool_call.params_json),
        result=bodies.result(tool_call.result_json, image_url),
    )


def _call(turn: Turn, call_id: str) -> ToolCall:
    for call in turn.tool_calls:
        if call.id == call_id:
            return call
    raise NotFound(f"turn {turn.id} has no tool call {call_id!r}")


@get("/t/{turn:str}/call/{call:str}/image/{number:int}", sync_to_thread=True)
def image(
    site: ThisSite, turn: FromPath[str], call: FromPath[str], number: FromPath[int]
) -> Response[bytes]:
    """An image of a result. Only formats that cannot contain a script are served."""
    tool_call = _call(site.ledger.get_turn(decode_part(turn)), decode_part(call))
    images = list(bodies.images(decoded(tool_call.result_json)))
    if not 0 <= number < len(images):
        raise NotFoundException(f"the result has no image {number}")
    kind, data = images[number]
    try:
        content = base64.b64decode(data, validate=False)
    except binascii.Error as error:
        raise NotFoundException("the image is damaged") from error
    return Response(content, media_type=kind)


@get("/t/{turn:str}/message/{message:str}", sync_to_thread=True)
def message_page(
    request: WebRequest,
    site: ThisSite,
    turn: FromPath[str],
    message: FromPath[str],
    part: FromQuery[bool] = False,
) -> Response[str]:
    """A whole message; `part` is the fragment for an open page."""
    parent = site.ledger.get_turn(decode_part(turn))
    message_id = decode_part(message)
    whole = next((one for one in parent.messages if one.id == message_id), None)
    if whole is None:
        raise NotFound(f"turn {parent.id} has no message {message_id!r}")
    return site.page(
        "message_body.html" if part else "message.html",
        request,
        title=f"{whole.role} message",
        turn=parent,
        message=whole,
        text=(whole.content or "")[: bodies.TEXT_MAX],
    )


@get("/t/{turn:str}/steps", sync_to_thread=True)
def steps_page(
    request: WebRequest, site: ThisSite, turn: FromPath[str], after: FromQuery[int] = -1
) -> Response[str]:
    whole = site.ledger.get_turn(decode_part(turn))
    steps = [step for step in whole.steps if step.sequence > after]
    page = msgspec.structs.replace(
        whole,
        messages=tuple(step for step in steps[:PER_PAGE] if not isinstance(step, ToolCall)),
        tool_calls=tuple(step for step in steps[:PER_PAGE] if isinstance(step, ToolCall)),
    )
    return site.page(
        "steps.html",
        request,
        title=f"Steps of turn {whole.depth}",
        turn=whole,
        card=card_of(site.ledger, page),
        last=steps[PER_PAGE - 1].sequence if len(steps) > PER_PAGE else None,
    )


ROUTES = (inspector_fragment, call_page, image, message_page, steps_page)
