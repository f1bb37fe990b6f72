"""Cline, Roo Code and Kilo Code: a folder per task with two documents, rewritten as it goes on.
What Cline keeps since its SDK, cline_sessions.py reads.

`ui_messages.json` is the timeline and gives the turns; `api_conversation_history.json` is what the
model was sent and gives what tools were asked and answered. Alone, each is read for itself.
docs/sources/cline.md tells where each rule was learned.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field, structs

from agents_ledger.importers.parsing.json_spans import (
    LONG,
    raw_list,
    read_document,
    read_message,
    unread,
)
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.port.source import (
    RECORD_MAX,
    Held,
    Home,
    Look,
    Material,
    Project,
    Source,
    fingerprint,
)
from agents_ledger.importers.sources.cline import sessions as cline_sessions
from agents_ledger.importers.sources.cline.sessions import Sessions
from agents_ledger.importers.sources.cline.turns import (
    Call,
    api_calls,
    build_api,
    build_timeline,
    given_up,
    is_input,
    texts,
)
from agents_ledger.importers.transcript.message_tree import (
    Kind,
    Live,
    Nodes,
    Plan,
    PlannedTurn,
    node_of,
    planned,
)
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    States,
    as_dict,
    as_list,
    as_text,
    made,
    parsed,
    project_name,
    record_of,
)
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
    SourceKind,
)
from agents_ledger.model.turns import Turn

NAME = "cline"
TIMELINE, HISTORY = "ui_messages.json", "api_conversation_history.json"
EXTENSIONS = (
    "saoudrizwan.claude-dev",
    "rooveterinaryinc.roo-cline",
    "kilocode.kilo-code",
)
EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
ENTRY = re.compile(rb'\{\s*"ts"\s*:\s*\d+\s*,\s*"type"\s*:\s*"(say|ask)"')
WORKSPACE = re.compile(r"# Current Work(?:ing|space) Directory \((.+?)\) Files")
CALLS = (":tool", ":command", ":use_mcp_server")
INDEX_END = 1 << 31
SENT_BYTES = 1 << 20  # of a file, in which what was sent first says the folder
SENT = re.compile(WORKSPACE.pattern.encode())
PROMPTS = ("task", "user_feedback", "user_feedback_diff")
COMPACTIONS = ("condense_context",)
FAILURES = ("api_req_failed", "error")
NOTICES = (
    "api_req_started",
    "diff_error",
    "error_retry",
    "mistake_limit_reached",
)
REPLIES = (
    "browser_action",
    "browser_action_launch",
    "browser_action_result",
    "command",
    "command_output",
    "completion_result",
    "followup",
    "mcp_server_response",
    "plan_mode_respond",
    "reasoning",
    "subtask_result",
    "text",
    "tool",
    "use_mcp_server",
)
KINDS: dict[str, Kind] = {
    **dict.fromkeys(REPLIES, "reply"),
    **dict.fromkeys(NOTICES, "notice"),
    **dict.fromkeys(FAILURES, "failure"),
    **dict.fromkeys(PROMPTS, "prompt"),
    **dict.fromkeys(COMPACTIONS, "compaction"),
}


class _Entry(Struct, rename="camel"):
    """An entry of the timeline, as far as the outline needs it."""

    ts: Any = None
    say: Any = None
    ask: Any = None
    text: Any = None
    partial: Any = None
    conversation_history_index: Any = None


_entry = msgspec.json.Decoder(_Entry).decode


class _Message(NamedTuple):
    """A message of a document, and what is kept of it."""

    data: bytes
    held: Held


class _Times:
    """How often ids were met in a file."""

    def __init__(self) -> None:
        self._ids = Numbering(forgets=True)
        self._met = array("I")

    def __call__(self, name: str) -> int:
        """Once more."""
        number = self._ids.add(name)
        if number == len(self._met):
            self._met.append(0)
        self._met[number] += 1
        return self._met[number]


class _Task(Struct):
    task_id: str
    folder: PurePath
    file_ids: frozenset[int] = frozenset()
    live: Live = field(default_factory=Live)
    times: _Times = field(default_factory=_Times)
    has_timeline: bool = False
    history: list[Held] = field(default_factory=list)
    workspace: str | None = None
    first_at: int = 0
    last_at: int = 0

    def worked_in(self, sent: str) -> None:
        """Take the folder from what was sent, if it says one and none is known."""
        found = WORKSPACE.search(sent) if self.workspace is None else None
        self.workspace = found[1] if found else self.workspace


class Cline(Source):
    """Reader of the task folders of Cline and its descendants."""

    name = NAME
    version = 6
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """Below the storage of every editor and extension, and of the command line."""
        users = [home.config(editor) / "User" for editor in EDITORS]
        users.append(home.home / ".vscode-server" / "data" / "User")
        stores = [user / "globalStorage" / name for user in users for name in EXTENSIONS]
        stores.append(cline_sessions.data(home))
        return [*(store / "tasks" for store in stores), cline_sessions.root(home)]

    def wants(self, path: Path) -> bool:
        """The two documents of a task, and those of a session."""
        return path.name in (TIMELINE, HISTORY) or cline_sessions.wants(path)

    def recognises(self, path: Path, head: bytes) -> bool:
        """By name and by what it holds; whatever it is called, by what it begins with."""
        start = head.lstrip()
        if not start.startswith(b"["):
            return cline_sessions.recognises(path, start)
        if path.name == HISTORY:
            return b'"role"' in start
        told = ENTRY.search if path.name == TIMELINE else ENTRY.match
        return told(start[1:].lstrip()) is not None

    def family(self, path: Path) -> str:
        """The task, or the session with its subagents."""
        return f"{NAME}:{path.parent}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As what was sent says, in either file; else as the list of tasks does. Of a session: as
        its manifest says."""
        if path.name not in (TIMELINE, HISTORY) and cline_sessions.wants(path):
            return cline_sessions.projects(path, look)
        for name in (HISTORY, TIMELINE):
            sent = SENT.search(look.head(path.with_name(name), SENT_BYTES))
            if sent is not None:
                return [str(parsed(b'"%s"' % sent[1]) or sent[1].decode(errors="replace"))]
        own = parsed(look.head(path.with_name("history_item.json"), RECORD_MAX))
        state = path.parent.parent.parent / "state" / "taskHistory.json"
        found = _folder(own) or look.document(state, _folders).get(path.parent.name)
        return [found] if found else None

    def derive(self, material: Material) -> Derivation:
        """What the documents say."""
        tasks: list[SourceFile] = []
        sessions: list[SourceFile] = []
        for file in material.files:
            is_task = PurePath(file.path).name in (TIMELINE, HISTORY)
            is_session = not is_task and cline_sessions.is_of_session(material, file)
            (sessions if is_session else tasks).append(file)
        of_tasks = _Outline(material, tasks).derivation()
        if not sessions:
            return of_tasks
        found = Sessions(material, sessions, self.version).derivation()
        if not tasks:
            return found
        return structs.replace(
            found,
            turns=(*of_tasks.turns, *found.turns),
            sessions=of_tasks.sessions + found.sessions,
            superseded=of_tasks.superseded | found.superseded,
        )


def _folder(task: Any) -> str | None:
    names = ("cwdOnTaskInitialization", "workspace")
    return next((said for name in names if (said := as_text(as_dict(task).get(name)))), None)


def _folders(listed: Any) -> dict[str, str]:
    """The folder of each task, as the first entry of a list that tells it says."""
    found: dict[str, str] = {}
    for task in as_list(listed):
        name, folder = as_text(as_dict(task).get("id")), _folder(task)
        if name and folder:
            found.setdefault(name, folder)
    return found


class _Outline:
    def __init__(self, material: Material, files: Sequence[SourceFile]) -> None:
        self.material = material
        self.nodes = Nodes()
        self.followed = array("i")  # by entry, the message it followed, or NONE
        self.matched: dict[int, int] = {}  # by entry, which of the calls there it tells of
        self.tasks: dict[str, _Task] = {}
        self.calls: tuple[_Task | None, int, list[Call]] = (None, NONE, [])  # as asked for last
        self.states = States()
        timelines = [file for file in files if not _is_history(file)]
        for file in timelines:
            self._timeline(file)
        for file in files:
            if _is_history(file):
                self._history(file)

    def _task(self, file: SourceFile) -> _Task:
        folder = PurePath(file.path).parent
        task = self.tasks.setdefault(folder.name, _Task(folder.name, folder))
        task.file_ids |= {file.id}
        return task

    def _messages(self, file: SourceFile) -> Iterator[_Message] | None:
        found = read_document(self.material, file, raw_list, "a list of messages")
        if found is None:
            return None
        return (_Message(each, found.pieces.held(each)) for each in map(bytes, found.said))

    # -- the timeline -------------------------------------------------------------------------

    def _timeline(self, file: SourceFile) -> None:
        messages = self._messages(file)
        if messages is None:
            return
        task = self._task(file)
        task.has_timeline = True
        task.live, task.times = Live(), _Times()
        for number, message in enumerate(messages):
            entry = read_message(self.material, file, _entry, message.data, f"entry {number}")
            if entry is not None:
                self._add_entry(task, file, message, entry)
        self.states.add(file, map(self.nodes.name, task.live))

    def _add_entry(self, task: _Task, file: SourceFile, message: _Message, entry: _Entry) -> None:
        name = as_text(entry.say) or as_text(entry.ask) or "(none)"
        kind = _kind(name, entry, is_first=task.live.last == NONE)
        self.material.count(name, "derived" if kind is not None else "unmapped")
        if kind is None:
            return
        at = self.material.moment(entry.ts, file)
        task.first_at = task.first_at or at
        task.last_at = max(task.last_at, at)
        if name == "api_req_started":
            task.worked_in(str(as_dict(parsed(str(entry.text))).get("request")))
        node_id = f"{task.task_id}:{entry.ts}:{name}"
        number = task.times(node_id)
        if number > 1:  # of one kind in one millisecond
            node_id += f":{number}"
        node = self._hang(task, file, node_id, kind, message)
        index = entry.conversation_history_index
        if isinstance(index, int):
            self.followed[node] = index if 0 <= index < INDEX_END else NONE

    def _hang(
        self, task: _Task, file: SourceFile, node_id: str, kind: Kind, message: _Message
    ) -> int:
        """Put an entry behind the one before it; what a restored task left stays a branch."""
        last = task.live.last
        is_live = self.nodes.number(node_id) in task.live
        above = None if last == NONE or is_live else self.nodes.name(last)
        self.nodes.put(node_id, node_of(kind, above, message.data, message.held, file.id))
        node = self.nodes.number(node_id)
        if node == len(self.followed):
            self.followed.append(NONE)
        task.live.add(node)
        return node

    # -- what the model was sent --------------------------------------------------------------

    def _history(self, file: SourceFile) -> None:
        messages = self._messages(file)
        if messages is None:
            return
        task = self._task(file)
        task.history = []
        if not task.has_timeline:
            task.live = Live()
        sums = array("I")
        for index, message in enumerate(messages):
            task.history.append(message.held)
            sums.append(zlib.crc32(message.data))
            if has_text_exceeding(message.data, self.material.limits.text_bytes):
                unread(self.material, file, f"message {index} cannot be read: {LONG}")
                continue
            said = as_dict(parsed(message.data))
            role = as_text(said.get("role"))
            mapped = role in ("user", "assistant")
            self.material.count(f"history: {role}", "derived" if mapped else "unmapped")
            if mapped and not task.has_timeline:
                at = self.material.moment(said.get("ts"), file)
                task.first_at = task.first_at or at
                task.last_at = max(task.last_at, at)
                kind: Kind = "prompt" if index == 0 or is_input(said) else "reply"
                for words in texts(said.get("content")) if role == "user" else ():
                    task.worked_in(words)
                node_id = f"{task.task_id}:{index}:{sums[-1]:08x}"
                self._hang(task, file, node_id, kind, message)
        self.states.add(file, (f"{at}:{crc:08x}" for at, crc in enumerate(sums)))

    def _calls(self, task: _Task, index: int) -> list[Call]:
        """The calls of the answer in the history to one of its messages."""
        if self.calls[:2] != (task, index):
            answer, after = (
                parsed(self.material.bytes_of(task.history[at])) if at < len(task.history) else None
                for at in (index + 1, index + 2)
            )
            self.calls = (task, index, api_calls(answer, after))
        return self.calls[2]

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        plan = planned(self.nodes)
        for task in self.tasks.values():
            self._match(task)
        return Derivation(
            turns=made(range(len(plan)), lambda number: self._derived(plan[number])),
            sessions=tuple(self._sessions(plan)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=self.states.superseded(),
        )

    def _match(self, task: _Task) -> None:
        """Find the call behind each tool entry of the timeline, where both tell the same number."""
        by_index: dict[int, list[int]] = {}
        for node in task.live:
            index = self.followed[node]
            if index != NONE and self.nodes.name(node).endswith(CALLS):
                by_index.setdefault(index, []).append(node)
        for index, entries in by_index.items():
            if len(entries) == len(self._calls(task, index)):
                self.matched |= {node: at for at, node in enumerate(entries)}

    def _own(self, task: _Task, turn: PlannedTurn) -> dict[str, Call]:
        """The calls of a turn, by the messages that tell of them."""
        found = {}
        for message_id, node_id in turn.members:
            node = self.nodes.number(node_id)
            if node in self.matched:
                found[message_id] = self._calls(task, self.followed[node])[self.matched[node]]
        return found

    def _derived(self, turn: PlannedTurn) -> DerivedTurn:
        task = next(t for t in self.tasks.values() if turn.id.startswith(f"{t.task_id}:"))
        own = self._own(task, turn)
        prints = turn.prints(self.nodes)
        prints += [msgspec.json.encode(own[m], order="sorted") for m in own]
        prints.append(str(task.workspace).encode("utf-8", "replace"))
        files = task.file_ids if own else frozenset()
        return DerivedTurn(
            turn.id,
            turn.parent,
            fingerprint(Cline.version, prints),
            files.union(*(self.nodes.read(node_id).file_ids for _, node_id in turn.members)),
            tuple(message_id for message_id, _ in turn.members),
            partial(self._build, task, turn),
        )

    def _build(self, task: _Task, turn: PlannedTurn) -> Turn:
        nodes = [(message_id, self.nodes.read(node_id)) for message_id, node_id in turn.members]
        records = [(m, node.kind, record_of(self.material, node.record)) for m, node in nodes]
        if task.has_timeline:
            return build_timeline(turn, records, self._own(task, turn), task.workspace)
        return build_api(turn, records, task.workspace)

    def _sessions(self, plan: Plan) -> Iterator[DerivedSession]:
        for task in self.tasks.values():
            extension = next((part for part in task.folder.parts if part in EXTENSIONS), None)
            cwd = task.workspace
            project = project_name(cwd) if cwd else None
            metadata = {"extension": extension, "cwd": cwd, "project": project}
            yield DerivedSession(
                session_id=task.task_id,
                label=f"{NAME}:{task.task_id}",
                head=plan.head(task.live.last),
                file_ids=task.file_ids,
                created_at=task.first_at,
                updated_at=task.last_at,
                routing_key=cwd,
                metadata={name: value for name, value in metadata.items() if value},
            )


def _is_history(file: SourceFile) -> bool:
    return PurePath(file.path).name == HISTORY


def _kind(name: str, entry: _Entry, *, is_first: bool) -> Kind | None:
    """What an entry is; None: it makes no row."""
    if is_first:
        return "prompt" if name in ("text", "task") else None
    said = as_text(entry.text)
    if name == "completion_result" and said is None:
        return None
    if name == "api_req_started" and given_up(said):
        return "failure"
    return KINDS.get(name)
