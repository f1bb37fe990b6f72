"""Claude Code: one record of a log, as far as the tree needs it, and the texts in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, cast

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    UUID,
    as_dict,
    as_list,
    as_text,
    parse_json,
)
from agents_ledger.importers.transcript.lines import decode_fields, text_of

CHAIN = {"user", "assistant", "system", "attachment"}  # records with a uuid and a parent
OTHER_TYPES = {
    "agent-name",
    "ai-title",
    "custom-title",
    "file-history-snapshot",
    "fork-context-ref",
    "last-prompt",
    "permission-mode",
    "progress",
    "queue-operation",
    "summary",
    "teleported-from",
}
SUBAGENT_TOOLS = ("Task", "Agent")  # renamed in 2.1
PERSISTED = "<persisted-output>"  # how the shown part of a spilled output begins
SPILL_FOLDER = "tool-results"  # outputs too large for a record, since 2.1
# Describes a subagent, next to its file, since 2.1.
META_SUFFIX = ".meta.json"
META_NAME = re.compile(r"(agent-[^/\\]+)\.meta\.json$")
_SPILL = re.compile(rb"tool-results(?:/|\\+)([\w.-]+)")
_NOT_IN_NAME = re.compile(rb'[/\\"]')
# What a file system allows for one name.
_NAME_MAX = 255
_NULL = Raw(b"null")


class _ClaudeMessage(Struct, gc=False):
    id: str | None = None
    content: Raw = _NULL


class Record(Struct, rename="camel", gc=False):
    """A record, as far as the tree needs it. Any field may be missing."""

    type: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    parent_last_uuid: str | None = None
    session_id: str | None = None
    timestamp: Any = None
    subtype: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    agent_id: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    version: str | None = None
    entrypoint: str | None = None
    session_kind: str | None = None
    operation: str | None = None
    content: Any = None
    summary: Any = None
    leaf_uuid: str | None = None
    ai_title: Any = None
    custom_title: Any = None
    message: _ClaudeMessage | None = None
    attachment: Raw = _NULL
    compact_metadata: Raw = _NULL
    data: Raw = _NULL
    call_id: str | None = field(default=None, name="parentToolUseID")
    retry_attempt: Any = None
    max_retries: Any = None

    @property
    def is_automatic_compaction(self) -> bool:
        return as_dict(parse_json(self.compact_metadata)).get("trigger") == "auto"


class _ClaudeBlock(Struct, gc=False):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = _NULL


class _SubagentInput(Struct):
    prompt: Any = None


class _Progress(Struct, rename="camel"):
    agent_id: str | None = None


class _Content(TypedDict, total=False):
    """The fields that the content of a turn is made of. `toolUseResult`, the screen's copy of a
    result, is often most of a record and stays unparsed."""

    type: Any
    timestamp: Any
    cwd: Any
    message: Any
    attachment: Any
    content: Any
    subtype: Any
    level: Any
    error: Any
    retryAttempt: Any
    maxRetries: Any
    durationMs: Any
    compactMetadata: Any
    toolUseResult: Raw
    isMeta: Any
    isSidechain: Any
    isApiErrorMessage: Any
    requestId: Any
    permissionMode: Any
    promptSource: Any
    toolDenialKind: Any
    origin: Any
    planContent: Any


_decode = msgspec.json.Decoder(Record).decode
_decode_content = msgspec.json.Decoder(_Content).decode
_decode_blocks = msgspec.json.Decoder(list[_ClaudeBlock]).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_task = msgspec.json.Decoder(_SubagentInput).decode


def read_record(data: bytes) -> Record:
    """The record; a field of a wrong type is left out.

    Raises one of lenient_json.BROKEN if it is not JSON at all.
    """
    return decode_fields(_decode, data)[0]


def read_content(data: bytes) -> dict[str, Any]:
    """A record with everything that is shown of it."""
    try:
        return cast(dict[str, Any], _decode_content(data))
    except BROKEN:
        return as_dict(parse_json(data))


def make_ids_unique(record: Record, session_id: str, offset: int) -> None:
    """Prefix ids that are not UUIDs: they are unique only in their file."""
    # The offset stays the same as long as the file only grows.
    if record.type in CHAIN and not record.uuid:
        record.uuid = f"@{offset}"
    # Users' redactions change uuids inside valid lines: such ids still link within the file.
    if record.uuid and not _is_uuid(record.uuid):
        record.uuid = f"{session_id}:{record.uuid}"
    if record.parent_uuid and not _is_uuid(record.parent_uuid):
        record.parent_uuid = f"{session_id}:{record.parent_uuid}"
    if record.leaf_uuid and not _is_uuid(record.leaf_uuid):
        record.leaf_uuid = f"{session_id}:{record.leaf_uuid}"
    logical_parent = record.logical_parent_uuid
    if logical_parent and not _is_uuid(logical_parent):
        record.logical_parent_uuid = f"{session_id}:{logical_parent}"


@lru_cache(maxsize=256)
def _is_uuid(name: str) -> bool:  # most parents are the record before
    return UUID.fullmatch(name) is not None


# -- texts ------------------------------------------------------------------------------------


def raw_content(record: Record) -> bytes:
    """The content of a record's message, not parsed."""
    return bytes(record.message.content) if record.message else b"null"


def message_text(record: Record) -> str:
    return text_of(parse_json(raw_content(record)))


def blocks_of(content: Any) -> list[dict[str, Any]]:
    """The blocks of a content: a string is a block of text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in as_list(content) if isinstance(block, dict)]


def has_result(record: Record, data: bytes) -> bool:
    """Whether a user record has the result of a call. `data` is the whole record."""
    # The byte search spares most user records the parsing of their blocks.
    if b'"tool_result"' not in data:
        return False
    content = raw_content(record)
    try:
        return any(block.type == "tool_result" for block in _decode_blocks(content))
    except BROKEN:
        return any(as_dict(b).get("type") == "tool_result" for b in as_list(parse_json(content)))


def queued_prompt(record: Record) -> str | None:
    """The text of an attachment that is a prompt, typed while the agent worked."""
    data = bytes(record.attachment)
    attachment = as_dict(parse_json(data)) if b'"queued_command"' in data else {}
    if attachment.get("type") != "queued_command":
        return None
    return text_of(attachment.get("prompt"))


# -- subagents --------------------------------------------------------------------------------


def subagent_prompts(record: Record, data: bytes) -> Iterator[tuple[str, str]]:
    """The prompts that the calls of a record give to subagents, each with the id of its call."""
    # Task was seen in 1.0.98 to 2.1.207, Agent in 2.1.123 to 2.1.219: most answers have neither.
    if b'"Task"' not in data and b'"Agent"' not in data:
        return
    try:
        blocks = _decode_blocks(raw_content(record))
    except BROKEN:
        return
    for block in blocks:
        if block.name in SUBAGENT_TOOLS and block.id:
            try:
                prompt = _decode_task(block.input).prompt
            except BROKEN:
                continue
            if isinstance(prompt, str):
                yield prompt, block.id


def subagent_in_progress(record: Record) -> str | None:
    """The id of the subagent whose progress a record reports."""
    if b'"agent_progress"' not in bytes(record.data):
        return None
    try:
        return _decode_progress(record.data).agent_id
    except BROKEN:
        return None


def subagent_of_result(result: Any) -> str | None:
    """The id of the subagent in the screen's copy of a result."""
    # toolUseResult is a dict in 90 % of the results, a string or a list in the others.
    if isinstance(result, Raw):
        result = parse_json(result) if b'"agentId"' in bytes(result) else None
    return as_text(as_dict(result).get("agentId"))


# -- outputs in files of their own ------------------------------------------------------------


def is_spill(path: Path) -> bool:
    """Whether a file is an output that was too large for a record."""
    return path.parent.name == SPILL_FOLDER and bool(UUID.fullmatch(path.parent.parent.name))


def spill_key(path: str) -> str:
    """The session folder and the file name, by which records refer to a spilled output."""
    return next(spill_names(path.encode(errors="replace")), "")


def spill_shown(text: str) -> str | None:
    """The file of a spilled output, from the part of it that the agent was shown. The first name
    counts: the output itself may name others."""
    if not text.startswith(PERSISTED):
        return None
    return next(spill_names(text.encode(errors="replace")), None)


def spills_of(record: Record, data: bytes, session_id: str) -> set[str]:
    """The files that the results of a record were saved to: those of its own session, and those of
    which it shows the beginning. Other names are what an agent read in the logs."""
    named = set(spill_names(data))
    own = {key for key in named if key.partition("/")[0] in (record.session_id, session_id)}
    # A fork shows outputs that were saved before it, in the folder of the other session.
    if own != named and PERSISTED.encode() in data:
        results = map(as_dict, as_list(parse_json(raw_content(record))))
        saved = {spill_shown(text_of(block.get("content"))) for block in results}
        own |= {key for key in saved if key is not None}
    return own


def spill_names(data: bytes) -> Iterator[str]:
    """Only as many bytes before a match are searched as a folder's name may have: a record may have
    megabytes without the end of a name."""
    for spill in _SPILL.finditer(data):
        before = data[max(0, spill.start() - _NAME_MAX - 1) : spill.start()]
        folder = _NOT_IN_NAME.split(before.rstrip(b"/\\"))[-1]
        if folder and before.endswith((b"/", b"\\")):
            yield f"{folder.decode(errors='replace')}/{spill[1].decode()}"
