"""pi: one entry of a transcript, as far as the tree needs it."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    as_dict,
    as_number,
    as_text,
    parse_json,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.pi.entries import DIGEST
from agents_ledger.importers.sources.pi.rules import PROMPT_ERROR, ROLES, TOKENS, TYPES
from agents_ledger.importers.transcript.field_maps import token_counts

EARLIEST_MS = 10**12  # a smaller number is not the time of a message
_NULL = Raw(b"null")


class PiMessage(Struct, rename="camel"):
    """The message of an entry, as far as the tree needs it."""

    role: Any = None
    model: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    timestamp: Any = None
    content: Raw = _NULL
    details: Raw = _NULL
    usage: Raw = _NULL


class PiRecord(Struct, rename="camel"):
    """An entry, as far as the tree needs it. Any field may be missing, or of any type."""

    type: Any = None
    id: Any = None
    parent_id: Any = msgspec.UNSET
    timestamp: Any = None
    version: Any = None
    cwd: Any = None
    provider: Any = None
    parent_session: Any = None
    branched_from: Any = None
    custom_type: Any = None
    name: Any = None
    model_id: Any = None
    thinking_level: Any = None
    first_kept_entry_id: Any = None
    first_kept_entry_index: Any = None
    summary: Raw = _NULL
    content: Raw = _NULL
    data: Raw = _NULL
    usage: Raw = _NULL
    message: PiMessage | None = None


class _MessageOnly(Struct):
    message: Raw = _NULL


class _PiBlock(Struct):
    type: Any = None
    id: Any = None


decode_record = msgspec.json.Decoder(PiRecord).decode
_decode_message = msgspec.json.Decoder(_MessageOnly).decode
_decode_blocks = msgspec.json.Decoder(list[_PiBlock]).decode


def kind_of(record: PiRecord) -> str | None:
    """The kind of entry that a record is; None if it is not part of a turn."""
    if record.type == "message" and record.message is not None:
        role = record.message.role
        return ROLES.get(role, "notice") if isinstance(role, str) else None
    if record.type == "custom" and record.custom_type == PROMPT_ERROR:
        return "notice"
    return TYPES.get(record.type) if isinstance(record.type, str) else None


def own_time(record: PiRecord) -> int:
    """The time of the message itself, which stays when OpenClaw writes it again; 0 without one."""
    moment = record.message.timestamp if record.message and record.type == "message" else None
    is_time = isinstance(moment, (int, float)) and moment >= EARLIEST_MS
    return milliseconds(moment) if is_time else 0


def digest_of(record: PiRecord, data: bytes, session_id: str, when: object) -> bytes:
    """The same for every copy of an entry, whatever id and time that has. A message with a time of
    its own is known by that, any other entry by `when`; without both, only in its session."""
    own = own_time(record)
    digest = hashlib.blake2b(digest_size=DIGEST)
    # Without any time equal words of two sessions would become one entry.
    if when is None and not own:
        digest.update(session_id.encode(errors="replace"))
    key = repr((record.type, own or when, record.custom_type)).encode(errors="replace")
    for part in (key, *_content_parts(record, data, has_own_time=bool(own))):
        digest.update(b"%d:%b" % (len(part), part))
    return digest.digest()


def _content_parts(record: PiRecord, data: bytes, *, has_own_time: bool) -> tuple[bytes, ...]:
    """What distinguishes an entry from others of the same time. A result may be shortened later, so
    it is known by its call."""
    message = record.message
    if has_own_time and message is not None:
        role = str(message.role).encode(errors="replace")
        call_id = as_text(message.tool_call_id)
        if call_id and message.role == "toolResult":
            return role, call_id.encode(errors="replace")
        if message.content != _NULL:
            return role, bytes(message.content)
    try:
        whole = bytes(_decode_message(data).message)
    except BROKEN:
        whole = b""
    return whole, bytes(record.summary), bytes(record.content), bytes(record.data)


def total_tokens(usage: object) -> int:
    """The tokens of a call: the reported total, else the sum."""
    total = as_number(as_dict(usage).get("totalTokens"))
    # Messages of version 1 may have no totalTokens.
    return sum(token_counts(usage, TOKENS).values()) if total is None else total


def tokens_of(record: PiRecord) -> int:
    usage = record.message.usage if record.message else record.usage
    return total_tokens(parse_json(usage)) if usage != _NULL else 0


def calls_in(content: bytes) -> tuple[str, ...]:
    """The ids of the calls in the content of a message."""
    if b'"toolCall"' not in content:
        return ()
    try:
        blocks = _decode_blocks(content)
    except BROKEN:
        return ()
    return tuple(b.id for b in blocks if b.type == "toolCall" and isinstance(b.id, str))


def spawned_key(message: PiMessage) -> str | None:
    """The key of the session that a call of `sessions_spawn` started, from its result."""
    key = as_text(as_dict(parse_json(message.details)).get("childSessionKey"))
    if key:
        return key
    content = parse_json(message.content)
    for block in content if isinstance(content, list) else [{"text": content}]:
        text = as_dict(block).get("text")
        if isinstance(text, str) and "childSessionKey" in text:
            return as_text(as_dict(parse_json(text)).get("childSessionKey"))
    return None
