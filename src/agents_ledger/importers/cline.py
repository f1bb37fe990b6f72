"""Cline, Roo Code and Kilo Code: a folder per task with two documents, rewritten as it goes on.

`ui_messages.json` is the timeline and gives the turns; `api_conversation_history.json` is what the
model was sent and gives what tools were asked and answered. Alone, each is read for itself.
docs/sources/cline.md tells where each rule was learned.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.branches import Kind, Node, Plan, PlannedTurn, Planner, only
from agents_ledger.importers.cline_turns import (
    Call,
    api_calls,
    build_api,
    build_timeline,
    is_input,
    texts,
)
from agents_ledger.importers.outlines import (
    BROKEN,
    States,
    as_dict,
    as_list,
    as_text,
    made,
    parsed,
    project_name,
    record_of,
    strictly,
)
from agents_ledger.importers.reader import (
    RECORD_MAX,
    Home,
    Look,
    Material,
    Project,
    fingerprint,
)
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
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
FIRST = re.compile(rb'\[\s*\{\s*"ts"\s*:\s*\d+\s*,\s*"type"\s*:\s*"(say|ask)"')
WORKSPACE = re.compile(r"# Current Work(?:ing|space) Directory \((.+?)\) Files")
SENT_BYTES = 1 << 20  # of a file, in which what was sent first says the folder
SENT = re.compile(WORKSPACE.pattern.encode())
PROMPTS = ("task", "user_feedback", "user_feedback_diff")
COMPACTIONS = ("condense_context",)
NOTICES = (
    "api_req_failed",
    "api_req_started",
    "diff_error",
    "error",
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
_raw_list = msgspec.json.Decoder(list[Raw]).decode


class _Task(Struct):
    task_id: str
    folder: PurePath
    file_ids: set[int] = field(default_factory=set)
    live: dict[str, None] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)  # how often an id was met in a file
    has_timeline: bool = False
    history: list[bytes] = field(default_factory=list)
    answered_by: dict[str, int] = field(default_factory=dict)  # entry -> what it followed
    workspace: str | None = None
    first_at: int = 0
    last_at: int = 0

    def worked_in(self, sent: str) -> None:
        """Take the folder from what was sent, if it says one and none is known."""
        found = WORKSPACE.search(sent) if self.workspace is None else None
        self.workspace = found[1] if found else self.workspace


class Cline:
    """Reader of the task folders of Cline and its descendants."""

    name = NAME
    version = 3
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """Below the storage of every editor and extension, and of the command line."""
        users = [home.config(editor) / "User" for editor in EDITORS]
        users.append(home.home / ".vscode-server" / "data" / "User")
        stores = [user / "globalStorage" / name for user in users for name in EXTENSIONS]
        stores.append(home.chosen("CLINE_DIR", home.home / ".cline") / "data")
        return [store / "tasks" for store in stores]

    def wants(self, path: Path) -> bool:
        """The two documents of a task."""
        return path.name in (TIMELINE, HISTORY)

    def recognises(self, path: Path, head: bytes) -> bool:
        """By name and by what it begins with."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if path.name == HISTORY:
            return start.startswith(b"[") and b'"role"' in start
        return FIRST.match(start) is not None

    def family(self, path: Path) -> str:
        """The task."""
        return f"{NAME}:{path.parent}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As what was sent says, in either file; else as the list of tasks does."""
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
        return _Outline(material).derivation()


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
    def __init__(self, material: Material) -> None:
        self.material = material
        self.nodes: dict[str, Node] = {}
        self.tasks: dict[str, _Task] = {}
        self.states = States()
        timelines = [file for file in material.files if not _is_history(file)]
        for file in timelines:
            self._timeline(file)
        for file in material.files:
            if _is_history(file):
                self._history(file)

    def _task(self, file: SourceFile) -> _Task:
        folder = PurePath(file.path).parent
        task = self.tasks.setdefault(folder.name, _Task(folder.name, folder))
        task.file_ids.add(file.id)
        return task

    def _messages(self, file: SourceFile) -> list[bytes] | None:
        if file.kept_bytes > RECORD_MAX:
            what = f"a document of {file.kept_bytes:,} bytes is kept, but not read"
        else:
            try:
                data = self.material.text_document(file).removeprefix(b"\xef\xbb\xbf")
                return [bytes(raw) for raw in strictly(_raw_list, data)]
            except BROKEN as error:
                what = f"not a list of messages: {error}"
        self.material.faults.append(Fault(file.path, what))
        self.material.count("(malformed)", "malformed")
        return None

    # -- the timeline -------------------------------------------------------------------------

    def _timeline(self, file: SourceFile) -> None:
        raws = self._messages(file)
        if raws is None:
            return
        task = self._task(file)
        task.has_timeline = True
        task.live, task.times = {}, {}
        for number, data in enumerate(raws):
            try:
                entry = _entry(data)
            except BROKEN:
                self.material.count("(malformed)", "malformed")
                self.material.faults.append(Fault(file.path, f"entry {number} is not an object"))
                continue
            self._add_entry(task, file, data, entry)
        self.states.add(file, task.live)

    def _add_entry(self, task: _Task, file: SourceFile, data: bytes, entry: _Entry) -> None:
        name = as_text(entry.say) or as_text(entry.ask) or "(none)"
        kind = _kind(name, entry, is_first=not task.live)
        self.material.count(name, "derived" if kind is not None else "unmapped")
        if kind is None:
            return
        at = self.material.moment(entry.ts, file)
        task.first_at = task.first_at or at
        task.last_at = max(task.last_at, at)
        if name == "api_req_started":
            task.worked_in(str(as_dict(parsed(str(entry.text))).get("request")))
        node_id = f"{task.task_id}:{entry.ts}:{name}"
        number = task.times[node_id] = task.times.get(node_id, 0) + 1
        if number > 1:  # of one kind in one millisecond
            node_id += f":{number}"
        if isinstance(entry.conversation_history_index, int):
            task.answered_by[node_id] = entry.conversation_history_index
        self._hang(task, file, node_id, kind, data)

    def _hang(self, task: _Task, file: SourceFile, node_id: str, kind: Kind, data: bytes) -> None:
        """Put an entry behind the one before it; what a restored task left stays a branch."""
        above = next(reversed(task.live), None)
        print_ = b"%d:%d;" % (len(data), zlib.crc32(data))
        known = self.nodes.get(node_id)
        if known is None:
            self.nodes[node_id] = Node(kind, above, print_, only(file.id), data)
        else:
            known.kind, known.print, known.record = kind, print_, data
            known.file_ids |= only(file.id)
            if above is not None and node_id not in task.live:
                known.parent = above
        task.live[node_id] = None

    # -- what the model was sent --------------------------------------------------------------

    def _history(self, file: SourceFile) -> None:
        raws = self._messages(file)
        if raws is None:
            return
        task = self._task(file)
        task.history = raws
        if not task.has_timeline:
            task.live = {}
        for index, data in enumerate(raws):
            said = as_dict(parsed(data))
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
                node_id = f"{task.task_id}:{index}:{zlib.crc32(data):08x}"
                self._hang(task, file, node_id, kind, data)
        self.states.add(file, [f"{at}:{zlib.crc32(data):08x}" for at, data in enumerate(raws)])

    def _calls(self, task: _Task) -> dict[int, list[Call]]:
        """The calls of every answer in the history, by the index of what it answered."""
        found = {}
        for index in range(1, len(task.history)):
            after = task.history[index + 1] if index + 1 < len(task.history) else b"null"
            calls = api_calls(parsed(task.history[index]), parsed(after))
            if calls:
                found[index - 1] = calls
        return found

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        plan = Planner(self.nodes).plan
        planned: dict[str, tuple[_Task, PlannedTurn, dict[str, Call]]] = {}
        for task in self.tasks.values():
            calls = self._matched(task)
            for turn in plan.turns.values():
                if turn.id.startswith(f"{task.task_id}:"):
                    planned.setdefault(turn.id, (task, turn, calls))
        return Derivation(
            turns=made(tuple(planned.values()), lambda each: self._derived(*each)),
            sessions=tuple(self._sessions(plan)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=self.states.superseded(),
        )

    def _matched(self, task: _Task) -> dict[str, Call]:
        """The call behind each tool entry of the timeline, where both tell the same number."""
        by_index: dict[int, list[str]] = {}
        for node_id in task.live:
            index = task.answered_by.get(node_id)
            if index is not None and node_id.endswith((":tool", ":command", ":use_mcp_server")):
                by_index.setdefault(index, []).append(node_id)
        matched: dict[str, Call] = {}
        for index, calls in self._calls(task).items():
            entries = by_index.get(index, [])
            if len(entries) == len(calls):
                matched |= dict(zip(entries, calls, strict=True))
        return matched

    def _derived(self, task: _Task, turn: PlannedTurn, calls: dict[str, Call]) -> DerivedTurn:
        nodes = [(message_id, self.nodes[node_id]) for message_id, node_id in turn.members]
        own = {m: calls[n] for m, n in turn.members if n in calls}
        prints = turn.prints(self.nodes)
        prints += [msgspec.json.encode(own[m], order="sorted") for m in own]
        prints.append(str(task.workspace).encode("utf-8", "replace"))
        files = {file_id for _, node in nodes for file_id in node.file_ids}
        if own:
            files |= task.file_ids
        return DerivedTurn(
            turn.id,
            turn.parent,
            fingerprint(Cline.version, prints),
            frozenset(files),
            tuple(message_id for message_id, _ in turn.members),
            partial(self._build, task, turn, nodes, own),
        )

    def _build(
        self, task: _Task, turn: PlannedTurn, nodes: list[tuple[str, Node]], calls: dict[str, Call]
    ) -> Turn:
        records = [(m, node.kind, record_of(self.material, node.record)) for m, node in nodes]
        if task.has_timeline:
            return build_timeline(turn, records, calls, task.workspace)
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
                head=plan.head(next(reversed(task.live), None)),
                file_ids=frozenset(task.file_ids),
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
    return KINDS.get(name)
