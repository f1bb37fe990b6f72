"""Recording a finished turn: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace as Row
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict, replace

from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.evidence.canonical import Place
from agents_ledger.ledger.evidence.leaves import TurnSeal
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.sessions.heads import Pointer
from agents_ledger.ledger.turns import message_details, threads, unfinished
from agents_ledger.model.agents import config as configs
from agents_ledger.model.agents import permissions
from agents_ledger.model.context.compaction import NO_MODEL
from agents_ledger.model.errors import Conflict, HeadMoved, Refused
from agents_ledger.model.ids import ID_MAX, is_id, new_id, now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import (
    OPEN_CALL,
    Answer,
    CallStatus,
    Message,
    MessageRole,
    MessageSource,
    NewTurn,
    Query,
    ToolCall,
    Turn,
    TurnRole,
    Usage,
    check_text,
    check_time,
    encoded,
    is_json,
)
from agents_ledger.store import rows
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    import hashlib

StepT = TypeVar("StepT", bound=Message | ToolCall)
_ROLES = frozenset(get_args(MessageRole))
_SOURCES = frozenset(get_args(MessageSource))
_CALL_STATUSES = frozenset(get_args(CallStatus))
_TURN_ROLES = frozenset(get_args(TurnRole))
_FIELDS = frozenset(NewTurn.__struct_fields__) - {"session", "query", "response"}
_TOKENS = Usage.__struct_fields__
_HASH_VERSION = b"turn/1\0"
_HASH_PIECE = 2047
_JSON_FIELDS = ("tools_available", "permissions_granted", "permissions_used")
_TEXTS = (
    "error",
    "model",
    "provider",
    "toolset_name",
    "source_event_id",
    "workspace_path",
    "system_prompt",
    "thread_key",
    "persona_id",
)
# Those that hold text, and those that hold JSON text.
_StepFields = tuple[tuple[str, ...], tuple[str, ...]]
_MESSAGE_FIELDS: _StepFields = (
    ("content", "thinking", "tool_call_id"),
    ("context_json", "metadata_json"),
)
_CALL_FIELDS: _StepFields = (
    ("tool_name", "error", "id", "message_id", "source_status", "spawned_session_label"),
    ("params_json", "result_json"),
)


class PreparedTurn(NamedTuple):
    """A turn ready to be written; what needs no database is done."""

    new: NewTurn
    turn: Turn  # without parent, depth and configuration, which only the ledger knows
    chosen: bool  # the caller passed the id, so this may be a retry
    request_hash: bytes
    prompt_hash: str | None
    seal: (
        TurnSeal | None
    )  # of its content; None: of a live turn, or one whose ancestors configure it

    @property
    def id(self) -> str:
        return self.turn.id


# -- before the transaction -------------------------------------------------------------------


def recording(
    session: str, query: Query, answer: Answer, fields: dict[str, Any], *, live: bool = False
) -> PreparedTurn:
    """A turn ready to be written. Fields that are None count as not passed."""
    turn_id = fields.pop("id", None)
    passed = {name: v for name, v in fields.items() if v is not None or name == "parent"}
    return prepare(new_turn(session, query, answer, **passed), turn_id, live=live)


def new_turn(session: str, query: Query, answer: Answer = None, /, **fields: Any) -> NewTurn:
    for name in _JSON_FIELDS:
        if fields.get(name) is not None:
            fields[name] = encoded(fields[name], name)
    permissions.check_recorded(fields.get("tools_available"), fields.get("permissions_granted"))
    if "steps" in fields:
        steps = _several(fields["steps"], "steps are a list of messages and tool calls")
        fields["steps"] = tuple(map(checked_step, steps))
    messages = tuple(map(checked_step, messages_of(query)))
    response = Message("assistant", answer) if isinstance(answer, str) else answer
    if response is not None:
        response = checked_step(response)
    if unknown := sorted(set(fields) - _FIELDS):
        raise Refused(f"a turn has no field {unknown[0]!r:.80}", _similar_fields(unknown[0]))
    return NewTurn(session, messages, response=response, **fields)


def _similar_fields(name: str) -> str:
    from difflib import get_close_matches

    similar = "".join(f"Did you mean {field!r}? " for field in get_close_matches(name, _FIELDS, 1))
    return f"{similar}The fields are {', '.join(sorted({*_FIELDS, 'id'}))}."


def messages_of(query: Query, source: MessageSource = "human") -> tuple[Message, ...]:
    """A query as messages; a text becomes a user's message."""
    if isinstance(query, (str, Message)):
        query = (query,)
    return tuple(
        Message("user", part, source) if isinstance(part, str) else part
        for part in _several(query, "a query is text, a message, or a list of these")
    )


def _several(values: Iterable[Any], expected: str) -> tuple[Any, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise Refused(f"{expected}, not {values!r:.80}")
    return tuple(values)


def prepare(new: NewTurn, turn_id: str | None, *, live: bool = False) -> PreparedTurn:
    _check(new)
    if turn_id is not None:
        check_id(turn_id)
    now = now_ms()
    own_id = turn_id or new_id()
    started_at = new.started_at or min(now, new.completed_at or now)
    ended_at = new.completed_at or max(now, started_at)
    messages, calls = _fill(new, own_id, started_at, ended_at)
    usage, compaction = new.usage, new.compaction
    model, provider = new.model, new.provider
    if compaction and model is None and compaction.model != NO_MODEL:
        model, provider = compaction.model, compaction.provider
    turn = Turn(
        id=own_id,
        turn_type="compaction" if compaction else "normal",
        status="pending" if live else new.status,
        started_at=started_at,
        completed_at=None if live else ended_at,
        model=model,
        provider=provider,
        role=new.role,
        toolset_name=new.toolset_name,
        tools_available=new.tools_available,
        permissions_granted=new.permissions_granted,
        permissions_used=new.permissions_used,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        total_tokens=usage.total,
        query_message_ids=id_list(messages[: len(new.query)]),
        response_message_id=messages[-1].id if new.response else None,
        tool_call_count=len(calls),
        source_event_id=new.source_event_id,
        workspace_path=new.workspace_path,
        error=new.error,
        messages=messages,
        tool_calls=calls,
        compaction=compaction and replace(compaction, turn_id=own_id),
    )
    prompt = new.system_prompt
    prompt_hash = None if prompt is None else hash_prompt(prompt)
    seal = None if live or new.config is not None else leaves.seal(turn)
    return PreparedTurn(new, turn, turn_id is not None, _hash(new), prompt_hash, seal)


def _closed(call: ToolCall, at: int) -> ToolCall:
    """A call of a sealed turn; one without an outcome is cancelled."""
    if call.status not in OPEN_CALL:
        return call
    return replace(
        call, status="cancelled", error=call.error or "no result recorded", completed_at=at
    )


def _check(new: NewTurn) -> None:
    """Refuse invalid values with a readable error; the database would only name the constraint."""
    check_role(new.role)
    if new.status not in ("completed", "failed"):
        raise Refused(f"a recorded turn is completed or failed, not {new.status!r}")
    check_text(new.session, "the name of a session")
    check_texts(new, _TEXTS)
    check_response(new.response)
    check_usage(new.usage)
    configs.check_recorded(new.config)
    _check_times(new.started_at, new.completed_at)
    if (new.status == "failed") != (new.error is not None):
        raise Refused("a failed turn says why in `error`, a completed one has none")
    calls = [step for step in new.steps if isinstance(step, ToolCall)]
    _check_call_ids([call.id for call in calls if call.id])
    open_calls = [call for call in calls if call.status in OPEN_CALL]
    if open_calls and new.status == "completed":
        raise Refused(
            f"tool call {open_calls[0].id or open_calls[0].tool_name!r} of a completed turn is"
            f" {open_calls[0].status}",
            "Give each call its outcome: completed, failed, cancelled or rejected.",
        )


def check_content(new: NewTurn) -> None:
    """Refuse a turn that holds nothing: no text, no call, no error."""
    steps = [step for step in (*new.query, *new.steps, new.response) if step is not None]
    if not (new.compaction or new.error or any(map(has_content, steps))):
        raise Refused(
            "the turn is empty: it has neither query, steps nor response",
            "Pass the text of the query or of the response.",
        )


def has_content(step: Message | ToolCall) -> bool:
    return isinstance(step, ToolCall) or bool(step.letters or step.has_details)


def check_role(role: TurnRole) -> None:
    if role not in _TURN_ROLES:
        raise Refused(f"a turn's role is one of {_words(_TURN_ROLES)}, not {role!r}")


def _check_call_ids(ids: list[str]) -> None:
    if len(set(ids)) < len(ids):
        raise repeated_call(next(call_id for call_id in ids if ids.count(call_id) > 1))


def repeated_call(call_id: str) -> Refused:
    return Refused(
        f"the turn has a tool call {call_id!r:.80} already",
        "Give each call of a turn an id of its own, or leave `id` out.",
    )


def check_id(chosen: str) -> None:
    """Refuse an id that could not be typed, or told from what stands around it."""
    check_text(chosen, "an id")
    if not is_id(chosen):
        raise Refused(
            f"{chosen[:80]!r} cannot be an id",
            f"Use up to {ID_MAX} printable characters without spaces, quotes and backslashes.",
        )


def check_usage(usage: Usage) -> None:
    if not isinstance(usage, Usage):
        raise Refused(f"a turn's usage is a Usage, not {usage!r:.80}")
    for name in _TOKENS:
        number = getattr(usage, name)
        if number is not None and (type(number) is not int or number < 0):
            raise Refused(f"{name} is {number!r:.80}", "Tokens are whole numbers, 0 or more.")


def _check_times(started_at: int, completed_at: int | None) -> None:
    check_time(started_at, "started_at")
    if completed_at is not None:
        check_time(completed_at, "completed_at")
        if started_at > completed_at > 0:
            raise Refused(
                f"completed_at is {completed_at}, before started_at, which is {started_at}",
                "A turn ends when it began, or later.",
            )


def check_response(response: Message | None) -> None:
    """Refuse an answer that is not the assistant's."""
    if response is not None and response.role != "assistant":
        raise Refused(f"a response is an assistant's message, not a {response.role}'s")


def checked_step(step: StepT) -> StepT:
    """A message or tool call as it is stored, with JSON text where values were passed. Refused if
    no ledger can hold it."""
    if isinstance(step, Message):
        _check_message(step)
        texts, json_texts = _MESSAGE_FIELDS
    elif isinstance(step, ToolCall):
        _check_call(step)
        texts, json_texts = _CALL_FIELDS
    else:
        raise Refused(
            f"a turn consists of messages and tool calls, not {type(step).__name__}",
            "Use Message(role, content), or ToolCall.of(name, params, result).",
        )
    check_texts(step, texts)
    values = {}
    for name in json_texts:
        value = getattr(step, name)
        if value is None or (isinstance(value, str) and is_json(value)):
            continue
        # The words of a model or a tool are stored in any case.
        if isinstance(value, str) and isinstance(step, Message):
            raise Refused(f"{name} is {value!r:.80}", "It is JSON text, or a value to be encoded.")
        values[name] = encoded(value, name)
    return replace(step, **values) if values else step


def _check_message(message: Message) -> None:
    if message.role not in _ROLES:
        raise Refused(f"a message's role is one of {_words(_ROLES)}, not {message.role!r}")
    if message.source is not None and message.source not in _SOURCES:
        raise Refused(f"a message's source is one of {_words(_SOURCES)}, not {message.source!r}")
    if message.id:
        check_id(message.id)
    if message.has_details:
        message_details.check(message)


def _check_call(call: ToolCall) -> None:
    if call.status not in _CALL_STATUSES:
        raise Refused(f"a call's status is one of {_words(_CALL_STATUSES)}, not {call.status!r}")
    if not call.tool_name:
        raise Refused("a tool call needs the name of its tool")
    if call.params_json is None:
        raise Refused("params_json is None", "A call without parameters has {}.")


def check_texts(of: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(of, name)
        if value is not None and not isinstance(value, str):
            raise Refused(f"{name} is {value!r:.80}", "It is text, or None.")


def _words(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _fill(
    new: NewTurn, turn_id: str, started_at: int, ended_at: int
) -> tuple[tuple[Message, ...], tuple[ToolCall, ...]]:
    """All messages and calls with what the ledger adds: ids, their turn, their order, the time.

    The query is as old as the turn. Whatever follows without a time of its own came with the end.
    """
    messages = [fill_message(part, turn_id, n, started_at) for n, part in enumerate(new.query)]
    calls: list[ToolCall] = []
    speaker: str | None = None
    for sequence, step in enumerate(new.steps, len(messages)):
        if isinstance(step, ToolCall):
            calls.append(_closed(fill_call(step, turn_id, sequence, ended_at, speaker), ended_at))
            continue
        messages.append(fill_message(step, turn_id, sequence, ended_at))
        if step.role == "assistant":
            speaker = messages[-1].id
    if new.response is not None:
        messages.append(fill_message(new.response, turn_id, len(messages) + len(calls), ended_at))
    return tuple(messages), tuple(calls)


def fill_message(message: Message, turn_id: str, sequence: int, at: int) -> Message:
    return replace(
        message,
        id=message.id or new_id(),
        turn_id=turn_id,
        sequence=sequence,
        created_at=message.created_at or at,
    )


def fill_call(
    call: ToolCall, turn_id: str, sequence: int, at: int, speaker: str | None
) -> ToolCall:
    """A tool call as it is stored. `speaker`: the assistant message it came with, if any."""
    ended = call.completed_at
    if ended is None and call.status not in OPEN_CALL:
        ended = at
    return replace(
        call,
        id=call.id or f"call_{new_id()}",
        turn_id=turn_id,
        message_id=call.message_id or speaker,
        started_at=call.started_at or at,
        completed_at=ended,
        sequence=sequence,
    )


def id_list(messages: Sequence[Message]) -> str:
    return msgspec.json.encode([message.id for message in messages]).decode()


def hash_prompt(prompt: str) -> str:
    """The key under which a system prompt is stored."""
    return _sha256()(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _hash(new: NewTurn) -> bytes:
    """Of what was passed, before anything was filled in: a retry of the same call has the same."""
    try:
        passed = msgspec.msgpack.encode(new)
    except (UnicodeEncodeError, OverflowError):
        passed = repr(new).encode("utf-8", "surrogatepass")
    digest = _sha256()(_HASH_VERSION)
    # In pieces: for longer ones Python lets other threads run, which costs more than the hashing.
    for start in range(0, len(passed), _HASH_PIECE):
        digest.update(passed[start : start + _HASH_PIECE])
    return digest.digest()


@cache
def _sha256() -> Callable[[bytes], hashlib._Hash]:
    import hashlib  # loads OpenSSL, which readers do not need

    return hashlib.sha256


# -- within the transaction -------------------------------------------------------------------


def record(tx: Transaction, prepared: PreparedTurn) -> Turn:
    """Record a finished turn and move its session to it; a failed one leaves the head alone."""
    new, turn_id = prepared.new, prepared.id
    # A caller that names the id may repeat the call after an error; the hash of what was passed
    # decides whether this is the same turn.
    if prepared.chosen:
        rows = tx.run("turn_request", id=turn_id)
        if rows:
            return _repeated(tx, prepared, bytes(rows[0][0] or b""))
    session = heads.writable(tx, new.session, persona_id=new.persona_id or "main")
    parent_id = expected_parent(session, new)
    turn, place = write_turn(tx, prepared, session, parent_id)
    completed = new.status == "completed"
    # A turn that is not completed never becomes a head, so it gets a segment of its own and leaves
    # the next place of the thread to one that does.
    threads.put(tx, turn_id, place, join=completed)
    index_queue.recorded(tx, turn)
    now = now_ms()
    if completed:
        heads.move_head(tx, session.label, from_=parent_id, to=turn_id, reason="record", at=now)
    elif parent_id is None:
        unfinished.failed_first(tx, session.label, turn_id)
    sealed = prepared.seal or leaves.seal(turn)
    label = session.label if completed else None
    leaves.add(tx, leaves.turn_leaf(turn_id, sealed, covered_place(turn, place, label, now)))
    return turn


def covered_place(turn: Turn, place: threads.TurnPlace, label: str | None, moved_at: int) -> Place:
    """What evidence covers of a turn's place, and of the move of a session to it."""
    return Place(
        turn.parent_turn_id,
        place.system_prompt_hash,
        place.persona_id,
        place.thread_key,
        label,
        None if label is None else moved_at,
    )


def _repeated(tx: Transaction, prepared: PreparedTurn, stored_hash: bytes) -> Turn:
    if stored_hash != prepared.request_hash:
        raise Conflict(
            f"turn {prepared.id} is recorded already, with other content",
            "Use a new id for a new turn.",
        )
    return threads.exact_turn(tx, prepared.id)


def expected_parent(session: Pointer, new: NewTurn) -> str | None:
    """The parent: the head, which must be the expected one, if the caller named one."""
    if new.parent is not UNSET and new.parent != session.thread_id:
        raise HeadMoved(session.label, expected=new.parent, found=session.thread_id)
    return session.thread_id


def write_turn(
    tx: Transaction, prepared: PreparedTurn, session: Pointer, parent_id: str | None
) -> tuple[Turn, threads.TurnPlace]:
    """Write the turn and all it consists of; returned with its place, for the caller to put it."""
    new = prepared.new
    if prepared.chosen:
        heads.check_is_no_name(tx, prepared.id)
    parent = threads.place_of(tx, parent_id)
    config = None if new.config is None else _effective_config(tx, new.config, parent_id)
    turn = replace(
        prepared.turn,
        parent_turn_id=parent_id,
        effective_config_json=config,
        depth=parent.depth + 1,
    )
    if turn.compaction is not None:
        from agents_ledger.ledger.context import compaction

        compaction.check(tx, turn.compaction, parent_id)
        # Before its turn: a guard refuses a compaction turn without its record, and the record's
        # reference to the turn is the one that is checked only at commit.
        tx.run("insert_compaction", **asdict(turn.compaction))
    if new.system_prompt is not None:
        tx.run("insert_system_prompt", hash=prepared.prompt_hash, content=new.system_prompt)
    tx.run("insert_turn", **rows.turn_row(turn, prepared.request_hash))
    write_messages(tx, turn.messages)
    for call in turn.tool_calls:
        if call.spawned_session_label is not None:
            child = Session(call.spawned_session_label)
            heads.spawn(tx, child, session, turn.id, call.id)
    if turn.tool_calls:
        tx.run_many("insert_tool_call", turn.tool_calls)
    if parent_id is not None:
        parent = threads.adopt(tx, parent_id, parent)
    return turn, place_below(parent, prepared, session)


def place_below(
    parent: threads.TurnPlace, prepared: PreparedTurn, session: Pointer
) -> threads.TurnPlace:
    """Where a turn goes that hangs on the one at `parent`, if that place is free."""
    new = prepared.new
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
    tx: Transaction,
    messages: Sequence[Message],
    *,
    statement: str = "insert_message",
) -> None:
    if not messages:
        return
    tx.run_many(statement, messages)
    detailed = [message for message in messages if message.has_details]
    if detailed:
        _write_details(tx, detailed)


def _write_details(tx: Transaction, messages: Sequence[Message]) -> None:
    tx.run_many(
        "insert_message_file",
        [Row(message_id=m.id, **asdict(file)) for m in messages for file in m.files],
    )
    tx.run_many(
        "insert_message_lint",
        [Row(message_id=m.id, **asdict(lint)) for m in messages for lint in m.lints],
    )
    tx.run_many(
        "insert_message_codeblock",
        [
            Row(message_id=m.id, idx=idx, **asdict(block))
            for m in messages
            for idx, block in enumerate(m.codeblocks)
        ],
    )


def _effective_config(tx: Transaction, config: configs.Config, parent_id: str | None) -> str | None:
    inherited, set_by = threads.config_above(tx, parent_id)
    settings = configs.resolve(config, configs.decode(inherited), set_by)
    return configs.encode(settings) if settings else None
