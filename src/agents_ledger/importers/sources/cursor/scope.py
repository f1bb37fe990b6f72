"""Cursor: which chats have to be read again, of a database in which a few have changed.

Chats hang together: copies share bubbles, subagents are named by the calls that started them. So
all that may hang together with a chat that changed is read with it. Whether it may is told by keys
and by ids that stand in rows, without reading what the rows say; what cannot be told apart is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.port.source import Material, Row
from agents_ledger.importers.sources.cursor.agent import Store
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text
from agents_ledger.model.imports.records import Peeked, unframe
from agents_ledger.model.imports.sources import SourceFile

TASK = "task-"
META = "meta.json"  # says where the agent of the store beside it worked
TABS = "workbench.panel.aichat.view.aichat.chatdata"
LISTS = ("composer.composerData", "composer.composerHeaders")
HEADERS = "composerHeaders"  # a table of chats, before 2026 a list in a row
OF_CHATS = ("bubbleId", "checkpointId", "composerData", "messageRequestContext")
ID = re.compile(rb"[0-9A-Za-z_-]{1,100}")
PLAIN = re.compile(r"[0-9A-Za-z_-]{1,100}")
INLINE = re.compile(rb'(?:conversation(?:Map)?|bubbles)\\*"\s*:\s*[\[{]\s*[{\\"]')
ROUNDS = 8
LONG = 16  # bytes of an id: all ids of as many or more are looked for together


class Scope(Struct, frozen=True):
    """What is to be read: these chats, and these files to their end."""

    chats: set[str]
    files: frozenset[int]
    named: dict[str, set[str]]  # bubble -> the chats that have it

    def holds(self, row: Peeked) -> bool:
        """Whether a row is to be read."""
        if row.table != "cursorDiskKV" or not isinstance(row.key, str):
            return True
        kind, composer_id, _ = _parts(row.key)
        return kind in OF_CHATS and composer_id in self.chats

    def is_rest(self, turn_id: str) -> bool:
        """Whether a turn is of a chat that is not read. Those have plain ids: see PLAIN."""
        first, _, name = turn_id.partition(":")
        chats = self.named.get(name.removeprefix("summary:") or first, set())
        return bool(({first} & chats if name else chats) - self.chats)


def _parts(key: str) -> tuple[str, str, str]:
    kind, _, rest = key.partition(":")
    composer_id, _, name = rest.partition(":")
    return kind, composer_id, name


def is_inline(data: bytes) -> bool:
    """Whether bubbles may stand within a row."""
    told = b"conversation" in data or b"bubbles" in data
    return told and INLINE.search(data) is not None


def scope_of(material: Material) -> Scope | None:
    """None: everything is to be read."""
    if not any(material.was_derived(file) for file in material.files):
        return None
    return _Finder(material).found()


class _Lists(Struct):
    """Versions of a row that lists chats: as it was when it was derived, as it is, and those that
    hold chats whole."""

    before: bytes | None = None
    now: bytes | None = None
    inline: list[bytes] = field(default_factory=list)


class _Finder:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.chats: set[str] = set()  # all of them
        self.wanted: set[str] = set()
        self.named: dict[str, set[str]] = {}  # bubble -> the chats that have it
        self.stores: dict[int, Store] = {}
        self.lists: dict[tuple[int, str], _Lists] = {}
        self.is_told = True  # whether it can be told what hangs together

    def found(self) -> Scope | None:
        for file in self.material.files:
            if file.kind == "rows":
                self._look(file)
        for listed in self.lists.values():
            self._compare(listed)
        for file in self.material.files:
            if not self.material.is_derived(file):
                self._add_changed(file)
        if not self.is_told or not self._mentioned():
            return None
        whole = (f.id for f in self.material.files if self._chat_of(f) in self.wanted)
        return Scope(self.wanted, frozenset(whole), self.named)

    def _chat_of(self, file: SourceFile) -> str | None:
        """The chat that a file is all about."""
        if file.id in self.stores:
            return self.stores[file.id].session_id
        path = PurePath(file.path)
        if file.kind == "document":
            return path.parent.name if path.name == META else None
        return path.stem if file.kind == "lines" else None

    def _add_changed(self, file: SourceFile) -> None:
        chat = self._chat_of(file)
        if chat is not None:
            self.wanted.add(chat)
        elif file.kind == "document":  # any chat may be of its folder
            self.is_told = False

    # -- what changed -------------------------------------------------------------------------

    def _look(self, file: SourceFile) -> None:
        derived = file.derived_bytes if self.material.was_derived(file) else 0
        for row in self.material.peek(file):
            is_new = row.offset >= derived
            if row.table in ("meta", "blobs"):
                store = self.stores.setdefault(file.id, Store(self.material, file))
                if row.table == "meta":
                    store.add(_row_of(file, row))
            elif not isinstance(row.key, str):
                continue
            elif row.table == "cursorDiskKV":
                self._row(row, row.key, is_new)
            elif row.table == HEADERS:
                self.chats.add(row.key)
                self.wanted.update({row.key} if is_new else ())
            elif row.key in LISTS or row.key == TABS:
                self._listed(file, row, is_new)

    def _row(self, row: Peeked, key: str, is_new: bool) -> None:
        kind, composer_id, name = _parts(key)
        if kind not in OF_CHATS:
            return
        self.chats.add(composer_id)
        if is_new:
            self.wanted.add(composer_id)
        if kind == "bubbleId":
            self.named.setdefault(name, set()).add(composer_id)
            if (
                not PLAIN.fullmatch(name)
                or b'"%s"' % name.encode(errors="surrogatepass") not in row.data
            ):
                self.wanted.add(composer_id)  # its own name may be another
        if is_inline(row.data):
            self.wanted.add(composer_id)

    def _listed(self, file: SourceFile, row: Peeked, is_new: bool) -> None:
        known = self.lists.setdefault((file.id, str(row.key)), _Lists())
        known.now = row.data
        if not is_new:
            known.before = row.data
        if is_inline(row.data):
            known.inline.append(row.data)

    def _compare(self, listed: _Lists) -> None:
        for data in listed.inline:
            self.wanted.update(_entries(data))
        if listed.before is not listed.now:
            before, now = _entries(listed.before), _entries(listed.now)
            names = before.keys() | now.keys()
            self.wanted.update(name for name in names if before.get(name) != now.get(name))

    # -- what hangs together ------------------------------------------------------------------

    def _mentioned(self) -> bool:
        """Add the chats that name one of those wanted, or are named by it; whether that ended."""
        known = {_name(chat): chat for chat in self.chats | self.wanted}
        if not all(ID.fullmatch(name) for name in known):
            return False
        every = Mentions(known)
        done: set[str] = set()
        for _ in range(ROUNDS):
            self._add_copies()
            new, done = self.wanted - done, set(self.wanted)
            if not new:
                return True
            wanted = Mentions(_name(chat) for chat in new)
            for chat, data in self._rows():
                if chat in new:
                    self.wanted.update(known[name] for name in every(data))
                elif any(wanted(data)):
                    self.wanted.add(chat)
        return False

    def _add_copies(self) -> None:
        """Chats that have a bubble in common, to the last."""
        before = -1
        shared = [chats for chats in self.named.values() if len(chats) > 1]
        while before < len(self.wanted):
            before = len(self.wanted)
            for chats in shared:
                if not chats.isdisjoint(self.wanted):
                    self.wanted |= chats

    def _rows(self) -> Iterator[tuple[str, bytes]]:
        for file in self.material.files:
            if file.kind != "rows" or file.id in self.stores:
                continue
            for row in self.material.peek(file):
                if row.table == "cursorDiskKV" and isinstance(row.key, str):
                    kind, composer_id, _ = _parts(row.key)
                    if kind in OF_CHATS:
                        yield composer_id, row.data


class Mentions:
    """Which of some names stand in a row. However many they are, a row is passed over once, and
    once more for short ones of about a length: their pieces are met everywhere."""

    def __init__(self, names: Iterable[bytes]) -> None:
        """`names`: none is empty."""
        by_length: dict[int, set[bytes]] = {}
        for name in names:
            by_length.setdefault(min(len(name), LONG).bit_length(), set()).add(name)
        self._alike = [_Alike(each) for each in by_length.values()]

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """The names that stand in it, perhaps more than once."""
        for alike in self._alike:
            yield from alike(data)


class _Alike:
    """Names of about a length: where one stands, one of its pieces is met."""

    def __init__(self, names: Iterable[bytes]) -> None:
        self._names = frozenset(names)
        self._lengths = sorted({len(name) for name in self._names})
        shortest = self._lengths[0]
        self._size = (shortest + 1) // 2
        self._step = shortest - self._size + 1
        self._pieces = {
            name[at : at + self._size]
            for name in self._names
            for at in range(len(name) - self._size + 1)
        }

    def __call__(self, data: bytes) -> Iterator[bytes]:
        size, pieces = self._size, self._pieces
        for at in range(0, len(data) - size + 1, self._step):
            if data[at : at + size] in pieces:
                yield from self._around(data, at)

    def _around(self, data: bytes, at: int) -> Iterator[bytes]:
        for length in self._lengths:
            for start in range(max(0, at + self._size - length), at + 1):
                if data[start : start + length] in self._names:
                    yield data[start : start + length]


def _name(chat: str) -> bytes:
    """The id of a chat as others name it: a task's is the one of its call."""
    return chat.removeprefix(TASK).encode(errors="surrogatepass")


def _row_of(file: SourceFile, row: Peeked) -> Row:
    found = unframe(row.data)
    values = dict(zip(found.columns, found.values, strict=False)) if found else {}
    return Row(file.id, row.offset, len(row.data), row.table, values, b"", True)


def _entries(data: bytes | None) -> dict[str, dict[str, Any]]:
    """What a list says of each chat."""
    found = unframe(data) if data is not None else None
    values = dict(zip(found.columns, found.values, strict=False)) if found else {}
    said = as_dict(loose(values.get("value")))
    listed = [
        as_dict(each) for name in ("allComposers", "tabs") for each in as_list(said.get(name))
    ]
    named = [
        (as_text(each.get("composerId")) or as_text(each.get("tabId")), each) for each in listed
    ]
    return {name: each for name, each in named if name is not None}
