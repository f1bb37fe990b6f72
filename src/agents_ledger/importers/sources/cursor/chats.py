"""Cursor: the chats of a user, collected from all records that mention them, without content.

A chat may be recorded in five generations at once. They are merged by chat id; of each field, the
newest generation wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

from msgspec import Struct, field, structs

from agents_ledger.importers.parsing.json_values import (
    EMBEDDED,
    EMPTY,
    decoded,
    dicts,
    encoded,
    is_blank,
    loose,
    path_of,
)
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds, uuid7_ms
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.cursor import records, rules
from agents_ledger.importers.sources.cursor.agent_sessions import AgentStore
from agents_ledger.importers.sources.cursor.changes import ChatScope, IdSearch, has_inline_bubbles
from agents_ledger.importers.sources.cursor.turns import Bubble, BubbleReader
from agents_ledger.importers.transcript.packed_store import PackedDict
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import digest, raw
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.sessions import TaskStatus

EARLIER = " (earlier)"  # marks replaced versions of rows in the counts
WORKSPACES = "workspaceStorage"
InnerPath = tuple[str | int, ...]

# Generations of records, the newest last: a tab of 2024, a head and a whole chat in a list, a row
# of the table of 2026, a chat inside the call that started it, a row of its own.
TAB, LIST_HEAD, LIST_CHAT, HEADER_ROW, EMBEDDED_CHAT, OWN_ROW = range(6)


class ChatVersion(Struct):
    generation: int
    print: bytes  # of what it says of this chat alone
    fields: dict[str, Any]  # those that are read
    order: Numbering | None  # the ids of its bubbles
    extra: dict[str, Any]  # the fields that are not mapped

    def rank(self) -> tuple[int, int, bytes]:
        """Orders versions by which prevails, whatever was read first."""
        # The fingerprint last, so that the result does not depend on the order of the files.
        return self.generation, milliseconds(self.fields.get("lastUpdatedAt")), self.print


class ChatSummary(NamedTuple):
    text: str
    row: SourceRow


class CursorChat(Struct):
    id: str
    bubbles: PackedDict[Bubble]  # by the id in its key
    versions: list[ChatVersion] = field(default_factory=list)
    rows: list[SourceRow] = field(default_factory=list)
    contexts: dict[str, SourceRow] = field(default_factory=dict)
    checkpoints: dict[str, SourceRow] = field(default_factory=dict)
    summaries: dict[str, ChatSummary] = field(default_factory=dict)  # by the last bubble covered
    folder: str | None = None
    parent: str | None = None
    task: dict[str, Any] = field(default_factory=dict)  # the parameters that started it
    task_status: TaskStatus | None = None

    def get(self, name: str) -> Any:
        """A field, from the newest record that has it."""
        values = (version.fields.get(name) for version in self.newest_first())
        return next((value for value in values if value not in EMPTY), None)

    def newest_first(self) -> list[ChatVersion]:
        return sorted(self.versions, key=ChatVersion.rank, reverse=True)

    def order(self) -> Numbering:
        """The ids of its bubbles, from the newest record that lists them."""
        orders = (version.order for version in self.newest_first() if version.order)
        return next(orders, Numbering())

    @property
    def extra(self) -> dict[str, Any]:
        """The fields that are not mapped, each from the newest record that has it."""
        fields: dict[str, Any] = {}
        for version in reversed(self.newest_first()):
            fields |= version.extra
        return fields

    @property
    def model(self) -> str | None:
        config = as_dict(self.get("modelConfig"))
        return as_text(config.get("modelName")) or as_text(self.task.get("model"))

    @property
    def is_subagent(self) -> bool:
        return self.parent is not None or self.id.startswith(rules.TASK)


class CursorChats:
    """The chats of a user: all, or those of a scope."""

    def __init__(self, material: Material, scope: ChatScope | None = None) -> None:
        self.material = material
        self.scope = scope
        self.offsets_read: dict[int, set[int]] = {}  # by file, the rows of the scope
        self.reader = BubbleReader(material)
        self.chats: dict[str, CursorChat] = {}
        # By the directory of a workspace or an agent's store.
        self.folders: dict[str, str] = {}
        self.meta_files: dict[str, int] = {}  # by the directory of an agent's store
        # Chat -> the directory of the workspace that lists it.
        self.listed_in: dict[str, str] = {}
        self.spawned: dict[str, dict[str, str]] = {}  # chat -> call -> chat of the subagent
        self.stores: list[AgentStore] = []
        self.transcripts: list[SourceFile] = []
        self._lists: dict[
            int, dict[str, list[SourceRow]]
        ] = {}  # rows that list chats, by file and key
        self._seen_in_list: set[str] = set()  # chats of later versions of the current list
        for file in material.files:
            if file.kind == "rows":
                self._read_database(file)
            elif file.kind == "document":
                self._read_document(file)
            else:
                self.transcripts.append(file)
        self._read_lists()
        self._find_subagents()

    def is_read(self, chat_id: str) -> bool:
        return self.scope is None or chat_id in self.scope.chats

    def chat(self, chat_id: str) -> CursorChat:
        if chat_id not in self.chats:
            self.chats[chat_id] = CursorChat(chat_id, PackedDict(Bubble, self.material.limits))
        return self.chats[chat_id]

    # -- files --------------------------------------------------------------------------------

    def _read_document(self, file: SourceFile) -> None:
        """A workspace.json or meta.json, which names the folder of its directory."""
        fields = as_dict(loose(self.material.text_document(file)))
        path = PurePath(file.path)
        is_meta = path.name.endswith(rules.META)
        names = ("cwd",) if is_meta else ("folder", "workspace")
        folder = next(filter(None, (path_of(fields.get(name)) for name in names)), None)
        if folder is None:
            self.material.count(path.name, "unmapped")
            return
        self.folders[str(path.parent)] = folder
        if is_meta:
            self.meta_files[str(path.parent)] = file.id
        self.material.count(rules.META if is_meta else "workspace.json", "derived")

    def _read_database(self, file: SourceFile) -> None:
        store = AgentStore(self.material, file)
        offsets = self.offsets_read.setdefault(file.id, set())
        lists = self._lists.setdefault(file.id, {})
        for row in self.material.rows(file, self.scope.includes if self.scope else None):
            if self.scope is not None:
                offsets.add(row.offset)
            key = (row.values or {}).get("key")
            if row.table in ("meta", "blobs"):
                self._add_store_row(store, row)
                continue
            if row.table == rules.HEADERS:
                self._add_header(row)
                continue
            if not isinstance(key, str):
                self.material.count(row.table, "unmapped")
                continue
            kind, _, rest = key.partition(":")
            if kind in rules.LISTS or kind == rules.TABS:
                lists.setdefault(kind, []).append(self.material.held_row(row))
            elif row.latest:
                self._add_row(kind, rest, row)
            else:
                self._add_earlier(kind, rest, row)

    def _add_store_row(self, store: AgentStore, row: SourceRow) -> None:
        values = row.values or {}
        if row.latest:
            if row.table == "meta":
                store.read_meta(values)
            else:
                store.blobs[str(values.get("id"))] = self.material.held_row(row)
            if store not in self.stores:
                self.stores.append(store)
        if row.table == "meta" or not row.latest:  # blobs are counted where they are used
            self.material.count(row.table, "derived" if row.latest else "unmapped")

    def _add_earlier(self, kind: str, rest: str, row: SourceRow) -> None:
        """A replaced version of a row: only the summary of a chat is taken from it."""
        self.material.count(f"{kind}{EARLIER}", "unmapped")
        if kind == "composerData":
            # latestConversationSummary is overwritten: an earlier version of the row is all that is
            # left.
            self._add_summary(rest, records.fields_of((row.values or {}).get("value")), row)

    def _add_row(self, kind: str, rest: str, row: SourceRow) -> None:
        value = (row.values or {}).get("value")
        if value is None:  # Cursor sets the rows of a deleted chat to NULL
            self.material.count(kind, "unmapped")
            return
        if is_blank(value):
            self.material.fault(row, f"{kind}:{rest} holds nothing")
            self.material.count(kind, "malformed")
            return
        adders = {
            "bubbleId": self._add_bubble_row,
            "checkpointId": self._add_checkpoint,
            "composer.composerData": self._add_list,
            "composer.composerHeaders": self._add_list,
            "composerData": self._add_chat_row,
            "messageRequestContext": self._add_context,
            rules.TABS: self._add_tabs,
        }
        add = adders.get(kind.removesuffix(EARLIER))
        is_mapped = add(rest, row) if add else None
        if is_mapped is False:
            self.material.fault(row, f"{kind}:{rest} is not what it should be")
            self.material.count(kind, "malformed")
        else:
            self.material.count(kind, "derived" if is_mapped else "unmapped")

    def _path(self, row: SourceRow) -> PurePath:
        return PurePath(self.material.file_of(row).path)

    # -- chats: each of these returns None for a record that makes no rows, False for a broken one

    def _add_chat_row(self, chat_id: str, row: SourceRow) -> bool | None:
        cell = raw((row.values or {}).get("value"))  # once: it may list very many bubbles
        fields = records.fields_of(cell)
        if not fields and not isinstance(loose(cell), dict):
            self.chat(chat_id)
            return False
        version = self._add_version(chat_id, OWN_ROW, fields, row, row.digest)
        self._add_summary(chat_id, fields, row)
        return True if version.order else None  # else a draft that was never sent

    def _add_version(
        self,
        chat_id: str,
        generation: int,
        fields: records.ChatFields,
        row: SourceRow,
        fingerprint: bytes,
        *,
        inner: InnerPath = (),
    ) -> ChatVersion:
        """Add what a record says of a chat, with the bubbles inside it."""
        read = {name: records.plain(fields[name]) for name in rules.READ_FIELDS if name in fields}
        order, extra = records.bubble_order(fields), records.extra_fields(fields)
        version = ChatVersion(generation, fingerprint, read, order, extra)
        if chat_id == rules.PLACEHOLDER:
            return version
        chat = self.chat(chat_id)
        chat.versions.append(version)
        chat.rows.append(self.material.held_row(row))
        for at, bubble in enumerate(records.items_of(fields.get("conversation"))):
            self._add_inline(chat, bubble, row, (*inner, "conversation", at))
        for name, bubble in records.fields_of(fields.get("conversationMap")).items():
            self._add_inline(chat, bubble, row, (*inner, "conversationMap", name))
        return version

    def _add_value(
        self, chat_id: str, generation: int, value: Any, row: SourceRow, inner: InnerPath = ()
    ) -> None:
        """Add what a part of a row's JSON says of a chat."""
        if isinstance(value, dict):
            fingerprint = digest(encoded(value))
            self._add_version(chat_id, generation, value, row, fingerprint, inner=inner)

    def _add_inline(self, chat: CursorChat, bubble: Any, row: SourceRow, inner: InnerPath) -> None:
        bubble = records.plain(bubble)
        if isinstance(bubble, dict):
            self._add_bubble(chat, str(inner[-1]), encoded(bubble), row, inner)

    def _add_bubble_row(self, rest: str, row: SourceRow) -> bool | None:
        chat_id, _, name = rest.partition(":")
        value = (row.values or {}).get("value")
        return self._add_bubble(self.chat(chat_id), name, raw(value), row, ())

    def _add_bubble(
        self, chat: CursorChat, name: str, value: bytes, row: SourceRow, inner: InnerPath
    ) -> bool:
        head = decoded(value, records.BUBBLE_DECODER)
        if head is None:
            return False
        own = as_text(head.bubble_id) or as_text(head.id)
        key = own if own and (inner or own == name) else name  # one string object for both
        # A bubble of another chat may have the same number.
        if own is None:
            own = f"{chat.id}:{name}" if inner and isinstance(inner[-1], int) else name
        # Bubbles have `createdAt` only since late 2025.
        at = records.bubble_time(head.created_at, head.timing_info) or uuid7_ms(own)
        text = as_text(head.text) or as_text(head.raw_text) or ""
        content = [text.encode(errors="surrogatepass"), head.thinking, head.tool_former_data]
        bubble = Bubble(
            own,
            "user" if head.type in rules.USER_TYPES else "assistant",
            self.material.held_row(row),
            inner,
            at,
            digest(b"\0".join(bytes(part) for part in content)),
            as_text(as_dict(head.model_info).get("modelName")) or as_text(head.model_type),
            as_text(head.request_id),
            as_text(head.checkpoint_id),
            # A search of the bytes: only bubbles that may start a subagent are read again for it.
            any(mark in bytes(head.tool_former_data) for mark in (b'"task', b"48")),
        )
        present = chat.bubbles.get(key)
        if present is None or _bubble_rank(bubble) < _bubble_rank(present):
            chat.bubbles[key] = bubble
        return True

    def _add_checkpoint(self, rest: str, row: SourceRow) -> bool:
        chat_id, _, name = rest.partition(":")
        self.chat(chat_id).checkpoints[name] = self.material.held_row(row)
        return True

    def _add_context(self, rest: str, row: SourceRow) -> bool:
        chat_id, _, name = rest.partition(":")
        self.chat(chat_id).contexts[name] = self.material.held_row(row)
        return True

    def _add_header(self, row: SourceRow) -> None:
        values = row.values or {}
        chat_id = as_text(values.get("composerId"))
        value = loose(values.get("value"))
        if not row.latest or chat_id is None or not isinstance(value, dict):
            kind = rules.HEADERS if row.latest else rules.HEADERS + EARLIER
            self.material.count(kind, "unmapped")
            return
        self.material.count(rules.HEADERS, "derived")
        if self.is_read(chat_id):
            if as_text(values.get("workspaceId")):
                workspaces = self._path(row).parent.parent / WORKSPACES
                self._note_list(chat_id, str(workspaces / values["workspaceId"]))
            self._add_value(chat_id, HEADER_ROW, value, row)

    def _note_list(self, chat_id: str, directory: str) -> None:
        # Two workspaces may list a chat; the larger name is the same in any order of reading.
        self.listed_in[chat_id] = max(self.listed_in.get(chat_id, ""), directory)

    # -- lists of chats -----------------------------------------------------------------------

    def _read_lists(self) -> None:
        chats = frozenset(filter(self.is_read, self.chats))
        for lists in self._lists.values():
            for key, versions in lists.items():
                self._read_list_versions(key, versions, chats)

    def _read_list_versions(
        self, key: str, versions: list[SourceRow], chats: frozenset[str]
    ) -> None:
        """Read versions of one list, newest first: a chat that is no longer listed is described by
        the last version that has it. That version names it, or contains it whole."""
        self._seen_in_list = set()
        unseen, search = chats, IdSearch(_encoded(chats))
        # An earlier version that names no chat of interest need not be decoded.
        for row in reversed(versions):
            if unseen != chats - self._seen_in_list:
                unseen = chats - self._seen_in_list
                search = IdSearch(_encoded(unseen))
            whole = structs.replace(row, values=self.material.values_of(row))
            data = raw((whole.values or {}).get("value"))
            if row.latest or has_inline_bubbles(data) or any(search(data)):
                self._add_row(key if row.latest else f"{key}{EARLIER}", "", whole)
            else:
                self._add_earlier(key, "", row)

    def _is_described_by(self, chat_id: str) -> bool:
        """Whether the current version of a list is the last one with a chat of the scope."""
        is_last = chat_id not in self._seen_in_list
        self._seen_in_list.add(chat_id)
        return is_last and self.is_read(chat_id)

    def _add_list(self, _: str, row: SourceRow) -> bool | None:
        value = loose((row.values or {}).get("value"))
        if not isinstance(value, dict):
            return False
        directory = str(self._path(row).parent)
        for at, entry in enumerate(as_list(value.get("allComposers"))):
            chat_id = as_text(as_dict(entry).get("composerId"))
            if chat_id is not None and self._is_described_by(chat_id):
                self._note_list(chat_id, directory)
                generation = LIST_CHAT if entry.get("conversation") else LIST_HEAD
                self._add_value(chat_id, generation, entry, row, ("allComposers", at))
        return True

    def _add_tabs(self, _: str, row: SourceRow) -> bool:
        value = loose((row.values or {}).get("value"))
        if not isinstance(value, dict):
            return False
        for at, tab in enumerate(as_list(value.get("tabs"))):
            tab_id = as_text(as_dict(tab).get("tabId"))
            if tab_id is None or not self._is_described_by(tab_id):
                continue
            bubbles = _sent_bubbles(tab)
            for number, bubble in enumerate(bubbles):
                inner = ("tabs", at, "bubbles", number)
                self._add_inline(self.chat(tab_id), bubble, row, inner)
            fields = {
                "name": tab.get("chatTitle"),
                "lastUpdatedAt": tab.get("lastSendTime"),
                rules.BUBBLE_LIST: [{"bubbleId": bubble.get("id")} for bubble in bubbles],
            }
            self._add_version(tab_id, TAB, fields, row, digest(encoded(tab)))
            self.listed_in[tab_id] = str(self._path(row).parent)
        return True

    # -- summaries ----------------------------------------------------------------------------

    def _add_summary(self, chat_id: str, fields: records.ChatFields, row: SourceRow) -> None:
        """Add the summary of a chat; one that a later summary replaced in the source is kept."""
        summary = as_dict(records.plain(fields.get("latestConversationSummary")))
        # Either the fields themselves, or an object around them.
        summary = as_dict(summary.get("summary")) or summary
        text = as_text(summary.get("summary"))
        last = as_text(summary.get("truncationLastBubbleIdInclusive"))
        if text and last:
            present = self.chat(chat_id).summaries.get(last)
            if present is None or present.text < text:
                new = ChatSummary(text, self.material.held_row(row))
                self.chat(chat_id).summaries[last] = new

    # -- subagents ----------------------------------------------------------------------------

    def _find_subagents(self) -> None:
        done: set[str] = set()
        while due := sorted(self.chats.keys() - done):  # a subagent may start others
            for chat_id in due:
                self._link_subagents(self.chats[chat_id])
            done.update(due)

    def _link_subagents(self, chat: CursorChat) -> None:
        """Link a chat with its parent and its subagents; unlisted bubbles count."""
        info = as_dict(chat.get("subagentInfo"))
        parent = as_text(info.get("parentComposerId"))
        chat.parent = parent if parent and parent != chat.id else chat.parent
        for child in as_list(chat.get("subComposerIds")):
            if isinstance(child, str) and child != chat.id:
                self.chat(child).parent = self.chat(child).parent or chat.id
        for number in range(len(chat.bubbles)):
            bubble = chat.bubbles.values.read(number)
            if not bubble.may_spawn:
                continue
            for call in records.tool_calls(self.reader[bubble]):
                if records.starts_subagent(call):
                    self._add_subagent(chat, bubble, call)

    def _add_subagent(self, parent: CursorChat, bubble: Bubble, call: dict[str, Any]) -> None:
        call_id = as_text(call.get("toolCallId"))
        if call_id is None:
            return
        extra = as_dict(call.get("additionalData"))
        names = (as_text(extra.get(n)) for n in ("subagentComposerId", "composerId", "agentId"))
        child_id = next((n for n in names if n and n in self.chats), f"{rules.TASK}{call_id}")
        child = self.chat(child_id)
        child.parent = child.parent or parent.id
        child.task = as_dict(loose(call.get("params"))) or as_dict(call.get("params"))
        child.task = child.task or as_dict(loose(call.get("rawArgs")))
        child.task_status = rules.TASK_STATUSES[records.status_of(call)[0]]
        if not child.rows:
            child.rows.append(bubble.row)
        self.spawned.setdefault(parent.id, {})[call_id] = child_id
        inner = (*bubble.inner, "toolFormerData", "additionalData", EMBEDDED)
        self._add_value(child_id, EMBEDDED_CHAT, records.embedded_chat(call), bubble.row, inner)


def _encoded(chats: Iterable[str]) -> Iterator[bytes]:
    return (chat.encode(errors="surrogatepass") for chat in chats if chat)


def _sent_bubbles(tab: dict[str, Any]) -> list[dict[str, Any]]:
    """The bubbles of a tab without the empty box for the next prompt, which is the last of them."""
    bubbles = dicts(tab.get("bubbles"))
    if bubbles and bubbles[-1].get("type") in rules.USER_TYPES and not records.text_of(bubbles[-1]):
        bubbles.pop()
    return bubbles


def _bubble_rank(bubble: Bubble) -> tuple[bool, int, bytes]:
    """A row of its own beats a bubble inside a chat; then the longer row, then the smaller hash."""
    return bool(bubble.inner), -bubble.row.length, bubble.print
