"""GitHub Copilot CLI: a file of events for each session, in the order they happened.

docs/sources/copilot.md tells where each rule was learned.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from agents_ledger.importers.cells import loose
from agents_ledger.importers.copilot_history import is_history
from agents_ledger.importers.copilot_history import told as history
from agents_ledger.importers.copilot_turns import NAME, VERSION, Part, Piece, build_turn
from agents_ledger.importers.outlines import (
    BROKEN,
    UUID,
    States,
    answered_above,
    as_dict,
    as_number,
    as_text,
    made,
    malformed,
    mend,
    parents_first,
    parsed,
    project_name,
    strictly,
)
from agents_ledger.importers.reader import RECORD_MAX, Held, Home, Line, Look, Material, Project
from agents_ledger.model.records import digest
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
    SourceFile,
    SourceKind,
)

CWD_BESIDE = re.compile(rb"^cwd:[ \t]*(\S.*?)[ \t\r]*$", re.M)
ANSWERS = {"assistant.message", "assistant.reasoning", "tool.execution_start"}
CARRIED = ANSWERS | {
    "abort",
    "permission.completed",
    "session.error",
    "session.truncation",
    "subagent.started",
    "system.message",
    "system.notification",
    "tool.execution_complete",
}
USED = CARRIED | {
    "session.auto_mode_resolved",
    "session.compaction_complete",
    "session.model_change",
    "session.resume",
    "session.shutdown",
    "session.start",
    "user.message",
}
USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadTokens": "cached_input_tokens",
    "cacheWriteTokens": "cache_write_tokens",
    "reasoningTokens": "reasoning_tokens",
}
CONTEXT = {
    "cwd": "cwd",
    "branch": "git_branch",
    "gitRoot": "git_root",
    "headCommit": "git_commit",
    "repository": "repository",
}
HISTORY = "history-session-state"  # the folder of documents
BOM = b"\xef\xbb\xbf"
DOCUMENT = re.compile(rb'\s*\{.*?"sessionId"\s*:\s*"', re.DOTALL)
LISTS = re.compile(rb'"(?:timeline|chatMessages)"\s*:\s*\[')
IN_NAME = re.compile(UUID.pattern)
YAML_LINE = re.compile(r"(\w+):(.*)")
YAML_BLOCK = re.compile(r"[|>][+-]?(?: |$)")  # its lines stand below
RUNS = ("session.start", "session.resume")  # of the program, each with totals of its own


class _Event(Struct, rename="camel"):
    type: Any = None
    id: Any = None
    timestamp: Any = None
    parent_id: Any = msgspec.UNSET
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
    model: Any = None
    output_tokens: Any = None
    model_metrics: Any = None
    success: Any = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_data = msgspec.json.Decoder(_Data).decode


class Copilot:
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
            return bool(DOCUMENT.match(head.removeprefix(BOM)) and LISTS.search(head))
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
        said = next((found for each in events if (found := look.folder(each))), None)
        beside = CWD_BESIDE.search(look.head(session / "workspace.yaml"))
        if said is None and beside:
            said = as_text(parsed(beside[1])) or beside[1].decode(errors="replace").strip("'\"")
        if said is None and path.suffix == ".json":
            said = as_text(as_dict(parsed(look.head(path, RECORD_MAX))).get("cwd"))
        return [said] if said else None

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        logs: list[_Log] = []
        names: dict[str, dict[str, str]] = {}
        states = States()
        for file in material.files:
            if file.kind != "document":
                logs.append(_Log(material, file))
            elif Path(file.path).name == "workspace.yaml":
                names |= _workspace(material, file)
            elif (log := _history(material, file)) is not None:
                logs.append(log)
                states.add(file, log.keys)
        found = _derivation(material, [log for log in logs if log.parts], names)
        return structs.replace(found, superseded=states.superseded())


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


def _history(material: Material, file: SourceFile) -> _History | None:
    """A document of a session, told as events."""
    what = f"{file.kept_bytes:,} bytes are kept, but too many to read"
    if file.kept_bytes <= RECORD_MAX:
        said = loose(material.text_document(file).removeprefix(BOM))
        if is_history(said):
            return _History(material, file, said)
        what = "not a session"
    material.faults.append(Fault(file.path, what))
    material.count("(malformed)", "malformed")
    return None


class _Log:
    """One file of events, read in order."""

    def __init__(self, material: Material, file: SourceFile) -> None:
        self.material = material
        self.file = file
        self.session_id = ""
        self.metadata: dict[str, Any] = {}
        self.first_at = self.last_at = 0
        self.parts: dict[str, Part] = {}
        self.path: list[str] = []
        self._part: Part | None = None
        self._model: str | None = None
        self._waiting: list[tuple[str, str, Line, int]] = []
        self._calls: dict[str, Part] = {}
        self._starts: dict[str, Piece] = {}  # of the calls
        self._seen: dict[str, int] = {}
        self._totals: dict[str, dict[str, int]] = {}  # of this run by model, as last said
        self._uncounted = 0  # output of this run that no total has covered yet
        self._read_all()
        for known in (self._calls, self._seen):
            known.clear()  # what only reading needs

    def _read_all(self) -> None:
        for line in self.material.lines(self.file):
            self._read(line)

    def _held(self, line: Line) -> Held:
        return self.material.held(line)

    def _account(self, kind: str) -> None:
        self.material.count(kind, "derived" if kind in USED else "unmapped")

    def _read(self, line: Line, mended: bytes | None = None) -> None:
        raw = mended or line.data or b""
        try:
            event = _decode(raw)
            data = _decode_data(event.data)
        except msgspec.ValidationError:
            found = parsed(raw)
            if isinstance(found, dict):
                self.material.count(str(found.get("type")), "unmapped")
            else:
                malformed(self.material, line, "not an object")
            return
        except BROKEN as error:
            again = mend(raw) if mended is None else None
            if again is None:
                malformed(self.material, line, error)
            else:
                self._read(line, again)
            return
        if not self.session_id:
            said = as_text(data.session_id) if event.type == "session.start" else None
            self.session_id = said or self._named_after(raw)
        kind = intern(event.type) if isinstance(event.type, str) else "(none)"
        at = self.material.moment(event.timestamp, line)
        self.first_at = self.first_at or at
        self.last_at = max(self.last_at, at)
        self._account(kind)
        if kind in USED:
            self._take(line, kind, self._key(event), data, at)

    def _named_after(self, raw: bytes) -> str:
        """Without its beginning a session is known by its folder or file."""
        path = Path(self.file.path)
        name = path.parent.name if path.name == "events.jsonl" else path.stem
        return name if UUID.fullmatch(name) else hashlib.blake2b(raw, digest_size=8).hexdigest()

    def _key(self, event: _Event) -> str:
        said = as_text(event.id) or ""
        number = self._seen[said] = self._seen.get(said, 0) + 1
        key = said if UUID.fullmatch(said) else f"{NAME}:{self.session_id}:{said}"
        return key if number == 1 else f"{key}:{number}"

    def _take(self, line: Line, kind: str, key: str, data: _Data, at: int) -> None:
        self._describe(kind, data)
        if kind in RUNS:
            self._totals, self._uncounted = {}, 0
        elif as_text(data.parent_tool_call_id):
            self._inside(line, kind, key, data, at)
        elif kind == "user.message":
            if self._part is None or self._part.answered:
                self._open(key, key)
            self._add(self._part, kind, key, line, at)
        elif kind == "session.compaction_complete":
            self._compacted(line, key, data, at)
        elif kind == "session.shutdown":
            self._count(as_dict(data.model_metrics))
        elif kind in CARRIED:
            self._carry(line, kind, key, data, at)

    def _describe(self, kind: str, data: _Data) -> None:
        said = as_text(data.new_model) or as_text(data.chosen_model) or as_text(data.selected_model)
        self._model = said or self._model
        if kind in RUNS:
            context = as_dict(data.context)
            for field, name in CONTEXT.items():
                if as_text(context.get(field)):
                    self.metadata.setdefault(name, context[field])
            if as_text(data.copilot_version):
                self.metadata.setdefault("version", data.copilot_version)

    # -- turns --------------------------------------------------------------------------------

    def _open(self, turn_id: str, key: str, *, is_compaction: bool = False) -> Part:
        parent = self.path[-1] if self.path else None
        part = Part(turn_id, key, parent, self.file.id, self._model, self.metadata.get("cwd"))
        part.is_compaction = is_compaction
        self.parts[turn_id] = self._part = part
        self.path.append(turn_id)
        if not is_compaction:
            for kind, waiting_key, line, at in self._waiting:
                self._add(part, kind, waiting_key, line, at)
            self._waiting.clear()
        return part

    def _add(self, part: Part | None, kind: str, key: str, line: Line, at: int) -> None:
        if part is None:
            return
        part.pieces.append((kind, key, self._held(line)))
        part.prints.append(line.fingerprint())
        part.answered = part.answered or kind in ANSWERS
        part.first_at = part.first_at or at
        part.last_at = max(part.last_at, at)

    def _carry(self, line: Line, kind: str, key: str, data: _Data, at: int) -> None:
        """What belongs to the turn of its call, to the one that is open, or to the next."""
        call_id = as_text(data.tool_call_id)
        part = self._calls.get(call_id or "") or self._part
        if part is None or part.is_compaction:
            if kind not in ANSWERS:
                self._waiting.append((kind, key, line, at))
                return
            part = self._open(key, key)
        part.model = as_text(data.model) or part.model or self._model
        if kind == "subagent.started" and call_id:
            part.spawned[call_id] = self._subagent(call_id)
        self._add(part, kind, key, line, at)
        self._did(part, kind, data)

    def _did(self, part: Part, kind: str, data: _Data) -> None:
        """What was added last to what an agent did, or a subagent."""
        call_id = as_text(data.tool_call_id)
        tokens = as_number(data.output_tokens)
        if kind == "assistant.message" and tokens is not None:
            self._spend(part, {"output_tokens": tokens, "total_tokens": tokens})
            self._uncounted += tokens
        if kind == "tool.execution_start" and call_id:
            self._calls[call_id], self._starts[call_id] = part, part.pieces[-1]

    def _subagent(self, call_id: str) -> str:
        return f"{NAME}:{self.session_id}:{call_id}"

    def _inside(self, line: Line, kind: str, key: str, data: _Data, at: int) -> None:
        """What a subagent does stands in its parent's file; it is a session of its own."""
        call_id = str(data.parent_tool_call_id)
        turn_id = self._subagent(call_id)
        part = self.parts.get(turn_id)
        if part is None:
            part = Part(turn_id, turn_id, None, self.file.id, None, self.metadata.get("cwd"))
            part.subagent = call_id
            self.parts[turn_id] = part
            caller = self._calls.get(call_id) or self._part
            if caller is not None and caller is not part:
                caller.spawned[call_id] = turn_id
            if call_id in self._starts:  # it says what was asked
                part.pieces.append(self._starts[call_id])
        if kind in CARRIED:
            part.model = as_text(data.model) or part.model
            self._add(part, kind, key, line, at)
            self._did(part, kind, data)

    def _compacted(self, line: Line, key: str, data: _Data, at: int) -> None:
        if data.success is False:
            return
        if not self.path:
            self._waiting.append(("system.notification", key, line, at))
            return
        part = self._open(key, key, is_compaction=True)
        self._add(part, "compaction", key, line, at)
        part.answered = True

    # -- tokens -------------------------------------------------------------------------------

    def _spend(self, part: Part, tokens: dict[str, int]) -> None:
        for name, number in tokens.items():
            part.tokens[name] = part.tokens.get(name, 0) + number

    def _count(self, metrics: dict[str, Any]) -> None:
        """Totals are told only at the end of a run, and are of that run. Its last turn gets what
        the messages did not say."""
        grown: dict[str, int] = {}
        for model, said in metrics.items():
            usage = as_dict(as_dict(said).get("usage"))
            now = {name: as_number(usage.get(field)) or 0 for field, name in USAGE.items()}
            before = self._totals.get(model, {})
            if any(now[name] < number for name, number in before.items()):
                before = {}  # it began anew
            self._totals[model] = now
            for name, number in now.items():
                grown[name] = grown.get(name, 0) + number - before.get(name, 0)
        part = self._part
        if part is None or not grown:
            return
        grown["output_tokens"] = max(0, grown["output_tokens"] - self._uncounted)
        self._uncounted = 0
        grown["total_tokens"] = grown["input_tokens"] + grown["output_tokens"]
        self._spend(part, {name: number for name, number in grown.items() if number})


class _History(_Log):
    """A document, read as the events that it tells. They stand nowhere else, and are held."""

    def __init__(self, material: Material, file: SourceFile, said: dict[str, Any]) -> None:
        self.keys: set[str] = set()  # what tells this state of the document from others
        self._said = said
        super().__init__(material, file)

    def _read_all(self) -> None:
        for number, told in enumerate(history(self._said)):
            if told.kind != "session":
                self.material.count(told.kind, "derived" if told.events else "unmapped")
            for event in told.events:
                self.keys.add(digest(event).hex())
                self._read(Line(self.file, 0, len(event), number, event))

    def _held(self, line: Line) -> Held:
        return line.data or b""

    def _account(self, kind: str) -> None:
        """Counted by what the document calls it."""


# -- what comes of it -------------------------------------------------------------------------


def _derivation(
    material: Material, logs: list[_Log], names: dict[str, dict[str, str]]
) -> Derivation:
    best: dict[str, Part] = {}
    file_ids: dict[str, frozenset[int]] = {}
    for log in logs:
        own = frozenset({log.file.id})
        for part in log.parts.values():
            file_ids[part.id] = file_ids.get(part.id, own) | own
            known = best.get(part.id)
            if known is None or part.rank() > known.rank():
                best[part.id] = part
    parents = {part.id: part.parent for part in best.values()}
    order = list(parents_first(parents))
    followed = {parent for parent in parents.values() if parent is not None}

    def derived(turn_id: str) -> DerivedTurn:
        part, parent, sealed = best[turn_id], parents[turn_id], turn_id in followed
        return DerivedTurn(
            turn_id,
            parent,
            part.fingerprint(sealed),
            file_ids[turn_id],
            tuple(key for _, key, _ in part.pieces),
            partial(build_turn, material, part, parent, sealed),
        )

    return Derivation(
        turns=made(order, derived),
        sessions=tuple(_sessions(logs, names, parents, best)),
        faults=tuple(material.faults),
        counts=material.counts,
    )


def _sessions(
    logs: list[_Log],
    names: dict[str, dict[str, str]],
    parents: dict[str, str | None],
    best: dict[str, Part],
) -> Iterator[DerivedSession]:
    def answered(turn_id: str) -> bool:
        part = best[turn_id]
        return part.answered and not (part.is_compaction and parents[turn_id] is None)

    mine: dict[str, list[_Log]] = {}
    for log in logs:
        mine.setdefault(log.session_id, []).append(log)
    for session_id, files in sorted(mine.items()):
        last = max(files, key=lambda log: (log.last_at, len(log.parts), sorted(log.parts)))
        ids = frozenset(log.file.id for log in files)
        said = names.get(session_id, {})
        metadata = _described(last, said)
        yield DerivedSession(
            session_id=session_id,
            label=f"{NAME}:{session_id}",
            head=answered_above(last.path[-1] if last.path else None, parents, answered),
            file_ids=ids,
            title=said.get("name") or said.get("summary"),
            created_at=last.first_at,
            updated_at=last.last_at,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )
        for part in {
            part.id: best[part.id] for log in files for part in log.parts.values()
        }.values():
            if part.subagent is not None:
                yield _subagent_session(session_id, part, ids, metadata, answered(part.id))


def _described(log: _Log, said: dict[str, str]) -> dict[str, Any]:
    beside = {"cwd": "cwd", "branch": "git_branch", "git_root": "git_root"}
    metadata = {name: said[field] for field, name in beside.items() if said.get(field)}
    metadata |= log.metadata
    if "cwd" in metadata:
        metadata["project"] = project_name(metadata["cwd"])
    return metadata


def _subagent_session(
    session_id: str, part: Part, ids: frozenset[int], metadata: dict[str, Any], answered: bool
) -> DerivedSession:
    return DerivedSession(
        session_id=f"{session_id}:{part.subagent}",
        label=part.id,
        head=part.id if answered else None,
        file_ids=ids,
        agent_id=part.subagent,
        created_at=part.first_at,
        updated_at=part.last_at,
        is_subagent=True,
        parent_label=f"{NAME}:{session_id}",
        metadata=metadata,
    )
