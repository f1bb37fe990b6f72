"""The HTTP API of live turns: each request is a commit, and the last one seals the turn."""

from __future__ import annotations

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody

from agents_ledger.bus.live_turns import EndedCall, StreamedText
from agents_ledger.bus.turn_inputs import (
    BeginInput,
    CallOutcome,
    LiveMessage,
    LiveToolCall,
    StreamedPiece,
    TurnFailure,
    TurnResponse,
    scope_of,
)
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.web.requests import WebRequest, check_turn_scope, decode_part
from agents_ledger.web.responses import OK, TURN_BODY_MAX, answer, creates, reads
from agents_ledger.web.site import ThisSite


@reads("/live-turns")
def list_live_turns(
    request: WebRequest, site: ThisSite, session: FromQuery[str | None] = None
) -> Response[list[str]]:
    """The ids of the turns that are being written, of one session or of all."""
    return answer(list(site.ledger.live_turns(session)), request)


@creates("/live-turns", request_max_body_size=TURN_BODY_MAX)
def begin_turn(request: WebRequest, site: ThisSite, data: JSONBody[BeginInput]) -> Response[Turn]:
    """Begin a live turn, durable from its query on. Without a request for `idle_timeout_s` seconds,
    by default 1800, it fails."""
    check_turn_scope(request, scope_of(site.ledger, data), data.persona_id)
    return answer(site.live_turns.begin(data))


@creates("/live-turns/{turn:str}/messages", request_max_body_size=TURN_BODY_MAX)
def add_message(
    site: ThisSite, turn: FromPath[str], data: JSONBody[LiveMessage]
) -> Response[Message]:
    """Commit a message of a live turn."""
    return answer(site.live_turns.message(decode_part(turn), data))


@creates("/live-turns/{turn:str}/tool-calls", request_max_body_size=TURN_BODY_MAX)
def begin_tool_call(
    site: ThisSite, turn: FromPath[str], data: JSONBody[LiveToolCall]
) -> Response[ToolCall]:
    """Commit that a live turn calls a tool."""
    return answer(site.live_turns.tool_call(decode_part(turn), data))


@creates(
    "/live-turns/{turn:str}/tool-calls/{call:str}/complete",
    status_code=OK,
    request_max_body_size=TURN_BODY_MAX,
)
def complete_tool_call(
    site: ThisSite, turn: FromPath[str], call: FromPath[str], data: JSONBody[CallOutcome]
) -> Response[EndedCall]:
    """Commit the outcome of a tool call: completed, failed, cancelled or rejected."""
    return answer(site.live_turns.complete(decode_part(turn), decode_part(call), data))


@creates("/live-turns/{turn:str}/stream", status_code=OK, request_max_body_size=TURN_BODY_MAX)
def stream_text(
    site: ThisSite, turn: FromPath[str], data: JSONBody[StreamedPiece]
) -> Response[StreamedText]:
    """Commit a piece of the answer; readers see it at once."""
    return answer(site.live_turns.stream(decode_part(turn), data))


@creates("/live-turns/{turn:str}/respond", status_code=OK, request_max_body_size=TURN_BODY_MAX)
def respond(site: ThisSite, turn: FromPath[str], data: JSONBody[TurnResponse]) -> Response[Turn]:
    """Seal a live turn and move its session to it. Without a response, the streamed text is it. 409
    `head_moved`: the session moved meanwhile; the turn is stored as a branch."""
    return answer(site.live_turns.respond(decode_part(turn), data))


@creates("/live-turns/{turn:str}/fail", status_code=OK)
def fail(site: ThisSite, turn: FromPath[str], data: JSONBody[TurnFailure]) -> Response[Turn]:
    """Seal a live turn as failed; what was committed stays."""
    return answer(site.live_turns.fail(decode_part(turn), data))


ROUTES = (
    list_live_turns,
    begin_turn,
    add_message,
    begin_tool_call,
    complete_tool_call,
    stream_text,
    respond,
    fail,
)
