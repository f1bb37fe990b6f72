"""Claude Code: JSON lines, one record per content block, linked by parentUuid.

A record's uuid is its identity in all files: a resumed or forked session copies records, and so
shares turns. docs/sources/claude-code.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.claude_code_turns import build_turn, text_of
from agents_ledger.importers.reader import Home, Line, Material, fingerprint
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
    SourceKind,
)

NAME = "claude-code"
CHAIN = {"user", "assistant", "system", "attachment"}
PLAIN = {
    "agent-name",
    "ai-title",
    "custom-title",
    "file-history-snapshot",
    "last-prompt",
    "permission-mode",
    "progress",
    "queue-operation",
    "summary",
}
TITLES = {"ai-title": ("ai_title", 1), "custom-title": ("custom_title", 2)}
NOTICES = (
    "[Request interrupted by user",
    "<bash-stdout>",
    "<bash-stderr>",
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<system-reminder>",
    "<task-notification>",
)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
OPENERS = {"prompt", "summary", "boundary"}


class _Message(Struct):
    id: str | None = None
    content: Raw = field(default_factory=lambda: Raw(b"null"))


class _Record(Struct, rename="camel"):
    """A record, as far as the outline needs it. Anything may be missing."""

    type: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: Any = None
    subtype: str | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    agent_id: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    version: str | None = None
    entrypoint: str | None = None
    session_kind: str | None = None
    operation: str | None = None
    content: Any = None
    summary: Any = None
    leaf_uuid: str | None = None
    ai_title: Any = None
    custom_title: Any = None
    message: _Message | None = None
    attachment: Raw = field(default_factory=lambda: Raw(b"null"))


class _Block(Struct):
    type: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = field(default_factory=lambda: Raw(b"null"))


class _Prompt(Struct):
    prompt: Any = None


_decode = msgspec.json.Decoder(_Record).decode
_decode_blocks = msgspec.json.Decoder(list[_Block]).decode
_decode_prompt = msgspec.json.Decoder(_Prompt).decode
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Node(Struct):
    """A record in the tree, and where to read it again."""

    line: Line
    kind: str
    parent: str | None  # as the record says
    previous: str | None  # the record before it in its file, where parents are missing
    sidechain: bool
    at: int
    print: bytes
    file_ids: set[int]


class _Session(Struct):
    """What one file says of its session."""

    session_id: str
    file_ids: set[int]
    chain: list[str] = field(default_factory=list)  # uuids in the order of the file
    sides: list[str] = field(default_factory=list)  # roots of subagents written into it
    title: str | None = None
    title_rank: int = 0
    parent_session: str | None = None
    said_id: str | None = None  # the session id of its last record
    agent_id: str | None = None
    last_at: int = 0
    first_at: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)


class ClaudeCode:
    """Reader of Claude Code's sessions."""

    name = NAME
    version = 1
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """`projects` below each configuration folder."""
        chosen = home.environment.get("CLAUDE_CONFIG_DIR", "")
        folders = [Path(part.strip()) for part in chosen.split(",") if part.strip()]
        folders = folders or [home.home / ".claude", home.home / ".config" / "claude"]
        return [folder / "projects" for folder in folders]

    def wants(self, path: Path) -> bool:
        """Sessions and subagents alike."""
        return path.suffix == ".jsonl"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A record with a session id, or one of the kinds only this source has."""
        for line in head.split(b"\n")[:50]:
            try:
                record = _decode(line)
            except _BROKEN:
                continue
            said = record.message is not None and bytes(record.message.content) != b"null"
            if record.type in PLAIN or (record.type in CHAIN and record.session_id and record.uuid):
                return True
            if record.type in ("user", "assistant") and said and isinstance(record.timestamp, str):
                return True
        return False

    def family(self, path: Path) -> str:
        """A session stands in one file; those that share records are found by their turns."""
        return f"{self.name}:{path}"

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return _Outline(material).derivation()


class _Outline:
    """The tree of records over all files, without their content."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.nodes: dict[str, _Node] = {}
        self.sessions: dict[str, _Session] = {}
        self.leaf_titles: dict[str, str] = {}
        self.tasks: dict[str, str] = {}  # prompt of a subagent -> the call that gave it
        self.prompts: set[str] = set()
        self.queued: list[tuple[_Session, Line, _Record, str | None]] = []
        for file in material.files:
            self._add(self._read(file))
        for waiting in self.queued:
            self._add_queued(*waiting)

    # -- reading ------------------------------------------------------------------------------

    def _add(self, session: _Session) -> None:
        """A session may stand in several files: states of one file, or copies of it."""
        known = self.sessions.setdefault(session.session_id, session)
        if known is session:
            return
        known.file_ids |= session.file_ids
        known.sides += [root for root in session.sides if root not in known.sides]
        known.last_at = max(known.last_at, session.last_at)
        if session.title_rank >= known.title_rank and session.title:
            known.title, known.title_rank = session.title, session.title_rank
        if len(session.chain) > len(known.chain):
            known.chain = session.chain

    def _read(self, file: SourceFile) -> _Session:
        session = _Session(Path(file.path).stem, {file.id})
        for line in self.material.lines(file):
            record = self._decoded(line, session)
            if record is None:
                continue
            if record.uuid and record.type in CHAIN:
                self._chain(line, record, session)
            else:
                self._plain(line, record, session)
        # The name of a file is its session; of one that was renamed, what its records say.
        if session.agent_id is not None:
            session.session_id = f"agent-{session.agent_id}"
        elif not UUID.fullmatch(session.session_id):
            session.session_id = session.said_id or session.session_id
        return session

    def _decoded(self, line: Line, session: _Session) -> _Record | None:
        """The record; where a field is not what it should be, without that field."""
        data = line.data or b""
        try:
            record = _decode(data)
        except msgspec.ValidationError:
            record = _without_misfits(data)
        except _BROKEN as error:
            self._malformed(line, error)
            return None
        if record.type in CHAIN and not record.uuid:
            record.uuid = f"@{line.offset}"
        # Ids of another form are only unique in their file.
        for name in ("uuid", "parent_uuid", "logical_parent_uuid"):
            said = getattr(record, name)
            if said and not UUID.fullmatch(said):
                setattr(record, name, f"{session.session_id}:{said}")
        return record

    def _malformed(self, line: Line, error: Exception) -> None:
        unfinished = line.offset + line.length >= line.file.kept_bytes
        what = "the last line is unfinished" if unfinished else f"not a record: {error}"
        self.material.fault(line, what)
        self.material.count("(malformed)", "malformed")

    def _chain(self, line: Line, record: _Record, session: _Session) -> None:
        uuid = str(record.uuid)
        kind = self._kind(record)
        self.material.count(str(record.type), "unmapped" if kind == "other" else "derived")
        at = milliseconds(record.timestamp)
        session.first_at = session.first_at or at
        session.last_at = max(session.last_at, at)
        self._describe(record, session)
        session.said_id = record.session_id or session.said_id
        previous = session.chain[-1] if session.chain else None
        known = self.nodes.get(uuid)
        if known is None:
            self.nodes[uuid] = _Node(
                self.material.held(line),
                kind,
                record.parent_uuid or record.logical_parent_uuid,
                previous,
                bool(record.is_sidechain),
                at,
                line.fingerprint(),
                {line.file.id},
            )
        else:
            known.file_ids.add(line.file.id)
            # Of two contents under one id the longer is shown, then the one with the smaller hash.
            print_ = line.fingerprint()
            if (-line.length, print_) < (-known.line.length, known.print):
                known.line, known.kind, known.print = self.material.held(line), kind, print_
        if record.is_sidechain and not record.agent_id:
            if record.parent_uuid is None:
                session.sides.append(uuid)
        else:
            session.chain.append(uuid)
        if kind == "assistant" and record.message is not None:
            self._note_tasks(record.message.content)

    def _describe(self, record: _Record, session: _Session) -> None:
        for name in ("cwd", "git_branch", "version", "entrypoint", "session_kind"):
            said = getattr(record, name)
            if said and name not in session.metadata:
                session.metadata[name] = said
        if record.is_sidechain and record.agent_id:
            session.agent_id = record.agent_id
            session.parent_session = record.session_id

    def _kind(self, record: _Record) -> str:
        if record.type == "assistant":
            return "assistant"
        if record.type == "system":
            return "boundary" if record.subtype == "compact_boundary" else "notice"
        if record.type == "attachment":
            raw = bytes(record.attachment)
            return "queued" if b'"queued_command"' in raw else "other"
        return self._user_kind(record)

    def _user_kind(self, record: _Record) -> str:
        """What a user record really is: few of them were typed by somebody."""
        if record.is_compact_summary:
            return "summary"
        content = bytes(record.message.content) if record.message else b"null"
        if b'"tool_result"' in content and self._has_result(content):
            return "result"
        if record.is_meta:
            return "notice"
        text = text_of(_parsed(content))
        self.prompts.add(text)
        return "notice" if text.startswith(NOTICES) else "prompt"

    @staticmethod
    def _has_result(content: bytes) -> bool:
        try:
            return any(block.type == "tool_result" for block in _decode_blocks(content))
        except _BROKEN:
            return False

    def _note_tasks(self, content: Raw) -> None:
        """Subagents of old versions are known only by the prompt they were given."""
        raw = bytes(content)
        if b'"Task"' not in raw and b'"Agent"' not in raw:
            return
        try:
            for block in _decode_blocks(raw):
                if block.name in ("Task", "Agent") and block.id:
                    prompt = _decode_prompt(block.input).prompt
                    if isinstance(prompt, str):
                        self.tasks.setdefault(prompt, block.id)
        except _BROKEN:
            return

    def _plain(self, line: Line, record: _Record, session: _Session) -> None:
        kind = record.type or "(none)"
        mapped = True
        if kind in TITLES:
            name, rank = TITLES[kind]
            if getattr(record, name) and rank >= session.title_rank:
                session.title, session.title_rank = str(getattr(record, name)), rank
        elif kind == "summary" and record.leaf_uuid:
            self.leaf_titles[record.leaf_uuid] = str(record.summary or "")
        elif kind == "queue-operation" and record.operation == "enqueue" and record.content:
            after = session.chain[-1] if session.chain else None
            self.queued.append((session, self.material.held(line), record, after))
        else:
            mapped = False
        self.material.count(kind, "derived" if mapped else "unmapped")

    def _add_queued(
        self, session: _Session, line: Line, record: _Record, after: str | None
    ) -> None:
        """Text typed while the agent worked may stand nowhere else."""
        text = record.content if isinstance(record.content, str) else ""
        if not text or text in self.prompts or text.startswith(NOTICES) or after is None:
            return
        uuid = f"{session.session_id}:queued:{record.timestamp}"
        self.nodes.setdefault(
            uuid,
            _Node(
                line,
                "queued",
                after,
                after,
                False,
                milliseconds(record.timestamp),
                line.fingerprint() if line.data else b"queued",
                {line.file.id},
            ),
        )

    # -- the tree -----------------------------------------------------------------------------

    def _parent(self, uuid: str) -> str | None:
        node = self.nodes[uuid]
        if node.parent in self.nodes and node.parent != uuid:
            return node.parent
        if node.parent is None and node.sidechain:
            return None
        return node.previous if node.previous in self.nodes else None

    def _owners(self) -> dict[str, str]:
        """For every record the one that opens its turn: itself, or the nearest opener above."""
        owners: dict[str, str] = {}
        for uuid in self.nodes:
            path: list[str] = []
            at: str | None = uuid
            seen: set[str] = set()
            while at is not None and at not in owners and at not in seen:
                seen.add(at)
                path.append(at)
                if self.nodes[at].kind in OPENERS:
                    break
                at = self._parent(at)
            top = owners.get(at, at) if at is not None else path[-1]
            for each in path:
                owners[each] = str(top) if at not in seen or at == top else path[-1]
        return owners

    def _turns(self) -> tuple[dict[str, str], dict[str, str | None]]:
        """The turn of every record, and the parent of every turn.

        Prompts that follow each other without an answer are one query. A summary belongs to the
        boundary it hangs on.
        """
        owners = self._owners()
        answered = {owners[u] for u, node in self.nodes.items() if node.kind == "assistant"}
        above: dict[str, str | None] = {}
        for top in set(owners.values()):
            parent = self._parent(top)
            above[top] = owners[parent] if parent is not None else None
        heirs = Counter(up for up in above.values() if up is not None)
        joined: dict[str, str] = {}
        for top, up in above.items():
            if up is None or up == top:
                continue
            kind, up_kind = self.nodes[top].kind, self.nodes[up].kind
            unanswered = up_kind == kind == "prompt" and up not in answered and heirs[up] == 1
            if unanswered or (kind, up_kind) == ("summary", "boundary"):
                joined[top] = up
        turn_of = {uuid: _follow(owner, joined) for uuid, owner in owners.items()}
        parents = {
            top: None if up is None else _follow(up, joined)
            for top, up in above.items()
            if top not in joined
        }
        return turn_of, {t: None if up == t else up for t, up in parents.items()}

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turn_of, parents = self._turns()
        members: dict[str, list[str]] = {}
        for uuid in self.nodes:  # in the order they were first read
            members.setdefault(turn_of[uuid], []).append(uuid)
        spawned = self._spawned()
        turns = tuple(
            self._derived(top, parents.get(top), members[top], spawned)
            for top in _parents_first(parents)
        )
        answered = {
            top
            for top, uuids in members.items()
            if any(self.nodes[u].kind in ("assistant", "boundary", "summary") for u in uuids)
        }
        sessions = tuple(self._sessions(turn_of, parents, answered))
        return Derivation(
            turns=turns,
            sessions=sessions,
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _derived(
        self, top: str, parent: str | None, uuids: list[str], spawned: dict[str, str]
    ) -> DerivedTurn:
        nodes = [self.nodes[uuid] for uuid in uuids]
        lines = [(uuid, node.kind, node.line) for uuid, node in zip(uuids, nodes, strict=True)]
        return DerivedTurn(
            top,
            parent,
            fingerprint(ClaudeCode.version, (node.print for node in nodes)),
            frozenset(file_id for node in nodes for file_id in node.file_ids),
            tuple(uuids),
            partial(build_turn, self.material, top, parent, lines, spawned),
        )

    def _spawned(self) -> dict[str, str]:
        """The sessions of subagents written into their parent's file, by the call that spawned."""
        found = {}
        for session in self.sessions.values():
            for root in session.sides:
                text = text_of(_parsed(self._content(root)))
                if text in self.tasks:
                    found[self.tasks[text]] = f"{NAME}:{session.session_id}:{root}"
        return found

    def _content(self, uuid: str) -> bytes:
        record = _decode(self.material.bytes_of(self.nodes[uuid].line))
        return bytes(record.message.content) if record.message else b"null"

    def _sessions(
        self, turn_of: dict[str, str], parents: dict[str, str | None], answered: set[str]
    ) -> Iterator[DerivedSession]:
        for session in self.sessions.values():
            if session.chain:
                yield self._session(session, turn_of, parents, answered)
            for root in session.sides:
                last = [u for u in self.nodes if turn_of[u] == root]
                if last and self.nodes[root].file_ids & session.file_ids:
                    yield DerivedSession(
                        session_id=f"{session.session_id}:{root}",
                        label=f"{NAME}:{session.session_id}:{root}",
                        head=_answered_above(turn_of[last[-1]], parents, answered),
                        file_ids=frozenset(session.file_ids),
                        is_subagent=True,
                        created_at=self.nodes[root].at,
                        updated_at=max(self.nodes[u].at for u in last),
                        metadata=session.metadata,
                    )

    def _session(
        self,
        session: _Session,
        turn_of: dict[str, str],
        parents: dict[str, str | None],
        answered: set[str],
    ) -> DerivedSession:
        titles = [self.leaf_titles[uuid] for uuid in session.chain if uuid in self.leaf_titles]
        metadata = dict(session.metadata)
        if "cwd" in metadata:
            metadata["project"] = Path(metadata["cwd"]).name
        return DerivedSession(
            session_id=session.session_id,
            label=f"{NAME}:{session.session_id}",
            head=_answered_above(turn_of[session.chain[-1]], parents, answered),
            file_ids=frozenset(session.file_ids),
            title=session.title or (titles[-1] if titles else None),
            agent_id=session.agent_id,
            created_at=session.first_at,
            updated_at=session.last_at,
            is_subagent=session.agent_id is not None,
            parent_label=f"{NAME}:{session.parent_session}" if session.parent_session else None,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )


_FIELDS = dict(zip(_Record.__struct_encode_fields__, _Record.__struct_fields__, strict=True))


def _without_misfits(data: bytes) -> _Record:
    """The record without the fields that are not what they should be."""
    found = msgspec.json.decode(data)
    record = _Record()
    for name, said in found.items() if isinstance(found, dict) else ():
        if name in _FIELDS:
            try:
                part = _decode(msgspec.json.encode({name: said}))
            except msgspec.ValidationError:
                continue
            setattr(record, _FIELDS[name], getattr(part, _FIELDS[name]))
    return record


def _parsed(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except _BROKEN:
        return None


def _follow(top: str, joined: dict[str, str]) -> str:
    seen = {top}
    while top in joined and joined[top] not in seen:
        top = joined[top]
        seen.add(top)
    return top


def _parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    """Every turn after its parent; one that leads back to itself is taken as a root."""
    done: set[str] = set()
    for start in parents:
        path: list[str] = []
        at: str | None = start
        while at is not None and at not in done and at in parents and at not in path:
            path.append(at)
            at = parents[at]
        if at is not None and at in path:
            parents[at] = None
        for each in reversed(path):
            done.add(each)
            yield each


def _answered_above(
    turn: str | None, parents: dict[str, str | None], answered: set[str]
) -> str | None:
    """The nearest turn that was answered: a pending prompt is never a head."""
    while turn is not None and turn not in answered:
        turn = parents.get(turn)
    return turn
