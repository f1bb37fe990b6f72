"""Cursor: which chats there are, in which order their bubbles stand, and what hangs together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field, structs

from agents_ledger.importers.parsing.json_values import (
    EMBEDDED,
    decoded,
    dicts,
    encoded,
    is_blank,
    loose,
    path_of,
)
from agents_ledger.importers.port.source import Material, Row
from agents_ledger.importers.sources.cursor.agent import Store
from agents_ledger.importers.sources.cursor.records import (
    COMPOSER,
    ComposerData,
    converted,
    fields_of,
    more_of,
    order_of,
)
from agents_ledger.importers.sources.cursor.scope import (
    HEADERS,
    LISTS,
    META,
    TABS,
    TASK,
    Mentions,
    Scope,
    is_inline,
)
from agents_ledger.importers.sources.cursor.turns import (
    Bubble,
    Bubbles,
    Summary,
    bubble_time,
    embedded,
    is_task,
    status_of,
    text_of,
    tool_data,
)
from agents_ledger.importers.transcript.packed_store import Named
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text, uuid7_ms
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import digest, raw
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus

EARLIER = " (earlier)"
WORKSPACES = "workspaceStorage"
PLACEHOLDER = "empty-state-draft"
ASKING = (1, "user")  # types of bubbles
TASK_STATUSES: dict[CallStatus, TaskStatus] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "failed": "failed",
    "pending": "pending",
    "rejected": "cancelled",
    "running": "running",
}


def _nothing() -> Raw:
    return Raw(b"null")


class _BubbleData(Struct, rename="camel"):
    """A bubble, as far as the outline needs it."""

    type: Any = None
    bubble_id: Any = None
    id: Any = None
    created_at: Any = None
    timing_info: Any = None
    model_info: Any = None
    model_type: Any = None
    request_id: Any = None
    checkpoint_id: Any = None
    text: Any = None
    raw_text: Any = None
    thinking: Raw = field(default_factory=_nothing)
    tool_former_data: Raw = field(default_factory=_nothing)


_BUBBLE = msgspec.json.Decoder(_BubbleData)


TAB, HEAD, WHOLE, HEADER, GIVEN, OWN = range(6)  # generations of records, the newest last


class _Said(Struct):
    """One record's word on a chat."""

    rank: int  # its generation
    data: ComposerData
    row: Row
    print: bytes  # of what is said of this chat alone
    order: Numbering | None  # ids of its bubbles
    more: Mapping[str, Any] = {}  # the fields that are not read

    def standing(self) -> tuple[int, int, bytes]:
        """Which of two records prevails, whatever was read first."""
        return self.rank, milliseconds(self.data.last_updated_at), self.print


class Composer(Struct):
    """A chat."""

    id: str
    said: list[_Said] = field(default_factory=list)
    bubbles: Named[Bubble] = field(default_factory=lambda: Named(Bubble))  # by the id in its key
    rows: list[Row] = field(default_factory=list)
    contexts: dict[str, Row] = field(default_factory=dict)
    checkpoints: dict[str, Row] = field(default_factory=dict)
    summaries: dict[str, Summary] = field(default_factory=dict)  # by the last bubble they cover
    folder: str | None = None
    parent: str | None = None
    task: dict[str, Any] = field(default_factory=dict)  # what it was started with
    task_status: TaskStatus | None = None
    broken: bool = False

    def get(self, name: str) -> Any:
        """A field, from the newest record that says something of it."""
        for said in sorted(self.said, key=_Said.standing, reverse=True):
            value = getattr(said.data, name)
            if value not in (None, "", [], {}):
                return value
        return None

    @property
    def more(self) -> dict[str, Any]:
        """The fields that are not read, each from the newest record that has it."""
        found: dict[str, Any] = {}
        for said in sorted(self.said, key=_Said.standing):
            found |= said.more
        return found

    @property
    def model(self) -> str | None:
        """The model chosen for the chat."""
        return as_text(as_dict(self.get("model_config")).get("modelName")) or as_text(
            self.task.get("model")
        )


class Outline:
    """The chats of a user, without their content: all, or those of a scope."""

    def __init__(self, material: Material, scope: Scope | None = None) -> None:
        self.material = material
        self.scope = scope
        self.read: dict[int, set[int]] = {}  # the rows of each file that were read, of a scope
        self.told: set[str] = set()  # the chats that a later version of a list told of
        self.bubbles = Bubbles(material)
        self.composers: dict[str, Composer] = {}
        self.folders: dict[
            str, str
        ] = {}  # of workspaces and agents, by where their database stands
        self.metas: dict[str, int] = {}  # the files beside the stores of agents
        self.listed: dict[str, str] = {}  # chat -> the workspace database that lists it
        self.spawned: dict[str, dict[str, str]] = {}  # chat -> call -> chat of the subagent
        self.stores: list[Store] = []
        self.transcripts: list[SourceFile] = []
        self.lists: dict[int, dict[str, list[Row]]] = {}  # rows that list chats, by file
        for file in material.files:
            if file.kind == "rows":
                self._read(file)
            elif file.kind == "document":
                self._read_document(file)
            else:
                self.transcripts.append(file)
        chats = frozenset(filter(self.is_read, self.composers))
        for lists in self.lists.values():
            for kind, versions in lists.items():
                self._lists(kind, versions, chats)
        done: set[str] = set()
        while due := sorted(self.composers.keys() - done):  # a subagent may start others
            for composer_id in due:
                self._find_tasks(self.composers[composer_id])
            done.update(due)

    def is_read(self, chat_id: str) -> bool:
        """Whether what is said of a chat is read."""
        return self.scope is None or chat_id in self.scope.chats

    def composer(self, composer_id: str) -> Composer:
        """The chat of this id."""
        if composer_id not in self.composers:
            self.composers[composer_id] = Composer(composer_id)
        return self.composers[composer_id]

    # -- reading ------------------------------------------------------------------------------

    def _read_document(self, file: SourceFile) -> None:
        said = as_dict(loose(self.material.text_document(file)))
        path = PurePath(file.path)
        is_meta = path.name.endswith(META)
        names = ("cwd",) if is_meta else ("folder", "workspace")
        folder = next((found for name in names if (found := path_of(said.get(name)))), None)
        if folder is None:
            self.material.count(path.name, "unmapped")
            return
        self.folders[str(path.parent)] = folder
        if is_meta:
            self.metas[str(path.parent)] = file.id
        self.material.count(META if is_meta else "workspace.json", "derived")

    def _read(self, file: SourceFile) -> None:
        store = Store(self.material, file)
        read = self.read.setdefault(file.id, set())
        lists = self.lists.setdefault(file.id, {})
        for row in self.material.rows(file, self.scope.holds if self.scope else None):
            if self.scope is not None:
                read.add(row.offset)
            key = (row.values or {}).get("key")
            if row.table in ("meta", "blobs"):
                self._store_row(store, row)
                continue
            if row.table == HEADERS:
                self._header(row)
                continue
            if not isinstance(key, str):
                self.material.count(row.table, "unmapped")
                continue
            kind, _, rest = key.partition(":")
            if kind in LISTS or kind == TABS:
                lists.setdefault(kind, []).append(self.material.held_row(row))
            elif row.latest:
                self._row(kind, rest, row)
            else:
                self._earlier(kind, rest, row)

    def _earlier(self, kind: str, rest: str, row: Row) -> None:
        self.material.count(f"{kind}{EARLIER}", "unmapped")
        if kind == "composerData":
            self._summary_of(rest, row)

    def _lists(self, kind: str, versions: list[Row], chats: frozenset[str]) -> None:
        """Versions of one row: a chat that stood in an earlier one, and is gone, is told by the
        last that has it: one of these chats, or one that stood there whole."""
        self.told = set()
        untold, named = chats, Mentions(_names(chats))
        for row in reversed(versions):
            if untold != chats - self.told:
                untold = chats - self.told
                named = Mentions(_names(untold))
            whole = structs.replace(row, values=self.material.values_of(row))
            data = raw((whole.values or {}).get("value"))
            if row.latest or is_inline(data) or any(named(data)):
                self._row(kind if row.latest else f"{kind}{EARLIER}", "", whole)
            else:
                self._earlier(kind, "", row)

    def _store_row(self, store: Store, row: Row) -> None:
        if row.latest:
            store.add(row)
            if store not in self.stores:
                self.stores.append(store)
        if row.table == "meta" or not row.latest:  # blobs are counted where they are used
            self.material.count(row.table, "derived" if row.latest else "unmapped")

    def _row(self, kind: str, rest: str, row: Row) -> None:
        value = (row.values or {}).get("value")
        if value is None:  # so Cursor leaves a chat that it deleted
            self.material.count(kind, "unmapped")
            return
        if is_blank(value):
            self.material.fault(row, f"{kind}:{rest} holds nothing")
            self.material.count(kind, "malformed")
            return
        kind_now = kind.removesuffix(EARLIER)
        readers = {
            "bubbleId": self._bubble,
            "checkpointId": self._checkpoint,
            "composer.composerData": self._listed_composers,
            "composer.composerHeaders": self._listed_composers,
            "composerData": self._composer,
            "messageRequestContext": self._context,
            TABS: self._tabs,
        }
        read = readers.get(kind_now)
        understood = read(rest, row) if read else None
        if understood is False:
            self.material.fault(row, f"{kind}:{rest} is not what it should be")
            self.material.count(kind, "malformed")
        else:
            self.material.count(kind, "derived" if understood else "unmapped")

    def _composer(self, composer_id: str, row: Row) -> bool | None:
        cell = raw((row.values or {}).get("value"))  # once: it may list very many bubbles
        data = decoded(cell, COMPOSER)
        if data is None:
            self.composer(composer_id).broken = True
            return False
        fields = fields_of(cell)
        order = order_of(data, fields)
        self._said(composer_id, _Said(OWN, data, row, row.print, order, more_of(fields)))
        self._summary(composer_id, data, row)
        return True if order else None  # a draft that was never sent says nothing

    def _said(self, composer_id: str, said: _Said, inner: tuple[str | int, ...] = ()) -> None:
        """One record's word on a chat, with the bubbles written into it."""
        if composer_id == PLACEHOLDER:
            return
        composer, row, data = self.composer(composer_id), said.row, said.data
        said.row = self.material.held_row(row)
        composer.said.append(said)
        composer.rows.append(said.row)
        for at, each in enumerate(as_list(data.conversation)):
            self._inline(composer, each, row, (*inner, "conversation", at))
        for name, each in as_dict(data.conversation_map).items():
            self._inline(composer, each, row, (*inner, "conversationMap", name))
        # Their content is read again, and their order is known.
        data.conversation = data.conversation_map = None

    def _inline(
        self, composer: Composer, said: Any, row: Row, inner: tuple[str | int, ...]
    ) -> None:
        if isinstance(said, dict):
            self._add_bubble(composer, str(inner[-1]), encoded(said), row, inner)

    def _bubble(self, rest: str, row: Row) -> bool | None:
        composer_id, _, name = rest.partition(":")
        value = (row.values or {}).get("value")
        return self._add_bubble(self.composer(composer_id), name, raw(value), row, ())

    def _add_bubble(
        self, composer: Composer, name: str, value: bytes, row: Row, inner: tuple[str | int, ...]
    ) -> bool:
        data = decoded(value, _BUBBLE)
        if data is None:
            return False
        own = as_text(data.bubble_id) or as_text(data.id)
        key = own if own and (inner or own == name) else name  # one text for both
        if own is None:  # a mere number is another's too
            own = f"{composer.id}:{name}" if inner and isinstance(inner[-1], int) else name
        at = bubble_time(data.created_at, data.timing_info) or uuid7_ms(own)
        text = as_text(data.text) or as_text(data.raw_text) or ""
        told = [text.encode(errors="surrogatepass"), data.thinking, data.tool_former_data]
        bubble = Bubble(
            own,
            "user" if data.type in ASKING else "assistant",
            self.material.held_row(row),
            inner,
            at,
            digest(b"\0".join(bytes(each) for each in told)),
            as_text(as_dict(data.model_info).get("modelName")) or as_text(data.model_type),
            as_text(data.request_id),
            as_text(data.checkpoint_id),
            any(mark in bytes(data.tool_former_data) for mark in (b'"task', b"48")),
        )
        known = composer.bubbles.get(key)
        # A row of its own beats one written into the chat; else the longer, then the smaller hash.
        if known is None or _standing(bubble) < _standing(known):
            composer.bubbles[key] = bubble
        return True

    def _checkpoint(self, rest: str, row: Row) -> bool:
        composer_id, _, name = rest.partition(":")
        self.composer(composer_id).checkpoints[name] = self.material.held_row(row)
        return True

    def _context(self, rest: str, row: Row) -> bool:
        composer_id, _, name = rest.partition(":")
        self.composer(composer_id).contexts[name] = self.material.held_row(row)
        return True

    def _listed_composers(self, _: str, row: Row) -> bool | None:
        """A list of chats: whole ones once, heads only since 2025."""
        said = loose((row.values or {}).get("value"))
        if not isinstance(said, dict):
            return False
        for at, each in enumerate(as_list(said.get("allComposers"))):
            data = converted(each)
            composer_id = as_text(data.composer_id) if data else None
            if data is None or composer_id is None or not self._tells(composer_id):
                continue
            place = str(self._path(row).parent)
            self.listed[composer_id] = max(self.listed.get(composer_id, ""), place)
            rank = WHOLE if data.conversation else HEAD
            told = _Said(rank, data, row, _print(each), order_of(data, each), more_of(each))
            self._said(composer_id, told, ("allComposers", at))
        return True

    def _header(self, row: Row) -> None:
        """What a table says of a chat, each in a row: where it was held, above all."""
        values = row.values or {}
        composer_id = as_text(values.get("composerId"))
        said = loose(values.get("value"))
        data = converted(said)
        if not row.latest or composer_id is None or data is None:
            self.material.count(HEADERS if row.latest else f"{HEADERS}{EARLIER}", "unmapped")
            return
        self.material.count(HEADERS, "derived")
        place = self._path(row).parent.parent / WORKSPACES
        if self.is_read(composer_id):
            if as_text(values.get("workspaceId")):
                place = place / values["workspaceId"]
                self.listed[composer_id] = max(self.listed.get(composer_id, ""), str(place))
            told = _Said(HEADER, data, row, _print(said), order_of(data, said), more_of(said))
            self._said(composer_id, told)

    def _path(self, row: Row) -> PurePath:
        return PurePath(self.material.file_of(row).path)

    def _tells(self, chat_id: str) -> bool:
        """Whether a list is the last to tell of a chat that is read."""
        is_last = chat_id not in self.told
        self.told.add(chat_id)
        return is_last and self.is_read(chat_id)

    def _tabs(self, _: str, row: Row) -> bool:
        """The chat panel of 2024."""
        said = loose((row.values or {}).get("value"))
        if not isinstance(said, dict):
            return False
        for at, tab in enumerate(as_list(said.get("tabs"))):
            tab_id = as_text(as_dict(tab).get("tabId"))
            if tab_id is None or not self._tells(tab_id):
                continue
            data = ComposerData(name=tab.get("chatTitle"), last_updated_at=tab.get("lastSendTime"))
            order = Numbering()
            composer = self.composer(tab_id)
            for number, bubble in enumerate(_sent(dicts(tab.get("bubbles")))):
                self._inline(composer, bubble, row, ("tabs", at, "bubbles", number))
                order.add(as_text(bubble.get("id")) or str(number))
            self._said(tab_id, _Said(TAB, data, row, _print(tab), order))
            self.listed[tab_id] = str(self._path(row).parent)
        return True

    # -- summaries ----------------------------------------------------------------------------

    def _summary_of(self, composer_id: str, row: Row) -> None:
        data = decoded((row.values or {}).get("value"), COMPOSER)
        if data is not None:
            self._summary(composer_id, data, row)

    def _summary(self, composer_id: str, data: ComposerData, row: Row) -> None:
        """Each that was ever kept: a later one replaces it in the source."""
        said = as_dict(data.latest_conversation_summary)
        said = as_dict(said.get("summary")) or said
        words = as_text(said.get("summary"))
        last = as_text(said.get("truncationLastBubbleIdInclusive"))
        if words and last:
            known = self.composer(composer_id).summaries.get(last)
            new = Summary(words, self.material.held_row(row))
            if known is None or known.words < words:
                self.composer(composer_id).summaries[last] = new

    # -- subagents ----------------------------------------------------------------------------

    def _find_tasks(self, composer: Composer) -> None:
        """Calls that start a subagent, also on bubbles that the chat lists no more."""
        info = as_dict(composer.get("subagent_info"))
        parent = as_text(info.get("parentComposerId"))
        composer.parent = parent if parent and parent != composer.id else composer.parent
        for child in as_list(composer.get("sub_composer_ids")):
            if isinstance(child, str) and child != composer.id:
                self.composer(child).parent = self.composer(child).parent or composer.id
        for number in range(len(composer.bubbles)):
            bubble = composer.bubbles.values.read(number)
            if not bubble.may_spawn:
                continue
            for call in tool_data(self.bubbles[bubble]):
                if is_task(call):
                    self._task(composer, bubble, call)

    def _task(self, parent: Composer, bubble: Bubble, call: dict[str, Any]) -> None:
        call_id = as_text(call.get("toolCallId"))
        if call_id is None:
            return
        extra = as_dict(call.get("additionalData"))
        named = (as_text(extra.get(n)) for n in ("subagentComposerId", "composerId", "agentId"))
        child_id = next((n for n in named if n and n in self.composers), f"{TASK}{call_id}")
        child = self.composer(child_id)
        child.parent = child.parent or parent.id
        child.task = as_dict(loose(call.get("params"))) or as_dict(call.get("params"))
        child.task = child.task or as_dict(loose(call.get("rawArgs")))
        child.task_status = TASK_STATUSES[status_of(call)[0]]
        if not child.rows:
            child.rows.append(bubble.row)
        self.spawned.setdefault(parent.id, {})[call_id] = child_id
        written = embedded(call)
        data = converted(written)
        if data is not None:
            way = (*bubble.inner, "toolFormerData", "additionalData", EMBEDDED)
            print_ = _print(written)
            told = _Said(GIVEN, data, bubble.row, print_, order_of(data, written), more_of(written))
            self._said(child_id, told, way)


def _names(chats: Iterable[str]) -> Iterator[bytes]:
    return (chat.encode(errors="surrogatepass") for chat in chats if chat)


def _sent(bubbles: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of a tab without the box below them, where the next prompt would be typed."""
    found = list(bubbles)
    if found and found[-1].get("type") in ASKING and not text_of(found[-1]):
        found.pop()
    return found


def _print(said: Any) -> bytes:
    return digest(encoded(said))


def _standing(bubble: Bubble) -> tuple[bool, int, bytes]:
    return bool(bubble.inner), -bubble.row.length, bubble.print
