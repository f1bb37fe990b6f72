"""Cline since its SDK: a folder per session with a document of messages, written anew as it grows.

Beside it stand a manifest, the messages of subagents, and what the model was last shown in place
of older messages. docs/sources/cline.md tells where each rule was learned.
"""

from __future__ import annotations

import re
import zlib
from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.json_spans import (
    Pieces,
    raw_dict,
    raw_list,
    read_document,
    read_message,
)
from agents_ledger.importers.port.source import Held, Home, Look, Material, Project, fingerprint
from agents_ledger.importers.sources.cline.session_turns import (
    COMPACTIONS,
    RESUMED,
    Told,
    build,
    kind_of,
    result_ids,
    said_by_person,
    spawning,
)
from agents_ledger.importers.sources.cline.turns import texts
from agents_ledger.importers.transcript.message_tree import (
    Kind,
    Live,
    Nodes,
    Plan,
    PlannedTurn,
    node_of,
    planned,
)
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    States,
    as_dict,
    as_number,
    as_text,
    made,
    parsed,
    project_name,
    record_of,
)
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
)
from agents_ledger.model.turns import Turn

MESSAGES, FOLDED = ".messages.json", ".compaction.json"
VERSION = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,')
LISTED = re.compile(rb'"messages"\s*:\s*\[')
AGENT = re.compile(rb'"agent"\s*:\s*"(lead|subagent|teammate)"')
MANIFEST = (b'"session_id"', b'"started_at"', b'"workspace_root"')
OWN_ID = re.compile(
    r"msg_[A-Za-z0-9_-]{8}|msg_[0-9a-z]{8}_[0-9a-z]+|[A-Za-z0-9_-]{21}"
)  # no other message has it
TASK_ID = re.compile(r"\d+")  # of older versions; sessions have more than digits


def root(home: Home) -> Path:
    """Where sessions are kept, which three variables may move."""
    return home.chosen("CLINE_SESSION_DATA_DIR", data(home) / "sessions")


def data(home: Home) -> Path:
    """The folder of all that Cline keeps outside an editor."""
    return home.chosen("CLINE_DATA_DIR", home.chosen("CLINE_DIR", home.home / ".cline") / "data")


def wants(path: PurePath) -> bool:
    """Messages, those of subagents, what was folded, and the manifest; no index of all sessions."""
    is_manifest = path.suffix == ".json" and path.stem == path.parent.name
    return is_manifest or path.name.endswith((MESSAGES, FOLDED))


def recognises(path: PurePath, start: bytes) -> bool:
    """By name and what it holds, or by how it begins."""
    if not start.startswith(b"{"):
        return False
    if path.name.endswith((MESSAGES, FOLDED)):
        return LISTED.search(start) is not None
    if not VERSION.match(start):
        return False
    if all(name in start for name in MANIFEST):
        return True
    is_folded = b'"source_message_count"' in start
    return bool(LISTED.search(start) and (is_folded or AGENT.search(start)))


def projects(path: Path, look: Look) -> Collection[Project] | None:
    """As the manifest beside it says: its own, or that of the session a subagent is of."""
    own = path.name.removesuffix(".json").removesuffix(".messages").removesuffix(".compaction")
    for name in (own, path.parent.name):
        found = look.document(path.with_name(f"{name}.json"), _worked_in)
        if found:
            return [found]
    return None


def is_of_session(material: Material, file: SourceFile) -> bool:
    """Whether a file is an object; tasks are arrays."""
    if file.path.endswith((MESSAGES, FOLDED)):
        return True
    first = next(iter(material.blocks(file)), b"")
    return first.removeprefix(BOM).lstrip().startswith(b"{")


def _worked_in(manifest: Any) -> str | None:
    said = as_dict(manifest)
    return as_text(said.get("cwd")) or as_text(said.get("workspace_root"))


class _Brief(Struct):
    """A message, as far as the outline needs it."""

    id: Any = None
    role: Any = None
    ts: Any = None
    content: Any = None
    metadata: Any = None
    metrics: Any = None


_brief = msgspec.json.Decoder(_Brief).decode


def _decode(data: bytes) -> tuple[dict[str, Raw], list[Raw] | None]:
    """What a file says, and its messages if it has any."""
    said = raw_dict(data)
    return said, raw_list(said["messages"]) if "messages" in said else None


class _Session(Struct):
    session_id: str
    number: int
    file_ids: set[int] = field(default_factory=set)
    live: Live = field(default_factory=Live)  # as the program would show it
    listed: Sequence[int] = ()  # the nodes of the messages of its document, or NONE
    parent: str | None = None
    agent: str | None = None
    first_at: int = 0
    last_at: int = 0
    written_at: int = 0
    task: str | None = None  # what it was asked first

    @property
    def name(self) -> str:
        """What a task of older versions was called that goes on in it is the task's."""
        return (
            f"{self.session_id}:resumed" if TASK_ID.fullmatch(self.session_id) else self.session_id
        )


class _Fold(Struct):
    """What the model is shown in place of the first messages of a session."""

    file: SourceFile
    session_id: str
    number: int  # of messages that it replaces
    data: bytes
    held: Held


class _Document(Struct):
    """A document of messages while it is read."""

    session: _Session
    file: SourceFile
    at: int = 0  # how many of the live messages stand before the next one
    answer: str = ""  # the last message of the agent
    metered: str | None = None  # the last one with tokens
    met: Live = field(default_factory=Live)  # but for what stands before a compaction
    listed: array[int] = field(default_factory=lambda: array("i"))


class Sessions:
    """What the files of some sessions say."""

    def __init__(self, material: Material, files: Sequence[SourceFile], version: int) -> None:
        self.material = material
        self.version = version
        self.nodes = Nodes()
        self.session_of = array("I")  # by message
        self.sessions: dict[str, _Session] = {}  # in the order of their numbers
        self.manifests: dict[str, dict[str, Any]] = {}  # by session
        self.unmetered: set[str] = set()
        self.started: dict[int, list[tuple[str, str]]] = {}  # by message: calls and their tasks
        self.folds: list[_Fold] = []
        self.states = States()
        for file in files:
            self._document(file)
        for fold in sorted(self.folds, key=lambda fold: fold.number):
            self._fold(fold)

    # -- reading ------------------------------------------------------------------------------

    def _document(self, file: SourceFile) -> None:
        found = read_document(self.material, file, _decode, "a session")
        if found is None:
            return
        pieces, (said, messages) = found
        if messages is None:
            self._manifest(file, said)
        elif "source_message_count" in said:
            self._folded(file, said, messages, pieces)
        else:
            self._messages(file, said, messages, pieces)

    def _manifest(self, file: SourceFile, said: dict[str, Raw]) -> None:
        mapped = "session_id" in said
        self.material.count("manifest", "derived" if mapped else "unmapped")
        self.states.add(file, ())
        if mapped:
            known = {name: parsed(raw) for name, raw in said.items()}
            name = as_text(known["session_id"]) or PurePath(file.path).stem
            self.manifests[name] = known
            self._session(file, name)

    def _session(self, file: SourceFile, session_id: str) -> _Session:
        new = _Session(session_id, len(self.sessions))
        session = self.sessions.setdefault(session_id, new)
        session.file_ids.add(file.id)
        return session

    def _folded(
        self, file: SourceFile, said: dict[str, Raw], messages: Sequence[Raw], pieces: Pieces
    ) -> None:
        """Only the message that replaces others: those that follow it are known."""
        count = as_number(parsed(said["source_message_count"]))
        for data in map(bytes, messages):
            held = pieces.held(data)
            if as_dict(as_dict(parsed(data)).get("metadata")).get("kind") in COMPACTIONS:
                session_id = PurePath(file.path).name.removesuffix(FOLDED)
                self.folds.append(_Fold(file, session_id, count or 0, data, held))
                return
        self.material.count("compaction", "unmapped")

    def _messages(
        self, file: SourceFile, said: dict[str, Raw], messages: Sequence[Raw], pieces: Pieces
    ) -> None:
        own = as_text(parsed(said.get("sessionId", b"null")))
        stem = PurePath(file.path).name.removesuffix(".json").removesuffix(".messages")
        session = self._session(file, own or stem)
        self._describe(session, said)
        document = _Document(session, file)
        for raw in messages:
            data = bytes(raw)
            document.listed.append(self._message(document, data, pieces.held(data)))
        if messages:
            session.listed = document.listed
        self.states.add(file, map(self.nodes.name, document.met))

    def _describe(self, session: _Session, said: dict[str, Raw]) -> None:
        """Whose messages these are: older versions say it by the id alone."""
        origin = as_dict(parsed(said.get("origin", b"null")))
        above, _, agent = session.session_id.partition("__")
        session.parent = as_text(origin.get("parentThreadId")) or (above if agent else None)
        agent = agent.removeprefix("teamtask__")
        session.agent = as_text(origin.get("subagent")) or agent or None
        written = milliseconds(parsed(said.get("updated_at", b"null")))
        session.written_at = max(session.written_at, written)

    def _message(self, document: _Document, data: bytes, held: Held) -> int:
        """The number of its node, or NONE."""
        session, file = document.session, document.file
        what = f"message {len(document.listed)}"
        brief = read_message(self.material, file, _brief, data, what)
        if brief is None:
            return NONE
        kind = kind_of(brief.role, brief.content, brief.metadata)
        self.material.count(f"message: {brief.role}", "derived" if kind else "unmapped")
        if kind is None:
            return NONE
        at = self.material.moment(brief.ts, file)
        session.first_at = session.first_at or at
        session.last_at = max(session.last_at, at)
        name = self._name(document, brief, kind)
        first = next(iter(session.live), NONE)
        if kind == "compaction" and first in (NONE, self.nodes.number(name)):
            kind = "notice"  # nothing is known of what it replaces
        node = self._place(document, name, kind, data, held)
        self._note(document, name, node, brief)
        if brief.role == "assistant":
            document.answer = name
        return node

    def _name(self, document: _Document, brief: _Brief, kind: Kind) -> str:
        """A message is known by its id; results by their calls, as their messages are joined and
        parted; others by their place and content."""
        session_id, own = document.session.session_id, as_text(brief.id)
        said = zlib.crc32(msgspec.json.encode(brief.content))
        results = result_ids(brief.content)
        if brief.role == "user" and results and document.answer:
            name = f"{document.answer}:{results[0]}"
        elif own is None:
            name = f"{session_id}:{len(document.listed)}:{said:08x}"
        else:
            name = own if OWN_ID.fullmatch(own) else f"{session_id}:{own}"
        if kind == "compaction":  # it may have the id of the first message that it replaces
            name += f":{said:08x}"
        known = self.nodes.number(name)
        return f"{name}:{len(document.listed)}" if known in document.met else name

    def _place(self, document: _Document, name: str, kind: Kind, data: bytes, held: Held) -> int:
        """Put a message behind the one before it. What a document leaves out stays: as a branch, or
        above the compaction that replaces it; so does what it repeats after that."""
        live, above = document.session.live, None
        number = self.nodes.number(name)
        if number in live:
            found = live.place(number, document.at)
            if found == NONE:
                return number
            document.at = found + 1
        else:
            if kind == "compaction":
                document.at = len(live)
            live.keep(document.at)
            above = self.nodes.name(live.last) if document.at else None
            document.at += 1
        self.nodes.put(name, node_of(kind, above, data, held, document.file.id))
        number = self.nodes.number(name)
        if number == len(self.session_of):
            self.session_of.append(document.session.number)
        live.add(number)
        document.met.add(number)
        return number

    def _note(self, document: _Document, name: str, node: int, brief: _Brief) -> None:
        """What other parts need to know of a message."""
        session = document.session
        if brief.role == "assistant":
            document.metered = name if as_dict(brief.metrics) else document.metered
            started = list(spawning(brief.content))
            if started:
                self.started[node] = started
            return
        words = said_by_person(brief.content)
        if words and session.task is None:
            session.task = words[0].text
        if any(text.startswith(RESUMED) for text in texts(brief.content)):
            # The sum of the task stands with the last answer before.
            self.unmetered.update([document.metered] if document.metered else ())

    def _fold(self, fold: _Fold) -> None:
        """Put a compaction between the messages it replaces and those that follow."""
        session = self.sessions.get(fold.session_id)
        listed = session.listed if session is not None else ()
        before = listed[fold.number - 1] if 0 < fold.number <= len(listed) else NONE
        self.material.count("compaction", "unmapped" if before == NONE else "derived")
        if session is None or before == NONE:
            return
        name = f"{self.nodes.name(before)}:{zlib.crc32(fold.data):08x}"
        self.states.add(fold.file, [name])
        if name in self.nodes:
            return
        after = listed[fold.number] if fold.number < len(listed) else NONE
        up = self.nodes.name(before)
        if after != NONE:
            up = self.nodes.values[after].parent or up
            self.nodes.values[after].parent = name
        elif session.live.last != NONE:
            up = self.nodes.name(session.live.last)
        self.nodes.put(name, node_of("compaction", up, fold.data, fold.held, fold.file.id))
        self.session_of.append(session.number)
        session.file_ids.add(fold.file.id)
        if after == NONE:
            session.live.add(self.nodes.number(name))

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Their turns and sessions."""
        plan = planned(self.nodes)
        spawned = self._spawned()
        for node in plan.unplanned():
            role = record_of(self.material, node.record).get("role")
            self.material.count(f"message: {role}", "derived", -1)
            self.material.count(f"message: {role}", "unmapped")
        sessions = tuple(self.sessions.values())
        return Derivation(
            turns=made(
                range(len(plan)), lambda number: self._derived(plan[number], sessions, spawned)
            ),
            sessions=tuple(self._sessions(plan)),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=self.states.superseded(),
        )

    def _spawned(self) -> dict[int, dict[str, str]]:
        """The sessions of agents by the calls that started them: those of their parent that gave
        the task they began with, where no other did."""
        sessions = list(self.sessions.values())
        calls: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for node, started in self.started.items():
            session_id = sessions[self.session_of[node]].session_id
            for call_id, task in started:
                calls.setdefault((session_id, task), []).append((node, call_id))
        agents: dict[tuple[str, str], list[str]] = {}
        for session in sessions:
            if session.parent and session.task:
                agents.setdefault((session.parent, session.task), []).append(
                    f"cline:{session.name}"
                )
        found: dict[int, dict[str, str]] = {}
        for key, labels in agents.items():
            if len(labels) == len(calls.get(key, ())) == 1:
                node, call_id = calls[key][0]
                found.setdefault(node, {})[call_id] = labels[0]
        return found

    def _derived(
        self,
        turn: PlannedTurn,
        sessions: Sequence[_Session],
        spawned: dict[int, dict[str, str]],
    ) -> DerivedTurn:
        numbers = [self.nodes.number(name) for _, name in turn.members]
        session = sessions[self.session_of[numbers[0]]]
        told = Told(
            "agent" if session.parent else "human",
            _worked_in(self._manifest_of(session)),
            {call: label for each in numbers for call, label in spawned.get(each, {}).items()},
            frozenset(message_id for message_id, name in turn.members if name in self.unmetered),
        )
        told_by = (*told[:2], sorted(told.spawned.items()), sorted(told.unmetered))
        prints = [repr(told_by).encode("utf-8", "replace"), *turn.prints(self.nodes)]
        return DerivedTurn(
            turn.id,
            turn.parent,
            fingerprint(self.version, prints),
            frozenset().union(*(self.nodes.values.read(each).file_ids for each in numbers)),
            tuple(message_id for message_id, _ in turn.members),
            partial(self._build, turn, told),
        )

    def _manifest_of(self, session: _Session) -> dict[str, Any]:
        """Subagents have none of their own."""
        names = (session.session_id, session.parent or "")
        return next((self.manifests[name] for name in names if name in self.manifests), {})

    def _build(self, turn: PlannedTurn, told: Told) -> Turn:
        nodes = [(message_id, self.nodes.read(name)) for message_id, name in turn.members]
        records = [(m, node.kind, record_of(self.material, node.record)) for m, node in nodes]
        return build(turn, records, told)

    def _sessions(self, plan: Plan) -> Iterator[DerivedSession]:
        for session in self.sessions.values():
            manifest = self._manifest_of(session)
            own = self.manifests.get(session.session_id, {})
            said = as_dict(own.get("metadata"))
            cwd = _worked_in(manifest)
            above = self.sessions.get(session.parent or "")
            metadata = {
                "client": manifest.get("source"),
                "cwd": cwd,
                "project": project_name(cwd) if cwd else None,
                "team": own.get("team_name"),
                "forked_from": as_dict(said.get("fork")).get("forkedFromSessionId"),
            }
            started, ended = (milliseconds(own.get(name)) for name in ("started_at", "ended_at"))
            yield DerivedSession(
                session_id=session.name,
                label=f"cline:{session.name}",
                head=plan.head(session.live.last),
                file_ids=frozenset(session.file_ids),
                title=as_text(said.get("title")),
                agent_id=session.agent,
                created_at=started or session.first_at or session.written_at,
                updated_at=session.last_at or ended or session.written_at,
                is_subagent=session.parent is not None,
                parent_label=f"cline:{above.name if above else session.parent}"
                if session.parent
                else None,
                task_description=session.task if session.parent else None,
                routing_key=cwd,
                metadata={name: value for name, value in metadata.items() if as_text(value)},
            )
