"""Claude Code: one record, as far as the tree needs it, and what it really is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, cast

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    UUID,
    as_dict,
    as_list,
    as_number,
    as_text,
    mend,
    parsed,
)

CHAIN = {"user", "assistant", "system", "attachment"}
PLAIN = {
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
COMMANDS = ("<command-name>", "<command-message>")
PRINTED = ("<local-command-stdout>", "<local-command-stderr>")  # by a command of the program's own
CAVEAT = "<local-command-caveat>"  # what a model shall make of these: it tells nobody anything
INTERRUPTED = "[Request interrupted by user"
PEER = "<cross-session-message"  # of another session, in the queue before it is given to the agent
NOTICES = (
    *PRINTED,
    INTERRUPTED,
    "<agent-notification>",  # before 2.1, and <bash-notification>
    "<bash-notification>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<ci-monitor-event>",
    PEER,
    "<system-reminder>",
    "<task-notification>",
)
UNKNOWN = re.compile(r"Unknown (?:skill|slash command): \S+")  # a command that was mistyped
TYPED = re.compile(r"/[a-z][\w:-]*(?:\s.*)?", re.DOTALL)  # perhaps a command, as it was typed
COMPACT = re.compile(r"/compact(?:\s.*)?", re.DOTALL)  # a compaction answers it
PERSISTED = "<persisted-output>"  # how an output begins that was too large for its record
SPILLED = "tool-results"  # the folder of outputs that were too large for a record
ABOUT = ".meta.json"  # what is said of a subagent, beside its file
ABOUT_NAME = re.compile(r"(agent-[^/\\]+)\.meta\.json$")
_SPILL = re.compile(rb"tool-results(?:/|\\+)([\w.-]+)")
_NO_NAME = re.compile(rb'[/\\"]')  # what is in no name of a folder
_NAME_MAX = 255
_SEGMENT = ("headUuid", "tailUuid", "anchorUuid")
_NULL = Raw(b"null")


class _Message(Struct, gc=False):
    id: str | None = None
    content: Raw = _NULL


class Record(Struct, rename="camel", gc=False):
    """A record, as far as the outline needs it. Anything may be missing."""

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
    message: _Message | None = None
    attachment: Raw = _NULL
    compact_metadata: Raw = _NULL
    data: Raw = _NULL
    call_id: str | None = field(default=None, name="parentToolUseID")
    retry_attempt: Any = None
    max_retries: Any = None


class Preserved(Struct):
    """What a compaction left in the context as it was. A fork that begins behind one writes these
    records once more: hung on the summary, and without their usage."""

    first: str
    last: str | None
    summary: str | None
    uuids: frozenset[str | None]
    before: str | None  # the record before the compaction in its file
    came_again: bool = False

    def take(self, record: Record) -> bool:
        """Whether a record behind the compaction is one of these. It hangs where it did, and what
        was said after the compaction hangs on the summary."""
        if record.uuid in self.uuids:
            self.came_again |= record.uuid == self.last
            if record.uuid == self.first and self.before is not None:
                record.parent_uuid = self.before
            return True
        if self.came_again and record.parent_uuid == self.last:
            record.parent_uuid = self.summary
        return False


class _Block(Struct, gc=False):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = _NULL


class _Prompt(Struct):
    prompt: Any = None


class _Progress(Struct, rename="camel"):
    agent_id: str | None = None


class Whole(TypedDict, total=False):
    """What the content of a turn is made of. The screen's copy of a result, often most of a record,
    is left as it stands."""

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
_decode_whole = msgspec.json.Decoder(Whole).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode
_decode_progress = msgspec.json.Decoder(_Progress).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode
_FIELDS = dict(zip(Record.__struct_encode_fields__, Record.__struct_fields__, strict=True))


def is_given_up(subtype: object, tried: object, most: object) -> bool:
    """Whether what the program says is that the last attempt to ask the provider failed."""
    tried, most = as_number(tried), as_number(most)
    return subtype == "api_error" and bool(tried and most) and (tried or 0) >= (most or 0)


def is_printed(text: str) -> bool:
    """Whether the program says it to a command of its own, or to one that there is not."""
    return text.startswith(PRINTED) or UNKNOWN.fullmatch(text) is not None


def is_notice(text: str) -> bool:
    """Whether the program wrote it, or alone answers it."""
    return text.startswith(NOTICES) or COMPACT.fullmatch(text) is not None


def read(data: bytes) -> Record:
    """The record; where a field is not what it should be, without that field.

    Raises one of outlines.BROKEN if it is no JSON at all.
    """
    try:
        return _decode(data)
    except msgspec.ValidationError:
        return _without_misfits(data)
    except BROKEN:
        mended = mend(data)
        if mended is None:
            raise
        return _without_misfits(mended)


def whole(data: bytes) -> dict[str, Any]:
    """A record, with all that is shown of it."""
    try:
        return cast(dict[str, Any], _decode_whole(data))
    except BROKEN:
        return as_dict(parsed(data))


def agent_of(result: Any) -> str | None:
    """The subagent that the screen's copy of a result names."""
    if isinstance(result, Raw):
        result = parsed(result) if b'"agentId"' in bytes(result) else None
    return as_text(as_dict(result).get("agentId"))


def _without_misfits(data: bytes) -> Record:
    found = msgspec.json.decode(data)
    if not isinstance(found, dict):
        raise msgspec.DecodeError("not an object")
    record = Record()
    for name, said in found.items():
        if name in _FIELDS:
            try:
                part = _decode(msgspec.json.encode({name: said}))
            except msgspec.ValidationError:
                continue
            setattr(record, _FIELDS[name], getattr(part, _FIELDS[name]))
    return record


def localise(record: Record, session_id: str, offset: int) -> None:
    """Give a record an id that no other file has: ids of another form are unique in their file."""
    if record.type in CHAIN and not record.uuid:
        record.uuid = f"@{offset}"
    if record.uuid and not _is_uuid(record.uuid):
        record.uuid = f"{session_id}:{record.uuid}"
    if record.parent_uuid and not _is_uuid(record.parent_uuid):
        record.parent_uuid = f"{session_id}:{record.parent_uuid}"
    if record.leaf_uuid and not _is_uuid(record.leaf_uuid):
        record.leaf_uuid = f"{session_id}:{record.leaf_uuid}"
    above = record.logical_parent_uuid
    if above and not _is_uuid(above):
        record.logical_parent_uuid = f"{session_id}:{above}"


@lru_cache(maxsize=256)
def _is_uuid(name: str) -> bool:  # most records name the one before
    return UUID.fullmatch(name) is not None


def text_of(content: Any) -> str:
    """The words of a content: a text, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        words = [b.get("text") for b in content if isinstance(b, dict) and b.get("type") == "text"]
        return "\n\n".join(word for word in words if isinstance(word, str))
    return ""


def raw_content(record: Record) -> bytes:
    """The content of a record's message, not parsed."""
    return bytes(record.message.content) if record.message else b"null"


def words_of(record: Record) -> str:
    """What a record's message says."""
    return text_of(parsed(raw_content(record)))


def blocks_of(record: Record) -> list[dict[str, Any]]:
    """What a record's message says, in blocks."""
    content = parsed(raw_content(record))
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    return [block for block in blocks if isinstance(block, dict)]


def has_result(record: Record, data: bytes) -> bool:
    """Whether a user record brings what came of a call. `data`: all of the record."""
    if b'"tool_result"' not in data:
        return False
    content = raw_content(record)
    try:
        return any(block.type == "tool_result" for block in _decode_blocks(content))
    except BROKEN:
        return any(as_dict(b).get("type") == "tool_result" for b in as_list(parsed(content)))


def is_queued(record: Record) -> bool:
    """Whether an attachment is a prompt, typed while the agent worked."""
    attached = bytes(record.attachment)
    said = b'"queued_command"' in attached and as_dict(parsed(attached)).get("type")
    return said == "queued_command"


def queued_text(record: Record) -> str:
    """What a queued prompt says."""
    return text_of(as_dict(parsed(bytes(record.attachment))).get("prompt"))


def preserved(record: Record, before: str | None) -> Preserved | None:
    """What a compaction left in the context as it was. `before`: the record before it."""
    said = as_dict(parsed(record.compact_metadata))
    names = (as_text(as_dict(said.get("preservedSegment")).get(each)) for each in _SEGMENT)
    first, last, summary = names
    if first is None:
        return None
    uuids = as_list(as_dict(said.get("preservedMessages")).get("uuids"))
    among = {first, last, *(each for each in uuids if isinstance(each, str))}
    return Preserved(first, last, summary, frozenset(among), before)


def tasks(record: Record, data: bytes) -> Iterator[tuple[str, str]]:
    """The prompts that a record's calls give to subagents, and the calls. `data`: all of it."""
    if b'"Task"' not in data and b'"Agent"' not in data:
        return
    try:
        blocks = _decode_blocks(raw_content(record))
    except BROKEN:
        return
    for block in blocks:
        if block.name in ("Task", "Agent") and block.id:
            try:
                prompt = _decode_prompt(block.input).prompt
            except BROKEN:
                continue
            if isinstance(prompt, str):
                yield prompt, block.id


def agent_at_work(record: Record) -> str | None:
    """The subagent whose progress a record tells of."""
    if b'"agent_progress"' not in bytes(record.data):
        return None
    try:
        return _decode_progress(record.data).agent_id
    except BROKEN:
        return None


def spills_named(data: bytes) -> Iterator[str]:
    """The outputs in files of their own that a text names, by folder and name. Only as much is
    looked at before each as a name may have: a record may have megabytes without a name's end."""
    for spill in _SPILL.finditer(data):
        before = data[max(0, spill.start() - _NAME_MAX - 1) : spill.start()]
        folder = _NO_NAME.split(before.rstrip(b"/\\"))[-1]
        if folder and before.endswith((b"/", b"\\")):
            yield f"{folder.decode(errors='replace')}/{spill[1].decode()}"


def saved_as(shown: str) -> str | None:
    """The file of an output that was too large, as the agent was shown it: what it begins with may
    name others."""
    if not shown.startswith(PERSISTED):
        return None
    return next(spills_named(shown.encode(errors="replace")), None)


def spills_of(record: Record, data: bytes, session_id: str) -> set[str]:
    """The outputs that a record's results were saved to: those of its session, and what it shows
    the begin of. A search through the logs names those of all sessions. `data`: all of it."""
    named = set(spills_named(data))
    own = {key for key in named if key.partition("/")[0] in (record.session_id, session_id)}
    if own != named and PERSISTED.encode() in data:
        results = map(as_dict, as_list(parsed(raw_content(record))))
        saved = {saved_as(text_of(block.get("content"))) for block in results}
        own |= {key for key in saved if key is not None}
    return own


def spill_key(path: str) -> str:
    """The folder and name by which a record names an output."""
    return next(spills_named(path.encode(errors="replace")), "")


def is_spill(path: Path) -> bool:
    """Whether a file is an output that was too large for a record."""
    return path.parent.name == SPILLED and bool(UUID.fullmatch(path.parent.parent.name))
