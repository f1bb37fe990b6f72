"""Claude Code: the tree of records over all files of a family, and the sessions in it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers import claude_code_records as records
from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.claude_code_records import CHAIN, NOTICES, Record
from agents_ledger.importers.claude_code_tree import Tree, begin_below
from agents_ledger.importers.claude_code_turns import ASKED, BESIDE, Build, Kept, beside
from agents_ledger.importers.outlines import (
    BROKEN,
    UUID,
    FileSets,
    as_text,
    in_turns,
    malformed,
    openers,
    parents_first,
    parsed,
    project_name,
)
from agents_ledger.importers.reader import RECORD_MAX, Line, Material, fingerprint
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
    SourceFile,
    SourceTitle,
)

NAME = "claude-code"
TITLES = {"ai-title": ("ai_title", 1), "custom-title": ("custom_title", 2)}
OPENERS = {"prompt", "command", "summary", "boundary"}
COMPACTING = {"summary", "boundary"}


class _Node(Struct, gc=False):
    """A record in the tree, and where to read it again."""

    line: Line
    kind: str
    parent: str | None  # as the record says
    previous: str | None  # the record before it in its file, where parents are missing
    side: str  # of a subagent: "file" of its own, or "inline" in its parent's
    at: int
    print: bytes
    file_ids: frozenset[int]
    spills: tuple[str, ...] = ()  # outputs in files of their own that it names


class _Session(Struct):
    """What one file says of its session."""

    session_id: str
    file_ids: set[int]
    path: str
    chain: list[str] = field(default_factory=list)  # uuids in the order of the file
    side_chain: list[str] = field(default_factory=list)  # those of subagents written into it
    title: str | None = None
    title_rank: int = 0
    parent_session: str | None = None
    said_id: str | None = None  # the session id of its last record
    agent_id: str | None = None
    last_at: int = 0
    first_at: int = 0
    task: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, deque[_Queued]] = field(default_factory=dict)  # what was typed, by its text


class _Queued(NamedTuple):
    """Text typed while the agent worked."""

    session: _Session
    line: Line
    print: bytes
    text: str
    typed_at: str
    after: str | None  # the record before it in its file

    def key(self) -> tuple[str, str, str]:
        """The same in every file that tells of it."""
        return self.session.session_id, self.typed_at, self.text


class Spill(Struct, frozen=True):
    """An output that was too large for a record."""

    file: SourceFile
    print: bytes


class Outline:
    """The tree of records over all files, without their content."""

    def __init__(self, material: Material, version: int) -> None:
        self.material = material
        self.version = version
        self.nodes: dict[str, _Node] = {}
        self.files = FileSets()
        self.sessions: dict[str, _Session] = {}
        self.passing: dict[str, str | None] = {}  # records of no turn, and what they hang on
        self.leaf_titles: dict[str, SourceTitle] = {}
        self.leafs: list[str] = []  # of which each summary tells
        self.tasks: dict[str, list[str]] = {}  # prompt of a subagent -> the calls that gave it
        self.callers: dict[str, str] = {}  # call of a subagent -> its record
        self.at_work: dict[str, str] = {}  # call of a subagent -> the subagent
        self.queued: list[_Queued] = []
        self.delivered: list[_Queued] = []
        self.spills: dict[str, Spill] = {}
        self.about: dict[str, tuple[SourceFile, dict[str, Any]]] = {}  # session -> what is said
        self.half_way: dict[str, str] = {}  # prompt -> the record it hangs on
        self.preserved: dict[str, str] = {}  # compaction -> the first record that it left
        for file in material.files:
            if file.kind == "document":
                self._read_document(file)
        for file in material.files:
            if file.kind != "document":
                self._add(self._read(file))
        self._add_queued()
        for session_id, (file, said) in self.about.items():
            self._tell(session_id, file, said)
        self._count_spills()
        self.titles = self._called_elsewhere()
        for leaf in self.leafs:
            self.material.count("summary", "derived" if leaf in self.nodes else "unmapped")
        self.parents = {uuid: self._hangs_on(uuid, node) for uuid, node in self.nodes.items()}
        begin_below(self.parents, {u for u, node in self.nodes.items() if node.kind == "other"})
        self.sides = {s.session_id: self._sides(s) for s in self.sessions.values()}

    # -- files beside -------------------------------------------------------------------------

    def _read_document(self, file: SourceFile) -> None:
        """The latest generation of a file stands."""
        name = records.ABOUT_NAME.search(file.path)
        if file.kept_bytes > RECORD_MAX:
            what = f"{file.kept_bytes:,} bytes are kept, but too many to read"
            self.material.faults.append(Fault(file.path, what))
            self.material.count("(overlong)", "malformed")
            return
        data = self.material.document(file)
        if name is None:
            self.spills[records.spill_key(file.path)] = Spill(file, b"%d;" % zlib.crc32(data))
            return
        said = parsed(data)
        if isinstance(said, dict):
            self.about[name[1]] = (file, said)
        else:
            self.material.faults.append(Fault(file.path, "not an object"))
            self.material.count(records.ABOUT, "malformed")

    def _tell(self, session_id: str, file: SourceFile, said: dict[str, Any]) -> None:
        session = self.sessions.get(session_id)
        self.material.count(records.ABOUT, "derived" if session else "unmapped")
        if session is not None:
            session.file_ids.add(file.id)
            session.task = as_text(said.get("description"))
            kind = as_text(said.get("agentType"))
            session.metadata |= {"agent": said} | ({"agent_type": kind} if kind else {})

    def _count_spills(self) -> None:
        named = {key for node in self.nodes.values() for key in node.spills}
        for key in self.spills:
            self.material.count(records.SPILLED, "derived" if key in named else "unmapped")

    # -- reading ------------------------------------------------------------------------------

    def _add(self, session: _Session) -> None:
        """A session may stand in several files: states of one file, or copies of it."""
        known = self.sessions.setdefault(session.session_id, session)
        if known is session:
            return
        known.file_ids |= session.file_ids
        side = dict.fromkeys([*known.side_chain, *session.side_chain])
        known.side_chain = list(side)
        known.last_at = max(known.last_at, session.last_at)
        if session.title_rank >= known.title_rank and session.title:
            known.title, known.title_rank = session.title, session.title_rank
        if self._goes_further(session, known):
            known.chain, known.path = session.chain, session.path

    def _goes_further(self, other: _Session, known: _Session) -> bool:
        """Whether another state of a session is the one to show. One that was cut shows less; of
        two that went different ways the file as it is now counts, then the later."""
        if not other.chain or not known.chain:
            return bool(other.chain)
        last, before = other.chain[-1], known.chain[-1]
        if last in known.chain or before in other.chain:
            return len(other.chain) > len(known.chain)
        ends = ((self.nodes[s.chain[-1]].at, len(s.chain), s.path) for s in (other, known))
        return other.path == known.path or next(ends) > next(ends)

    def _read(self, file: SourceFile) -> _Session:
        name = PurePosixPath(file.path.replace("\\", "/")).stem
        session = _Session(name, {file.id}, file.path)
        for line in self.material.lines(file):
            try:
                record = records.read(line.data or b"")
            except BROKEN as error:
                malformed(self.material, line, error)
                continue
            records.localise(record, session.session_id, line.offset)
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

    def _chain(self, line: Line, record: Record, session: _Session) -> None:
        uuid = str(record.uuid)
        kind = self._kind(record, session)
        self.material.count(str(record.type), "unmapped" if kind == "other" else "derived")
        at = self.material.moment(record.timestamp, line)
        session.first_at = session.first_at or at
        session.last_at = max(session.last_at, at)
        self._describe(record, session)
        session.said_id = record.session_id or session.said_id
        inline = record.is_sidechain and not record.agent_id
        chain = session.side_chain if inline else session.chain
        self._note(uuid, kind, line, record, chain[-1] if chain else None, at=at)
        chain.append(uuid)
        if kind == "boundary" and (first := records.first_preserved(record)):
            self.preserved[uuid] = first
        if kind == "assistant":
            for prompt, call in records.tasks(record):
                if call not in self.callers:
                    self.callers[call] = uuid
                    self.tasks.setdefault(prompt, []).append(call)

    def _note(
        self, uuid: str, kind: str, line: Line, record: Record, previous: str | None, *, at: int
    ) -> None:
        known = self.nodes.get(uuid)
        print_ = line.fingerprint()
        if known is not None:
            known.file_ids = self.files.of(known.file_ids | {line.file.id})
            # Of two contents under one id the longer is shown, then the one with the smaller hash.
            if (-line.length, print_) < (-known.line.length, known.print):
                known.line, known.kind, known.print = self.material.held(line), kind, print_
            return
        spills: tuple[str, ...] = ()
        if kind == "result" and self.spills:
            spills = tuple(sorted(records.spills_named(line.data or b"") & self.spills.keys()))
        parent = record.parent_uuid or record.logical_parent_uuid
        self.nodes[uuid] = _Node(
            self.material.held(line),
            kind,
            previous if parent == previous else parent,  # the same letters need not be held twice
            previous,
            ("file" if record.agent_id else "inline") if record.is_sidechain else "",
            at,
            print_,
            self.files.of([line.file.id, *(self.spills[key].file.id for key in spills)]),
            spills,
        )

    def _describe(self, record: Record, session: _Session) -> None:
        metadata = session.metadata
        for name in ("cwd", "git_branch", "version", "entrypoint", "session_kind"):
            if name not in metadata:
                said = getattr(record, name)
                if said:
                    metadata[name] = said
        if record.is_sidechain and record.agent_id:
            session.agent_id = record.agent_id
            session.parent_session = record.session_id

    def _kind(self, record: Record, session: _Session) -> str:
        if record.type == "assistant":
            return "assistant"
        if record.type == "system":
            return "boundary" if record.subtype == "compact_boundary" else "notice"
        if record.type == "attachment":
            if not records.is_queued(record):
                return "other"
            self._deliver(records.queued_text(record), session)
            return "queued"
        return self._user_kind(record, session)

    def _user_kind(self, record: Record, session: _Session) -> str:
        """What a user's record really is: few of them were typed by somebody."""
        if record.is_compact_summary:
            return "summary"
        if records.has_result(record):
            return "result"
        if record.is_meta:
            return "notice"
        text = records.words_of(record)
        self._deliver(text, session)
        if text.startswith(records.COMMANDS):
            return "command"
        if text.startswith(records.PRINTED):
            return "printed"
        return "notice" if text.startswith(NOTICES) else "prompt"

    def _plain(self, line: Line, record: Record, session: _Session) -> None:
        kind = record.type or "(none)"
        mapped = True
        if record.uuid:
            self.passing[record.uuid] = record.parent_uuid
        if kind in TITLES:
            name, rank = TITLES[kind]
            if getattr(record, name) and rank >= session.title_rank:
                session.title, session.title_rank = str(getattr(record, name)), rank
        elif kind == "summary" and record.leaf_uuid:
            self._call(record.leaf_uuid, line, str(record.summary or ""))
            return  # counted when it is known whether that record is here
        elif kind == "queue-operation" and record.operation == "enqueue" and record.content:
            self._enqueue(line, record, session)
        elif kind == "progress" and record.call_id and (agent := records.agent_at_work(record)):
            mapped = self.at_work.setdefault(record.call_id, agent) == agent
        else:
            mapped = False
        self.material.count(kind, "derived" if mapped else "unmapped")

    def _call(self, leaf: str, line: Line, title: str) -> None:
        """What a session is called, by a record of it, perhaps in another file."""
        file = line.file
        self.leafs.append(leaf)
        said = SourceTitle(leaf, file.id, file.path, file.generation, line.offset, title)
        if said.rank() >= self.leaf_titles.get(leaf, said).rank():
            self.leaf_titles[leaf] = said

    def _called_elsewhere(self) -> tuple[SourceTitle, ...]:
        """Add what other files call the sessions here, or in a folder below theirs; what is said
        here of others."""
        own = {file.id: file.path for file in self.material.files}
        for said in self.material.titles([uuid for uuid in self.nodes if UUID.fullmatch(uuid)]):
            known = self.leaf_titles.get(said.record_id, said)
            paths = (own[file_id] for file_id in self.nodes[said.record_id].file_ids)
            is_there = any(path.startswith(said.folder) for path in paths)
            if is_there and said.file_id not in own and said.rank() >= known.rank():
                self.leaf_titles[said.record_id] = said
        return tuple(
            said
            for leaf, said in self.leaf_titles.items()
            if leaf not in self.nodes and UUID.fullmatch(leaf) and said.title
        )

    def _enqueue(self, line: Line, record: Record, session: _Session) -> None:
        queued = _Queued(
            session,
            self.material.held(line),
            line.fingerprint(),
            records.text_of(record.content),
            str(record.timestamp),
            session.chain[-1] if session.chain else None,
        )
        self.queued.append(queued)
        session.waiting.setdefault(queued.text, deque()).append(queued)

    def _deliver(self, text: str, session: _Session) -> None:
        """A record with the text of what was typed before is that, given to the agent."""
        if session.waiting.get(text):
            self.delivered.append(session.waiting[text].popleft())

    def _add_queued(self) -> None:
        """Text typed while the agent worked may stand nowhere else."""
        texts: dict[str, str] = {}
        typed: dict[str, dict[str, _Node]] = {}  # by the record they were typed after
        known = set(self.nodes)
        delivered = {queued.key() for queued in self.delivered}
        for queued in self.queued:
            said = bool(queued.text) and not queued.text.startswith(NOTICES)
            if not said or queued.after is None or queued.key() in delivered:
                continue
            uuid = f"{queued.session.session_id}:queued:{queued.typed_at}"
            if texts.setdefault(uuid, queued.text) != queued.text:  # typed in the same instant
                uuid = f"{uuid}:{zlib.crc32(queued.text.encode(errors='replace')):08x}"
            node = _Node(
                queued.line,
                "queued",
                queued.after,
                queued.after,
                "",
                milliseconds(queued.typed_at),
                queued.print,
                self.files.of([queued.line.file.id]),
            )
            if uuid not in known:
                known.add(uuid)
                typed.setdefault(queued.after, {})[uuid] = node
        if typed:
            placed: dict[str, _Node] = {}
            for uuid, node in self.nodes.items():
                placed[uuid] = node
                placed |= typed.get(uuid, {})
            self.nodes = placed

    # -- the tree -----------------------------------------------------------------------------

    def _hangs_on(self, uuid: str, node: _Node) -> str | None:
        """The record above: as it says, or, where that one is lost, the one before in its file."""
        parent, seen = node.parent, {uuid}
        while parent in self.passing and parent not in self.nodes and parent not in seen:
            seen.add(parent)
            parent = self.passing[parent]
        if parent in self.nodes and parent != uuid:
            apart = node.side == "inline" and self.nodes[parent].side != "inline"
            return None if apart else parent
        if node.parent is None and node.side:
            return None
        if parent is not None and parent not in seen and node.side != "file":
            self.material.fault(node.line, f"the record it follows is not there: {parent}")
        return node.previous if node.previous in self.nodes else None

    def _sides(self, session: _Session) -> dict[str, list[str]]:
        """The records of each subagent written into a session, by the first of them."""
        tops = openers(
            session.side_chain, lambda uuid: self.parents[uuid] is None, self.parents.__getitem__
        )
        found: dict[str, list[str]] = {}
        for uuid in session.side_chain:
            found.setdefault(tops[uuid], []).append(uuid)
        return found

    def _opens(self, uuid: str) -> bool:
        """A prompt opens a turn, a compaction does, and the work that goes on after one."""
        kind = self.nodes[uuid].kind
        if kind in OPENERS:
            return True
        if kind in BESIDE:
            return False
        above = self.parents[uuid]
        seen: set[str] = set()
        while above is not None and self.nodes[above].kind in BESIDE and above not in seen:
            seen.add(above)
            above = self.parents[above]
        return above is not None and self.nodes[above].kind in COMPACTING

    def _joins(self, opener: str, above: str, *, waits: bool) -> bool:
        """Prompts that follow each other without an answer are one query. A summary belongs to the
        boundary it hangs on."""
        kinds = self.nodes[opener].kind, self.nodes[above].kind
        return kinds == ("summary", "boundary") or (waits and ASKED.issuperset(kinds))

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turn_of, parents = in_turns(
            self.nodes,
            [uuid for uuid, node in self.nodes.items() if node.kind == "assistant"],
            opens=self._opens,
            parent=self.parents.__getitem__,
            joins=self._joins,
        )
        members: dict[str, list[str]] = {}
        for uuid in self.nodes:  # in the order they were first read
            members.setdefault(turn_of[uuid], []).append(uuid)
        spawned = self._spawned()
        tree = Tree(turn_of, parents, members, set())
        tree.fold(lambda uuid: self.nodes[uuid].kind)
        tree.answered.update(self._answered(members))
        order = list(parents_first(parents))
        kept = tree.kept(self.preserved)
        self.half_way = tree.half_way(self.parents, lambda uuid: self.nodes[uuid].kind)
        return Derivation(
            sessions=tuple(self._sessions(tree)),  # first: each turn lets go of its records
            turns=tuple(self._derived(top, spawned, tree, kept.get(top)) for top in order),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            titles=self.titles,
        )

    def _answered(self, members: dict[str, list[str]]) -> set[str]:
        return {
            top
            for top, uuids in members.items()
            if any(self.nodes[u].kind in ("assistant", *COMPACTING) for u in uuids)
        }

    def _derived(
        self, top: str, spawned: dict[str, dict[str, str]], tree: Tree, kept: Kept | None
    ) -> DerivedTurn:
        """A turn; its records are let go of, for memory need not hold all of both."""
        parent, uuids = tree.parents.get(top), tuple(tree.members.pop(top))
        children = {call: child for u in uuids for call, child in spawned.get(u, {}).items()}
        nodes = [self.nodes.pop(uuid) for uuid in uuids]
        spills = {key: self.spills[key] for node in nodes for key in node.spills}
        prints = [node.print for node in nodes] + [spills[key].print for key in sorted(spills)]
        said = [*(kept or ()), *(part for pair in sorted(children.items()) for part in pair)]
        prints += [":".join(said).encode(errors="replace")] if said else []
        return DerivedTurn(
            top,
            parent,
            fingerprint(self.version, prints),
            self.files.of(file_id for node in nodes for file_id in node.file_ids),
            uuids,
            Build(
                self.material,
                top,
                parent,
                uuids,
                tuple(node.kind for node in nodes),
                tuple(node.line for node in nodes),
                beside(children, {key: spill.file for key, spill in spills.items()}, kept),
            ),
        )

    def _spawned(self) -> dict[str, dict[str, str]]:
        """The sessions of subagents that no result names, by the record and the call that spawned:
        those that are still at work, and those written into their parent's file."""
        found: dict[str, dict[str, str]] = {}
        given = {
            prompt: iter([call for call in calls if call not in self.at_work])
            for prompt, calls in self.tasks.items()
        }
        told: set[str] = set()
        for call, agent in self.at_work.items():
            if call in self.callers:
                found.setdefault(self.callers[call], {})[call] = f"{NAME}:agent-{agent}"
        for session in self.sessions.values():
            for root in self.sides[session.session_id]:
                text = records.words_of(records.read(self.material.bytes_of(self.nodes[root].line)))
                giver = next(given.get(text, iter(())), None) if root not in told else None
                told.add(root)
                if giver is not None:
                    label = f"{NAME}:{session.session_id}:{root}"
                    found.setdefault(self.callers[giver], {})[giver] = label
        return found

    def _sessions(self, tree: Tree) -> Iterator[DerivedSession]:
        for session in self.sessions.values():
            if session.chain:
                yield self._session(session, tree)
            for root, own in self.sides[session.session_id].items():
                if self.nodes[root].file_ids & session.file_ids:
                    yield DerivedSession(
                        session_id=f"{session.session_id}:{root}",
                        label=f"{NAME}:{session.session_id}:{root}",
                        head=tree.head(own[-1]),
                        file_ids=frozenset(session.file_ids),
                        is_subagent=True,
                        parent_label=f"{NAME}:{session.session_id}",
                        created_at=self.nodes[root].at,
                        updated_at=max(self.nodes[u].at for u in own),
                        metadata=session.metadata,
                    )

    def _forked_within(self, head: str | None, tree: Tree) -> dict[str, str]:
        """The turns on a thread that it left half way, each with the last record it has of it: the
        agent went on from there in another session, or before this one was taken back."""
        left: dict[str, str] = {}
        while head is not None and self.half_way:
            if head in self.half_way and (parent := tree.parents[head]) is not None:
                left[parent] = self.half_way[head]
            head = tree.parents[head]
        return left

    def _session(self, session: _Session, tree: Tree) -> DerivedSession:
        titles = [self.leaf_titles[u].title for u in session.chain if u in self.leaf_titles]
        metadata = dict(session.metadata)
        if "cwd" in metadata:
            metadata["project"] = project_name(metadata["cwd"])
        head = tree.head(session.chain[-1])
        within = self._forked_within(head, tree)
        metadata |= {"forked_within": within} if within else {}
        beside = {self.spills[key].file.id for u in session.chain for key in self.nodes[u].spills}
        return DerivedSession(
            session_id=session.session_id,
            label=f"{NAME}:{session.session_id}",
            head=head,
            file_ids=frozenset(session.file_ids | beside),
            title=session.title or (titles[-1] if titles else None),
            agent_id=session.agent_id,
            created_at=session.first_at,
            updated_at=session.last_at,
            is_subagent=session.agent_id is not None,
            parent_label=f"{NAME}:{session.parent_session}" if session.parent_session else None,
            task_description=session.task,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )
