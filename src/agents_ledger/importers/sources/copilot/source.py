"""GitHub Copilot CLI: a file of events for each session, in the order they happened.

docs/sources/copilot.md tells where each rule was learned.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.port.source import (
    RECORD_MAX,
    Home,
    Line,
    Look,
    Material,
    Project,
    Source,
)
from agents_ledger.importers.sources.copilot.history import is_history
from agents_ledger.importers.sources.copilot.history import told as history
from agents_ledger.importers.sources.copilot.lazy_turns import Turns
from agents_ledger.importers.sources.copilot.parts import (
    ADDED,
    ANSWERS,
    CARRIED,
    NAME,
    VERSION,
    Part,
    Parts,
)
from agents_ledger.importers.sources.copilot.prompts import Interactions
from agents_ledger.importers.sources.copilot.tokens import Tokens
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    NONE,
    UUID,
    States,
    as_dict,
    as_number,
    as_text,
    decoded,
    parsed,
    project_name,
    strictly,
)
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    Fault,
    SourceFile,
    SourceKind,
)

CWD_BESIDE = re.compile(rb"^cwd:[ \t]*(\S.*?)[ \t\r]*$", re.M)
USED = CARRIED | {
    "session.auto_mode_resolved",
    "session.compaction_complete",
    "session.model_change",
    "session.resume",
    "session.shutdown",
    "session.start",
    "user.message",
}
CONTEXT = {
    "cwd": "cwd",
    "branch": "git_branch",
    "gitRoot": "git_root",
    "headCommit": "git_commit",
    "repository": "repository",
}
HISTORY = "history-session-state"  # the folder of documents
DOCUMENT = re.compile(rb'\s*\{.*?"sessionId"\s*:\s*"', re.DOTALL)
LISTS = re.compile(rb'"(?:timeline|chatMessages)"\s*:\s*\[')
IN_NAME = re.compile(UUID.pattern)
YAML_LINE = re.compile(r"(\w+):(.*)")
YAML_BLOCK = re.compile(r"[|>][+-]?(?: |$)")  # its lines stand below
RUNS = ("session.start", "session.resume")  # of the program


class _Event(Struct, rename="camel"):
    type: Any = None
    id: Any = None
    timestamp: Any = None
    parent_id: Any = msgspec.UNSET
    agent_id: Any = None
    data: Raw = Raw(b"null")


class _Data(Struct, rename="camel"):
    """What the outline needs of an event's data."""

    session_id: Any = None
    copilot_version: Any = None
    start_time: Any = None
    selected_model: Any = None
    new_model: Any = None
    chosen_model: Any = None
    context: Any = None
    parent_tool_call_id: Any = None
    tool_call_id: Any = None
    interaction_id: Any = None
    source: Any = None
    model: Any = None
    output_tokens: Any = None
    model_metrics: Any = None
    success: Any = None
    error_type: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_data = msgspec.json.Decoder(_Data).decode


def _decode_both(raw: bytes) -> tuple[_Event, _Data]:
    event = _decode(raw)
    return event, _decode_data(event.data)


class Copilot(Source):
    """Reader of Copilot CLI's sessions."""

    name = NAME
    version = VERSION
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """The state of all sessions, now and until late 2025."""
        folder = home.chosen("COPILOT_HOME", home.home / ".copilot")
        return [folder / "session-state", folder / HISTORY]

    def wants(self, path: Path) -> bool:
        """Events, and what is said of a session beside them."""
        if path.suffix == ".json":
            return HISTORY in path.parts
        return path.suffix == ".jsonl" or path.name == "workspace.yaml"

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """Events are lines."""
        is_beside = path.name == "workspace.yaml" and not head.lstrip().startswith(b"{")
        return "document" if is_beside or path.suffix == ".json" else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Events with names of this source, each with its data."""
        if path.name == "workspace.yaml":
            return bool(re.search(rb"^(cwd|git_root): ", head, re.M)) and b"id: " in head
        if path.suffix == ".json":
            return bool(DOCUMENT.match(head) and LISTS.search(head))
        for line in head.split(b"\n")[:50]:
            try:
                event = strictly(_decode, line)
            except BROKEN:
                continue
            known = isinstance(event.type, str) and event.type in USED
            if known and bytes(event.data).startswith(b"{") and event.id is not None:
                return True
        return False

    def family(self, path: Path) -> str:
        """A session has a folder of its own, or in old versions a file, here or elsewhere."""
        if path.name in ("events.jsonl", "workspace.yaml"):
            return f"{NAME}:{path.parent}"
        named = IN_NAME.search(path.name)
        if named and path.parent.name in ("session-state", HISTORY):
            return f"{NAME}:{path.parent.parent / 'session-state' / named[0]}"
        return f"{NAME}:{path}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As the first event of its session says, or what stands beside it, or the document."""
        session = Path(self.family(path).partition(":")[2])
        events = (session / "events.jsonl", session.with_name(f"{session.name}.jsonl"), path)
        said = next((found for each in events if (found := look.working_folder(each))), None)
        beside = CWD_BESIDE.search(look.head(session / "workspace.yaml"))
        if said is None and beside:
            said = as_text(parsed(beside[1])) or beside[1].decode(errors="replace").strip("'\"")
        if said is None and path.suffix == ".json":
            said = as_text(as_dict(parsed(look.head(path, RECORD_MAX))).get("cwd"))
        return [said] if said else None

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        parts = Parts(material)
        logs: list[_Log] = []
        names: dict[str, dict[str, str]] = {}
        states = States()
        for file in material.files:
            if file.kind != "document":
                logs.append(_Log(material, file, parts))
            elif Path(file.path).name == "workspace.yaml":
                names |= _workspace(material, file)
            elif (log := _history(material, file, parts)) is not None:
                logs.append(log)
                states.add(file, log.keys)
        parts.group()
        turns = Turns(parts)
        return Derivation(
            turns=turns.derived(),
            sessions=tuple(_sessions([log for log in logs if log.own], names, parts, turns)),
            faults=tuple(material.faults),
            counts=material.counts,
            superseded=states.superseded(),
        )


def _workspace(material: Material, file: SourceFile) -> dict[str, dict[str, str]]:
    """What stands beside the events, by session: names with their values, which may go on in the
    lines below."""
    lines: dict[str, list[str]] = {}
    last: list[str] = []
    for line in material.document(file).decode(errors="replace").splitlines():
        named = YAML_LINE.match(line)
        if named:
            last = lines.setdefault(named[1], [])
        last.append((named[2] if named else line).strip())
    said = {name: _value(" ".join(values).strip()) for name, values in lines.items()}
    material.count("workspace.yaml", "derived" if "id" in said else "unmapped")
    return {said["id"]: said} if "id" in said else {}


def _value(text: str) -> str:
    """A value of YAML: plain, quoted, or in lines."""
    return as_text(parsed(text)) or YAML_BLOCK.sub("", text, count=1).strip("\"'")


def _history(material: Material, file: SourceFile, parts: Parts) -> _History | None:
    """A document of a session, told as events."""
    what = f"{file.kept_bytes:,} bytes are kept, but too many to read"
    if file.kept_bytes <= RECORD_MAX:
        said = loose(material.text_document(file).removeprefix(BOM))
        if is_history(said):
            return _History(material, file, parts, said)
        what = "not a session"
    material.faults.append(Fault(file.path, what))
    material.count("(malformed)", "malformed")
    return None


class _Calls:
    """The calls of a file: the turn of each, and the event that started it."""

    def __init__(self) -> None:
        self._ids = Numbering(forgets=True)
        self._turns = array("i")
        self._events = array("i")

    def note(self, call_id: str, turn: int, event: int) -> None:
        """A call that started, perhaps not for the first time."""
        call = self._ids.add(call_id)
        if call == len(self._turns):
            self._turns.append(turn)
            self._events.append(event)
        else:
            self._turns[call], self._events[call] = turn, event

    def turn(self, call_id: str | None) -> int:
        """The turn of a call, or NONE."""
        call = self._ids.get(call_id) if call_id else NONE
        return self._turns[call] if call >= 0 else NONE

    def event(self, call_id: str) -> int:
        """The event that started it, or NONE."""
        call = self._ids.get(call_id)
        return self._events[call] if call >= 0 else NONE


class _Log:
    """One file of events, read in order. Turns, events and names are numbers."""

    is_told = False  # whether its events stand in no file

    def __init__(self, material: Material, file: SourceFile, parts: Parts) -> None:
        self.material = material
        self.file = file
        self.session_id = ""
        self.metadata: dict[str, Any] = {}
        self.first_at = self.last_at = 0
        self.last = NONE  # the turn that goes on
        self.subagents: dict[str, int] = {}  # by call, the turn that goes on
        self._parts = parts
        self._model = self._cwd = NONE
        self._waiting = array("I")  # events for the next turn
        self._calls = _Calls()
        self._callers: dict[str, str] = {}  # by subagent, the call that started it
        self._asked = Interactions()
        self._met = array("I")  # by name of an event, how often
        self._tokens = Tokens()
        first = len(parts)
        self._read_all()
        self.own = range(first, len(parts))
        del self._calls, self._callers, self._asked, self._met  # what only reading needs

    def _read_all(self) -> None:
        for line in self.material.lines(self.file):
            self._read(line)

    def _account(self, kind: str) -> None:
        self.material.count(kind, "derived" if kind in USED else "unmapped")

    def _read(self, line: Line) -> None:
        found = decoded(self.material, line, _decode_both)
        if found is None:
            return
        event, data = found
        if not self.session_id:
            said = as_text(data.session_id) if event.type == "session.start" else None
            self.session_id = said or self._named_after(line.data or b"")
        kind = intern(event.type) if isinstance(event.type, str) else "(none)"
        at = self.material.moment(event.timestamp, line)
        self.first_at = self.first_at or at
        self.last_at = max(self.last_at, at)
        self._account(kind)
        if kind in USED:
            key, caller = self._key(event), self._caller(kind, event, data)
            if self._asked.is_added(kind, caller, data.interaction_id, data.source):
                kind = ADDED
            if caller is None or kind in RUNS:
                self._take(line, kind, key, data, at)
            else:
                self._inside(caller, line, kind, key, data, at=at)

    def _named_after(self, raw: bytes) -> str:
        """Without its beginning a session is known by its folder or file."""
        path = Path(self.file.path)
        name = path.parent.name if path.name == "events.jsonl" else path.stem
        return name if UUID.fullmatch(name) else hashlib.blake2b(raw, digest_size=8).hexdigest()

    def _key(self, event: _Event) -> int:
        said = as_text(event.id) or ""
        key = said if UUID.fullmatch(said) else f"{NAME}:{self.session_id}:{said}"
        names = self._parts.names
        number = names.add(key)
        if number >= len(self._met):
            self._met.frombytes(bytes(4 * (len(names) - len(self._met))))
        self._met[number] += 1
        times = self._met[number]
        return number if times == 1 else names.add(f"{key}:{times}")

    def _caller(self, kind: str, event: _Event, data: _Data) -> str | None:
        """The call that started the subagent whose event this is. Where nothing told of the call,
        the subagent's own name stands for it."""
        subagent, said = as_text(event.agent_id), as_text(data.parent_tool_call_id)
        if not subagent or kind != "subagent.started":
            return self._callers.get(subagent or "") or said or subagent
        call_id = as_text(data.tool_call_id)
        if call_id:
            self._callers[subagent] = call_id
        return said  # who started it tells of it

    def _take(self, line: Line, kind: str, key: int, data: _Data, at: int) -> None:
        self._describe(kind, data)
        if kind in RUNS:
            self._tokens.begin(anew=kind == "session.start")
        elif kind == "user.message":
            if self.last == NONE or self._parts[self.last].ended:
                self._open(key)
            self._add(self.last, kind, key, line, at)
        elif kind == "session.compaction_complete":
            self._compacted(line, key, data, at)
        elif kind == "session.shutdown":
            self._count(as_dict(data.model_metrics))
        elif kind in CARRIED:
            self._carry(line, kind, key, data, at)

    def _describe(self, kind: str, data: _Data) -> None:
        said = as_text(data.new_model) or as_text(data.chosen_model) or as_text(data.selected_model)
        if said is not None:
            self._model = self._parts.names.add(said)
        if kind in RUNS:
            context = as_dict(data.context)
            for field, name in CONTEXT.items():
                if as_text(context.get(field)):
                    self.metadata.setdefault(name, context[field])
            if "cwd" in self.metadata:
                self._cwd = self._parts.names.add(self.metadata["cwd"])
            if as_text(data.copilot_version):
                self.metadata.setdefault("version", data.copilot_version)

    # -- turns --------------------------------------------------------------------------------

    def _open(self, name: int, *, is_compaction: bool = False) -> int:
        parts = self._parts
        above = parts.read(self.last) if self.last != NONE else None
        up = above.name if above is not None else NONE
        part = Part(name, up, self.file.id, self._model, self._cwd, is_compaction, is_compaction)
        part.depth += above.depth if above is not None else 0
        self.last = parts.going_on = parts.add(part)
        if not is_compaction:
            for event in self._waiting:
                parts.give(event, self.last)
            del self._waiting[:]
        return self.last

    def _add(self, turn: int, kind: str, key: int, line: Line, at: int) -> int:
        """The number of one more event of a turn."""
        part = self._parts[turn]
        if part.subagent is not None:
            part.first_at = part.first_at or at
            part.last_at = max(part.last_at, at)
        return self._note(turn, kind, key, line)

    def _note(self, turn: int, kind: str, key: int, line: Line) -> int:
        return self._parts.note(turn, kind, key, line, told=self.is_told)

    def _wait(self, kind: str, key: int, line: Line) -> None:
        self._waiting.append(self._note(NONE, kind, key, line))

    def _carry(self, line: Line, kind: str, key: int, data: _Data, at: int) -> None:
        """What belongs to the turn of its call, to the one that is open, or to the next."""
        call_id = as_text(data.tool_call_id)
        turn = self._calls.turn(call_id)
        turn = turn if turn != NONE else self.last
        if turn == NONE or self._parts[turn].is_compaction:
            if kind not in ANSWERS:
                self._wait(kind, key, line)
                return
            turn = self._open(key)
        if kind == "subagent.started" and call_id:
            self._parts[turn].spawned[call_id] = self._subagent(call_id)
        self._do(turn, line, kind, key, data, at=at, model=self._model)

    def _do(
        self, turn: int, line: Line, kind: str, key: int, data: _Data, *, at: int, model: int
    ) -> None:
        """What an agent did, or a subagent; with this model, if nothing says another."""
        part = self._parts[turn]
        said = as_text(data.model) if kind != "subagent.started" else None  # that one's own
        part.model = self._parts.names.add(said) if said else part.model
        part.model = part.model if part.model != NONE else model
        part.heed(kind, data.error_type)
        event = self._add(turn, kind, key, line, at)
        call_id = as_text(data.tool_call_id)
        tokens = as_number(data.output_tokens)
        if kind == "assistant.message" and tokens is not None:
            part.spend({"output_tokens": tokens, "total_tokens": tokens})
            self._tokens.say(tokens)
            part.heard = self._tokens.heard
        if kind == "tool.execution_start" and call_id:
            self._calls.note(call_id, turn, event)

    def _subagent(self, call_id: str) -> str:
        return f"{NAME}:{self.session_id}:{call_id}"

    def _inside(
        self, call_id: str, line: Line, kind: str, key: int, data: _Data, *, at: int
    ) -> None:
        """What a subagent does stands in its parent's file; it is a session of its own."""
        turn = self.subagents.get(call_id, NONE)
        is_asked = kind == "user.message"
        if turn == NONE:
            turn = self._started(call_id)
        elif is_asked and self._parts[turn].ended:
            turn = self._asked_again(turn, key)
        self.subagents[call_id] = turn
        if is_asked or kind in CARRIED:
            self._do(turn, line, kind, key, data, at=at, model=NONE)

    def _started(self, call_id: str) -> int:
        """The turn of a subagent that is new."""
        label, caller = self._subagent(call_id), self._calls.turn(call_id)
        caller = caller if caller != NONE else self.last
        if caller != NONE:
            self._parts[caller].spawned[call_id] = label
        part = Part(self._parts.names.add(label), NONE, self.file.id, NONE, self._cwd)
        part.subagent, part.asked = call_id, self._calls.event(call_id)
        return self._parts.add(part)

    def _asked_again(self, turn: int, name: int) -> int:
        """The next turn of a subagent."""
        before = self._parts.read(turn)
        part = Part(name, before.name, self.file.id, before.model, self._cwd)
        part.subagent, part.first_at = before.subagent, before.first_at
        part.depth += before.depth
        return self._parts.add(part)

    def _compacted(self, line: Line, key: int, data: _Data, at: int) -> None:
        if data.success is False:
            return
        self._tokens.compacted()
        if self.last == NONE:
            self._wait("system.notification", key, line)
            return
        self._add(self._open(key, is_compaction=True), "compaction", key, line, at)

    def _count(self, metrics: dict[str, Any]) -> None:
        """Totals are told only at the end of a run. Its last turn gets what the messages did not
        say."""
        is_guess = not self._tokens.is_whole
        spent = self._tokens.count(metrics)
        if self.last != NONE:
            part = self._parts[self.last]
            part.spend(spent)
            part.is_guess = part.is_guess or (is_guess and bool(spent))
            part.heard = self._tokens.heard


class _History(_Log):
    """A document, read as the events that it tells. They stand nowhere else, and are held."""

    is_told = True

    def __init__(
        self, material: Material, file: SourceFile, parts: Parts, said: dict[str, Any]
    ) -> None:
        self.keys: set[str] = set()  # what tells this state of the document from others
        self._said = said
        super().__init__(material, file, parts)
        del self._said

    def _read_all(self) -> None:
        for number, told in enumerate(history(self._said)):
            if told.kind != "session":
                self.material.count(told.kind, "derived" if told.events else "unmapped")
            for event in told.events:
                self.keys.add(digest(event).hex())
                self._read(Line(self.file, 0, len(event), number, event))

    def _account(self, kind: str) -> None:
        """Counted by what the document calls it."""


# -- what comes of it -------------------------------------------------------------------------


def _sessions(
    logs: list[_Log], names: dict[str, dict[str, str]], parts: Parts, turns: Turns
) -> Iterator[DerivedSession]:
    mine: dict[str, list[_Log]] = {}
    for log in logs:
        mine.setdefault(log.session_id, []).append(log)
    for session_id, files in sorted(mine.items()):
        last = _latest(files, parts)
        ids = frozenset(log.file.id for log in files)
        said = names.get(session_id, {})
        metadata = _described(last, said)
        session = DerivedSession(
            session_id=session_id,
            label=f"{NAME}:{session_id}",
            head=turns.head(last.last),
            file_ids=ids,
            title=said.get("name") or said.get("summary"),
            created_at=last.first_at,
            updated_at=last.last_at,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )
        yield session
        found = {call_id: part for log in files for call_id, part in log.subagents.items()}
        for call_id, number in found.items():
            part, head = turns.best(parts.read(number)), turns.head(number)
            yield _subagent_session(session, call_id, part, head)


def _latest(files: list[_Log], parts: Parts) -> _Log:
    """The file that goes on longest; of several the longest."""

    def rank(log: _Log) -> tuple[int, int]:
        return log.last_at, len(log.own)

    last = max(map(rank, files))
    equal = [log for log in files if rank(log) == last]
    if len(equal) == 1:
        return equal[0]
    return max(equal, key=lambda log: sorted(parts.names.name(parts.read(n).name) for n in log.own))


def _described(log: _Log, said: dict[str, str]) -> dict[str, Any]:
    beside = {"cwd": "cwd", "branch": "git_branch", "git_root": "git_root"}
    metadata = {name: said[field] for field, name in beside.items() if said.get(field)}
    metadata |= log.metadata
    if "cwd" in metadata:
        metadata["project"] = project_name(metadata["cwd"])
    return metadata


def _subagent_session(
    parent: DerivedSession, call_id: str, part: Part, head: str | None
) -> DerivedSession:
    return DerivedSession(
        session_id=f"{parent.session_id}:{call_id}",
        label=f"{parent.label}:{call_id}",
        head=head,
        file_ids=parent.file_ids,
        agent_id=call_id,
        created_at=part.first_at,
        updated_at=part.last_at,
        is_subagent=True,
        parent_label=parent.label,
        metadata=parent.metadata,
    )
