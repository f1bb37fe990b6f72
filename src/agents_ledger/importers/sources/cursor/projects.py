"""Cursor: which project a file or a chat is of, for those that are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.json_values import BROKEN, decoded, dicts, loose, path_of
from agents_ledger.importers.parsing.row_filter import told, value_of
from agents_ledger.importers.port.source import Look, Project, Select, Table, Trace
from agents_ledger.importers.sources.cursor.scope import (
    HEADERS,
    LISTS,
    META,
    OF_CHATS,
    TABS,
    TASK,
    Mentions,
)
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text
from agents_ledger.model.imports.records import Parted, RowRecord, raw

KEPT_ALIKE = (*OF_CHATS, "codeBlockDiff")  # `<kind>:<chat>:...`
OF_AGENT = ("checkpoint", "bubbleCheckpoint")  # `agentKv:<kind>:<chat>...`
OF_ALL = ("aiService.generations", "aiService.prompts")  # of no chat
MD5 = re.compile(r"[0-9a-fA-F]{32}")
ENTRIES = ("allComposers", "tabs")
SOMEWHERE = Trace("long", "")


def projects(path: Path, look: Look) -> Collection[Project] | None:
    """The projects of a file; of a database of many, its rows tell."""
    if path.parent.parent.name == "workspaceStorage":
        folder = _workspace(path.parent, look)
        return None if folder is None else [folder]
    if path.parent.parent.parent.name == "chats" and path.name in (META, "store.db"):
        said = path_of(as_dict(loose(look.head(path.with_name(META)))).get("cwd"))
        name = path.parent.parent.name
        return [said or Trace("md5", name)] if said or MD5.fullmatch(name) else None
    if "agent-transcripts" in path.parts:
        at = path.parts.index("agent-transcripts")
        return [Trace("dashes", path.parts[at - 1])] if at else None
    return [] if path.name == "state.vscdb" else None


def _workspace(folder: Path, look: Look) -> str | None:
    said = as_dict(loose(look.head(folder / "workspace.json")))
    return path_of(said.get("folder")) or path_of(said.get("workspace"))


def chosen_folder(context: object) -> str | None:
    """The folder that was chosen for a chat."""
    chosen = dicts(as_dict(context).get("folderSelections"))
    return next((path_of(each.get("absolutePath") or each.get("uri")) for each in chosen), None)


def sent_folder(sent: object) -> str | None:
    """The folder whose layout went with a prompt."""
    for layout in as_list(as_dict(sent).get("projectLayouts")):
        said = as_dict(loose(layout) if isinstance(layout, str) else layout)
        if as_text(said.get("rootPath")):
            return str(said["rootPath"])
    return None


class _Brief(Struct, rename="camel"):
    """A chat, as far as it tells where it was held."""

    composer_id: Any = None
    workspace_identifier: Any = None
    context: Any = None
    subagent_info: Any = None
    sub_composer_ids: Any = None


_BRIEF = msgspec.json.Decoder(_Brief)
_LISTED = msgspec.json.Decoder(dict[str, Raw])
_ENTRIES = msgspec.json.Decoder(list[Raw])


class ChatSieve(Struct):
    """The rows of all chats but those left out. Lists of chats are kept without these."""

    excluded: frozenset[str]
    known: frozenset[str]
    is_of_one: bool = False  # all of the database is of one project
    uncertain: frozenset[str] = frozenset()
    without_project: set[str] = field(default_factory=set)

    def __call__(self, row: RowRecord) -> RowRecord | None:
        """The row as far as it may be kept."""
        if row.table == HEADERS:
            return None if value_of(row, "composerId") in self.excluded else row
        key = value_of(row, "key")
        if not isinstance(key, str):
            return row
        if row.table == "cursorDiskKV":
            return row if self._passes(key) else None
        if key in OF_ALL:
            return row if self.is_of_one or not self.excluded else None
        return self._without(row) if key in (*LISTS, TABS) else row

    def _passes(self, key: str) -> bool:
        kind, _, rest = key.partition(":")
        chat = rest.partition(":")[0]
        if kind == "agentKv":
            # Pieces of requests that any chat may share: none of them says whose it is.
            of_chat, _, name = rest.partition(":")
            is_own = of_chat in OF_AGENT and name.partition(":")[0] not in self.excluded
            return is_own or not self.excluded
        if kind in ("bubbleId", "composerData") and chat not in self.known:
            self.without_project.add(chat)
        return kind not in KEPT_ALIKE or chat not in self.excluded

    def _without(self, row: RowRecord) -> RowRecord | None:
        """A list of chats without those left out, each of the others as it was. One that is too
        long to look through is left out."""
        if row.parted:
            return None if self.excluded else row
        at = row.columns.index("value")
        data = raw(row.values[at])
        try:
            said = _LISTED.decode(data)
            lists = {name: _ENTRIES.decode(said[name]) for name in ENTRIES if name in said}
        except BROKEN:
            return None if self._is_named(data) else row
        names = {entry: _id_of(entry) for each in lists.values() for entry in map(bytes, each)}
        kept = {
            name: [e for e in each if names[bytes(e)] not in self.excluded]
            for name, each in lists.items()
        }
        self.without_project |= {name for name in names.values() if name} - self.known
        rest = {name: e for name, e in said.items() if name in kept or not self._is_named(bytes(e))}
        if kept == lists and rest == said:
            return row
        cut: Any = msgspec.json.encode({**rest, **kept})
        cut = cut.decode() if isinstance(row.values[at], str) else cut
        return row._replace(values=(*row.values[:at], cut, *row.values[at + 1 :]))

    def _is_named(self, data: bytes) -> bool:
        """Whether a chat that is left out stands in it."""
        return any(chat.encode(errors="surrogatepass") in data for chat in self.excluded if chat)


def _id_of(entry: bytes) -> str | None:
    said = as_dict(loose(entry))
    return as_text(said.get("composerId")) or as_text(said.get("tabId"))


def sieve(path: Path, own: Select, look: Look, is_left: Callable[[Project], bool]) -> ChatSieve:
    """What may be kept of a database of many projects."""
    found = _Finder(path, own, look)
    folder = _workspace(path.parent, look)
    if folder is not None:
        found.folders = {**dict.fromkeys(found.chats, folder), **found.folders}
    doubted = frozenset(found.doubted - found.folders.keys() if folder is None else ())
    folders = {**dict.fromkeys(doubted, SOMEWHERE), **found.folders}
    left, known = told(folders, found.parents, found.chats | doubted, is_left)
    return ChatSieve(left, known, folder is not None, doubted)


class _Finder:
    """Where chats were held: as they say, as lists of them do, as was sent with them."""

    def __init__(self, path: Path, own: Select, look: Look) -> None:
        self.folders: dict[str, Project] = {}
        self.parents: dict[str, str] = {}
        self.chats: set[str] = set()
        self.doubted: set[str] = set()  # what tells of them is too long to look through
        self._own = own
        self._look = look
        self._are_lists_long = False
        self._workspaces = path.parent.parent / "workspaceStorage"
        for key, value in self._rows("composerData:"):
            self._told(key, value)
        self._headers()
        for name in look.names(self._workspaces):
            self._listed(name)
        for key, _ in self._rows("bubbleId:", "key"):
            self.chats.add(key.partition(":")[0])
        self._sent()
        self._tasks()
        if self._are_lists_long:
            self.doubted |= {*self.chats, LISTS[0]}

    def _rows(self, prefix: str, *columns: str) -> Iterator[tuple[str, Any]]:
        """The rows of a kind, by what stands behind it in the key."""
        table = Table("cursorDiskKV", ("key",), prefixes=(prefix,))
        for key, *value in self._own(table, columns or ("key", "value")):
            if isinstance(key, str):
                yield key.removeprefix(prefix), value[0] if value else None

    def _told(self, chat: str, value: Any) -> None:
        """What a cell says of a chat."""
        if Parted.of(value):
            self.doubted.add(chat)
        self._say(chat, decoded(value, _BRIEF))

    def _say(self, chat: str, said: _Brief | None) -> None:
        """What a record says of a chat; the first one that says it counts."""
        self.chats.add(chat)
        if said is None:
            return
        identifier = as_dict(said.workspace_identifier)
        place = path_of(identifier.get("uri")) or path_of(identifier.get("configPath"))
        place = place or self._place(identifier.get("id")) or chosen_folder(said.context)
        if place:
            self.folders.setdefault(chat, place)
        parent = as_text(as_dict(said.subagent_info).get("parentComposerId"))
        if parent:
            self.parents.setdefault(chat, parent)
        for child in as_list(said.sub_composer_ids):
            self.parents.setdefault(str(child), chat)

    def _place(self, workspace: Any) -> str | None:
        name = as_text(workspace)
        if name is None or name not in self._look.names(self._workspaces):
            return None
        return _workspace(self._workspaces / name, self._look)

    def _headers(self) -> None:
        """The lists of the database itself."""
        table = Table("ItemTable", ("key",), keys=(*LISTS, TABS))
        for _, value in self._own(table, ("key", "value")):
            for chat, entry in self._entries(value):
                self._say(chat, decoded(bytes(entry), _BRIEF))
        table = Table(HEADERS, ("composerId",))
        for chat, workspace, value in self._own(table, ("composerId", "workspaceId", "value")):
            if isinstance(chat, str):
                self._told(chat, value)
                if chat not in self.folders and (place := self._place(workspace)):
                    self.folders[chat] = place

    def _listed(self, workspace: str) -> None:
        """The chats that the database of a workspace lists."""
        folder = _workspace(self._workspaces / workspace, self._look)
        if folder is None:
            return
        table = Table("ItemTable", ("key",), keys=(LISTS[0], TABS))
        database = self._workspaces / workspace / "state.vscdb"
        for _, value in self._look.rows(database, table, ("key", "value")):
            for chat, _ in self._entries(value):
                self.folders.setdefault(chat, folder)

    def _entries(self, value: Any) -> Iterator[tuple[str, Raw]]:
        self._are_lists_long = self._are_lists_long or Parted.of(value) is not None
        return _entries(value)

    def _sent(self) -> None:
        """The layout of the project that went with a prompt."""
        if self.chats <= self.folders.keys():
            return
        for key, value in self._rows("messageRequestContext:"):
            chat = key.partition(":")[0]
            if chat in self.folders:
                continue
            if Parted.of(value):
                self.doubted.add(chat)
            elif place := sent_folder(loose(value)):
                self.folders[chat] = place

    def _tasks(self) -> None:
        """The chats in which a call stands that started another."""
        tasks = {
            chat.removeprefix(TASK).encode(errors="surrogatepass"): chat
            for chat in self.chats
            if chat.startswith(TASK) and len(chat) > len(TASK)
            if chat not in self.folders and chat not in self.parents
        }
        if not tasks:
            return
        named = Mentions(_escaped(tasks))
        for key, value in self._rows("bubbleId:"):
            chat = key.partition(":")[0]
            if Parted.of(value):
                self.doubted.update(tasks.values())
            for name in named(raw(value)):
                task = tasks.get(name.replace(b"\\n", b"\n"), "")
                if task and task != chat:
                    self.parents.setdefault(task, chat)


def _escaped(names: dict[bytes, str]) -> Iterator[bytes]:
    """As they stand in JSON: ids of calls may hold line ends."""
    for name in names:
        yield name.replace(b"\n", b"\\n")


def _entries(value: Any) -> Iterator[tuple[str, Raw]]:
    try:
        said = _LISTED.decode(raw(value))
        entries = [e for name in ENTRIES if name in said for e in _ENTRIES.decode(said[name])]
    except BROKEN:
        return
    for entry in entries:
        name = _id_of(bytes(entry))
        if name is not None:
            yield name, entry
