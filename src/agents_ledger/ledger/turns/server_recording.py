"""Turns and their steps in one call of a database server: functions.postgres.sql.

The server gets the rows of a batch as JSON, one list for each table whose rows the caller has. It
records the turns that simply extend their session's thread and returns them; what it does not
return is recorded statement by statement. Measured on two cores: 17 round trips become one, and a
batch of 64 turns takes a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from agents_ledger.ledger.turns.live import LiveKey, LiveSteps, Sealing, closing_message
from agents_ledger.ledger.turns.recording import PreparedTurn, fill_message
from agents_ledger.model.errors import HeadMoved
from agents_ledger.model.ids import new_seed, now_ms
from agents_ledger.model.turns import ToolCall, Turn
from agents_ledger.store.database import UNDONE, Row, ServerCall, Undone
from agents_ledger.store.text import stored_json

# Characters of a turn. Longer ones would hold up the others of their batch.
LETTERS_MAX = 500_000


class _AskedTurn(Struct, omit_defaults=True):
    """Which turn is wanted where, and what is expected there."""

    name: str  # of its session
    id: str
    is_expected: bool | None = None  # the parent is
    parent: str | None = None
    prompt: str | None = None  # hash
    seed: str | None = None  # of the salts of its evidence, and the hash of its content
    content: str | None = None


class _TurnRow(Struct, omit_defaults=True):
    id: str
    status: str
    started_at: int
    completed_at: int | None
    model: str | None
    provider: str | None
    role: str
    toolset_name: str | None = None
    tools_available: str | None = None
    permissions_granted: str | None = None
    permissions_used: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    query_message_ids: str | None = None
    response_message_id: str | None = None
    tool_call_count: int = -1
    source_event_id: str | None = None
    workspace_path: str | None = None
    request_hash: bytes = b""


class _AskedSteps(Struct):
    turn_id: str
    writer_id: str


class _AskedSeal(Struct, omit_defaults=True):
    turn_id: str
    writer_id: str
    closing_id: str
    status: str
    seed: str  # of the salts of its evidence
    is_answered: bool | None = None
    model: str | None = None
    provider: str | None = None
    permissions_used: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None


class _PieceRow(Struct):
    turn_id: str
    piece: int
    content: str


_turn_values = attrgetter(*_TurnRow.__struct_fields__[:-1])


def record(batch: Sequence[PreparedTurn], writer_id: str | None = None) -> ServerCall | None:
    """record_turns() for those that it can record; of a live writer, they begin."""
    able = [prepared for prepared in batch if _is_able(prepared)]
    turns = [prepared.turn for prepared in able]
    prompts = {p.prompt_hash: p.new.system_prompt for p in able if p.prompt_hash is not None}
    # One list for each table whose rows are known here, in the order of the function's values.
    tables: tuple[list[Any], ...] = (
        [_asked(prepared) for prepared in able],
        [_TurnRow(*(*_turn_values(p.turn), p.request_hash)) for p in able],
        [message for turn in turns for message in turn.messages],
        [tool_call for turn in turns for tool_call in turn.tool_calls],
        [{"hash": prompt_hash, "content": prompt} for prompt_hash, prompt in prompts.items()],
    )
    try:
        documents = [stored_json(rows) for rows in tables]
    except OverflowError:  # a number that no column can hold
        return None
    values = (now_ms(), writer_id, *documents)
    return ServerCall("record_turns", values, _results(batch)) if able else None


def _is_able(prepared: PreparedTurn) -> bool:
    """Whether record_turns() can record the turn, if its session allows it."""
    new, turn = prepared.new, prepared.turn
    letters = sum(message.letters for message in turn.messages)
    letters += sum(tool_call.letters for tool_call in turn.tool_calls)
    return (
        turn.status in ("completed", "pending")
        and new.compaction is None
        and new.config is None
        and new.thread_key is None
        and letters <= LETTERS_MAX
        and not any(message.has_details for message in turn.messages)
        and all(call.spawned_session_label is None for call in turn.tool_calls)
    )


def _asked(prepared: PreparedTurn) -> _AskedTurn:
    new, seal = prepared.new, prepared.seal
    return _AskedTurn(
        new.session,
        prepared.id,
        None if new.parent is UNSET else True,
        None if new.parent is UNSET else new.parent,
        prepared.prompt_hash,
        None if seal is None else seal.seed.hex(),
        None if seal is None else seal.content,
    )


def begin(batch: Sequence[PreparedTurn], writer_id: str) -> ServerCall | None:
    """record_turns() for turns that begin."""
    call = record(batch, writer_id)
    if call is None:
        return None
    return call._replace(results=lambda rows: _done([p.id for p in batch], rows))


def add_steps(batch: Sequence[tuple[LiveKey, LiveSteps]]) -> ServerCall | None:
    """add_steps() for what it can add. A step that may be stored already is looked for first."""
    able = [
        (live, steps)
        for live, steps in batch
        if not steps.again and not any(message.has_details for message in steps.messages)
    ]
    tables: tuple[list[Any], ...] = (
        [_AskedSteps(live.turn_id, live.writer_id) for live, steps in able],
        [live.turn_id for live, steps in able if steps.messages and steps.is_streamed],
        [message for _, steps in able for message in steps.messages],
        [tool_call for _, steps in able for tool_call in steps.calls],
        _outcomes(able, now_ms()),
        [_PieceRow(live.turn_id, *steps.piece) for live, steps in able if steps.piece is not None],
    )
    values = tuple(map(stored_json, tables))
    turn_ids = [live.turn_id for live, _ in batch]
    return ServerCall("add_steps", values, lambda rows: _done(turn_ids, rows)) if able else None


def seal(batch: Sequence[tuple[LiveKey, Sealing]]) -> ServerCall | None:
    """seal_turns() for those that it can seal."""
    able = [(live, sealing) for live, sealing in batch if _can_be_sealed(sealing)]
    now = now_ms()
    steps = [(live, sealing.steps) for live, sealing in able]
    closing = [
        fill_message(closing_message(sealing), live.turn_id, 0, now) for live, sealing in able
    ]
    tables: tuple[list[Any], ...] = (
        [
            _asked_seal(live, sealing, message.id)
            for (live, sealing), message in zip(able, closing, strict=True)
        ],
        [message for _, each in steps for message in each.messages],
        [tool_call for _, each in steps for tool_call in each.calls],
        _outcomes(steps, now),
        closing,
    )
    try:
        documents = [stored_json(rows) for rows in tables]
    except OverflowError:  # a number that no column can hold
        return None

    def results(rows: list[Row]) -> list[Any]:
        sealed = {turn_id: stand for turn_id, *stand in rows}
        return [_sealed(live, sealing, sealed.get(live.turn_id)) for live, sealing in batch]

    return ServerCall("seal_turns", (now, *documents), results) if able else None


def _can_be_sealed(sealing: Sealing) -> bool:
    if sealing.status != "completed":
        return False  # what fails before a session has a head is noted there
    messages = [*sealing.steps.messages, *filter(None, [sealing.response])]
    return not sealing.steps.again and not any(message.has_details for message in messages)


def _asked_seal(live: LiveKey, sealing: Sealing, closing_id: str) -> _AskedSeal:
    usage = sealing.usage
    return _AskedSeal(
        live.turn_id,
        live.writer_id,
        closing_id,
        sealing.status,
        new_seed().hex(),
        is_answered=sealing.response is not None or None,
        model=sealing.model or None,
        provider=sealing.provider or None,
        permissions_used=sealing.permissions_used,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total,
    )


def _sealed(live: LiveKey, sealing: Sealing, stand: list[Any] | None) -> HeadMoved | Undone | None:
    if stand is None:
        return UNDONE
    label, parent_id, head = stand
    if parent_id == head:
        return None
    return HeadMoved(label, parent_id, head, live.turn_id)


def _outcomes(steps: Sequence[tuple[LiveKey, LiveSteps]], now: int) -> list[ToolCall]:
    return [
        replace(call, turn_id=live.turn_id, completed_at=now)
        for live, each in steps
        for call in each.outcomes
    ]


def _done(turn_ids: Sequence[str], rows: list[Row]) -> list[Any]:
    """None for each turn that the rows begin with, as the statements return."""
    done = {row[0] for row in rows}
    return [None if turn_id in done else UNDONE for turn_id in turn_ids]


def _results(batch: Sequence[PreparedTurn]) -> Callable[[list[Row]], list[Any]]:
    def results(rows: list[Row]) -> list[Any]:
        places = {turn_id: (parent_id, depth) for turn_id, parent_id, depth in rows}
        return [_placed(prepared.turn, places.get(prepared.id)) for prepared in batch]

    return results


def _placed(turn: Turn, place: tuple[str, int] | None) -> Turn | Undone:
    return UNDONE if place is None else replace(turn, parent_turn_id=place[0], depth=place[1])
