"""pi: one transcript, read in order."""

from __future__ import annotations

import hashlib
import re
from array import array
from functools import cmp_to_key
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.port.source import Line, Material
from agents_ledger.importers.sources.pi.nodes import (
    ASSISTANT,
    BASH,
    BRANCH,
    COMPACTION,
    DIGEST,
    NOTICE,
    PROMPT,
    RESULT,
    USAGE,
    Nodes,
    Spawned,
)
from agents_ledger.importers.sources.pi.rows import Told, unpacked
from agents_ledger.importers.sources.pi.turns import TIME, text_of, total_of
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    NONE,
    as_dict,
    as_number,
    as_text,
    malformed,
    mend,
    parsed,
)
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import SourceFile

ROLES = {"user": PROMPT, "assistant": ASSISTANT, "toolResult": RESULT, "bashExecution": BASH}
TYPES = {
    "compaction": COMPACTION,
    "branch_summary": BRANCH,
    "custom_message": NOTICE,
    "usage": USAGE,
}
PUT_IN = (COMPACTION, BRANCH, NOTICE)
SINCE = 10**12  # milliseconds: a smaller number is no time of a message
PROMPT_ERROR = "openclaw:prompt-error"
NOTHING = Raw(b"null")
SETTINGS = {
    "model_change": {"provider": "provider", "model": "model_id"},
    "thinking_level_change": {"thinking_level": "thinking_level"},
}

# How OpenClaw tells the session that started another of its end, as it stands in the bytes.
ENDING = b"[Internal task completion event]"
ENDED = re.compile(
    rb"\[Internal task completion event\]\\nsource: subagent\\n"
    rb'session_key: ([^\s\\"]+)\\nsession_id: ([^\s\\"]+)'
)
SUBAGENT = "[Subagent Context]"  # before what the first prompt of one asks
LOST = 2  # the rank of a parent that is only the entry before


class EntryMessage(Struct, rename="camel"):
    """What the outline needs of a message."""

    role: Any = None
    model: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    timestamp: Any = None
    content: Raw = NOTHING
    details: Raw = NOTHING
    usage: Raw = NOTHING


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
    usage: Raw = NOTHING
    message: EntryMessage | None = None


class _Bare(Struct):
    message: Raw = NOTHING


class _Block(Struct):
    type: Any = None
    id: Any = None


decode_entry = msgspec.json.Decoder(Entry).decode
_decode_bare = msgspec.json.Decoder(_Bare).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode


class _Last:
    """What has a name: of several the last."""

    def __init__(self) -> None:
        self._names = Numbering(forgets=True)
        self._numbers = array("I")

    def __setitem__(self, name: str, number: int) -> None:
        at = self._names.add(name)
        if at == len(self._numbers):
            self._numbers.append(number)
        else:
            self._numbers[at] = number

    def get(self, name: str) -> int:
        at = self._names.get(name)
        return self._numbers[at] if at >= 0 else NONE


class _Above(NamedTuple):
    """What an entry hangs on."""

    entry: int  # or NONE
    rank: int  # how sure that is: 0 if the entry names it


class Transcript:
    """One file, whose entries are added to those of its family, each with the one it hangs on."""

    def __init__(
        self, material: Material, nodes: Nodes, file: SourceFile, told: Told | None = None
    ) -> None:
        """`told`: one of several in a database; else it is the whole file."""
        self.material = material
        self.nodes = nodes
        self.file = file
        self.told = told
        self.header = Entry()
        self.title: str | None = None
        self.started: list[str] = []  # keys of sessions
        self.ended: dict[str, str] = {}  # sessions that it was told the end of, by key
        self.is_subagent: bool | None = None  # by its first prompt
        self.first_at = 0  # when its first entry was written
        self.last_at = 0
        self.leaf = NONE  # where the session stands: at its last entry
        self._first = b""
        self._ids = _Last()  # places in the file
        self._here = array("i")  # by place: the entry itself, or what it hangs on
        self._configs = array("I")  # by place
        self._config = self._unset = nodes.config({})  # at the entry before
        self._calls = _Last()  # entries
        self._written = _Last()  # entries that are no messages, by what they say
        self._leaf_at = 0
        self._place = 0  # of the event before, and what was said there, by role and time
        self._states: dict[tuple[str, int], int] = {}
        for line in told.lines if told else material.lines(file):
            self._read(line)
        self.entries = nodes.end()
        del self._ids, self._here, self._configs, self._calls  # what only reading needs
        del self._written, self._states

    @property
    def session_id(self) -> str:
        """The session's own id, whatever its file is called."""
        said = self.told.session_id if self.told else as_text(self.header.id)
        return said or hashlib.blake2b(self._first, digest_size=8).hexdigest()

    def rank(self) -> tuple[Any, ...]:
        """An order of files that does not depend on their names: forks after their parents."""
        born = milliseconds(self.header.timestamp)
        names = cmp_to_key(self.nodes.compare)(self.entries)
        return born, self.session_id, -len(self.entries), names

    # -- reading ------------------------------------------------------------------------------

    def _read(self, line: Line, mended: bytes | None = None) -> None:
        data = mended or unpacked(line.data or b"")
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
            self._note(None, NONE)
            return True
        if entry.type == "session_info":
            self.title = as_text(entry.name) or self.title
        kind = _kind(entry)
        place = self._ids.get(str(entry.parent_id))
        self._config = self._configured(entry, place)
        above = self._above(entry, place)
        if kind == USAGE and above.entry == NONE:
            kind = None
        here = above.entry  # what hangs on an entry that says nothing hangs on the one above it
        if kind is not None:
            added = self._added(line, data, entry, kind, above)
            if kind != USAGE:  # which stands beside what goes on
                here = added
                self._follow(here, kind, entry)
        self._note(as_text(entry.id), here)
        return kind is not None or entry.type == "session_info" or str(entry.type) in SETTINGS

    def _added(self, line: Line, data: bytes, entry: Entry, kind: int, above: _Above) -> int:
        """The number of an entry. What the program put in may be there again below what is: then
        it is that which it had. So all is that follows a result which OpenClaw shortens, with
        other ids and at other times; messages are told by their own."""
        again = ""
        if above.rank == 0 and above.entry != NONE and kind in PUT_IN and entry.type != "message":
            again = self._digest(data, entry, self.nodes.digest(above.entry)).hex()
            if (known := self._written.get(again)) != NONE:
                return known
        if above.rank == LOST and isinstance(entry.parent_id, str):
            self.material.fault(line, f"the entry it follows is not there: {entry.parent_id}")
        number = self.nodes.add(
            self._digest(data, entry, entry.timestamp),
            kind,
            line,
            data,
            weight=len(data) if kind == RESULT else _tokens(entry),
            is_timed=_own_time(entry) > 0,
            above=above.entry,
            rank=above.rank,
            config=self._config,
        )
        if again:
            self._written[again] = number
        return self._changed(line, entry, number) if self._may_change(entry, kind) else number

    def _may_change(self, entry: Entry, kind: int) -> bool:
        """Whether there may be other states of an entry: in a database events are changed where
        they stand. Of results the longest is shown anyway."""
        return bool(self.told and self.told.was_rewritten and kind != RESULT and _own_time(entry))

    def _changed(self, line: Line, entry: Entry, number: int) -> int:
        """The first of the states of an entry, which are shown as one."""
        if line.number != self._place:
            self._place, self._states = line.number, {}
        role = entry.message.role if entry.message else None
        first = self._states.setdefault((str(role), _own_time(entry)), number)
        if first != number:
            self.nodes.change(first, number)
        return first

    def _note(self, entry_id: str | None, here: int) -> None:
        """What later entries may refer to."""
        if entry_id is not None:
            self._ids[entry_id] = len(self._here)
        self._here.append(here)
        self._configs.append(self._config)

    def _configured(self, entry: Entry, place: int) -> int:
        """The settings that hold from an entry on: those of its parent, and what it sets."""
        config = self._configs[place] if place >= 0 else self._config
        if entry.parent_id is None:
            config = self._unset
        names = SETTINGS.get(str(entry.type))
        if names is None:
            return config
        chosen = {name: as_text(getattr(entry, where)) for name, where in names.items()}
        more = {name: value for name, value in chosen.items() if value}
        return self.nodes.config({**self.nodes.configs[config], **more})

    def _above(self, entry: Entry, place: int) -> _Above:
        """What an entry hangs on. Without ids, and where the parent is lost: the one before."""
        said = entry.parent_id
        if isinstance(said, str) and place >= 0:
            return _Above(self._here[place], 0)
        if said is None or (isinstance(said, str) and said == self.header.id):
            return _Above(NONE, 1)
        return _Above(self.leaf, LOST)

    def _follow(self, here: int, kind: int, entry: Entry) -> None:
        """Go on to an entry, and see what it has to do with others."""
        at = milliseconds(entry.timestamp)
        if self.leaf == NONE:
            self.first_at = at
        if not (self.told and self.told.was_rewritten) or at >= self._leaf_at:
            self.leaf, self._leaf_at = here, at
        if kind == RESULT and entry.message is not None:
            self._answer(here, entry.message)
        elif kind == ASSISTANT and entry.message is not None:
            for call_id in _calls(bytes(entry.message.content)):
                self._calls[call_id] = here
        elif kind in (PROMPT, NOTICE):
            self._ask(kind, bytes(entry.message.content if entry.message else entry.content))
        elif kind == COMPACTION and (kept := self._kept(entry)) != NONE:
            self.nodes.kept[here] = kept

    def _answer(self, here: int, message: EntryMessage) -> None:
        call_id = as_text(message.tool_call_id)
        if call_id is None:
            return
        self.nodes.callers[here] = self._calls.get(call_id)
        key = spawned_key(message) if message.tool_name == "sessions_spawn" else None
        if key is not None:
            self.nodes.spawned[here] = Spawned(call_id, key)
            self.started.append(key)

    def _ask(self, kind: int, content: bytes) -> None:
        """What was asked may tell of other sessions, and who asks."""
        if ENDING in content:
            for key, session_id in ENDED.findall(content):
                self.ended[key.decode(errors="replace")] = session_id.decode(errors="replace")
        if kind == PROMPT and self.is_subagent is None:
            self.is_subagent = SUBAGENT.encode() in content and TIME.sub(
                "", text_of(parsed(content)), count=1
            ).startswith(SUBAGENT)

    def _digest(self, data: bytes, entry: Entry, when: object) -> bytes:
        """The same for every copy of an entry, whatever id it got. A message that knows its own
        time is known by that."""
        own = _own_time(entry)
        digest = hashlib.blake2b(digest_size=DIGEST)
        if when is None and not own:  # then only its session can tell it from others
            digest.update(self.session_id.encode(errors="replace"))
        said = repr((entry.type, own or when, entry.custom_type)).encode(errors="replace")
        for part in (said, *_said(data, entry, is_timed=bool(own))):
            digest.update(b"%d:%b" % (len(part), part))
        return digest.digest()

    def _kept(self, entry: Entry) -> int:
        if isinstance(entry.first_kept_entry_id, str):
            place = self._ids.get(entry.first_kept_entry_id)
            return self._here[place] if place >= 0 else NONE
        index = as_number(entry.first_kept_entry_index)
        if index is None:
            return NONE
        here = (self._here[place] for place in range(index, len(self._here)))
        return next((entry for entry in here if entry != NONE), NONE)


def _own_time(entry: Entry) -> int:
    """When a message was said, which stays when it is written again; 0 if it does not say."""
    said = entry.message.timestamp if entry.message and entry.type == "message" else None
    is_number = isinstance(said, (int, float)) and said >= SINCE
    return milliseconds(said) if is_number else 0


def _tokens(entry: Entry) -> int:
    """How many an entry counts."""
    said = entry.message.usage if entry.message else entry.usage
    return total_of(as_dict(parsed(said))) if said != NOTHING else 0


def _said(data: bytes, entry: Entry, *, is_timed: bool) -> tuple[bytes, ...]:
    """What tells an entry from others of the same time. A result may be shortened."""
    message = entry.message
    if is_timed and message is not None:
        role = str(message.role).encode(errors="replace")
        call_id = as_text(message.tool_call_id)
        if call_id and message.role == "toolResult":
            return role, call_id.encode(errors="replace")
        if message.content != NOTHING:
            return role, bytes(message.content)
    try:
        whole = bytes(_decode_bare(data).message)
    except BROKEN:
        whole = b""
    return whole, bytes(entry.summary), bytes(entry.content), bytes(entry.data)


def _kind(entry: Entry) -> int | None:
    if entry.type == "message" and entry.message is not None:
        role = entry.message.role
        return ROLES.get(role, NOTICE) if isinstance(role, str) else None
    if entry.type == "custom" and entry.custom_type == PROMPT_ERROR:
        return NOTICE
    return TYPES.get(entry.type) if isinstance(entry.type, str) else None


def _as_far_as_it_goes(found: dict[str, Any]) -> Entry:
    """An entry whose message is no object."""
    entry = Entry()
    for name, python_name in zip(
        Entry.__struct_encode_fields__, Entry.__struct_fields__, strict=True
    ):
        if name in found and name not in ("message", "summary", "content", "data", "usage"):
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
