"""Recording a finished turn: all of it, or nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec import UNSET

from agents_ledger.ledger import compaction, sessions, threads
from agents_ledger.ledger.sessions import Pointer
from agents_ledger.model import config as configs
from agents_ledger.model.errors import Conflict, HeadMoved, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import (
    OPEN_CALL,
    Answer,
    CallStatus,
    Message,
    MessageRole,
    NewTurn,
    Query,
    ToolCall,
    Turn,
    TurnRole,
    to_json,
)
from agents_ledger.store import rows
from agents_ledger.store.database import Transaction

_ROLES = frozenset(get_args(MessageRole))
_CALL_STATUSES = frozenset(get_args(CallStatus))
_TURN_ROLES = frozenset(get_args(TurnRole))
ID_MAX = 200
_HASH_VERSION = b"turn/1\0"
_JSON_FIELDS = ("tools_available", "permissions_granted", "permissions_used")


class Prepared(NamedTuple):
    """A turn ready to be written: everything that needs no database is done."""

    new: NewTurn
    id: str
    chosen: bool  # the caller chose the id: it may be a retry
    row: dict[str, object]
    messages: tuple[Message, ...]
    calls: tuple[ToolCall, ...]
    prompt_hash: str | None


# -- before the transaction -------------------------------------------------------------------


def recording(
    session: str, query: Query, answer: Answer, fields: dict[str, Any], *, live: bool = False
) -> Prepared:
    """What a caller passed, ready to be written. Fields that are None were not passed."""
    turn_id = fields.pop("id", None)
    said = {name: value for name, value in fields.items() if value is not None or name == "parent"}
    return prepare(new_turn(session, query, answer, **said), turn_id, live=live)


def new_turn(session: str, query: Query, answer: Answer = None, /, **fields: Any) -> NewTurn:
    """What a caller passed, as one value."""
    for name in _JSON_FIELDS:
        if fields.get(name) is not None:
            fields[name] = to_json(fields[name])
    if "steps" in fields:
        fields["steps"] = tuple(fields["steps"])
    response = Message("assistant", answer) if isinstance(answer, str) else answer
    try:
        return NewTurn(session, _messages(query), response=response, **fields)
    except TypeError as error:
        raise Refused(f"a turn has no such field: {error}") from error


def _messages(query: Query) -> tuple[Message, ...]:
    if isinstance(query, (str, Message)):
        query = (query,)
    return tuple(
        Message("user", part, "human") if isinstance(part, str) else part for part in query
    )


def prepare(new: NewTurn, turn_id: str | None, *, live: bool = False) -> Prepared:
    """Number, date and encode a turn."""
    _check(new)
    if turn_id is not None:
        check_id(turn_id)
    now = now_ms()
    own_id = turn_id or new_id()
    started_at = new.started_at or now
    query = _fill(new.query, own_id, started_at)
    steps = _fill(new.steps, own_id, now, first=len(query))
    response = _fill((new.response,) if new.response else (), own_id, now, len(query) + len(steps))
    messages = tuple(step for step in (*query, *steps, *response) if isinstance(step, Message))
    calls = tuple(_closed(step, now) for step in steps if isinstance(step, ToolCall))
    usage = new.usage
    row: dict[str, object] = {
        "id": own_id,
        "turn_type": "compaction" if new.compaction else "normal",
        "status": "pending" if live else new.status,
        "started_at": started_at,
        "completed_at": None if live else new.completed_at or now,
        "model": new.model,
        "provider": new.provider,
        "role": new.role,
        "toolset_name": new.toolset_name,
        "tools_available": new.tools_available,
        "permissions_granted": new.permissions_granted,
        "permissions_used": new.permissions_used,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_tokens": usage.total,
        "query_message_ids": id_list(query),
        "response_message_id": response[0].id if response else None,
        "tool_call_count": len(calls),
        "source_event_id": new.source_event_id,
        "workspace_path": new.workspace_path,
        "effective_config_json": None,
        "error": new.error,
        "projected": 0,
        "request_hash": _hash(new),
    }
    prompt = new.system_prompt
    prompt_hash = None if prompt is None else hash_prompt(prompt)
    return Prepared(new, own_id, turn_id is not None, row, messages, calls, prompt_hash)


def _closed(call: ToolCall, at: int) -> ToolCall:
    """A call of a sealed turn: one without an outcome is given up."""
    if call.status not in OPEN_CALL:
        return call
    return msgspec.structs.replace(
        call, status="cancelled", error=call.error or "no result recorded", completed_at=at
    )


def _check(new: NewTurn) -> None:
    """Refuse what no ledger can hold, in words; the database would only say which rule broke."""
    if new.role not in _TURN_ROLES:
        raise Refused(f"a turn's role is one of {_words(_TURN_ROLES)}, not {new.role!r}")
    if new.status not in ("completed", "failed"):
        raise Refused(f"a recorded turn is completed or failed, not {new.status!r}")
    for step in (*new.query, *new.steps, *((new.response,) if new.response else ())):
        check_step(step)
    check_response(new.response)
    if (new.status == "failed") != (new.error is not None):
        raise Refused("a failed turn says why in `error`, a completed one has none")
    open_calls = [s for s in new.steps if isinstance(s, ToolCall) and s.status in OPEN_CALL]
    if open_calls and new.status == "completed":
        raise Refused(
            f"tool call {open_calls[0].id or open_calls[0].tool_name!r} of a completed turn is"
            f" {open_calls[0].status}",
            "Give each call its outcome: completed, failed, cancelled or rejected.",
        )


def check_id(chosen: str) -> None:
    """Refuse an id that could not be typed, or told from what stands around it."""
    if len(chosen) > ID_MAX or not chosen.isprintable() or set(chosen) & set(' "\\'):
        raise Refused(
            f"{chosen[:80]!r} cannot be an id",
            f"Use up to {ID_MAX} printable characters without spaces, quotes and backslashes.",
        )


def check_response(response: Message | None) -> None:
    """Refuse an answer that is not the assistant's."""
    if response is not None and response.role != "assistant":
        raise Refused(f"a response is an assistant's message, not a {response.role}'s")


def check_step(step: Message | ToolCall) -> None:
    """Refuse a message or tool call that no ledger can hold."""
    if isinstance(step, Message):
        if step.role not in _ROLES:
            raise Refused(f"a message's role is one of {_words(_ROLES)}, not {step.role!r}")
        check_id(step.id)
    elif isinstance(step, ToolCall):
        if step.status not in _CALL_STATUSES:
            raise Refused(
                f"a call's status is one of {_words(_CALL_STATUSES)}, not {step.status!r}"
            )
        if not step.tool_name:
            raise Refused("a tool call needs the name of its tool")
    else:
        raise Refused(f"a turn consists of messages and tool calls, not {type(step).__name__}")


def _words(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _fill(
    steps: Sequence[Message | ToolCall], turn_id: str, at: int, first: int = 0
) -> tuple[Any, ...]:
    """The same steps with what the ledger adds: ids, their turn, their order, the time."""
    filled: list[Message | ToolCall] = []
    speaker: str | None = None
    for sequence, step in enumerate(steps, first):
        if isinstance(step, Message):
            done: Message | ToolCall = fill_message(step, turn_id, sequence, at)
            if step.role == "assistant":
                speaker = done.id
        else:
            done = fill_call(step, turn_id, sequence, at, speaker)
        filled.append(done)
    return tuple(filled)


def fill_message(message: Message, turn_id: str, sequence: int, at: int) -> Message:
    """A message as it is stored."""
    return Message(
        message.role,
        message.content,
        message.source,
        message.thinking,
        message.context_json,
        message.metadata_json,
        message.tool_call_id,
        message.id or new_id(),
        turn_id,
        sequence,
        message.created_at or at,
        message.files,
        message.lints,
        message.codeblocks,
    )


def fill_call(
    call: ToolCall, turn_id: str, sequence: int, at: int, speaker: str | None
) -> ToolCall:
    """A tool call as it is stored. `speaker`: the assistant message it came with, if any."""
    ended = call.completed_at
    if ended is None and call.status not in OPEN_CALL:
        ended = at
    return ToolCall(
        call.tool_name,
        call.params_json,
        call.result_json,
        call.error,
        call.status,
        call.id or f"call_{new_id()}",
        turn_id,
        call.message_id or speaker,
        call.tool_number,
        call.source_status,
        call.spawned_session_label,
        call.started_at or at,
        ended,
        sequence,
    )


def id_list(messages: Sequence[Message]) -> str:
    """The JSON array of their ids."""
    return msgspec.json.encode([message.id for message in messages]).decode()


def hash_prompt(prompt: str) -> str:
    """The key under which a system prompt is stored."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _hash(new: NewTurn) -> bytes:
    """Of what was passed, before anything was filled in: a retry of the same call has the same."""
    try:
        passed = msgspec.msgpack.encode(new)
    except (UnicodeEncodeError, OverflowError):
        passed = repr(new).encode("utf-8", "surrogatepass")
    return hashlib.sha256(_HASH_VERSION + passed).digest()


# -- within the transaction -------------------------------------------------------------------


def record(tx: Transaction, prepared: Prepared) -> Turn:
    """Record a finished turn and move its session to it; a failed one leaves the head alone."""
    new = prepared.new
    if prepared.chosen:
        known = tx.run("turn_request", id=prepared.id)
        if known:
            return _again(tx, prepared, bytes(known[0][0] or b""))
    session = sessions.writable(tx, new.session, persona_id=new.persona_id or "main")
    parent_id = expected_parent(session, new)
    place = write_turn(tx, prepared, session, parent_id)
    completed = new.status == "completed"
    threads.put(tx, prepared.id, place, join=completed)
    if completed:
        sessions.move_head(tx, session.label, from_=parent_id, to=prepared.id, reason="record")
    return _as_turn(prepared, parent_id, place.depth)


def _again(tx: Transaction, prepared: Prepared, known: bytes) -> Turn:
    if known != prepared.row["request_hash"]:
        raise Conflict(
            f"turn {prepared.id} is recorded already, with other content",
            "Use a new id for a new turn.",
        )
    return threads.turn(tx, prepared.id)


def expected_parent(session: Pointer, new: NewTurn) -> str | None:
    """The turn to hang on: the head, which must be the one the caller expects, if it said one."""
    if new.parent is not UNSET and new.parent != session.thread_id:
        raise HeadMoved(session.label, expected=new.parent, found=session.thread_id)
    return session.thread_id


def write_turn(
    tx: Transaction, prepared: Prepared, session: Pointer, parent_id: str | None
) -> threads.Place:
    """Write the turn and all it consists of; returned is its place, for the caller to put it."""
    new = prepared.new
    parent = threads.place_of(tx, parent_id)
    if new.compaction is not None:
        compaction.check(tx, new.compaction, parent_id)
        tx.run("insert_compaction", **rows.compaction_row(new.compaction, prepared.id))
    if new.system_prompt is not None:
        tx.run("insert_system_prompt", hash=prepared.prompt_hash, content=new.system_prompt)
    if new.config is not None:
        prepared.row["effective_config_json"] = _effective_config(tx, new.config, parent_id)
    tx.run("insert_turn", **prepared.row, parent_turn_id=parent_id)
    write_messages(tx, prepared.messages)
    for call in prepared.calls:
        if call.spawned_session_label is not None:
            child = Session(call.spawned_session_label)
            sessions.spawn(tx, child, session, prepared.id, call.id)
    if prepared.calls:
        tx.run_many("insert_tool_call", [rows.tool_call_row(call) for call in prepared.calls])
    if parent_id is not None:
        threads.adopt(tx, parent_id, parent)
    return threads.below(
        parent,
        usage=new.usage,
        model=new.model,
        provider=new.provider,
        persona_id=session.persona_id,
        system_prompt_hash=prepared.prompt_hash,
        thread_key=new.thread_key,
        compaction_turn_id=prepared.id if new.compaction else None,
    )


def write_messages(
    tx: Transaction, messages: Sequence[Message], *, statement: str = "insert_message"
) -> None:
    """Write messages with their files, lints and codeblocks."""
    if not messages:
        return
    tx.run_many(statement, [rows.message_row(message) for message in messages])
    for each, details in (
        ("insert_message_file", rows.file_rows),
        ("insert_message_lint", rows.lint_rows),
        ("insert_message_codeblock", rows.codeblock_rows),
    ):
        found = [row for message in messages for row in details(message)]
        if found:
            tx.run_many(each, found)


def _effective_config(tx: Transaction, config: configs.Config, parent_id: str | None) -> str:
    inherited = tx.run("turn_config", id=parent_id)[0][0] if parent_id else None
    return configs.encode(configs.resolve(config, configs.decode(inherited), parent_id))


def _as_turn(prepared: Prepared, parent_id: str | None, depth: int) -> Turn:
    row = prepared.row
    values = {name: row[name] for name in Turn.__struct_fields__ if name in row}
    values |= {"parent_turn_id": parent_id, "projected": False, "depth": depth}
    compacted = prepared.new.compaction
    if compacted is not None:
        compacted = msgspec.structs.replace(compacted, turn_id=prepared.id)
    return Turn(
        **values,  # type: ignore[arg-type]
        messages=prepared.messages,
        tool_calls=prepared.calls,
        compaction=compacted,
    )
