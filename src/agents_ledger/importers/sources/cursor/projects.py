"""Cursor: which project a file or a chat belongs to, so that excluded ones are left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.json_spans import raw_dict, raw_list
from agents_ledger.importers.parsing.json_values import BROKEN, dicts, loose, path_of
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text
from agents_ledger.importers.parsing.row_filter import excluded_sessions
from agents_ledger.importers.port.source import (
    FileProbe,
    FolderTrace,
    Project,
    SharedDatabase,
    Table,
)
from agents_ledger.importers.sources.cursor import rules
from agents_ledger.importers.sources.cursor.changes import IdSearch
from agents_ledger.importers.sources.cursor.records import (
    ChatFields,
    fields_of,
    listed_chats,
    listed_id,
    plain,
)
from agents_ledger.model.imports.records import Parted, RowRecord, raw

KEPT_ALIKE = (*rules.CHAT_KINDS, "codeBlockDiff")  # `<kind>:<chat>:...`
AGENT_KINDS = ("checkpoint", "bubbleCheckpoint")  # `agentKv:<kind>:<chat>...`
SHARED_KEYS = ("aiService.generations", "aiService.prompts")  # of no single chat
MD5 = re.compile(r"[0-9a-fA-F]{32}")
UNKNOWN_PROJECT = FolderTrace("long", "")


def projects(path: Path, probe: FileProbe) -> Collection[Project] | None:
    """The projects of a file; of the global database, its rows tell."""
    if path.parent.parent.name == "workspaceStorage":
        folder = _workspace_folder(path.parent, probe)
        return None if folder is None else [folder]
    if path.parent.parent.parent.name == "chats" and path.name in (rules.META, "store.db"):
        cwd = path_of(as_dict(loose(probe.head(path.with_name(rules.META)))).get("cwd"))
        name = path.parent.parent.name
        # The directory is named by the MD5 of the folder; meta.json has the folder since 2026.
        return [cwd or FolderTrace("md5", name)] if cwd or MD5.fullmatch(name) else None
    if "agent-transcripts" in path.parts:
        at = path.parts.index("agent-transcripts")
        return [FolderTrace("dashes", path.parts[at - 1])] if at else None
    return [] if path.name == "state.vscdb" else None


def _workspace_folder(directory: Path, probe: FileProbe) -> str | None:
    fields = as_dict(loose(probe.head(directory / "workspace.json")))
    return path_of(fields.get("folder")) or path_of(fields.get("workspace"))


def chosen_folder(context: object) -> str | None:
    selections = dicts(as_dict(context).get("folderSelections"))
    return next((path_of(s.get("absolutePath") or s.get("uri")) for s in selections), None)


def sent_folder(context: object) -> str | None:
    """The folder whose layout was sent with a prompt."""
    for layout in as_list(as_dict(context).get("projectLayouts")):
        fields = as_dict(loose(layout) if isinstance(layout, str) else layout)
        if as_text(fields.get("rootPath")):
            return str(fields["rootPath"])
    return None


# -- rows of a database with many projects ----------------------------------------------------


class ChatRowFilter(Struct):
    """Drops the rows of excluded chats; lists of chats are kept without these."""

    excluded: frozenset[str]
    with_project: frozenset[str]
    has_one_project: bool = False
    uncertain: frozenset[str] = frozenset()
    without_project: set[str] = field(default_factory=set)

    def __call__(self, row: RowRecord) -> RowRecord | None:
        """The row as far as it may be kept."""
        if row.table == rules.HEADERS:
            return None if row.named.get("composerId") in self.excluded else row
        key = row.named.get("key")
        if not isinstance(key, str):
            return row
        if row.table == "cursorDiskKV":
            return row if self._passes(key) else None
        # Prompts of all chats without their ids: they could be of an excluded one.
        if key in SHARED_KEYS:
            return row if self.has_one_project or not self.excluded else None
        return self._filtered_list(row) if key in (*rules.LISTS, rules.TABS) else row

    def _passes(self, key: str) -> bool:
        kind, _, rest = key.partition(":")
        chat = rest.partition(":")[0]
        if kind == "agentKv":
            # Blobs are parts of requests that all chats share: nothing tells whose they are.
            agent_kind, _, name = rest.partition(":")
            is_own = agent_kind in AGENT_KINDS and name.partition(":")[0] not in self.excluded
            return is_own or not self.excluded
        if kind in ("bubbleId", "composerData") and chat not in self.with_project:
            self.without_project.add(chat)
        return kind not in KEPT_ALIKE or chat not in self.excluded

    def _filtered_list(self, row: RowRecord) -> RowRecord | None:
        """A list without the excluded chats; None if it is too long to search."""
        # It may name an excluded chat, and is too long to search.
        if row.parted:
            return None if self.excluded else row
        at = row.columns.index("value")
        data = raw(row.values[at])
        try:
            fields = raw_dict(data)
            lists = {name: raw_list(fields[name]) for name in rules.LIST_FIELDS if name in fields}
        except BROKEN:
            return None if self._names_excluded(data) else row
        ids = {entry: listed_id(as_dict(loose(entry))) for entry in _all_entries(lists)}
        filtered = {
            name: [entry for entry in entries if ids[bytes(entry)] not in self.excluded]
            for name, entries in lists.items()
        }
        self.without_project |= {chat for chat in ids.values() if chat} - self.with_project
        remaining = {
            name: value
            for name, value in fields.items()
            if name in filtered or not self._names_excluded(bytes(value))
        }
        if filtered == lists and remaining == fields:
            return row
        cut: Any = msgspec.json.encode({**remaining, **filtered})
        cut = cut.decode() if isinstance(row.values[at], str) else cut
        return row._replace(values=(*row.values[:at], cut, *row.values[at + 1 :]))

    def _names_excluded(self, data: bytes) -> bool:
        return any(chat.encode(errors="surrogatepass") in data for chat in self.excluded if chat)


def _all_entries(lists: dict[str, list[Raw]]) -> Iterator[bytes]:
    return (bytes(entry) for entries in lists.values() for entry in entries)


def row_filter(database: SharedDatabase) -> ChatRowFilter:
    """What may be kept of a database with many projects."""
    search = _FolderSearch(database)
    folder = _workspace_folder(database.path.parent, database.probe)
    if folder is not None:
        search.folders = {**dict.fromkeys(search.chats, folder), **search.folders}
    uncertain = frozenset(search.uncertain - search.folders.keys() if folder is None else ())
    folders = {**dict.fromkeys(uncertain, UNKNOWN_PROJECT), **search.folders}
    excluded, with_project = excluded_sessions(
        folders, search.parents, search.chats | uncertain, database.is_excluded
    )
    return ChatRowFilter(excluded, with_project, folder is not None, uncertain)


class _FolderSearch:
    """Where chats were held: by their records, by lists of them, by what was sent with them."""

    def __init__(self, database: SharedDatabase) -> None:
        self.folders: dict[str, Project] = {}
        self.parents: dict[str, str] = {}
        self.chats: set[str] = set()
        # Chats whose folder may be in a value too long to search.
        self.uncertain: set[str] = set()
        self._select = database.select
        self._probe = database.probe
        self._has_long_list = False
        self._workspaces = database.path.parent.parent / "workspaceStorage"
        for chat, value in self._rows("composerData:"):
            self._add_cell(chat, value)
        self._read_lists()
        for name in self._probe.names(self._workspaces):
            self._read_workspace(name)
        for key, _ in self._rows("bubbleId:", "key"):
            self.chats.add(key.partition(":")[0])
        self._read_contexts()
        self._find_spawning_chats()
        if self._has_long_list:
            self.uncertain |= {*self.chats, rules.LISTS[0]}

    def _rows(self, prefix: str, *columns: str) -> Iterator[tuple[str, Any]]:
        """The rows of a kind, each with the rest of its key."""
        table = Table("cursorDiskKV", ("key",), prefixes=(prefix,))
        for key, *value in self._select(table, columns or ("key", "value")):
            if isinstance(key, str):
                yield key.removeprefix(prefix), value[0] if value else None

    def _add_cell(self, chat: str, value: Any) -> None:
        if Parted.of(value):
            self.uncertain.add(chat)
        self._add_place(chat, fields_of(value))

    def _add_place(self, chat: str, fields: ChatFields) -> None:
        """Add what a record says of a chat; the first folder and parent count."""
        self.chats.add(chat)
        identifier = as_dict(plain(fields.get("workspaceIdentifier")))
        folder = path_of(identifier.get("uri")) or path_of(identifier.get("configPath"))
        folder = folder or self._folder_of(identifier.get("id"))
        folder = folder or chosen_folder(plain(fields.get("context")))
        if folder:
            self.folders.setdefault(chat, folder)
        parent = as_text(as_dict(plain(fields.get("subagentInfo"))).get("parentComposerId"))
        if parent:
            self.parents.setdefault(chat, parent)
        for child in as_list(plain(fields.get("subComposerIds"))):
            self.parents.setdefault(str(child), chat)

    def _folder_of(self, workspace: Any) -> str | None:
        name = as_text(workspace)
        if name is None or name not in self._probe.names(self._workspaces):
            return None
        return _workspace_folder(self._workspaces / name, self._probe)

    def _read_lists(self) -> None:
        """Read the lists and the table of chats of the database itself."""
        table = Table("ItemTable", ("key",), keys=(*rules.LISTS, rules.TABS))
        for _, value in self._select(table, ("key", "value")):
            for chat, entry in self._listed(value):
                self._add_place(chat, entry)
        table = Table(rules.HEADERS, ("composerId",))
        for chat, workspace, value in self._select(table, ("composerId", "workspaceId", "value")):
            if isinstance(chat, str):
                self._add_cell(chat, value)
                if chat not in self.folders and (folder := self._folder_of(workspace)):
                    self.folders[chat] = folder

    def _read_workspace(self, workspace: str) -> None:
        folder = _workspace_folder(self._workspaces / workspace, self._probe)
        if folder is None:
            return
        table = Table("ItemTable", ("key",), keys=(rules.LISTS[0], rules.TABS))
        database = self._workspaces / workspace / "state.vscdb"
        for _, value in self._probe.rows(database, table, ("key", "value")):
            for chat, _ in self._listed(value):
                self.folders.setdefault(chat, folder)

    def _listed(self, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        self._has_long_list = self._has_long_list or Parted.of(value) is not None
        return listed_chats(value)

    def _read_contexts(self) -> None:
        """Read the layouts of projects that were sent with prompts, where no folder is known."""
        if self.chats <= self.folders.keys():
            return
        for key, value in self._rows("messageRequestContext:"):
            chat = key.partition(":")[0]
            if chat in self.folders:
                continue
            if Parted.of(value):
                self.uncertain.add(chat)
            elif folder := sent_folder(loose(value)):
                self.folders[chat] = folder

    def _find_spawning_chats(self) -> None:
        """Find the chats with the calls that started the chats of tasks."""
        tasks = {
            chat.removeprefix(rules.TASK).encode(errors="surrogatepass"): chat
            for chat in self.chats
            if chat.startswith(rules.TASK) and len(chat) > len(rules.TASK)
            if chat not in self.folders and chat not in self.parents
        }
        if not tasks:
            return
        # The id of a call may contain line breaks, which are escaped in JSON.
        search = IdSearch(call_id.replace(b"\n", b"\\n") for call_id in tasks)
        for key, value in self._rows("bubbleId:"):
            chat = key.partition(":")[0]
            if Parted.of(value):
                self.uncertain.update(tasks.values())
            for call_id in search(raw(value)):
                task = tasks.get(call_id.replace(b"\\n", b"\n"), "")
                if task and task != chat:
                    self.parents.setdefault(task, chat)
