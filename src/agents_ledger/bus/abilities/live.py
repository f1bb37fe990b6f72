"""Abilities of live turns: each call is a commit, and the last one seals the turn."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents_ledger.bus import turn_inputs
from agents_ledger.bus.ability import Ability, Name
from agents_ledger.bus.live_turns import EndedCall, LiveTurns, StreamedText
from agents_ledger.bus.turn_inputs import (
    BeginInput,
    CallOutcome,
    LiveMessage,
    LiveToolCall,
    StreamedPiece,
    TurnFailure,
    TurnResponse,
)
from agents_ledger.model.access import Scope
from agents_ledger.model.turns import Message, ToolCall, Turn

TurnId = Annotated[Name, Meta(description="The whole id of the live turn.")]


class LiveMessageInput(LiveMessage, kw_only=True):
    turn_id: TurnId


class LiveToolCallInput(LiveToolCall, kw_only=True):
    turn_id: TurnId


class CallOutcomeInput(CallOutcome, kw_only=True):
    turn_id: TurnId
    tool_call_id: Name


class StreamedPieceInput(StreamedPiece, kw_only=True):
    turn_id: TurnId


class TurnResponseInput(TurnResponse, kw_only=True):
    turn_id: TurnId


class TurnFailureInput(TurnFailure, kw_only=True):
    turn_id: TurnId


class LiveTurnOutput(Struct):
    turn: Turn


class LiveMessageOutput(Struct):
    message: Message


class LiveToolCallOutput(Struct):
    tool_call: ToolCall


def _scope(live: LiveTurns, params: BeginInput) -> Scope:
    return turn_inputs.scope_of(live.ledger, params)


def _begin(live: LiveTurns, params: BeginInput) -> LiveTurnOutput:
    return LiveTurnOutput(live.begin(params))


def _message(live: LiveTurns, params: LiveMessageInput) -> LiveMessageOutput:
    return LiveMessageOutput(live.message(params.turn_id, params))


def _tool_call(live: LiveTurns, params: LiveToolCallInput) -> LiveToolCallOutput:
    return LiveToolCallOutput(live.tool_call(params.turn_id, params))


def _complete(live: LiveTurns, params: CallOutcomeInput) -> EndedCall:
    return live.complete(params.turn_id, params.tool_call_id, params)


def _stream(live: LiveTurns, params: StreamedPieceInput) -> StreamedText:
    return live.stream(params.turn_id, params)


def _respond(live: LiveTurns, params: TurnResponseInput) -> LiveTurnOutput:
    return LiveTurnOutput(live.respond(params.turn_id, params))


def _fail(live: LiveTurns, params: TurnFailureInput) -> LiveTurnOutput:
    return LiveTurnOutput(live.fail(params.turn_id, params))


ABILITIES = (
    Ability(
        id="ldg:live:begin",
        description="Begin a live turn, durable from its query on.",
        input=BeginInput,
        output=LiveTurnOutput,
        function=_begin,
        writes=True,
        scope_of=_scope,
        for_models=False,
    ),
    Ability(
        id="ldg:live:message",
        description="Commit a message of a live turn.",
        input=LiveMessageInput,
        output=LiveMessageOutput,
        function=_message,
        writes=True,
        for_models=False,
    ),
    Ability(
        id="ldg:live:tool_call",
        description="Commit that a live turn calls a tool.",
        input=LiveToolCallInput,
        output=LiveToolCallOutput,
        function=_tool_call,
        writes=True,
        for_models=False,
    ),
    Ability(
        id="ldg:live:complete",
        description="Commit the outcome of a tool call of a live turn.",
        input=CallOutcomeInput,
        output=EndedCall,
        function=_complete,
        writes=True,
        for_models=False,
    ),
    Ability(
        id="ldg:live:stream",
        description="Commit a piece of the answer of a live turn; readers see it at once.",
        input=StreamedPieceInput,
        output=StreamedText,
        function=_stream,
        writes=True,
        for_models=False,
    ),
    Ability(
        id="ldg:live:respond",
        description="Seal a live turn with its response and move its session to it.",
        input=TurnResponseInput,
        output=LiveTurnOutput,
        function=_respond,
        writes=True,
        for_models=False,
    ),
    Ability(
        id="ldg:live:fail",
        description="Seal a live turn as failed; what was committed stays.",
        input=TurnFailureInput,
        output=LiveTurnOutput,
        function=_fail,
        writes=True,
        for_models=False,
    ),
)
