"""pi: one transcript, read in order."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.outlines import (
    BROKEN,
    as_dict,
    as_number,
    as_text,
    malformed,
    mend,
    parsed,
)
from agents_ledger.importers.reader import Held, Line, Material
from agents_ledger.model.sources import SourceFile

Kind = Literal["prompt", "branch", "assistant", "result", "bash", "notice", "compaction"]
ROLES: dict[str, Kind] = {
    "user": "prompt",
    "assistant": "assistant",
    "toolResult": "result",
    "bashExecution": "bash",
}
TYPES: dict[str, Kind] = {
    "compaction": "compaction",
    "branch_summary": "branch",
    "custom_message": "notice",
}
PROMPT_ERROR = "openclaw:prompt-error"
NOTHING = Raw(b"null")
Config = Mapping[str, str]
SETTINGS = {
    "model_change": {"provider": "provider", "model": "model_id"},
    "thinking_level_change": {"thinking_level": "thinking_level"},
}

LOST = 2  # the rank of a parent that is only the entry before


class EntryMessage(Struct, rename="camel"):
    """What the outline needs of a message."""

    role: Any = None
    model: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    content: Raw = NOTHING
    details: Raw = NOTHING


class Entry(Struct, rename="camel"):
    """What the outline needs of an entry. Anything may be missing, or be something else."""

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
    summary: Raw = NOTHING
    content: Raw = NOTHING
    data: Raw = NOTHING
    message: EntryMessage | None = None


class _Bare(Struct):
    message: Raw = NOTHING


class _Block(Struct):
    type: Any = None
    id: Any = None


decode_entry = msgspec.json.Decoder(Entry).decode
_decode_bare = msgspec.json.Decoder(_Bare).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode


class Node(Struct, gc=False):
    """An entry that says something."""

    key: str
    kind: Kind
    record: Held
    entry_id: str | None
    parent: str | None
    rank: int  # how sure the parent is: 0 if the entry names it
    at: int
    call_id: str | None = None  # that this is the result of
    calls: tuple[str, ...] = ()
    spawned_key: str | None = None
    kept: str | None = None  # the first entry that a compaction kept
    config: Config = field(default_factory=dict)  # as it was set when this was written
    file_ids: frozenset[int] = frozenset()


class Transcript:
    """One file: its entries, each with the one it hangs on."""

    def __init__(self, material: Material, file: SourceFile, source: str) -> None:
        self.material = material
        self.file = file
        self.source = source
        self.header = Entry()
        self.nodes: list[Node] = []
        self.title: str | None = None
        self.last_at = 0
        self._ids: dict[str, str | None] = {}  # entry -> itself, or what it hangs on
        self._by_index: list[str | None] = []
        self._previous: str | None = None
        self._configs: dict[str, Config] = {}  # by entry
        self._config: Config = {}  # at the entry before
        self._seen: dict[str, int] = {}
        self._first = b""
        self._own = frozenset({file.id})
        for line in material.lines(file):
            self._read(line)
        for known in (self._ids, self._configs, self._seen, self._by_index):
            known.clear()  # what only reading needs

    @property
    def session_id(self) -> str:
        """The session's own id, whatever its file is called."""
        said = as_text(self.header.id)
        return said or hashlib.blake2b(self._first, digest_size=8).hexdigest()

    @property
    def leaf(self) -> str | None:
        """Where the session stands: at its last entry."""
        return self._previous

    def rank(self) -> tuple[int, str, int, list[str]]:
        """An order of files that does not depend on their names: forks after their parents."""
        born = milliseconds(self.header.timestamp)
        return (born, self.session_id, -len(self.nodes), [node.key for node in self.nodes])

    # -- reading ------------------------------------------------------------------------------

    def _read(self, line: Line, mended: bytes | None = None) -> None:
        data = mended or line.data or b""
        try:
            entry = decode_entry(data)
        except msgspec.ValidationError:
            found = parsed(data)
            if not isinstance(found, dict):
                malformed(self.material, line, "not an object")
                return
            entry = _as_far_as_it_goes(found)
        except BROKEN as error:
            again = mend(data) if mended is None else None
            if again is None:
                malformed(self.material, line, error)
            else:
                self._read(line, again)
            return
        self._first = self._first or data
        used = self._take(line, data, entry)
        name = str(entry.type)
        if entry.message is not None and entry.type == "message":
            name = f"{name}/{entry.message.role}"
        self.material.count(name, "derived" if used else "unmapped")

    def _take(self, line: Line, data: bytes, entry: Entry) -> bool:
        self.last_at = max(self.last_at, self.material.moment(entry.timestamp, line))
        if entry.type == "session":
            if as_text(self.header.id) is None:
                self.header = entry
            self._by_index.append(None)
            return True
        if entry.type == "session_info":
            self.title = as_text(entry.name) or self.title
        kind = _kind(entry)
        self._config = self._configured(entry)
        if kind is None:
            here, _ = self._parent(entry)  # what hangs on this entry hangs on the one above it
        else:
            here = self._key(data, entry)
            self._add(line, here, entry, kind)
            self._previous = here
        if as_text(entry.id):
            self._ids[entry.id] = here
            self._configs[entry.id] = self._config
        self._by_index.append(here)
        return kind is not None or entry.type == "session_info" or str(entry.type) in SETTINGS

    def _configured(self, entry: Entry) -> Config:
        """The settings that hold from an entry on: those of its parent, and what it sets."""
        said = entry.parent_id
        config = {} if said is None else self._configs.get(str(said), self._config)
        names = SETTINGS.get(str(entry.type))
        if names is None:
            return config
        chosen = {name: as_text(getattr(entry, where)) for name, where in names.items()}
        return {**config, **{name: value for name, value in chosen.items() if value}}

    def _parent(self, entry: Entry) -> tuple[str | None, int]:
        """What an entry hangs on. Without ids, and where the parent is lost: the one before."""
        said = entry.parent_id
        if isinstance(said, str) and said in self._ids:
            return self._ids[said], 0
        if said is None or (isinstance(said, str) and said == self.header.id):
            return None, 1
        return self._previous, LOST

    def _add(self, line: Line, key: str, entry: Entry, kind: Kind) -> None:
        parent, rank = self._parent(entry)
        if rank == LOST and isinstance(entry.parent_id, str):
            self.material.fault(line, f"the entry it follows is not there: {entry.parent_id}")
        node = Node(
            key,
            kind,
            self.material.held(line),
            as_text(entry.id),
            parent,
            rank,
            milliseconds(entry.timestamp),
            file_ids=self._own,
            config=self._config,
        )
        if kind == "result" and entry.message is not None:
            node.call_id = as_text(entry.message.tool_call_id)
            if entry.message.tool_name == "sessions_spawn":
                node.spawned_key = spawned_key(entry.message)
        elif kind == "assistant" and entry.message is not None:
            node.calls = _calls(bytes(entry.message.content))
        elif kind == "compaction":
            node.kept = self._kept(entry)
        self.nodes.append(node)

    def _key(self, data: bytes, entry: Entry) -> str:
        """The same for every copy of an entry, whatever id it got."""
        try:
            message = bytes(_decode_bare(data).message)
        except BROKEN:
            message = b""
        digest = hashlib.blake2b(digest_size=12)
        if entry.timestamp is None:  # then only its session can tell it from others
            digest.update(self.session_id.encode(errors="replace"))
        parts = (entry.summary, entry.content, entry.data)
        said = (repr((entry.type, entry.timestamp, entry.custom_type)).encode(errors="replace"),)
        for part in (*said, message, *(bytes(each) for each in parts)):
            digest.update(b"%d:" % len(part) + part)
        key = f"{self.source}:{digest.hexdigest()}"
        number = self._seen[key] = self._seen.get(key, 0) + 1
        return key if number == 1 else f"{key}:{number}"

    def _kept(self, entry: Entry) -> str | None:
        if isinstance(entry.first_kept_entry_id, str):
            return self._ids.get(entry.first_kept_entry_id)
        index = as_number(entry.first_kept_entry_index)
        if index is None or index >= len(self._by_index):
            return None
        return next((key for key in self._by_index[index:] if key is not None), None)


def _kind(entry: Entry) -> Kind | None:
    if entry.type == "message" and entry.message is not None:
        role = entry.message.role
        return ROLES.get(role, "notice") if isinstance(role, str) else None
    if entry.type == "custom" and entry.custom_type == PROMPT_ERROR:
        return "notice"
    return TYPES.get(entry.type) if isinstance(entry.type, str) else None


def _as_far_as_it_goes(found: dict[str, Any]) -> Entry:
    """An entry whose message is no object."""
    entry = Entry()
    for name, python_name in zip(
        Entry.__struct_encode_fields__, Entry.__struct_fields__, strict=True
    ):
        if name in found and name not in ("message", "summary", "content", "data"):
            setattr(entry, python_name, found[name])
    return entry


def _calls(content: bytes) -> tuple[str, ...]:
    if b'"toolCall"' not in content:
        return ()
    try:
        blocks = _decode_blocks(content)
    except BROKEN:
        return ()
    return tuple(b.id for b in blocks if b.type == "toolCall" and isinstance(b.id, str))


def spawned_key(message: EntryMessage) -> str | None:
    """The key of the session that a call started, from its result."""
    said = as_text(as_dict(parsed(message.details)).get("childSessionKey"))
    if said:
        return said
    content = parsed(message.content)
    for block in content if isinstance(content, list) else [{"text": content}]:
        text = as_dict(block).get("text")
        if isinstance(text, str) and "childSessionKey" in text:
            return as_text(as_dict(parsed(text)).get("childSessionKey"))
    return None
