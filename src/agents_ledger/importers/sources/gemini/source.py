"""Gemini CLI: a JSON document rewritten with every message, or since 0.40 a log of JSON lines.

docs/sources/gemini-cli.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from agents_ledger.importers.parsing.json_spans import (
    Pieces,
    raw_dict,
    raw_list,
    read_document,
    read_message,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import (
    Held,
    Home,
    Line,
    Look,
    Material,
    Project,
    Source,
    fingerprint,
)
from agents_ledger.importers.sources.gemini.projects import (
    LOOKED,
    ROOT,
    called,
    folder_in,
    is_root,
    projects,
    root_of,
)
from agents_ledger.importers.sources.gemini.sessions import (
    Session,
    in_folders,
    name_of,
    set_apart,
    spawning,
    united,
)
from agents_ledger.importers.sources.gemini.turns import (
    NAME,
    Told,
    build_turn,
    content,
    is_cancelled,
)
from agents_ledger.importers.transcript.message_tree import (
    Kind,
    Live,
    Node,
    Nodes,
    Plan,
    PlannedTurn,
    node_of,
    planned,
)
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    NONE,
    States,
    as_dict,
    as_list,
    as_text,
    made,
    malformed,
    parsed,
    project_name,
    record_of,
    scoped,
    strictly,
)
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
    SourceKind,
    SourceTitle,
)
from agents_ledger.model.turns import MessageSource

KINDS: dict[str, Kind] = {"user": "prompt", "gemini": "reply", "model": "reply"}
NOTICES = ("info", "error", "warning")
SESSION_FILE = re.compile(r"session-.*-([0-9a-f]{8})")
OWN = re.compile(rb'"(?:gemini|\$set|\$rewindTo)"')
SAID = ("projectHash", "directories", "kind", "activeExtensionName", "memoryScratchpad")


class _Brief(Struct):
    """A message, as far as the outline needs it."""

    id: Any = None
    type: Any = None
    role: Any = None
    timestamp: Any = None
    ts: Any = None


_brief = msgspec.json.Decoder(_Brief).decode


class GeminiCli(Source):
    """Reader of Gemini CLI's chats."""

    name = NAME
    version = 11
    kind: SourceKind = "document"

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """The older form is one document, whatever its name. The newer one is appended to: its
        first line is whole and has no messages."""
        line = head.split(b"\n", 1)[0]
        first = parsed(line)
        if isinstance(first, dict):
            return "document" if {"messages", "history"} & first.keys() else "lines"
        spread = line.strip() == b"{"
        return "lines" if path.suffix == ".jsonl" and not spread else "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """`tmp` below the folder of settings, which a variable may move."""
        return [home.chosen("GEMINI_CLI_HOME", home.home) / ".gemini" / "tmp"]

    def wants(self, path: Path) -> bool:
        """Chats and those of subagents, and of which project they are; neither prompts nor
        checkpoints."""
        is_chat = path.suffix in (".json", ".jsonl") and "chats" in path.parts[:-1]
        return is_chat or path.name == ROOT

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whose chat it is and in which project, a later record of a chat, the history of a still
        older form, or the folder of a project."""
        if path.name == ROOT:
            return is_root(head)
        start = head.lstrip()
        if any(map(_is_own, start.split(b"\n")[:50])):
            return True
        if not start.startswith(b"{"):
            return False
        first = parsed(start.split(b"\n", 1)[0])
        if not isinstance(first, dict):
            if re.search(rb'"projectHash"\s*:', start) and re.search(rb'"sessionId"\s*:', start):
                return True
            first = as_dict(parsed(start))
        history = as_list(first.get("history"))
        has_parts = bool(history) and all("parts" in as_dict(each) for each in history)
        return has_parts or ("projectHash" in first and "sessionId" in first)

    def family(self, path: Path) -> str:
        """All files of a session in its folder: the document, the lines it became, later ones, and
        those of its subagents in a folder of its id."""
        if path.parent.parent.name == "chats":
            return f"{NAME}:{path.parent.parent / path.parent.name[:8]}"
        short = SESSION_FILE.fullmatch(path.stem)
        return f"{NAME}:{path.parent / (short[1] if short else path.stem)}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As files beside it say, or the chat itself."""
        return projects(path, look)

    def derive(self, material: Material) -> Derivation:
        """What the messages say."""
        return _Outline(material).derivation()


def _is_own(line: bytes) -> bool:
    """A record that no other source has."""
    match parsed(line) if OWN.search(line) else None:
        case {"$rewindTo": str()}:
            return True
        case {"$set": dict(said)}:
            return not said.keys().isdisjoint(_PATCHED)
        case {"id": str(), "timestamp": str(), "type": "gemini", "content": _}:
            return True
    return False


class _Outline:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.nodes = Nodes()
        self.found: dict[tuple[str, str], Session] = {}  # by id, and when it began
        self.session_of = array("I")  # by message, that of its session
        self.shared: dict[tuple[int, int], None] = {}  # sessions that have messages in common
        self.states = States()
        self.roots: list[SourceTitle] = []
        for file in material.files:
            if file.path.endswith(ROOT):
                self._root(file)
            elif file.kind == "lines":
                self._lines(file)
            else:
                self._document(file)
        self.numbered = united(list(self.found.values()), self.shared)
        self.sessions = list({id(each): each for each in self.numbered}.values())
        self.spawned = dict(self._spawned())
        subagents = (session for session in self.sessions if session.is_subagent)
        self.of_subagents = {file_id for session in subagents for file_id in session.file_ids}

    # -- reading ------------------------------------------------------------------------------

    def _root(self, file: SourceFile) -> None:
        folder = root_of(next(self.material.blocks(file), b""))
        self.material.count(ROOT, "derived" if folder else "unmapped")
        if folder:
            self.roots.append(called(folder, file))

    def _document(self, file: SourceFile) -> None:
        found = read_document(self.material, file, raw_dict, "a chat")
        if found is None:
            return
        pieces, said = found
        session = self._session(file, said)
        session.describe({name: parsed(raw) for name, raw in said.items() if name in _KNOWN})
        messages = said.get("messages", said.get("history", Raw(b"null")))
        self._replace(session, file, messages, pieces)
        self.states.add(file, chain(said, map(self.nodes.name, session.live)))

    def _lines(self, file: SourceFile) -> None:
        session: Session | None = None
        for line in self.material.lines(file):
            pieces = Pieces(self.material, file, line.offset, line.data or b"")
            try:
                record = pieces.read(raw_dict)
            except BROKEN as error:
                malformed(self.material, line, error)
                continue
            if session is None:
                session = self._session(file, record)
            self._record(session, line, record, pieces)

    def _record(self, session: Session, line: Line, record: dict[str, Raw], pieces: Pieces) -> None:
        if "$rewindTo" in record:
            self._rewind(session, parsed(record["$rewindTo"]))
            self.material.count("$rewindTo", "derived")
        elif "id" in record:
            held = self.material.held(line)
            self._chain(session, self._message(session, line.file, line.data or b"", held))
        elif "$set" in record:
            self._set(session, line.file, record["$set"], pieces)
        else:
            session.describe(as_dict(parsed(line.data or b"")))
            mapped = "sessionId" in record
            self.material.count("metadata", "derived" if mapped else "unmapped")

    def _set(self, session: Session, file: SourceFile, patch: Raw, pieces: Pieces) -> None:
        self.material.count("$set", "derived")
        try:
            said = raw_dict(patch)
        except BROKEN:
            return
        session.describe({name: parsed(raw) for name, raw in said.items() if name in _KNOWN})
        if "messages" in said:
            self._replace(session, file, said["messages"], pieces)

    def _rewind(self, session: Session, to: Any) -> None:
        """Leave what came from this message on; it stays as a branch. An unknown id leaves all."""
        wanted = self.nodes.number(scoped(NAME, session.name, str(to)))
        session.live.cut(wanted)

    def _replace(self, session: Session, file: SourceFile, messages: Raw, pieces: Pieces) -> None:
        """All messages of a document, in their order."""
        try:
            raws = raw_list(messages)
        except BROKEN:
            return
        session.live = Live()
        for number, raw in enumerate(raws):
            data = bytes(raw)
            self._chain(session, self._message(session, file, data, pieces.held(data), number))

    def _chain(self, session: Session, node: int) -> None:
        """Hang a message on the one before it; the first of a cut history stays where it was."""
        if node == NONE or node in session.live:
            return
        if session.live.last != NONE:
            self.nodes.values[node].parent = self.nodes.name(session.live.last)
        session.live.add(node)

    def _message(
        self, session: Session, file: SourceFile, data: bytes, record: Held, number: int = 0
    ) -> int:
        """The number of its node, or NONE."""
        brief = read_message(self.material, file, _brief, data, f"message {number}")
        if brief is None:
            return NONE
        type_ = str(brief.type or brief.role)
        kind = KINDS.get(type_, "notice")
        known = kind != "notice" or type_ in NOTICES
        if type_ == "error" or (type_ == "info" and is_cancelled(as_dict(parsed(data)))):
            kind = "failure"
        self.material.count(type_, "derived" if known else "unmapped")
        at = self.material.moment(brief.timestamp or brief.ts, file)
        session.first_at = session.first_at or at
        session.last_at = max(session.last_at, at)
        name = str(brief.id if brief.id is not None else number)
        node_id = scoped(NAME, session.name, name)
        self.nodes.put(node_id, node_of(kind, None, data, record, file.id))
        node = self.nodes.number(node_id)
        if node == len(self.session_of):
            self.session_of.append(session.number)
        elif self.session_of[node] != session.number:
            self.shared[self.session_of[node], session.number] = None
        return node

    def _session(self, file: SourceFile, said: dict[str, Raw]) -> Session:
        path = Path(file.path)
        name, began = name_of(path, said)
        session = self.found.setdefault((name, began), Session(name, began, len(self.found)))
        session.file_ids.add(file.id)
        folder = path.parent
        if folder.name != "chats" and folder.parent.name == "chats" and folder.name != name:
            session.parent = folder.name
        return session

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        self._find_folders()
        plan = planned(self.nodes)
        for node in plan.unplanned():
            self._uncount(node)
        return Derivation(
            turns=made(range(len(plan)), lambda number: self._derived(plan[number])),
            sessions=tuple(self._sessions(plan)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=self.states.superseded(),
            titles=tuple(self.roots),
        )

    def _find_folders(self) -> None:
        """Where each session was held, if a file beside it or one of its messages says so."""
        hashes = (as_text(session.said.get("projectHash")) or "" for session in self.sessions)
        known = {said.record_id: said.title for said in self.material.titles(hashes)}
        for session in self.sessions:
            session.folder = known.get(str(session.said.get("projectHash")))
        for node, number in enumerate(self.session_of):
            session = self.numbered[number]
            hashed = as_text(session.said.get("projectHash"))
            if hashed and session.folder is None:
                data = self.material.bytes_of(self.nodes.values.read(node).record)[:LOOKED]
                session.folder = folder_in(data, hashed)

    def _uncount(self, node: Node) -> None:
        """A notice no prompt followed makes no row yet."""
        type_ = str(strictly(_brief, self.material.bytes_of(node.record)).type)
        if type_ in NOTICES:
            self.material.count(type_, "derived", -1)
            self.material.count(type_, "unmapped")

    def _derived(self, turn: PlannedTurn) -> DerivedTurn:
        nodes = [(message_id, self.nodes.read(node_id)) for message_id, node_id in turn.members]
        files = frozenset(file_id for _, node in nodes for file_id in node.file_ids)
        asked_by: MessageSource = "human" if files.isdisjoint(self.of_subagents) else "agent"
        session = self._session_of(turn.members[0][1])
        told = Told(asked_by, session.folder, self.spawned.get(session.session_id, {}))
        return DerivedTurn(
            turn.id,
            turn.parent,
            fingerprint(GeminiCli.version, [repr(told).encode(), *turn.prints(self.nodes)]),
            files,
            tuple(message_id for message_id, _ in turn.members),
            partial(build_turn, self.material, turn, nodes, told),
        )

    def _spawned(self) -> Iterator[tuple[str, dict[str, str]]]:
        """By session, the calls that started subagents without naming them, each with theirs."""
        prompts: dict[int, dict[str, str]] = {}  # by parent
        for child, parent in (*set_apart(self.sessions, self.nodes), *in_folders(self.sessions)):
            prompts.setdefault(parent.number, {})[child.session_id] = self._prompt(child)
        for number, asked in prompts.items():
            parent = self.numbered[number]
            replies = (n for n in parent.live if self.nodes.values.read(n).kind == "reply")
            found = spawning(map(self._read, replies), asked)
            yield parent.session_id, {call: f"{NAME}:{child}" for call, child in found.items()}

    def _prompt(self, session: Session) -> str:
        """What was asked first."""
        asked = (n for n in session.live if self.nodes.values.read(n).kind == "prompt")
        first = next(asked, None)
        return "" if first is None else content(self._read(first))[0]

    def _read(self, node: int) -> dict[str, Any]:
        return record_of(self.material, self.nodes.values.read(node).record)

    def _session_of(self, node_id: str) -> Session:
        number = self.session_of[self.nodes.number(node_id)]
        return self.numbered[number]

    def _sessions(self, plan: Plan) -> Iterator[DerivedSession]:
        for session in self.sessions:
            said, folder = session.said, session.folder
            metadata = {name: said[name] for name in SAID if said.get(name)}
            if folder is not None:
                metadata |= {"workspace_path": folder, "project": project_name(folder)}
            yield DerivedSession(
                session_id=session.session_id,
                label=f"{NAME}:{session.session_id}",
                head=plan.head(session.live.last),
                file_ids=frozenset(session.file_ids),
                title=as_text(said.get("summary")),
                created_at=milliseconds(said.get("startTime")) or session.first_at,
                updated_at=milliseconds(said.get("lastUpdated")) or session.last_at,
                is_subagent=session.is_subagent,
                parent_label=f"{NAME}:{session.parent}" if session.parent else None,
                routing_key=folder,
                metadata=metadata,
            )


_KNOWN = {"sessionId", "startTime", "lastUpdated", "summary", *SAID}
_PATCHED = {"messages", *_KNOWN}
