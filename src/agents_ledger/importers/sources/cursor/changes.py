"""Cursor: which chats are derived again when a few of a database have changed.

Chats are related: copies share bubbles, and a subagent is named by the call that started it. All
chats that may be related to a changed one are read with it. Keys, and ids inside the rows, show
whether they may be; the rows themselves are not decoded. If that is uncertain, all chats are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.cursor import rules
from agents_ledger.importers.sources.cursor.agent_sessions import AgentStore
from agents_ledger.importers.sources.cursor.records import listed_chats
from agents_ledger.model.imports.records import Peeked, unframe
from agents_ledger.model.imports.sources import SourceFile

PLAIN_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")
PLAIN_ID_BYTES = re.compile(PLAIN_ID.pattern.encode())
INLINE = re.compile(rb'(?:conversation(?:Map)?|bubbles)\\*"\s*:\s*[\[{]\s*[{\\"]')
ROUNDS_MAX = 8  # of the search for related chats
# Bytes; all ids of this length or more are searched for together.
LONG_ID = 16


class ChatScope(Struct, frozen=True):
    """What is read: these chats, and these files whole."""

    chats: set[str]
    files: frozenset[int]
    bubble_chats: dict[str, set[str]]  # bubble -> the chats that have it

    def includes(self, row: Peeked) -> bool:
        if row.table != "cursorDiskKV" or not isinstance(row.key, str):
            return True
        kind, chat_id, _ = _key_parts(row.key)
        return kind in rules.CHAT_KINDS and chat_id in self.chats

    def is_unread(self, turn_id: str) -> bool:
        """Whether a turn is of a chat that is not read. Such chats have plain ids."""
        first, _, name = turn_id.partition(":")
        chats = self.bubble_chats.get(name.removeprefix("summary:") or first, set())
        return bool(({first} & chats if name else chats) - self.chats)


def _key_parts(key: str) -> tuple[str, str, str]:
    kind, _, rest = key.partition(":")
    chat_id, _, name = rest.partition(":")
    return kind, chat_id, name


def has_inline_bubbles(data: bytes) -> bool:
    """Whether a row may contain bubbles."""
    is_likely = b"conversation" in data or b"bubbles" in data
    return is_likely and INLINE.search(data) is not None


def changed_scope(material: Material) -> ChatScope | None:
    """What is read; None: everything."""
    if not any(material.was_derived(file) for file in material.files):
        return None
    return _ChangeSearch(material).scope()


class _ListVersions(Struct):
    derived: bytes | None = None  # the last that was derived before
    latest: bytes | None = None
    inline: list[bytes] = field(default_factory=list)  # those that contain bubbles


class _ChangeSearch:
    """Collects the changed chats, then all that may be related to them."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.chats: set[str] = set()  # all of them
        self.changed: set[str] = set()
        self.bubble_chats: dict[str, set[str]] = {}
        self.stores: dict[int, AgentStore] = {}
        self.lists: dict[tuple[int, str], _ListVersions] = {}

    def scope(self) -> ChatScope | None:
        for file in self.material.files:
            if file.kind == "rows":
                self._index_rows(file)
        for versions in self.lists.values():
            self._compare_versions(versions)
        if not self._add_changed_files() or not self._add_related():
            return None
        files = (f.id for f in self.material.files if self._chat_of(f) in self.changed)
        return ChatScope(self.changed, frozenset(files), self.bubble_chats)

    # -- changed chats ------------------------------------------------------------------------

    def _index_rows(self, file: SourceFile) -> None:
        derived_bytes = file.derived_bytes if self.material.was_derived(file) else 0
        for row in self.material.peek(file):
            is_new = row.offset >= derived_bytes
            if row.table in ("meta", "blobs"):
                store = self.stores.setdefault(file.id, AgentStore(self.material, file))
                if row.table == "meta":
                    store.read_meta(_values(row.data))
            elif not isinstance(row.key, str):
                continue
            elif row.table == "cursorDiskKV":
                self._index_chat_row(row, row.key, is_new)
            elif row.table == rules.HEADERS:
                self.chats.add(row.key)
                self.changed.update({row.key} if is_new else ())
            elif row.key in rules.LISTS or row.key == rules.TABS:
                self._index_list(file, row, is_new)

    def _index_chat_row(self, row: Peeked, key: str, is_new: bool) -> None:
        kind, chat_id, name = _key_parts(key)
        if kind not in rules.CHAT_KINDS:
            return
        self.chats.add(chat_id)
        # Whether the bubble may have another id than its key says.
        has_other_id = False
        if kind == "bubbleId":
            self.bubble_chats.setdefault(name, set()).add(chat_id)
            # Of a bubble whose id differs from its key, copies cannot be found by keys.
            quoted = b'"%s"' % name.encode(errors="surrogatepass")
            has_other_id = not PLAIN_ID.fullmatch(name) or quoted not in row.data
        if is_new or has_other_id or has_inline_bubbles(row.data):
            self.changed.add(chat_id)

    def _index_list(self, file: SourceFile, row: Peeked, is_new: bool) -> None:
        versions = self.lists.setdefault((file.id, str(row.key)), _ListVersions())
        versions.latest = row.data
        if not is_new:
            versions.derived = row.data
        if has_inline_bubbles(row.data):
            versions.inline.append(row.data)

    def _compare_versions(self, versions: _ListVersions) -> None:
        for data in versions.inline:
            self.changed.update(_chats_in_list(data))
        if versions.derived is not versions.latest:
            before, now = _chats_in_list(versions.derived), _chats_in_list(versions.latest)
            chats = before.keys() | now.keys()
            self.changed.update(chat for chat in chats if before.get(chat) != now.get(chat))

    def _add_changed_files(self) -> bool:
        """Add the chats of changed files; False if a file may concern any chat."""
        for file in self.material.files:
            if self.material.is_derived(file):
                continue
            chat = self._chat_of(file)
            if chat is not None:
                self.changed.add(chat)
            elif file.kind == "document":  # any chat may be of its folder
                return False
        return True

    def _chat_of(self, file: SourceFile) -> str | None:
        """The only chat that a file is about."""
        if file.id in self.stores:
            return self.stores[file.id].session_id
        path = PurePath(file.path)
        if file.kind == "document":
            return path.parent.name if path.name == rules.META else None
        return path.stem if file.kind == "lines" else None

    # -- related chats ------------------------------------------------------------------------

    def _add_related(self) -> bool:
        """Add the chats that name a changed one, or are named by it; False if that does not end."""
        chat_by_name = {_call_id(chat): chat for chat in self.chats | self.changed}
        # JSON may escape any other character: the bytes of the id would not be found.
        if not all(PLAIN_ID_BYTES.fullmatch(name) for name in chat_by_name):
            return False
        all_names = IdSearch(chat_by_name)
        done: set[str] = set()
        for _ in range(ROUNDS_MAX):
            self._add_copies()
            new, done = self.changed - done, set(self.changed)
            if not new:
                return True
            new_names = IdSearch(_call_id(chat) for chat in new)
            for chat, data in self._chat_rows():
                if chat in new:
                    self.changed.update(chat_by_name[name] for name in all_names(data))
                elif any(new_names(data)):
                    self.changed.add(chat)
        return False

    def _add_copies(self) -> None:
        """Add all chats that share a bubble with one, directly or through others."""
        count = -1
        shared = [chats for chats in self.bubble_chats.values() if len(chats) > 1]
        while count < len(self.changed):
            count = len(self.changed)
            for chats in shared:
                if not chats.isdisjoint(self.changed):
                    self.changed |= chats

    def _chat_rows(self) -> Iterator[tuple[str, bytes]]:
        for file in self.material.files:
            if file.kind != "rows" or file.id in self.stores:
                continue
            for row in self.material.peek(file):
                if row.table == "cursorDiskKV" and isinstance(row.key, str):
                    kind, chat_id, _ = _key_parts(row.key)
                    if kind in rules.CHAT_KINDS:
                        yield chat_id, row.data


def _call_id(chat: str) -> bytes:
    """The id by which rows name a chat: of a task's chat, that of its call."""
    return chat.removeprefix(rules.TASK).encode(errors="surrogatepass")


def _values(data: bytes) -> dict[str, Any]:
    record = unframe(data)
    return record.named if record else {}


def _chats_in_list(data: bytes | None) -> dict[str, dict[str, Any]]:
    return dict(listed_chats(_values(data).get("value"))) if data is not None else {}


class IdSearch:
    """Finds which of many ids occur in a row.

    Long ids are searched for in one pass, short ones in one per group of similar length: their
    parts occur everywhere.
    """

    def __init__(self, ids: Iterable[bytes]) -> None:
        """No id may be empty."""
        by_length: dict[int, set[bytes]] = {}
        for name in ids:
            by_length.setdefault(min(len(name), LONG_ID).bit_length(), set()).add(name)
        self._groups = [_SimilarIds(group) for group in by_length.values()]

    def __call__(self, data: bytes) -> Iterator[bytes]:
        for group in self._groups:
            yield from group(data)


class _SimilarIds:
    """Ids of similar length. Wherever one occurs, a step lands at the start of a part of it."""

    def __init__(self, ids: Iterable[bytes]) -> None:
        self._ids = frozenset(ids)
        self._lengths = sorted({len(name) for name in self._ids})
        shortest = self._lengths[0]
        self._size = (shortest + 1) // 2
        self._step = shortest - self._size + 1
        self._parts = {
            name[at : at + self._size]
            for name in self._ids
            for at in range(len(name) - self._size + 1)
        }

    def __call__(self, data: bytes) -> Iterator[bytes]:
        size, parts = self._size, self._parts
        for at in range(0, len(data) - size + 1, self._step):
            if data[at : at + size] in parts:
                yield from self._around(data, at)

    def _around(self, data: bytes, at: int) -> Iterator[bytes]:
        for length in self._lengths:
            for start in range(max(0, at + self._size - length), at + 1):
                if data[start : start + length] in self._ids:
                    yield data[start : start + length]
