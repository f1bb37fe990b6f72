"""The items of an import request: their shapes, their ids, and one session out of several."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from agents_ledger.model.turns import MessageRole

# The turn of an item that has messages, but no turns.
ROOT = "__root__"
ROLES: dict[str, MessageRole] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "tool": "tool",
}
NUMBER_MAX = 1 << 53
LABEL_PART = 32
SEPARATOR = "\x1f"
NAME_MAX = 64  # characters; every name we know is shorter


class Invalid(Exception):
    """An item that cannot be imported. The code is stable; the detail is for people."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code)
        self.code, self.detail = code, detail


Number = int | float | None


class SessionIn(Struct, rename="camel"):
    """What an item says of its session."""

    label_hint: str | None = None
    created_at_ms: Number = None
    updated_at_ms: Number = None
    model: str | None = None
    provider: str | None = None
    workspace_path: str | None = None
    project: str | None = None
    is_subagent: bool | None = None
    parent_source_session_id: str | None = None
    parent_source_message_id: str | None = None
    spawn_tool_call_id: str | None = None
    task_description: str | None = None
    task_status: str | None = None
    metadata: Any = None


class TurnIn(Struct, rename="camel"):
    """A turn of an item."""

    source_turn_id: str
    parent_source_turn_id: str | None = None
    started_at_ms: Number = None
    completed_at_ms: Number = None
    model: str | None = None
    provider: str | None = None
    input_tokens: Number = None
    output_tokens: Number = None
    cached_input_tokens: Number = None
    cache_write_tokens: Number = None
    reasoning_tokens: Number = None
    total_tokens: Number = None
    response_message_source_id: str | None = None
    query_message_source_ids: list[str] | None = None
    metadata: Any = None


class MessageIn(Struct, rename="camel"):
    """A message of an item."""

    source_message_id: str
    role: str
    source_turn_id: str | None = None
    content: str | None = None
    sequence: Number = None
    created_at_ms: Number = None
    thinking: str | None = None
    context_json: Any = None
    metadata_json: Any = None


class CallIn(Struct, rename="camel"):
    """A tool call of an item."""

    source_tool_call_id: str
    source_turn_id: str | None = None
    source_message_id: str | None = None
    tool_name: str | None = None
    tool_number: Number = None
    params_json: Any = None
    result_json: Any = None
    status: str | None = None
    spawned_source_session_id: str | None = None
    started_at_ms: Number = None
    completed_at_ms: Number = None
    sequence: Number = None
    error: str | None = None


class Item(Struct, rename="camel"):
    """One session of a request."""

    source_provider: str
    source_session_id: str
    source_session_fingerprint: str
    session: SessionIn | None = None
    turns: list[TurnIn] | None = None
    messages: list[MessageIn] | None = None
    tool_calls: list[CallIn] | None = None


# msgspec learns a shape when it is first used, and crashes if two threads do so at once.
msgspec.json.Decoder(Item)

LEVELS: dict[str, type[Struct]] = {
    "session": SessionIn,
    "turns": TurnIn,
    "messages": MessageIn,
    "toolCalls": CallIn,
}
EXTRA = ("importedAtMs", "systemContextProfiles", "artifacts")


class Key(NamedTuple):
    """What tells one imported session from all others."""

    source: str
    provider: str
    session_id: str

    def path(self) -> str:
        """Under which its items are kept."""
        provider = self.provider.replace("%", "%25").replace("/", "%2F")
        return f"request:{self.source}/{provider}/{self.session_id}"

    def id_of(self, kind: str, scoped_id: str) -> str:
        """The id of one of its rows."""
        return f"imp_{kind}_{_hash(kind, *self, scoped_id)[:24]}"

    def label(self) -> str:
        """The label it gets if no hint names another."""
        name = _plain(self.session_id)[:LABEL_PART] or "session"
        provider = _plain(self.provider)[:LABEL_PART] or "provider"
        return f"import:{provider}:{name}:{_hash(*self)[:10]}"


def _hash(*parts: str) -> str:
    joined = SEPARATOR.join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")


# -- reading ----------------------------------------------------------------------------------


def encoded(value: object) -> bytes:
    """JSON of anything a request may hold."""
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):  # only the escaped form can carry it
        plain = msgspec.to_builtins(value, enc_hook=str)
        return json.dumps(plain, separators=(",", ":")).encode()


def decoded(data: bytes) -> Any:
    """What encoded() was given."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def in_camel(said: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The same with the names we know written in camelCase; where both are said, that one."""
    known = set(names)
    found: dict[str, Any] = {}
    for name, value in said.items():
        camel = _camel(str(name))
        if name in known:
            found[name] = value
        elif camel in known:
            found.setdefault(camel, value)
        else:
            found[name] = value
    return found


def _camel(name: str) -> str:
    # Taken apart, a name of megabytes would take gigabytes.
    if len(name) > NAME_MAX:
        return name
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def _names(shape: type[Struct]) -> tuple[str, ...]:
    return shape.__struct_encode_fields__


def normal(item: object) -> dict[str, Any]:
    """An item with all its known names in camelCase."""
    if not isinstance(item, dict):
        raise Invalid("item_invalid", "an item is an object")
    found = in_camel(item, (*_names(Item), *EXTRA))
    for level, shape in LEVELS.items():
        said = found.get(level)
        if isinstance(said, dict):
            found[level] = in_camel(said, _names(shape))
        elif isinstance(said, list):
            found[level] = [
                in_camel(each, _names(shape)) if isinstance(each, dict) else each for each in said
            ]
    return found


REQUIRED = {
    "sourceProvider": "source_provider_required",
    "sourceSessionId": "source_session_id_required",
    "sourceSessionFingerprint": "source_session_fingerprint_required",
}


def read_item(said: Mapping[str, Any]) -> Item:
    """The item, if it is one."""
    for name, code in REQUIRED.items():
        value = said.get(name)
        if not isinstance(value, str) or not value.strip():
            raise Invalid(code)
    try:
        item = msgspec.convert(said, Item)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Invalid("payload_invalid", str(error)) from error
    for part in (item.session, *(item.turns or ()), *_steps(item)):
        if part is not None:
            _check(part)
    for message in item.messages or ():
        if message.role not in ROLES:
            raise Invalid("message_role_unsupported", message.role)
    return item


def _steps(item: Item) -> Sequence[MessageIn | CallIn]:
    return [*(item.messages or ()), *(item.tool_calls or ())]


def _check(part: Struct) -> None:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, (int, float)) and not 0 <= value < NUMBER_MAX:
            raise Invalid("payload_invalid", f"{name} is {value}")
        if name in ("source_turn_id", "source_message_id", "source_tool_call_id") and value == "":
            raise Invalid("payload_invalid", f"{name} is empty")


def whole(number: Number) -> int:
    """A number of an item; 0 where none is said."""
    return int(number or 0)


# -- one session out of all that was ever said of it ------------------------------------------


class Merged(Struct):
    """A session: what its items say together. A later item wins, and none takes away."""

    session: SessionIn = field(default_factory=SessionIn)
    fingerprint: str = ""
    turns: dict[str, TurnIn] = field(default_factory=dict)
    messages: dict[str, MessageIn] = field(default_factory=dict)
    calls: dict[str, CallIn] = field(default_factory=dict)
    turn_of_message: dict[str, str] = field(default_factory=dict)
    turn_of_call: dict[str, str] = field(default_factory=dict)
    latest: set[str] = field(default_factory=set)  # turns and messages of the last item

    def add(self, item: Item) -> None:
        """Take what a further item says. Nothing is taken if it is Invalid."""
        turns = _by_id(item.turns or (), "source_turn_id", "turn")
        messages = _by_id(item.messages or (), "source_message_id", "message")
        calls = _by_id(item.tool_calls or (), "source_tool_call_id", "tool_call")
        first = next(iter(turns), ROOT)
        known = {**self.turns, **turns}
        if not turns and (messages or calls):
            known.setdefault(ROOT, TurnIn(ROOT))
        of_message = {
            each.source_message_id: _turn_of(
                each, self.turn_of_message.get(each.source_message_id), first, known
            )
            for each in messages.values()
        }
        places = {**self.turn_of_message, **of_message}
        of_call = {
            each.source_tool_call_id: _turn_of(
                each,
                places.get(each.source_message_id or "")
                or self.turn_of_call.get(each.source_tool_call_id),
                first,
                known,
            )
            for each in calls.values()
        }
        _check_loops(known)
        self.turns, self.turn_of_message = known, places
        self.messages.update(messages)
        self.calls.update(calls)
        self.turn_of_call.update(of_call)
        self.latest = {*turns, *messages, *calls, *of_message.values()}
        self.fingerprint = item.source_session_fingerprint
        if item.session is not None:
            for name in item.session.__struct_fields__:
                said = getattr(item.session, name)
                if said is not None:
                    setattr(self.session, name, said)


def _by_id(parts: Iterable[Any], name: str, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in parts:
        part_id = getattr(part, name)
        if part_id in found and found[part_id] != part:
            raise Invalid(f"{kind}_id_duplicate", part_id)
        found[part_id] = part
    return found


def _turn_of(
    step: MessageIn | CallIn, known: str | None, first: str, turns: Mapping[str, TurnIn]
) -> str:
    said = step.source_turn_id
    if said is None:
        return known or (first if first in turns else next(iter(turns)))
    if said not in turns:
        kind = "message" if isinstance(step, MessageIn) else "tool_call"
        raise Invalid(f"{kind}_turn_unknown", said)
    return said


def _check_loops(turns: Mapping[str, TurnIn]) -> None:
    clear: set[str] = set()
    for start in turns:
        path: set[str] = set()
        at: str | None = start
        while at is not None and at in turns and at not in clear:
            if at in path:
                raise Invalid("turn_parent_cycle", at)
            path.add(at)
            at = turns[at].parent_source_turn_id
        clear |= path
