"""Cursor: sessions of its agent that stand in files of their own.

A store.db holds them whole; a transcript only what was said, without ids and results, and since
2026 when it was asked. Each is used where nothing better tells of the same session.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.json_values import exchanges, loose
from agents_ledger.importers.port.source import Held, Line, Material, Row, fingerprint
from agents_ledger.importers.sources.cursor.prompts import Prompt, prompt_in
from agents_ledger.importers.sources.cursor.turns import NAME
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_text,
    malformed,
    project_name,
    scoped,
    without_data,
)
from agents_ledger.model.imports.records import raw
from agents_ledger.model.imports.sources import DerivedTurn, SourceFile
from agents_ledger.model.turns import MessageRole, MessageSource, Turn

SPEAKER = re.compile(rb"(user|assistant|A):(?=\s|$)")
MARK = re.compile(r"\[(Thinking|Tool call|Tool result)\]\s*(.*)", re.IGNORECASE)
MARKS = {"thinking": "thinking", "tool call": "tool_use", "tool result": "tool_result"}
GIVEN = re.compile(r"\s*([A-Za-z_]\w*): ?(.*)")
CALLS = {"tool-call", "tool_call", "tool_use"}
RESULTS = {"tool-result", "tool_result"}
THOUGHTS = {"reasoning", "thinking"}
PLAIN = CALLS | RESULTS | THOUGHTS | {"text", "redacted-reasoning"}
ROLES: dict[str, MessageRole] = {"assistant": "assistant", "tool": "tool", "user": "user"}
HASH_BYTES = 32
LEAF, SUBTREE, WRAPPED = 1, 2, 4  # fields of a node
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
DEPTH_MAX = 200


class Entry(NamedTuple):
    """A message."""

    id: str
    said: Line | Held | Row
    asks: bool
    print: bytes
    at: int = 0  # 0: not known


class AgentSession(Struct):
    """A session of the agent."""

    id: str
    entries: list[Entry] = field(default_factory=list)
    file_ids: set[int] = field(default_factory=set)
    parent: str | None = None
    title: str | None = None
    model: str | None = None
    created_at: int = 0
    workspace: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def date(self) -> None:
        """Give messages that say no time that of the prompt before them, or else the first."""
        at = self.created_at or next((entry.at for entry in self.entries if entry.at), 0)
        for number, entry in enumerate(self.entries):
            at = entry.at or at
            self.entries[number] = entry._replace(at=at)

    def described(self) -> dict[str, Any]:
        """What is said of it beside."""
        if self.workspace is None:
            return self.metadata
        found = {"workspace_path": self.workspace, "project": project_name(self.workspace)}
        return {**self.metadata, **found}


# -- transcripts ------------------------------------------------------------------------------


def transcript(material: Material, file: SourceFile, wanted: bool) -> AgentSession:
    """The session of a transcript; without entries where it is not wanted."""
    path = PurePath(file.path)
    session = AgentSession(path.stem, file_ids={file.id})
    if path.parent.name == "subagents":
        session.parent = path.parent.parent.name
    if "projects" in path.parts[:-1]:
        session.metadata["project"] = path.parts[path.parts.index("projects") + 1]
    if is_spoken(next(material.blocks(file), b"")):
        session.entries = list(_spoken(material, file, session.id, wanted))
        return session
    for line in material.lines(file):
        record = loose(line.data)
        if not isinstance(record, dict):
            malformed(material, line, "no object")
            continue
        material.count(
            str(record.get("type") or record.get("role")), "derived" if wanted else "unmapped"
        )
        if wanted:
            name = scoped(NAME, session.id, str(line.number))
            asks = record.get("role") == "user" and not _only_results(record)
            at = prompt_in(_text(_blocks(record))).at if asks else 0
            session.entries.append(Entry(name, material.held(line), asks, line.fingerprint(), at))
    session.date()
    return session


def is_spoken(head: bytes) -> bool:
    """Whether a transcript is plain text, as the oldest are: who speaks, then what is said."""
    return SPEAKER.match(head.removeprefix(BOM).lstrip().split(b"\n", 1)[0]) is not None


def _spoken(material: Material, file: SourceFile, session_id: str, wanted: bool) -> Iterator[Entry]:
    """Each message is a stretch of lines, read again when it is shown."""
    begun: Line | None = None
    role, end, said = "", 0, hashlib.blake2b(digest_size=16)
    for line in material.lines(file):
        found = SPEAKER.match((line.data or b"").removeprefix(BOM))
        if found is not None:
            if begun is not None and wanted:
                yield _stretch(begun, end, role, session_id, said.digest())
            begun, said = line, hashlib.blake2b(digest_size=16)
            role = "user" if found[1] == b"user" else "assistant"
        end = line.offset + line.length
        said.update(line.fingerprint())
        material.count(role or "(none)", "derived" if wanted and role else "unmapped")
    if begun is not None and wanted:
        yield _stretch(begun, end, role, session_id, said.digest())


def _stretch(first: Line, end: int, role: str, session_id: str, print_: bytes) -> Entry:
    line = Line(first.file, first.offset, end - first.offset, first.number, None)
    name = scoped(NAME, session_id, f"{first.number}.txt")  # in lines of JSON that is another
    return Entry(name, line, role == "user", print_)


def spoken(data: bytes) -> dict[str, Any]:
    """A message of plain text, in the form of the others: words, thoughts, calls, results. A mark
    holds until an empty line; what a call was given are lines of a name and a value."""
    first, *rest = data.removeprefix(BOM).decode(errors="replace").splitlines()
    who, _, begins = first.partition(":")
    blocks: list[dict[str, Any]] = []
    marked: dict[str, Any] | None = None
    for text in [begins.lstrip(), *rest]:
        mark = MARK.match(text)
        if mark is not None:
            marked = {"type": MARKS[mark[1].lower()], "name": mark[2].split(" ")[0] or None}
            marked |= {"said": [mark[2]], "lines": []}
            blocks.append(marked)
        elif marked is not None and text.strip():
            marked["lines"].append(text)
        else:
            marked = None
            if not blocks or blocks[-1]["type"] != "text":
                blocks.append({"type": "text", "lines": []})
            blocks[-1]["lines"].append(text)
    role = "user" if who == "user" else "assistant"
    return {"role": role, "content": [_block(block) for block in blocks]}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    kind, lines = block["type"], block["lines"]
    if kind == "tool_use":
        return {"type": kind, "name": block["name"], "input": _given(block["said"][0], lines)}
    if kind == "tool_result":
        return {"type": kind, "content": "\n".join(lines) or None}
    return {"type": kind, "text": "\n".join([*block.get("said", ()), *lines]).strip()}


def _given(said: str, lines: Sequence[str]) -> dict[str, str]:
    more = said.partition(" ")[2].strip()
    given: dict[str, list[str]] = {"arguments": [more] if more else []}
    name = "arguments"
    for text in lines:
        found = GIVEN.match(text)
        if found is not None:
            name = found[1]
            given[name] = [found[2]]
        else:
            given[name].append(text)
    return {name: "\n".join(each) for name, each in given.items() if each}


def _only_results(record: dict[str, Any]) -> bool:
    blocks = _blocks(record)
    return bool(blocks) and all(block.get("type") in RESULTS for block in blocks)


# -- store.db ---------------------------------------------------------------------------------


class Store:
    """A database of blobs that name each other by hash; the newest root leads to what stands."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self.material = material
        self.file = file
        self.meta: dict[str, Any] = {}
        self.blobs: dict[str, Row] = {}

    def add(self, row: Row) -> None:
        """Take a row of it."""
        values = row.values or {}
        if row.table == "blobs":
            self.blobs[str(values.get("id"))] = self.material.held_row(row)
        elif values.get("key") in ("0", 0):
            self.meta = as_dict(_unhexed(values.get("value")))

    @property
    def session_id(self) -> str:
        """The agent's id."""
        return as_text(self.meta.get("agentId")) or PurePath(self.file.path).parent.name

    def session(self, wanted: bool) -> AgentSession:
        """The session; without entries where it is not wanted."""
        session = AgentSession(self.session_id, file_ids={self.file.id})
        session.title = as_text(self.meta.get("name"))
        session.model = as_text(self.meta.get("lastUsedModel"))
        session.created_at = milliseconds(self.meta.get("createdAt"))
        session.metadata = {"mode": self.meta["mode"]} if as_text(self.meta.get("mode")) else {}
        seen: dict[str, int] = {}
        for name in self._standing() if wanted else ():
            record = message_in(raw(self._data(name)))
            seen[name] = seen.get(name, 0) + 1
            again = f":{seen[name]}" if seen[name] > 1 else ""
            asks = record.get("role") not in ("assistant", "tool")
            at = prompt_in(_text(_blocks(record))).at if record.get("role") == "user" else 0
            entry_id = f"{session.id}:{name}{again}"
            session.entries.append(Entry(entry_id, self.blobs[name], asks, name.encode(), at))
        session.date()
        self.material.count("blobs", "derived", len(seen))
        self.material.count("blobs", "unmapped", len(self.blobs) - len(seen))
        return session

    def _data(self, name: str) -> Any:
        return self.material.values_of(self.blobs[name]).get("data")

    def _standing(self) -> list[str]:
        """The messages the newest root leads to; without one, all there are."""
        root = as_text(self.meta.get("latestRootBlobId")) or ""
        found = list(self._below(root, 0))
        return found or [name for name in self.blobs if message_in(raw(self._data(name)))]

    def _below(self, name: str, depth: int) -> Iterator[str]:
        if name not in self.blobs or depth > DEPTH_MAX:
            return
        data = raw(self._data(name))
        if message_in(data):
            yield name
            return
        for number, value in fields(data):
            if number in (LEAF, SUBTREE) and len(value) == HASH_BYTES:
                yield from self._below(value.hex(), depth + 1)


def _unhexed(value: Any) -> Any:
    data = raw(value)
    try:
        return loose(bytes.fromhex(data.decode()))
    except ValueError:
        return loose(data)


def message_in(data: bytes) -> dict[str, Any]:
    """The message that a blob is, or wraps; empty if it is none."""
    found = as_dict(loose(data)) if data[:1] == b"{" else {}
    if not found:
        wrapped = (value for number, value in fields(data) if number == WRAPPED)
        found = next((as_dict(loose(v)) for v in wrapped if v[:1] == b"{"), {})
    return found if as_text(found.get("role")) else {}


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that have a length; nothing more once it is none."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind, number = tag & 7, tag >> 3
        if kind == LENGTH:
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
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            return -1, len(data)
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return value, at
    return -1, len(data)


# -- turns ------------------------------------------------------------------------------------


def turns_of(material: Material, session: AgentSession, version: int) -> Iterator[DerivedTurn]:
    """The turns of a session, one after another."""
    parent: str | None = None
    for group in exchanges(session.entries, lambda entry: entry.asks):
        about = f"{session.model};{session.created_at};{session.workspace};{group[0].at};"
        said = about.encode(errors="replace")
        yield DerivedTurn(
            group[0].id,
            parent,
            fingerprint(version, [said, *(entry.print for entry in group)]),
            frozenset(session.file_ids),
            tuple(entry.id for entry in group),
            partial(_build_turn, material, parent, group, session),
        )
        if any(not entry.asks for entry in group):
            parent = group[0].id


def _build_turn(
    material: Material,
    parent_id: str | None,
    group: Sequence[Entry],
    session: AgentSession,
) -> Turn:
    turn = _Turn(TurnBuilder(group[0].id, parent_id), session)
    turn.builder.model, turn.builder.workspace_path = session.model, session.workspace
    turn.builder.provider = NAME if session.model else None
    for entry in group:
        if not isinstance(entry.said, Row):
            data = material.bytes_of(entry.said)
            record = spoken(data) if is_spoken(data) else as_dict(loose(data))
        else:
            record = message_in(raw(material.values_of(entry.said).get("data")))
        turn.add(entry.id, record, entry.at)
    if not isinstance(group[-1].said, Row):
        turn.went_on()
    return turn.builder.build()


class _Turn:
    def __init__(self, builder: TurnBuilder, session: AgentSession) -> None:
        self.builder = builder
        self.at = 0
        self.asked_by: MessageSource = "agent" if session.parent else "human"
        self.open: OrderedDict[str, None] = OrderedDict()  # calls without a result yet
        self.latest: set[str] = set()  # calls of the last message

    def add(self, entry_id: str, record: dict[str, Any], at: int) -> None:
        self.at = at
        if "role" not in record:
            self._ended(record)
            return
        self.builder.model = as_text(record.get("model")) or self.builder.model
        blocks = _blocks(record)
        text = _text(blocks)
        said = prompt_in(text) if record["role"] == "user" else Prompt(text, 0, False)
        metadata: dict[str, Any] = {"text": text} if said.words != text else {}
        others = [without_data(b) for b in blocks if b.get("type") not in PLAIN]
        if others:
            metadata["blocks"] = others
        role = ROLES.get(str(record["role"]), "system")
        if role == "user" and blocks and all(b.get("type") in RESULTS for b in blocks):
            role = "tool"
        if role == "assistant":
            self.latest = set()
        if role != "tool":
            self.builder.message(
                entry_id,
                role,
                said.words,
                at=self.at,
                source=("event" if said.is_event else self.asked_by) if role == "user" else None,
                thinking="\n\n".join(_thoughts(blocks)) or None,
                metadata=metadata,
            )
        self._calls(entry_id, blocks)

    def went_on(self) -> None:
        """A transcript mostly tells no results: what the agent went on after was done."""
        for call_id in self.open:
            if call_id not in self.latest:
                self.builder.result(call_id, None, at=self.at)

    def _ended(self, record: dict[str, Any]) -> None:
        wrong = record.get("error")
        if wrong or record.get("status") == "error":
            self.builder.failed = True
            said = as_text(wrong) or as_text(as_dict(wrong).get("message"))
            self.builder.error = said or "failed"

    def _calls(self, entry_id: str, blocks: Iterable[dict[str, Any]]) -> None:
        for position, block in enumerate(blocks):
            kind = block.get("type")
            named = as_text(block.get("toolCallId")) or as_text(block.get("id"))
            if kind in CALLS:
                call_id = named or f"{entry_id}:{position}"
                params = block.get("args") if "args" in block else block.get("input")
                name = as_text(block.get("toolName")) or as_text(block.get("name"))
                self.builder.call(
                    call_id,
                    name or "unknown",
                    {} if params is None else params,
                    at=self.at,
                    message_id=entry_id,
                )
                self.open[call_id] = None
                self.latest.add(call_id)
            elif kind in RESULTS:
                self._result(named or as_text(block.get("tool_use_id")), block)

    def _result(self, named: str | None, block: dict[str, Any]) -> None:
        """Of the call it names; a transcript's calls have no ids: of the oldest still open."""
        if not self.open:
            return
        call_id = named if named is not None and named in self.open else next(iter(self.open))
        del self.open[call_id]
        said = next((block[n] for n in ("result", "content", "output") if n in block), None)
        wrong = bool(block.get("isError") or block.get("is_error"))
        self.builder.result(
            call_id,
            without_data(said),
            at=self.at,
            status="failed" if wrong else "completed",
            error="failed" if wrong else None,
        )


def _blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    content = record.get("content")
    if content is None:
        content = as_dict(record.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = [block for block in as_list(content) if isinstance(block, dict)]
    return [{**block, "type": as_text(block.get("type"))} for block in blocks]


def _text(blocks: Iterable[dict[str, Any]]) -> str:
    words = [as_text(b.get("text")) for b in blocks if b.get("type") not in PLAIN - {"text"}]
    return "\n\n".join(word for word in words if word)


def _thoughts(blocks: Iterable[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block.get("type") in THOUGHTS:
            words = as_text(block.get("thinking")) or as_text(block.get("text"))
            if words:
                yield words
