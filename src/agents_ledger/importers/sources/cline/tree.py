"""Cline: how the timeline and the history of a task become a tree of turns."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

import msgspec
from msgspec import field

from agents_ledger.importers.parsing.json_spans import (
    LONG,
    raw_list,
    read_document,
    read_message,
    unread,
)
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json, project_name
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.port.material import HeldRecord, Material
from agents_ledger.importers.sources.cline import records, rules
from agents_ledger.importers.sources.cline.turns import ClineTimelineTurn, add_history
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.message_log import (
    FamilyTurns,
    LogMessage,
    LogSession,
    MessageFamily,
)
from agents_ledger.importers.transcript.message_tree import (
    ActiveBranch,
    MessageKind,
    MessageTree,
    MessageTurn,
    MessageTurns,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.imports.interning import HELD_NAMES, Numbering
from agents_ledger.model.imports.sources import DerivedSession, SourceFile

HISTORY_INDEX_END = 1 << 31
CALL_SUFFIXES = tuple(f":{name}" for name in rules.CALL_ENTRIES)  # of the ids of such entries


class _DocumentMessage(NamedTuple):
    data: bytes
    held: HeldRecord


class _IdCounts:
    """How often each id has occurred in a file."""

    def __init__(self, held_names: int = HELD_NAMES) -> None:
        self._ids = Numbering(forgets=True, held=held_names)
        self._counts = array("I")

    def add(self, name: str) -> int:
        number = self._ids.add(name)
        if number == len(self._counts):
            self._counts.append(0)
        self._counts[number] += 1
        return self._counts[number]


class ClineTask(LogSession):
    """A task, and what its files say of it."""

    path: PurePath = PurePath()  # of its folder
    live: ActiveBranch = field(default_factory=ActiveBranch)
    id_counts: _IdCounts = field(default_factory=_IdCounts)
    has_timeline: bool = False
    history: list[HeldRecord] = field(default_factory=list)

    def find_folder(self, sent: str) -> None:
        """Take the folder from what was sent to the model, unless it is known."""
        match = rules.WORKSPACE.search(sent) if self.folder is None else None
        self.folder = match[1] if match else self.folder


class ClineTaskTree(MessageFamily):
    """The tasks of some files: turns come from the timeline, else from the history."""

    def __init__(self, material: Material, files: Sequence[SourceFile], version: int) -> None:
        super().__init__(material, version)
        # By entry, the history message that it follows, or NONE.
        self.history_index = array("i")
        self.call_position: dict[int, int] = {}  # by entry, which call of the answer it shows
        self.tasks: dict[str, ClineTask] = {}
        self.last_calls: tuple[ClineTask | None, int, list[records.ClineCall]] = (
            None,
            NONE,
            [],
        )  # a cache
        # Timelines first: only without one does the history give the turns.
        for file in sorted(files, key=_is_history):
            if _is_history(file):
                self._read_history(file)
            else:
                self._read_timeline(file)
        for task in self.tasks.values():
            self._match_calls(task)

    def _task(self, file: SourceFile) -> ClineTask:
        path = PurePath(file.path).parent
        task = self.tasks.setdefault(path.name, ClineTask(path.name, path=path))
        task.file_ids.add(file.id)
        return task

    def _messages(self, file: SourceFile) -> Iterator[_DocumentMessage] | None:
        document = read_document(self.material, file, raw_list, "a list of messages")
        if document is None:
            return None
        pieces, messages = document
        return (_DocumentMessage(data, pieces.held(data)) for data in map(bytes, messages))

    # -- the timeline -------------------------------------------------------------------------

    def _read_timeline(self, file: SourceFile) -> None:
        messages = self._messages(file)
        if messages is None:
            return
        task = self._task(file)
        task.has_timeline = True
        held_names = self.material.limits.held_names
        task.live, task.id_counts = ActiveBranch(), _IdCounts(held_names)
        for number, message in enumerate(messages):
            what = f"entry {number}"
            entry = read_message(self.material, file, records.decode_entry, message.data, what)
            if entry is not None:
                self._add_entry(task, file, message, entry)
        self.states.add(file, map(self.nodes.name, task.live))

    def _add_entry(
        self,
        task: ClineTask,
        file: SourceFile,
        message: _DocumentMessage,
        entry: records.ClineEntry,
    ) -> None:
        name = as_text(entry.say) or as_text(entry.ask) or "(none)"
        kind = records.entry_kind(name, entry, is_first=task.live.last == NONE)
        self.material.count(name, "derived" if kind is not None else "unmapped")
        if kind is None:
            return
        task.seen(self.material.timestamp(entry.ts, file))
        if name == "api_req_started":
            task.find_folder(str(as_dict(parse_json(str(entry.text))).get("request")))
        # Entries have no id; the document is rewritten, but their times stay.
        node_id = f"{task.id}:{entry.ts}:{name}"
        count = task.id_counts.add(node_id)
        if count > 1:  # of one kind in one millisecond
            node_id += f":{count}"
        node = self._append(task, file, LogMessage(node_id, kind, message.data), message.held)
        index = entry.conversation_history_index
        if isinstance(index, int):
            self.history_index[node] = index if 0 <= index < HISTORY_INDEX_END else NONE

    def _append(
        self, task: ClineTask, file: SourceFile, message: LogMessage, held: HeldRecord
    ) -> int:
        """Put a message below the previous one; what a restored task dropped stays a branch."""
        last = task.live.last
        is_live = self.nodes.number(message.id) in task.live
        parent = None if last == NONE or is_live else self.nodes.name(last)
        node = self.put(message, parent, held, file)
        if node == len(self.history_index):
            self.history_index.append(NONE)
        task.live.add(node)
        return node

    # -- what the model was sent --------------------------------------------------------------

    def _read_history(self, file: SourceFile) -> None:
        messages = self._messages(file)
        if messages is None:
            return
        task = self._task(file)
        task.history = []
        if not task.has_timeline:
            task.live = ActiveBranch()
        checksums = array("I")
        for index, message in enumerate(messages):
            task.history.append(message.held)
            checksums.append(zlib.crc32(message.data))
            if has_text_exceeding(message.data, self.material.limits.text_bytes):
                unread(self.material, file, f"message {index} cannot be read: {LONG}")
                continue
            record = as_dict(parse_json(message.data))
            role = as_text(record.get("role"))
            is_mapped = role in ("user", "assistant")
            self.material.count(f"history: {role}", "derived" if is_mapped else "unmapped")
            if is_mapped and not task.has_timeline:
                task.seen(self.material.timestamp(record.get("ts"), file))
                kind: MessageKind = "prompt" if index == 0 or records.is_prompt(record) else "reply"
                for text in records.texts(record.get("content")) if role == "user" else ():
                    task.find_folder(text)
                # Messages of a history have no id.
                node_id = f"{task.id}:{index}:{checksums[-1]:08x}"
                self._append(task, file, LogMessage(node_id, kind, message.data), message.held)
        self.states.add(file, (f"{index}:{crc:08x}" for index, crc in enumerate(checksums)))

    def _calls_after(self, task: ClineTask, index: int) -> list[records.ClineCall]:
        """The calls of the answer to a message of the history."""
        if self.last_calls[:2] != (task, index):
            answer, next_message = (
                parse_json(self.material.bytes_of(task.history[at]))
                if at < len(task.history)
                else None
                for at in (index + 1, index + 2)
            )
            self.last_calls = (task, index, records.history_calls(answer, next_message))
        return self.last_calls[2]

    def _match_calls(self, task: ClineTask) -> None:
        """Match timeline entries with calls of the history, where both have the same number."""
        by_index: dict[int, list[int]] = {}
        for node in task.live:
            index = self.history_index[node]
            if index != NONE and self.nodes.name(node).endswith(CALL_SUFFIXES):
                by_index.setdefault(index, []).append(node)
        for index, entries in by_index.items():
            # With different numbers it is not known which call an entry shows.
            if len(entries) == len(self._calls_after(task, index)):
                self.call_position |= {node: at for at, node in enumerate(entries)}

    # -- derivation ---------------------------------------------------------------------------

    def turns(self, tree: MessageTree) -> MessageTurns:
        return _ClineTaskTurns(self, tree)

    def context(self, turn: MessageTurn) -> bytes:
        return str(self.task_of(turn).folder).encode("utf-8", "replace")

    def build_turn(
        self, builder: TurnBuilder, turn: MessageTurn, messages: Iterable[LogMessage]
    ) -> None:
        task = self.task_of(turn)
        builder.workspace_path = task.folder
        if task.has_timeline:
            ClineTimelineTurn(builder, self.calls_of(turn)).add(list(messages))
        else:
            add_history(builder, list(messages))

    def task_of(self, turn: MessageTurn) -> ClineTask:
        return next(t for t in self.tasks.values() if turn.id.startswith(f"{t.id}:"))

    def calls_of(self, turn: MessageTurn) -> dict[str, records.ClineCall]:
        """The calls of a turn in the history, by the messages that show them."""
        task = self.task_of(turn)
        calls = {}
        for message_id, node_id in turn.members:
            node = self.nodes.number(node_id)
            if node in self.call_position:
                answer_calls = self._calls_after(task, self.history_index[node])
                calls[message_id] = answer_calls[self.call_position[node]]
        return calls

    def derived_sessions(self, tree: MessageTree) -> Iterator[DerivedSession]:
        for task in self.tasks.values():
            extension = next((part for part in task.path.parts if part in rules.EXTENSIONS), None)
            cwd = task.folder
            project = project_name(cwd) if cwd else None
            metadata = {"extension": extension, "cwd": cwd, "project": project}
            yield DerivedSession(
                session_id=task.id,
                label=f"{rules.NAME}:{task.id}",
                head=tree.head(task.live.last),
                file_ids=frozenset(task.file_ids),
                created_at=task.created_at,
                updated_at=task.updated_at,
                routing_key=cwd,
                metadata={name: value for name, value in metadata.items() if value},
            )


class _ClineTaskTurns(FamilyTurns):
    family: ClineTaskTree

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        members = self.tree[turn]
        (context, *prints), file_ids = super().evidence(turn)
        calls = self.family.calls_of(members)
        prints += [msgspec.json.encode(call, order="sorted") for call in calls.values()]
        task_files = self.family.task_of(members).file_ids if calls else ()
        return [*prints, context], {*file_ids, *task_files}


def _is_history(file: SourceFile) -> bool:
    return PurePath(file.path).name == records.HISTORY
