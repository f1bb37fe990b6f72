"""Gemini CLI: how messages become a tree of turns, and which chats are one session.

Until its subagents got ids of their own (2026-03), each wrote its chat under the id of the session
it worked for, in a file next to it. A chat is identified by its id and its start time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from msgspec import Raw, field

from agents_ledger.importers.parsing.json_spans import (
    Pieces,
    raw_dict,
    raw_list,
    read_document,
    read_message,
)
from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    as_dict,
    as_list,
    as_text,
    decode_leniently,
    parse_json,
    project_name,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import HeldRecord, Material, SourceLine
from agents_ledger.importers.sources.gemini import records, rules
from agents_ledger.importers.sources.gemini.projects import (
    ROOT_FILE,
    SEARCHED_BYTES,
    folder_title,
    folder_with_hash,
    root_in,
)
from agents_ledger.importers.sources.gemini.turns import GeminiTurn, GeminiTurnContext
from agents_ledger.importers.transcript.columns import NONE
from agents_ledger.importers.transcript.lines import record_of, report_malformed, scoped_id
from agents_ledger.importers.transcript.message_log import LogMessage, LogSession, MessageFamily
from agents_ledger.importers.transcript.message_tree import (
    ActiveBranch,
    MessageNode,
    MessageTree,
    MessageTurn,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.imports.sources import DerivedSession, SourceFile
from agents_ledger.model.turns import MessageSource


class GeminiSession(LogSession):
    """A chat, and what its files say of it. Its `id` is what the chat says: another may have it."""

    start: str = ""
    number: int = 0
    live: ActiveBranch = field(default_factory=ActiveBranch)  # what the program would show
    head: dict[str, Any] = field(default_factory=dict)
    shares_id: bool = False  # with an earlier chat

    @property
    def session_id(self) -> str:
        return f"{self.id}:{self.start or 'undated'}" if self.shares_id else self.id

    @property
    def is_subagent(self) -> bool:
        return self.head.get("kind") == "subagent" or self.parent_id is not None

    def describe(self, head: dict[str, Any]) -> None:
        """Take what a record says of the session; fields that it omits stay."""
        self.head |= {name: value for name, value in head.items() if value is not None}

    def merge(self, later: GeminiSession) -> None:
        """Take a chat that continues this one in another file."""
        self.file_ids |= later.file_ids
        starts = filter(milliseconds, (chat.head.get("startTime") for chat in (self, later)))
        self.head |= later.head | {"startTime": min(starts, key=milliseconds, default=None)}
        self.live = later.live
        self.created_at = min(filter(None, (self.created_at, later.created_at)), default=0)
        self.updated_at = max(self.updated_at, later.updated_at)


class GeminiTree(MessageFamily):
    def __init__(self, material: Material, version: int) -> None:
        super().__init__(material, version)
        self.chats: dict[tuple[str, str], GeminiSession] = {}  # by id and start
        self.shared: dict[tuple[int, int], None] = {}  # pairs of chats with a common message
        for file in material.files:
            if file.path.endswith(ROOT_FILE):
                self._read_root(file)
            elif file.kind == "lines":
                self._read_log(file)
            else:
                self._read_document(file)
        self.by_number = self._merged_chats()
        self.sessions = list({id(session): session for session in self.by_number}.values())
        self.spawned = dict(self._spawned())
        subagents = (session for session in self.sessions if session.is_subagent)
        self.subagent_files = {file_id for session in subagents for file_id in session.file_ids}
        self._find_folders()

    # -- reading ------------------------------------------------------------------------------

    def _read_root(self, file: SourceFile) -> None:
        folder = root_in(next(self.material.blocks(file), b""))
        self.material.count(ROOT_FILE, "derived" if folder else "unmapped")
        if folder:
            self.titles.append(folder_title(folder, file))

    def _read_document(self, file: SourceFile) -> None:
        document = read_document(self.material, file, raw_dict, "a chat")
        if document is None:
            return
        pieces, fields = document
        session = self._chat(file, fields)
        session.describe(records.head_of(fields))
        messages = fields.get("messages", fields.get("history", Raw(b"null")))
        self._replace_messages(session, file, messages, pieces)
        self.states.add(file, chain(fields, map(self.nodes.name, session.live)))

    def _read_log(self, file: SourceFile) -> None:
        session: GeminiSession | None = None
        for line in self.material.lines(file):
            pieces = Pieces(self.material, file, line.offset, line.data or b"")
            try:
                record = pieces.read(raw_dict)
            except BROKEN as error:
                report_malformed(self.material, line, error)
                continue
            if session is None:
                session = self._chat(file, record)
            self._add_record(session, line, record, pieces)

    def _add_record(
        self, session: GeminiSession, line: SourceLine, record: dict[str, Raw], pieces: Pieces
    ) -> None:
        if "$rewindTo" in record:
            # The messages from this one on become a branch; an unknown id rewinds everything.
            target = scoped_id(rules.NAME, session.id, str(parse_json(record["$rewindTo"])))
            session.live.cut(self.nodes.number(target))
            self.material.count("$rewindTo", "derived")
        elif "id" in record:
            held = self.material.held(line)
            self._append(session, self._add_message(session, line.file, line.data or b"", held))
        elif "$set" in record:
            self._patch(session, line.file, record["$set"], pieces)
        else:
            session.describe(as_dict(parse_json(line.data or b"")))
            is_mapped = "sessionId" in record
            self.material.count("metadata", "derived" if is_mapped else "unmapped")

    def _patch(self, session: GeminiSession, file: SourceFile, patch: Raw, pieces: Pieces) -> None:
        self.material.count("$set", "derived")
        try:
            fields = raw_dict(patch)
        except BROKEN:
            return
        session.describe(records.head_of(fields))
        if "messages" in fields:
            self._replace_messages(session, file, fields["messages"], pieces)

    def _replace_messages(
        self, session: GeminiSession, file: SourceFile, messages: Raw, pieces: Pieces
    ) -> None:
        try:
            items = raw_list(messages)
        except BROKEN:
            return
        # `messages` in $set replaces all: those it no longer has stay in the tree as a branch.
        session.live = ActiveBranch()
        for number, item in enumerate(items):
            data = bytes(item)
            held = pieces.held(data)
            self._append(session, self._add_message(session, file, data, held, number))

    def _append(self, session: GeminiSession, node: int) -> None:
        """Put a message below the previous one; the first of a cut history keeps its parent."""
        if node == NONE or node in session.live:
            return
        if session.live.last != NONE:
            self.nodes.values[node].parent = self.nodes.name(session.live.last)
        session.live.add(node)

    def _add_message(
        self,
        session: GeminiSession,
        file: SourceFile,
        data: bytes,
        record: HeldRecord,
        number: int = 0,
    ) -> int:
        """The number of its node, or NONE. A message of the same id replaces the earlier one."""
        head = read_message(
            self.material, file, records.decode_message_head, data, f"message {number}"
        )
        if head is None:
            return NONE
        type_ = str(head.type or head.role)
        kind = rules.KINDS.get(type_, "notice")
        is_mapped = kind != "notice" or type_ in rules.NOTICES
        if type_ == "error" or (
            type_ == "info" and records.is_cancellation(as_dict(parse_json(data)))
        ):
            kind = "failure"
        self.material.count(type_, "derived" if is_mapped else "unmapped")
        at = self.material.timestamp(head.timestamp or head.ts, file)
        session.seen(at)
        name = str(head.id if head.id is not None else number)
        message = LogMessage(scoped_id(rules.NAME, session.id, name), kind, data)
        node = self.put(message, None, record, file, session=session.number)
        if self.session_of[node] != session.number:
            self.shared[self.session_of[node], session.number] = None
        return node

    def _chat(self, file: SourceFile, fields: dict[str, Raw]) -> GeminiSession:
        path = Path(file.path)
        own_id, start = records.session_key(path, fields)
        new = GeminiSession(own_id, start=start, number=len(self.chats))
        session = self.chats.setdefault((own_id, start), new)
        session.file_ids.add(file.id)
        folder = path.parent
        if folder.name != "chats" and folder.parent.name == "chats" and folder.name != own_id:
            session.parent_id = folder.name
        return session

    # -- sessions -----------------------------------------------------------------------------

    def _merged_chats(self) -> list[GeminiSession]:
        """By number, the session of each chat: chats with a common message are one."""
        sessions = list(self.chats.values())
        for pair in self.shared:
            earlier, later = (sessions[number] for number in pair)
            if earlier is not later:
                earlier.merge(later)
                # Every reference, as the later one may itself have been merged into before.
                sessions = [earlier if session is later else session for session in sessions]
        return sessions

    def _spawned(self) -> Iterator[tuple[str, dict[str, str]]]:
        """By session, the labels of the subagents that calls started without naming, by call."""
        prompts: dict[int, dict[str, str]] = {}  # by the number of the parent
        for child, parent in (*self._mark_shared_ids(), *self._nested()):
            prompts.setdefault(parent.number, {})[child.session_id] = self._first_prompt(child)
        for number, by_child in prompts.items():
            parent = self.by_number[number]
            replies = (n for n in parent.live if self.nodes.values.read(n).kind == "reply")
            calls = spawning_calls(map(self._message, replies), by_child)
            yield (
                parent.session_id,
                {call: f"{rules.NAME}:{child}" for call, child in calls.items()},
            )

    def _mark_shared_ids(self) -> Iterator[tuple[GeminiSession, GeminiSession]]:
        """Subagents whose chats have the id of their session, each with that session.

        The earliest chat keeps the id. The program runs one chat at a time, so one that started
        while the first went on, or waited for an answer, is a subagent's.
        """
        by_id: dict[str, list[GeminiSession]] = {}
        for session in self.sessions:
            by_id.setdefault(session.id, []).append(session)
        for first, *rest in (sorted(chats, key=_age) for chats in by_id.values()):
            last = first.live.last
            waits = last != NONE and self.nodes.values.read(last).kind == "prompt"
            for session in rest:
                session.shares_id = True
                is_within = first.created_at <= session.created_at <= first.updated_at
                if session.is_subagent or is_within or waits:
                    session.parent_id = session.parent_id or first.id
                    yield session, first

    def _nested(self) -> Iterator[tuple[GeminiSession, GeminiSession]]:
        """Subagents whose files are in the folder of their session, each with that session."""
        by_id = {session.session_id: session for session in self.sessions}
        for session in self.sessions:
            parent = by_id.get(session.parent_id or "")
            if parent is not None and not session.shares_id:
                yield session, parent

    def _first_prompt(self, session: GeminiSession) -> str:
        prompts = (n for n in session.live if self.nodes.values.read(n).kind == "prompt")
        first = next(prompts, None)
        return "" if first is None else records.content_of(self._message(first))[0]

    def _message(self, node: int) -> dict[str, Any]:
        return record_of(self.material, self.nodes.values.read(node).record)

    def _find_folders(self) -> None:
        """Find where each session was held: in a root file, else in one of its messages."""
        hashes = (as_text(session.head.get("projectHash")) or "" for session in self.sessions)
        titles = {title.record_id: title.title for title in self.material.titles(hashes)}
        for session in self.sessions:
            session.folder = titles.get(str(session.head.get("projectHash")))
        for node, number in enumerate(self.session_of):
            session = self.by_number[number]
            project_hash = as_text(session.head.get("projectHash"))
            if project_hash and session.folder is None:
                data = self.material.bytes_of(self.nodes.values.read(node).record)
                # The hash decides: a path that merely looks like a project is never taken.
                session.folder = folder_with_hash(data[:SEARCHED_BYTES], project_hash)

    # -- derivation ---------------------------------------------------------------------------

    def _uncount(self, node: MessageNode) -> None:
        """A notice that no prompt has followed yet makes no row."""
        data = self.material.bytes_of(node.record)
        type_ = str(decode_leniently(records.decode_message_head, data).type)
        if type_ in rules.NOTICES:
            self.material.count(type_, "derived", -1)
            self.material.count(type_, "unmapped")

    def context(self, turn: MessageTurn) -> bytes:
        return self._turn_context(turn).evidence()

    def build_turn(
        self, builder: TurnBuilder, turn: MessageTurn, messages: Iterable[LogMessage]
    ) -> None:
        content = GeminiTurn(builder, self._turn_context(turn))
        for message in messages:
            content.add(message.id, message.kind, message.record)

    def _turn_context(self, turn: MessageTurn) -> GeminiTurnContext:
        node_ids = [node_id for _, node_id in turn.members]
        files = {file_id for node_id in node_ids for file_id in self.nodes.read(node_id).file_ids}
        asked_by: MessageSource = "human" if files.isdisjoint(self.subagent_files) else "agent"
        session = self.by_number[self.session_of[self.nodes.number(node_ids[0])]]
        spawned = self.spawned.get(session.session_id, {})
        return GeminiTurnContext(asked_by, session.folder, spawned)

    def derived_sessions(self, tree: MessageTree) -> Iterator[DerivedSession]:
        for node in tree.unplanned():
            self._uncount(node)
        for session in self.sessions:
            head, folder = session.head, session.folder
            metadata = {name: head[name] for name in rules.SESSION_FIELDS if head.get(name)}
            if folder is not None:
                metadata |= {"workspace_path": folder, "project": project_name(folder)}
            yield DerivedSession(
                session_id=session.session_id,
                label=f"{rules.NAME}:{session.session_id}",
                head=tree.head(session.live.last),
                file_ids=frozenset(session.file_ids),
                title=as_text(head.get("summary")),
                created_at=milliseconds(head.get("startTime")) or session.created_at,
                updated_at=milliseconds(head.get("lastUpdated")) or session.updated_at,
                is_subagent=session.is_subagent,
                parent_label=f"{rules.NAME}:{session.parent_id}" if session.parent_id else None,
                routing_key=folder,
                metadata=metadata,
            )


def _age(session: GeminiSession) -> tuple[bool, bool, str]:
    return session.is_subagent, not session.start, session.start


def spawning_calls(replies: Iterable[dict[str, Any]], prompts: dict[str, str]) -> dict[str, str]:
    """The subagents' sessions that these prompts open, by the calls that started them.

    In 0.37 no call names its subagent. Of the calls with an argument that is part of the prompt,
    the first with the longest one started it: a file that was read before may be part of it too.
    """
    named_agents: set[str] = set()
    best: dict[str, tuple[int, str]] = {}  # session -> length of the argument, call
    for call in (as_dict(call) for reply in replies for call in as_list(reply.get("toolCalls"))):
        call_id, agent = as_text(call.get("id")), as_text(call.get("agentId"))
        if agent or not call_id:
            named_agents.add(agent or "")
            continue
        texts = filter(None, map(as_text, as_dict(call.get("args")).values()))
        arguments = sorted(map(str.strip, texts), key=len)
        for child, prompt in prompts.items() if arguments else ():
            longest, _ = best.get(child, (rules.SPAWN_ARGUMENT_MIN - 1, ""))
            if len(arguments[-1]) > longest and (size := _overlap(arguments, prompt)) > longest:
                best[child] = size, call_id
                break
    return {call: child for child, (_, call) in best.items() if child not in named_agents}


def _overlap(arguments: Sequence[str], prompt: str) -> int:
    return max((len(argument) for argument in arguments if argument in prompt), default=0)
