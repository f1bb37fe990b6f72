"""The HTTP API of turns, threads, trees and contexts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import structs

from agents_ledger.bus import turn_inputs
from agents_ledger.bus.abilities.reports import ConfigSetting, config_at
from agents_ledger.bus.turn_inputs import RecordInput
from agents_ledger.model.context.items import ProviderFormat
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.events import Event
from agents_ledger.model.reports.trees import Headline, Tree
from agents_ledger.model.sessions import Thread
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.web.requests import WebRequest, check_turn_scope, decode_part
from agents_ledger.web.responses import (
    PER_PAGE,
    TURN_BODY_MAX,
    Limit,
    OptionalNumber,
    ResultPage,
    answer,
    as_json,
    creates,
    reads,
)
from agents_ledger.web.site import Site, ThisSite

TURNS_MAX = 50
BYTES_MAX = 250_000  # of several turns
BATCH_TURNS = 10
NODES_MAX = 150
REACH = 1000  # turns above and below


@creates("/turns", request_max_body_size=TURN_BODY_MAX)
def record_turn(request: WebRequest, site: ThisSite, data: JSONBody[RecordInput]) -> Response[Turn]:
    """Record a finished turn and move its session to it. With an `id` of your own, a repeated
    request changes nothing and returns the turn."""
    check_turn_scope(request, turn_inputs.scope_of(site.ledger, data), data.persona_id)
    return answer(turn_inputs.record(site.ledger, data))


@reads("/turns/{turn:str}")
def get_turn(request: WebRequest, site: ThisSite, turn: FromPath[str]) -> Response[Turn]:
    """A turn with its messages and tool calls."""
    return answer(site.ledger.get_turn(decode_part(turn)), request)


@reads("/turns/{turn:str}/children")
def get_children(
    request: WebRequest,
    site: ThisSite,
    *,
    turn: FromPath[str],
    limit: Limit = PER_PAGE,
    after: FromQuery[str] = "",
) -> Response[ResultPage[Headline]]:
    """The children of a turn as headlines, ordered by id."""
    parent_id = site.ledger.get_turn(decode_part(turn)).id
    if after:
        _check_child(site, after, parent_id)
    lines = site.pages.branches(parent_id, limit=limit + 1, after=after or None)
    cursor = lines[limit - 1].turn.id if len(lines) > limit else None
    return answer(ResultPage(list(lines[:limit]), cursor), request)


def _check_child(site: Site, after: str, parent_id: str) -> None:
    with suppress(NotFound):
        child = site.ledger.get_turn(after)
        if (child.id, child.parent_turn_id) == (after, parent_id):
            return
    raise Refused(f"{after!r} is not a valid page cursor", "Pass `next` of the previous page.")


@reads("/turns/{turn:str}/messages")
def get_messages(
    request: WebRequest, site: ThisSite, turn: FromPath[str]
) -> Response[list[Message]]:
    """The messages of a turn."""
    return answer(list(site.ledger.get_turn(decode_part(turn)).messages), request)


@reads("/turns/{turn:str}/tool-calls")
def get_tool_calls(
    request: WebRequest, site: ThisSite, turn: FromPath[str]
) -> Response[list[ToolCall]]:
    """The tool calls of a turn."""
    return answer(list(site.ledger.get_turn(decode_part(turn)).tool_calls), request)


@reads("/threads/{target:str}")
def get_thread(
    request: WebRequest,
    site: ThisSite,
    *,
    target: FromPath[str],
    to_depth: OptionalNumber = None,
    limit: Annotated[int, QueryParameter(ge=0, le=TURNS_MAX)] = 20,
) -> Response[Thread]:
    """The metrics of a thread, and its last turns or those up to `to_depth`, root first.

    Of long turns fewer than `limit` are returned, but at least one; request earlier ones by depth.
    """
    thread = site.ledger.thread(decode_part(target), last=0)
    last = thread.depth if to_depth is None else min(to_depth, thread.depth)
    turns: list[Turn] = []
    # Measured as JSON: the length of a turn is not known before it is encoded.
    room = BYTES_MAX
    for turn in itertools.islice(_upwards(site, thread, last), limit):
        room -= len(as_json(turn))
        if turns and room < 0:
            break
        turns.append(turn)
    return answer(structs.replace(thread, turns=tuple(turns[::-1])), request)


def _upwards(site: Site, thread: Thread, depth: int) -> Iterator[Turn]:
    """The turns of a thread from a depth up to the root, read in batches."""
    while thread.turn_id is not None and depth > 0:
        first = max(1, depth - BATCH_TURNS + 1)
        batch = site.ledger.thread(thread.turn_id, from_depth=first, to_depth=depth)
        yield from reversed(batch.turns)
        depth = first - 1


@reads("/threads/{target:str}/tree")
def get_tree(
    request: WebRequest,
    site: ThisSite,
    target: FromPath[str],
    limit: Annotated[int, QueryParameter(ge=1, le=NODES_MAX)] = NODES_MAX,
    upto: Annotated[int | None, QueryParameter(ge=1, le=2**53)] = None,
) -> Response[Tree]:
    """The tree around a turn, long runs folded, starting a thousand turns above it; with `upto`,
    around that depth of its thread."""
    thread = site.ledger.thread(decode_part(target), last=0)
    if thread.turn_id is None:
        raise Refused(f"session {decode_part(target)!r} is empty", "Record a turn on it first.")
    last = min(upto or thread.depth, thread.depth)
    top = site.ledger.ancestor_at(thread.turn_id, max(1, last - REACH + 1))
    below = last if upto else last + REACH
    return answer(site.ledger.tree(top or thread.turn_id, limit=limit, to_depth=below), request)


@reads("/context/{target:str}")
def get_context(
    request: WebRequest,
    site: ThisSite,
    *,
    target: FromPath[str],
    form: FromQuery[ProviderFormat] = "anthropic",
    budget: Annotated[int | None, QueryParameter(ge=1, le=2**53)] = None,
) -> Response[dict[str, Any]]:
    """The context of a model at a turn, in the message format of a provider."""
    context = site.ledger.context(decode_part(target), budget=budget)
    rendered = context.rendered(form)
    return answer({"total_tokens": context.total_tokens, "form": form, "shown": rendered}, request)


@reads("/config/{target:str}")
def get_config(
    request: WebRequest, site: ThisSite, target: FromPath[str]
) -> Response[dict[str, ConfigSetting]]:
    """The configuration that a turn ran with, and which layer set each value."""
    return answer(config_at(site.ledger, decode_part(target)), request)


@reads("/events/{target:str}")
def get_events(
    request: WebRequest, site: ThisSite, target: FromPath[str], last: Limit = 20
) -> Response[list[Event]]:
    """The messages of a thread's last turns without tool calls, oldest first."""
    return answer(list(site.ledger.events(decode_part(target), last=last)), request)


ROUTES = (
    record_turn,
    get_turn,
    get_children,
    get_messages,
    get_tool_calls,
    get_thread,
    get_tree,
    get_context,
    get_config,
    get_events,
)
