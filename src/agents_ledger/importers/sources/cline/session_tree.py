"""Cline 4: how the documents of a session become a tree of turns.

The document of messages is rewritten as it grows. What its latest state omits stays: as a branch,
or above the compaction that replaced it.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.json_spans import Pieces, read_document, read_message
from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_number,
    as_text,
    parse_json,
    project_name,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import HeldRecord, Material
from agents_ledger.importers.sources.cline import records, rules
from agents_ledger.importers.sources.cline.projects import manifest_folder
from agents_ledger.importers.sources.cline.turns import ClineSessionTurn, ClineTurnContext
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lines import record_of
from agents_ledger.importers.transcript.message_log import LogMessage, LogSession, MessageFamily
from agents_ledger.importers.transcript.message_tree import (
    ActiveBranch,
    MessageKind,
    MessageTree,
    MessageTurn,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.imports.sources import DerivedSession, SourceFile


class ClineSession(LogSession):
    """A session, and what its files say of it."""

    number: int = 0
    live: ActiveBranch = field(default_factory=ActiveBranch)  # what the program would show
    listed: Sequence[int] = ()  # the nodes of its document's messages, or NONE
    agent: str | None = None
    written_at: int = 0
    task: str | None = None  # the first prompt

    @property
    def session_id(self) -> str:
        is_resumed_task = rules.TASK_ID.fullmatch(self.id)
        # The task has the same id, and stays a session of its own.
        return f"{self.id}:resumed" if is_resumed_task else self.id

    @property
    def label(self) -> str:
        return f"{rules.NAME}:{self.session_id}"


class _CompactionFile(Struct):
    """What the model is shown in place of the first messages of a session."""

    file: SourceFile
    session_id: str
    replaced: int  # number of messages
    data: bytes
    held: HeldRecord


class _MessageDocument(Struct):
    """A document of messages while it is read."""

    session: ClineSession
    file: SourceFile
    position: int = 0  # of the next message among the live ones
    last_answer: str = ""
    last_metered: str | None = None  # the last answer with tokens
    seen: ActiveBranch = field(default_factory=ActiveBranch)  # without what precedes a compaction
    listed: array[int] = field(default_factory=lambda: array("i"))


class ClineSessionTree(MessageFamily):
    def __init__(self, material: Material, files: Sequence[SourceFile], version: int) -> None:
        super().__init__(material, version)
        self.sessions: dict[str, ClineSession] = {}  # in the order of their numbers
        self.manifests: dict[str, dict[str, Any]] = {}  # by session
        self.unmetered: set[str] = set()
        self.spawning: dict[int, list[tuple[str, str]]] = {}  # by message, calls and their tasks
        self.compactions: list[_CompactionFile] = []
        for file in files:
            self._read(file)
        # Earlier ones first: a later one replaces what follows them.
        for compaction in sorted(self.compactions, key=lambda c: c.replaced):
            self._insert_compaction(compaction)
        self.by_number = tuple(self.sessions.values())
        self.spawned = self._spawned()

    # -- reading ------------------------------------------------------------------------------

    def _read(self, file: SourceFile) -> None:
        document = read_document(self.material, file, records.decode_session_file, "a session")
        if document is None:
            return
        pieces, (fields, messages) = document
        if messages is None:
            self._read_manifest(file, fields)
        elif "source_message_count" in fields:
            self._read_compaction(file, fields, messages, pieces)
        else:
            self._read_messages(file, fields, messages, pieces)

    def _read_manifest(self, file: SourceFile, fields: dict[str, Raw]) -> None:
        is_mapped = "session_id" in fields
        self.material.count("manifest", "derived" if is_mapped else "unmapped")
        self.states.add(file, ())
        if is_mapped:
            manifest = {name: parse_json(raw) for name, raw in fields.items()}
            session_id = as_text(manifest["session_id"]) or PurePath(file.path).stem
            self.manifests[session_id] = manifest
            self._session(file, session_id)

    def _session(self, file: SourceFile, session_id: str) -> ClineSession:
        new = ClineSession(session_id, number=len(self.sessions))
        session = self.sessions.setdefault(session_id, new)
        session.file_ids.add(file.id)
        return session

    def _read_compaction(
        self, file: SourceFile, fields: dict[str, Raw], messages: Sequence[Raw], pieces: Pieces
    ) -> None:
        """Take the message that replaces others; those that follow it are in the document."""
        replaced = as_number(parse_json(fields["source_message_count"])) or 0
        for data in map(bytes, messages):
            held = pieces.held(data)
            metadata = as_dict(as_dict(parse_json(data)).get("metadata"))
            if metadata.get("kind") in rules.COMPACTION_KINDS:
                session_id = PurePath(file.path).name.removesuffix(records.COMPACTION)
                self.compactions.append(_CompactionFile(file, session_id, replaced, data, held))
                return
        self.material.count("compaction", "unmapped")

    def _read_messages(
        self, file: SourceFile, fields: dict[str, Raw], messages: Sequence[Raw], pieces: Pieces
    ) -> None:
        own = as_text(parse_json(fields.get("sessionId", b"null")))
        stem = PurePath(file.path).name.removesuffix(".json").removesuffix(".messages")
        session = self._session(file, own or stem)
        self._describe(session, fields)
        document = _MessageDocument(session, file)
        for raw in messages:
            data = bytes(raw)
            document.listed.append(self._add_message(document, data, pieces.held(data)))
        if messages:
            session.listed = document.listed
        self.states.add(file, map(self.nodes.name, document.seen))

    def _describe(self, session: ClineSession, fields: dict[str, Raw]) -> None:
        """Whose messages these are: versions without `origin` say so by the id alone."""
        origin = as_dict(parse_json(fields.get("origin", b"null")))
        parent, _, agent = session.id.partition("__")
        session.parent_id = as_text(origin.get("parentThreadId")) or (parent if agent else None)
        agent = agent.removeprefix("teamtask__")
        session.agent = as_text(origin.get("subagent")) or agent or None
        written = milliseconds(parse_json(fields.get("updated_at", b"null")))
        session.written_at = max(session.written_at, written)

    def _add_message(self, document: _MessageDocument, data: bytes, held: HeldRecord) -> int:
        """The number of its node, or NONE."""
        session, file = document.session, document.file
        what = f"message {len(document.listed)}"
        head = read_message(self.material, file, records.decode_message_head, data, what)
        if head is None:
            return NONE
        kind = records.message_kind(head.role, head.content, head.metadata)
        self.material.count(f"message: {head.role}", "derived" if kind else "unmapped")
        if kind is None:
            return NONE
        at = self.material.timestamp(head.ts, file)
        session.seen(at)
        name = self._message_id(document, head, kind)
        first = next(iter(session.live), NONE)
        if kind == "compaction" and first in (NONE, self.nodes.number(name)):
            kind = "notice"  # the messages that it replaces are unknown
        node = self._place(document, LogMessage(name, kind, data), held)
        self._note(document, name, node, head)
        if head.role == "assistant":
            document.last_answer = name
        return node

    def _message_id(
        self, document: _MessageDocument, head: records.ClineMessageHead, kind: MessageKind
    ) -> str:
        """Its own id; of results the first call, since their messages are joined and split when a
        session is resumed; of others their position and content."""
        session_id, own = document.session.id, as_text(head.id)
        # Of the decoded content: white space in the document does not matter.
        checksum = zlib.crc32(msgspec.json.encode(head.content))
        results = records.result_ids(head.content)
        if head.role == "user" and results and document.last_answer:
            name = f"{document.last_answer}:{results[0]}"
        elif own is None:
            name = f"{session_id}:{len(document.listed)}:{checksum:08x}"
        else:
            name = own if rules.UNIQUE_MESSAGE_ID.fullmatch(own) else f"{session_id}:{own}"
        # It may have the id of the first message that it replaces.
        if kind == "compaction":
            name += f":{checksum:08x}"
        is_repeated = self.nodes.number(name) in document.seen
        return f"{name}:{len(document.listed)}" if is_repeated else name

    def _place(self, document: _MessageDocument, message: LogMessage, held: HeldRecord) -> int:
        """Put a message below the previous one. What the document omits, and what it repeats after
        a compaction, stays where it was."""
        live, parent = document.session.live, None
        node = self.nodes.number(message.id)
        if node in live:
            position = live.place(node, document.position)
            if position == NONE:
                return node
            document.position = position + 1
        else:
            if message.kind == "compaction":
                document.position = len(live)
            live.keep(document.position)
            parent = self.nodes.name(live.last) if document.position else None
            document.position += 1
        node = self.put(message, parent, held, document.file, session=document.session.number)
        live.add(node)
        document.seen.add(node)
        return node

    def _note(
        self, document: _MessageDocument, name: str, node: int, head: records.ClineMessageHead
    ) -> None:
        """Note what links a message to other sessions and to tokens counted elsewhere."""
        session = document.session
        if head.role == "assistant":
            document.last_metered = name if as_dict(head.metrics) else document.last_metered
            calls = list(records.spawning_calls(head.content))
            if calls:
                self.spawning[node] = calls
            return
        words = records.human_words(head.content)
        if words and session.task is None:
            session.task = words[0].text
        if any(text.startswith(rules.RESUMED) for text in records.texts(head.content)):
            # The last answer before it has the sum of the resumed task's tokens.
            self.unmetered.update([document.last_metered] if document.last_metered else ())

    def _insert_compaction(self, compaction: _CompactionFile) -> None:
        """Put a compaction between the messages that it replaces and those that follow."""
        session = self.sessions.get(compaction.session_id)
        listed = session.listed if session is not None else ()
        replaced = compaction.replaced
        before = listed[replaced - 1] if 0 < replaced <= len(listed) else NONE
        self.material.count("compaction", "unmapped" if before == NONE else "derived")
        if session is None or before == NONE:
            return
        parent = self.nodes.name(before)
        name = f"{parent}:{zlib.crc32(compaction.data):08x}"
        self.states.add(compaction.file, [name])
        if name in self.nodes:
            return
        after = listed[replaced] if replaced < len(listed) else NONE
        if after != NONE:
            parent = self.nodes.values[after].parent or parent
            self.nodes.values[after].parent = name
        elif session.live.last != NONE:
            parent = self.nodes.name(session.live.last)
        message, file = LogMessage(name, "compaction", compaction.data), compaction.file
        node = self.put(message, parent, compaction.held, file, session=session.number)
        session.file_ids.add(file.id)
        if after == NONE:
            session.live.add(node)

    # -- derivation ---------------------------------------------------------------------------

    def _turn_context(self, turn: MessageTurn) -> ClineTurnContext:
        nodes = [self.nodes.number(name) for _, name in turn.members]
        session = self.by_number[self.session_of[nodes[0]]]
        return ClineTurnContext(
            "agent" if session.parent_id else "human",
            manifest_folder(self._manifest(session)),
            {call: label for node in nodes for call, label in self.spawned.get(node, {}).items()},
            frozenset(message_id for message_id, name in turn.members if name in self.unmetered),
        )

    def context(self, turn: MessageTurn) -> bytes:
        return self._turn_context(turn).evidence()

    def build_turn(
        self, builder: TurnBuilder, turn: MessageTurn, messages: Iterable[LogMessage]
    ) -> None:
        ClineSessionTurn(builder, self._turn_context(turn)).add(list(messages))

    def _spawned(self) -> dict[int, dict[str, str]]:
        """By message, the labels of the agents that its calls started.

        No id links them: an agent belongs to the call of its parent that gave the task it began
        with, if there is one such call and one such agent.
        """
        calls: dict[tuple[str, str], list[tuple[int, str]]] = {}
        for node, spawning in self.spawning.items():
            session_id = self.by_number[self.session_of[node]].id
            for call_id, task in spawning:
                calls.setdefault((session_id, task), []).append((node, call_id))
        agents: dict[tuple[str, str], list[str]] = {}
        for session in self.by_number:
            if session.parent_id and session.task:
                agents.setdefault((session.parent_id, session.task), []).append(session.label)
        spawned: dict[int, dict[str, str]] = {}
        for key, labels in agents.items():
            if len(labels) == len(calls.get(key, ())) == 1:
                node, call_id = calls[key][0]
                spawned.setdefault(node, {})[call_id] = labels[0]
        return spawned

    def _manifest(self, session: ClineSession) -> dict[str, Any]:
        """Its own, or its parent's: subagents have none."""
        names = (session.id, session.parent_id or "")
        return next((self.manifests[name] for name in names if name in self.manifests), {})

    def derived_sessions(self, tree: MessageTree) -> Iterator[DerivedSession]:
        for node in tree.unplanned():
            role = record_of(self.material, node.record).get("role")
            self.material.count(f"message: {role}", "derived", -1)
            self.material.count(f"message: {role}", "unmapped")
        for session in self.sessions.values():
            manifest = self._manifest(session)
            own = self.manifests.get(session.id, {})
            fields = as_dict(own.get("metadata"))
            cwd = manifest_folder(manifest)
            parent = self.sessions.get(session.parent_id or "")
            metadata = {
                "client": manifest.get("source"),
                "cwd": cwd,
                "project": project_name(cwd) if cwd else None,
                "team": own.get("team_name"),
                "forked_from": as_dict(fields.get("fork")).get("forkedFromSessionId"),
            }
            started, ended = (milliseconds(own.get(name)) for name in ("started_at", "ended_at"))
            parent_label = parent.label if parent else f"{rules.NAME}:{session.parent_id}"
            yield DerivedSession(
                session_id=session.session_id,
                label=session.label,
                head=tree.head(session.live.last),
                file_ids=frozenset(session.file_ids),
                title=as_text(fields.get("title")),
                agent_id=session.agent,
                created_at=started or session.created_at or session.written_at,
                updated_at=session.updated_at or ended or session.written_at,
                is_subagent=session.parent_id is not None,
                parent_label=parent_label if session.parent_id else None,
                task_description=session.task if session.parent_id else None,
                routing_key=cwd,
                metadata={name: value for name, value in metadata.items() if as_text(value)},
            )
