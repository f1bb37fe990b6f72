"""The items of import requests: their schema, their ids, and how they are read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agents_ledger.importers.sources.import_requests.rules import ROLES, UNMAPPED

NUMBER_MAX = 1 << 53
LABEL_PART = 32
# A control character, so that two parts never join to the same text as two others.
SEPARATOR = "\x1f"
NAME_MAX = 64  # characters; all field names are shorter


class InvalidItem(Exception):
    """An item that cannot be imported. The code is stable; the detail is for people."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(code)
        self.code, self.detail = code, detail


Number = int | float | None


class SessionIn(Struct, rename="camel"):
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


class ImportItem(Struct, rename="camel"):
    source_provider: str
    source_session_id: str
    source_session_fingerprint: str
    session: SessionIn | None = None
    turns: list[TurnIn] | None = None
    messages: list[MessageIn] | None = None
    tool_calls: list[CallIn] | None = None


class ArchivedItem(Struct, rename="camel"):
    """An item as it is archived, with the decisions made when it was imported."""

    source: str
    persona_id: str
    label: str
    item: Any


# msgspec compiles a type when it is first used, and crashes if two threads do so at once.
msgspec.json.Decoder(ImportItem)
msgspec.json.Decoder(ArchivedItem)

LEVELS: dict[str, type[Struct]] = {
    "session": SessionIn,
    "turns": TurnIn,
    "messages": MessageIn,
    "toolCalls": CallIn,
}


class ImportKey(NamedTuple):
    source: str
    provider: str
    session_id: str

    def path(self) -> str:
        provider = self.provider.replace("%", "%25").replace("/", "%2F")
        return f"request:{self.source}/{provider}/{self.session_id}"

    def id_of(self, kind: str, scoped_id: str) -> str:
        # Ids of an item are unique in its session only; 24 digits are 96 bits.
        return f"imp_{kind}_{_hash(kind, *self, scoped_id)[:24]}"

    def label(self) -> str:
        """The default label, for a session without a hint."""
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
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, OverflowError, TypeError):  # unpaired surrogates, big integers
        plain = msgspec.to_builtins(value, enc_hook=str)
        return json.dumps(plain, separators=(",", ":")).encode()


def decoded(data: bytes) -> Any:
    """The inverse of encoded()."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def in_camel(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The fields, with these names in camelCase; that spelling wins if both are present."""
    expected = set(names)
    renamed: dict[str, Any] = {}
    for name, value in fields.items():
        camel = _camel(str(name))
        if name not in expected and camel in expected:
            renamed.setdefault(camel, value)
        else:
            renamed[name] = value
    return renamed


def _camel(name: str) -> str:
    if len(name) > NAME_MAX:  # splitting a name of megabytes would take gigabytes
        return name
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _names(schema: type[Struct]) -> tuple[str, ...]:
    return schema.__struct_encode_fields__


def normal(item: object) -> dict[str, Any]:
    """An item with all its field names in camelCase."""
    if not isinstance(item, dict):
        raise InvalidItem("item_invalid", "an item is an object")
    fields = in_camel(item, (*_names(ImportItem), "importedAtMs", *UNMAPPED))
    for level, schema in LEVELS.items():
        value = fields.get(level)
        if isinstance(value, dict):
            fields[level] = in_camel(value, _names(schema))
        elif isinstance(value, list):
            fields[level] = [
                in_camel(part, _names(schema)) if isinstance(part, dict) else part for part in value
            ]
    return fields


REQUIRED = {
    "sourceProvider": "source_provider_required",
    "sourceSessionId": "source_session_id_required",
    "sourceSessionFingerprint": "source_session_fingerprint_required",
}


def read_item(fields: Mapping[str, Any]) -> ImportItem:
    """Raises InvalidItem."""
    for name, code in REQUIRED.items():
        value = fields.get(name)
        if not isinstance(value, str) or not value.strip():
            raise InvalidItem(code)
    try:
        item = msgspec.convert(fields, ImportItem)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidItem("payload_invalid", str(error)) from error
    for part in (item.session, *(item.turns or ()), *_steps(item)):
        if part is not None:
            _check(part)
    for message in item.messages or ():
        if message.role not in ROLES:
            raise InvalidItem("message_role_unsupported", message.role)
    return item


def read_archived(data: bytes) -> tuple[ArchivedItem, ImportItem]:
    archived = msgspec.convert(decoded(data), ArchivedItem)
    return archived, read_item(normal(archived.item))


def _steps(item: ImportItem) -> Sequence[MessageIn | CallIn]:
    return [*(item.messages or ()), *(item.tool_calls or ())]


def _check(part: Struct) -> None:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, (int, float)) and not 0 <= value < NUMBER_MAX:
            raise InvalidItem("payload_invalid", f"{name} is {value}")
        if name in ("source_turn_id", "source_message_id", "source_tool_call_id") and value == "":
            raise InvalidItem("payload_invalid", f"{name} is empty")


def whole(number: Number) -> int:
    """A number of an item as an integer; 0 if there is none."""
    return int(number or 0)
