"""Cursor: sessions of its agent, in files of their own.

A store.db contains a session whole. A transcript has only the messages, without ids and mostly
without results. Each is used if nothing better records the same session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, project_name
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import HeldRecord, Material, SourceLine, SourceRow
from agents_ledger.importers.sources.cursor import rules
from agents_ledger.importers.sources.cursor.turns import agent_blocks, agent_text, are_results
from agents_ledger.importers.transcript.lines import report_malformed, scoped_id
from agents_ledger.model.imports.records import raw
from agents_ledger.model.imports.sources import Fate, SourceFile

# A node of a store is protobuf: hashes of messages, hashes of nodes, or the JSON of a message.
MESSAGE_HASH, NODE_HASH, MESSAGE_JSON = 1, 2, 4
HASH_BYTES = 32
# Hashes cannot form a cycle, but a damaged or crafted store could be deeper than the stack.
DEPTH_MAX = 200
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
VARINT_CONTINUES = 0x80


class AgentMessage(NamedTuple):
    id: str
    record: SourceLine | HeldRecord | SourceRow
    is_input: bool
    print: bytes
    at: int = 0  # 0: unknown


class AgentSession(Struct):
    id: str
    messages: list[AgentMessage] = field(default_factory=list)
    file_ids: set[int] = field(default_factory=set)
    parent: str | None = None
    title: str | None = None
    model: str | None = None
    created_at: int = 0
    workspace: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def fill_times(self, file: SourceFile) -> None:
        """Give messages without a time that of the prompt before them, or else the first; if there
        is none, that of the file."""
        # Transcripts whose prompts have no time tag have no times at all (2025 and early 2026).
        first = next((message.at for message in self.messages if message.at), 0)
        at = self.created_at or first or file.mtime_ns // 1_000_000
        for number, message in enumerate(self.messages):
            at = message.at or at
            self.messages[number] = message._replace(at=at)

    def all_metadata(self) -> dict[str, Any]:
        if self.workspace is None:
            return self.metadata
        project = project_name(self.workspace)
        return {**self.metadata, "workspace_path": self.workspace, "project": project}


def record_of_message(material: Material, message: AgentMessage) -> dict[str, Any]:
    """The content of a message, in one form for all files."""
    if isinstance(message.record, SourceRow):
        return message_in_blob(raw(material.values_of(message.record).get("data")))
    data = material.bytes_of(message.record)
    return parse_text_message(data) if is_text_transcript(data) else as_dict(loose(data))


# -- transcripts ------------------------------------------------------------------------------


def read_transcript(material: Material, file: SourceFile, is_needed: bool) -> AgentSession:
    """The session of a transcript; without messages if another file has it."""
    path = PurePath(file.path)
    session = AgentSession(path.stem, file_ids={file.id})
    if path.parent.name == "subagents":
        session.parent = path.parent.parent.name
    if "projects" in path.parts[:-1]:
        session.metadata["project"] = path.parts[path.parts.index("projects") + 1]
    if is_text_transcript(next(material.blocks(file), b"")):
        session.messages = list(_text_messages(material, file, session.id, is_needed))
        session.fill_times(file)
        return session
    fate: Fate = "derived" if is_needed else "unmapped"
    for line in material.lines(file):
        record = loose(line.data)
        if not isinstance(record, dict):
            report_malformed(material, line, "no object")
            continue
        material.count(str(record.get("type") or record.get("role")), fate)
        if is_needed:
            # Lines have neither ids nor times: only the position identifies them.
            message_id = scoped_id(rules.NAME, session.id, str(line.number))
            blocks = agent_blocks(record)
            is_input = record.get("role") == "user" and not are_results(blocks)
            at = rules.prompt_in(agent_text(blocks)).at if is_input else 0
            held, print_ = material.held(line), line.fingerprint()
            session.messages.append(AgentMessage(message_id, held, is_input, print_, at))
    session.fill_times(file)
    return session


def is_text_transcript(head: bytes) -> bool:
    """Whether a transcript is plain text, as the oldest are."""
    first_line = head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]
    return rules.SPEAKER.match(first_line) is not None


def _text_messages(
    material: Material, file: SourceFile, session_id: str, is_needed: bool
) -> Iterator[AgentMessage]:
    """Each message is a range of lines."""
    first: SourceLine | None = None
    role, end, digest = "", 0, hashlib.blake2b(digest_size=16)

    def message(first: SourceLine) -> AgentMessage:
        line = SourceLine(first.file, first.offset, end - first.offset, first.number, None)
        # The suffix tells it from a line of the JSON transcript of the same session.
        message_id = scoped_id(rules.NAME, session_id, f"{first.number}.txt")
        return AgentMessage(message_id, line, role == "user", digest.digest())

    for line in material.lines(file):
        speaker = rules.SPEAKER.match((line.data or b"").removeprefix(BOM))
        if speaker is not None:
            if first is not None and is_needed:
                yield message(first)
            first, digest = line, hashlib.blake2b(digest_size=16)
            role = "user" if speaker[1] == b"user" else "assistant"
        end = line.offset + line.length
        digest.update(line.fingerprint())
        material.count(role or "(none)", "derived" if is_needed and role else "unmapped")
    if first is not None and is_needed:
        yield message(first)


def parse_text_message(data: bytes) -> dict[str, Any]:
    """A message of plain text, in the form of the JSON transcripts."""
    first, *rest = data.removeprefix(BOM).decode(errors="replace").splitlines()
    speaker, _, text = first.partition(":")
    blocks: list[dict[str, Any]] = []
    marked: dict[str, Any] | None = None
    for line in [text.lstrip(), *rest]:
        mark = rules.MARK.match(line)
        if mark is not None:
            kind = rules.MARKED_BLOCKS[mark[1].lower()]
            marked = {"type": kind, "title": mark[2], "lines": []}
            blocks.append(marked)
        elif marked is not None and line.strip():
            marked["lines"].append(line)
        else:
            marked = None
            if not blocks or blocks[-1]["type"] != "text":
                blocks.append({"type": "text", "lines": []})
            blocks[-1]["lines"].append(line)
    role = "user" if speaker == "user" else "assistant"
    return {"role": role, "content": [_text_block(block) for block in blocks]}


def _text_block(block: dict[str, Any]) -> dict[str, Any]:
    kind, lines = block["type"], block["lines"]
    if kind == "tool_use":
        name = block["title"].split(" ")[0] or None
        return {"type": kind, "name": name, "input": _arguments(block["title"], lines)}
    if kind == "tool_result":
        return {"type": kind, "content": "\n".join(lines) or None}
    title = [block["title"]] if "title" in block else []
    return {"type": kind, "text": "\n".join([*title, *lines]).strip()}


def _arguments(title: str, lines: Sequence[str]) -> dict[str, str]:
    rest = title.partition(" ")[2].strip()
    arguments: dict[str, list[str]] = {"arguments": [rest] if rest else []}
    name = "arguments"
    for line in lines:
        argument = rules.ARGUMENT.match(line)
        if argument is not None:
            name = argument[1]
            arguments[name] = [argument[2]]
        else:
            arguments[name].append(line)
    return {name: "\n".join(values) for name, values in arguments.items() if values}


# -- store.db ---------------------------------------------------------------------------------


class AgentStore:
    """A database of blobs named by their hashes; the newest root leads to the live messages."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self.material = material
        self.file = file
        self.meta: dict[str, Any] = {}
        self.blobs: dict[str, SourceRow] = {}

    def read_meta(self, values: dict[str, Any]) -> None:
        """Key "0" is JSON in hexadecimal (seen in a real store)."""
        if values.get("key") in ("0", 0):
            self.meta = as_dict(_decode_hex_json(values.get("value")))

    @property
    def session_id(self) -> str:
        return as_text(self.meta.get("agentId")) or PurePath(self.file.path).parent.name

    def session(self, is_needed: bool) -> AgentSession:
        """The session; without messages if a chat has it."""
        session = AgentSession(self.session_id, file_ids={self.file.id})
        session.title = as_text(self.meta.get("name"))
        session.model = as_text(self.meta.get("lastUsedModel"))
        session.created_at = milliseconds(self.meta.get("createdAt"))
        session.metadata = {"mode": self.meta["mode"]} if as_text(self.meta.get("mode")) else {}
        seen: dict[str, int] = {}
        for name in self._live_blobs() if is_needed else ():
            record = message_in_blob(raw(self._data(name)))
            seen[name] = seen.get(name, 0) + 1
            # Blobs are named by their content: the same words said twice are one blob.
            repeated = f":{seen[name]}" if seen[name] > 1 else ""
            is_input = record.get("role") not in ("assistant", "tool")
            is_prompt = record.get("role") == "user"
            at = rules.prompt_in(agent_text(agent_blocks(record))).at if is_prompt else 0
            message_id = f"{session.id}:{name}{repeated}"
            row = self.blobs[name]
            session.messages.append(AgentMessage(message_id, row, is_input, name.encode(), at))
        session.fill_times(self.file)
        self.material.count("blobs", "derived", len(seen))
        self.material.count("blobs", "unmapped", len(self.blobs) - len(seen))
        return session

    def _data(self, name: str) -> Any:
        return self.material.values_of(self.blobs[name]).get("data")

    def _live_blobs(self) -> list[str]:
        """The messages below the newest root; without a root, all messages."""
        root = as_text(self.meta.get("latestRootBlobId")) or ""
        live = list(self._below(root, 0))
        # Without a root the order of the rowids is an approximation.
        return live or [name for name in self.blobs if message_in_blob(raw(self._data(name)))]

    def _below(self, name: str, depth: int) -> Iterator[str]:
        if name not in self.blobs or depth > DEPTH_MAX:
            return
        data = raw(self._data(name))
        if message_in_blob(data):
            yield name
            return
        for number, value in _protobuf_fields(data):
            if number in (MESSAGE_HASH, NODE_HASH) and len(value) == HASH_BYTES:
                yield from self._below(value.hex(), depth + 1)


def _decode_hex_json(value: Any) -> Any:
    data = raw(value)
    try:
        return loose(bytes.fromhex(data.decode()))
    except ValueError:
        return loose(data)


def message_in_blob(data: bytes) -> dict[str, Any]:
    """The message that a blob is or contains; empty if there is none."""
    message = as_dict(loose(data)) if data[:1] == b"{" else {}
    if not message:
        wrapped = (value for number, value in _protobuf_fields(data) if number == MESSAGE_JSON)
        message = next((as_dict(loose(value)) for value in wrapped if value[:1] == b"{"), {})
    return message if as_text(message.get("role")) else {}


def _protobuf_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a protobuf message, up to where it is none."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind, number = tag & 7, tag >> 3
        if kind == LENGTH_DELIMITED:
            size, at = _varint(data, at)
            if size < 0 or at + size > len(data):
                return
            yield number, data[at : at + size]
            at += size
        elif kind == VARINT:
            _, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number and the position after it; -1 and the end if it is cut off or too long."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < VARINT_CONTINUES:
            return value, at
    return -1, len(data)
