"""Claude Code: the tree of records over all files of a family, and the sessions in it."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.text_size import exceeds
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import Line, Material
from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.lazy_turns import Extras, Spill, Turns
from agents_ledger.importers.sources.claude_code.nodes import (
    ASSISTANT,
    BOUNDARY,
    MAIN,
    NOTICE,
    OTHER,
    OWN_FILE,
    PROMPT,
    QUEUED,
    RESULT,
    SUMMARY,
    Nodes,
    notice_kind,
    side_of,
    user_kind,
)
from agents_ledger.importers.sources.claude_code.records import CHAIN, NOTICES, Preserved, Record
from agents_ledger.importers.sources.claude_code.rewrites import Answers, repeated
from agents_ledger.importers.sources.claude_code.tree import Tree
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    NONE,
    UUID,
    as_text,
    malformed,
    openers,
    parsed,
    project_name,
)
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    Fault,
    SourceFile,
    SourceTitle,
)

NAME = "claude-code"
TITLES = {"ai-title": ("ai_title", 1), "custom-title": ("custom_title", 2)}


class _Session(Struct):
    """What one file says of its session."""

    session_id: str
    file_ids: set[int]
    path: str
    file_set: int  # of its records
    chain: array[int] = field(default_factory=lambda: array("i"))  # records in the file's order
    side_chain: array[int] = field(default_factory=lambda: array("i"))  # of subagents inside it
    title: str | None = None
    title_rank: int = 0
    parent_session: str | None = None
    said_id: str | None = None  # the session id of its last record
    agent_id: str | None = None
    last_at: int = 0
    first_at: int = 0
    task: str | None = None
    unsaid: tuple[str, ...] = ("cwd", "git_branch", "version", "entrypoint", "session_kind")
    metadata: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, deque[_Queued]] = field(default_factory=dict)  # what was typed, by its text
    preserved: Preserved | None = None  # by the last compaction
    forked_at: str | None = None  # the record of its parent that it knows all before, and no call


class _Queued(NamedTuple):
    """Text typed while the agent worked."""

    session: _Session
    line: Line
    text: str
    typed_at: str
    after: int  # the record before it in its file, or NONE

    def key(self) -> tuple[str, str, str]:
        """The same in every file that tells of it."""
        return self.session.session_id, self.typed_at, self.text


class Outline:
    """The tree of records over all files, without their content."""

    def __init__(self, material: Material, version: int) -> None:
        self.material = material
        self.version = version
        self.nodes = Nodes(material)
        self.sessions: dict[str, _Session] = {}
        self.leaf_titles: dict[str, SourceTitle] = {}
        self.leafs: list[str] = []  # of which each summary tells
        self.tasks: dict[bytes, list[str]] = {}  # prompt of a subagent -> the calls that gave it
        self.callers: dict[str, int] = {}  # call of a subagent -> its record
        self.at_work: dict[str, str] = {}  # call of a subagent -> the subagent
        self.queued: list[_Queued] = []
        self.delivered: list[_Queued] = []
        self.spills: dict[str, Spill] = {}
        self.about: dict[str, tuple[SourceFile, dict[str, Any]]] = {}  # session -> what is said
        self.answers = Answers()  # of the file that is read
        self.rewritten: list[array[int]] = []  # the records of files that tell answers again
        self.preserved: dict[int, str] = {}  # compaction -> the first record that it left
        self.told_again: set[int] = set()  # records of which only that is here
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
            self.material.count("summary", "derived" if leaf in self.nodes.ids else "unmapped")
        self.nodes.settle()
        again = [repeated(self.nodes, chain) for chain in self.rewritten]
        self.nodes.repeat(pair for found in again for pair in found.items())
        self.hung = self.nodes.set_apart()  # what begins a subagent, on a record of who asked it
        begun = {s.chain[0]: s.forked_at for s in self.sessions.values() if s.chain and s.forked_at}
        places = {first: self.nodes.ids.get(at) for first, at in begun.items()}
        self.hung |= {first: on for first, on in places.items() if on != NONE}
        self.sides = {s.session_id: self._sides(s) for s in self.sessions.values()}

    # -- files beside -------------------------------------------------------------------------

    def _read_document(self, file: SourceFile) -> None:
        """The latest generation of a file stands."""
        name = records.ABOUT_NAME.search(file.path)
        limits = self.material.limits
        if file.kept_bytes > limits.record_bytes or exceeds(
            data := self.material.document(file), limits.text_bytes
        ):
            what = f"{file.kept_bytes:,} bytes are kept, but too many to read"
            self.material.faults.append(Fault(file.path, what))
            self.material.count("(overlong)", "malformed")
            return
        if name is None:
            self.spills[records.spill_key(file.path)] = Spill(file, b"%d;" % zlib.crc32(data))
            return
        self.material.check(file, data)
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
        named = {key for keys in self.nodes.spills.values() for key in keys}
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
        known.side_chain = array("i", side)
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
        ends = ((self.nodes.ats[s.chain[-1]], len(s.chain), s.path) for s in (other, known))
        return other.path == known.path or next(ends) > next(ends)

    def _read(self, file: SourceFile) -> _Session:
        path = PurePosixPath(file.path.replace("\\", "/"))
        session = _Session(path.stem, {file.id}, file.path, self.nodes.files.of([file.id]))
        if path.parent.name == "subagents":  # of the session that its folder is called after
            session.parent_session = path.parent.parent.name or None
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
        if self.answers.again:
            self.rewritten.append(session.chain)
        self.answers = Answers()
        # The name of a file is its session; of one that was renamed, what its records say.
        if session.agent_id is not None:
            session.session_id = f"agent-{session.agent_id}"
        elif not UUID.fullmatch(session.session_id):
            session.session_id = session.said_id or session.session_id
        return session

    def _chain(self, line: Line, record: Record, session: _Session) -> None:
        uuid = str(record.uuid)
        kind = self._kind(line, record, session)
        self.material.count(str(record.type), "unmapped" if kind == OTHER else "derived")
        at = self.material.moment(record.timestamp, line)
        session.first_at = session.first_at or at
        session.last_at = max(session.last_at, at)
        self._describe(record, session)
        session.said_id = record.session_id or session.said_id
        inline = record.is_sidechain and not record.agent_id
        chain = session.side_chain if inline else session.chain
        comes_again = session.preserved is not None and session.preserved.take(record)
        number, before = self.nodes.number(uuid), chain[-1] if chain else NONE
        if number < len(self.nodes.kinds):
            if number in self.told_again and not comes_again:  # here it hangs where it did
                self.nodes.hang(number, uuid, _above(record), before, side_of(record))
            self._meet_again(number, kind, side_of(record), line, comes_again)
        else:
            self._note(kind, line, record, session, before, at=at)
            if comes_again:
                self.told_again.add(number)
        if kind == ASSISTANT and not inline and record.message and record.message.id:
            self.answers.add(record.message.id, number, self.nodes.parents[number], before)
        elif kind == PROMPT:
            self.answers.end()
        if kind == BOUNDARY:
            self._compact(number, record, session)
        elif kind == ASSISTANT:
            self._give(number, record, line)
        chain.append(number)

    def _compact(self, number: int, record: Record, session: _Session) -> None:
        before = self.nodes.ids.name(session.chain[-1]) if session.chain else None
        session.preserved = records.preserved(record, before)
        if session.preserved is not None:
            self.preserved[number] = session.preserved.first

    def _give(self, number: int, record: Record, line: Line) -> None:
        for prompt, call in records.tasks(record, line.data or b""):
            if call not in self.callers:
                self.callers[call] = number
                self.tasks.setdefault(_digest(prompt), []).append(call)

    def _meet_again(self, number: int, kind: int, side: int, line: Line, comes_again: bool) -> None:
        """A record that another file has too, or another line."""
        nodes, again = self.nodes, self.told_again
        files = nodes.files[nodes.file_sets[number]]
        nodes.file_sets[number] = nodes.files.of(files | {line.file.id})
        # Of two contents under one id the one is shown that was not told again behind a compaction,
        # then that no subagent was given a copy of, then the longer, then by the hash.
        length, print_ = nodes.places.length(number), nodes.places.print(number)
        held = (number in again, nodes.sides[number] != MAIN, -length, print_)
        if (comes_again, side != MAIN, -line.length, line.fingerprint()) < held:
            nodes.places.put(number, line)
            nodes.kinds[number], nodes.sides[number] = kind, side
            if not comes_again:
                again.discard(number)

    def _note(
        self, kind: int, line: Line, record: Record, session: _Session, previous: int, *, at: int
    ) -> None:
        nodes = self.nodes
        file_set = session.file_set
        if kind == RESULT and self.spills:
            named = records.spills_of(record, line.data or b"", session.session_id)
            spills = tuple(sorted(named & self.spills.keys()))
            if spills:
                nodes.spills[len(nodes)] = spills
                beside = (self.spills[key].file.id for key in spills)
                file_set = nodes.files.of([line.file.id, *beside])
        nodes.add(
            str(record.uuid),
            kind,
            line,
            at=at,
            parent=_above(record),
            previous=previous,
            side=side_of(record),
            file_set=file_set,
        )

    def _describe(self, record: Record, session: _Session) -> None:
        for name in session.unsaid:
            said = getattr(record, name)
            if said:
                session.metadata[name] = said
                session.unsaid = tuple(each for each in session.unsaid if each != name)
        if record.is_sidechain and record.agent_id:
            session.agent_id = record.agent_id
            session.parent_session = record.session_id

    def _kind(self, line: Line, record: Record, session: _Session) -> int:
        if record.type == "assistant":
            return ASSISTANT
        if record.type == "system":
            return notice_kind(record)
        if record.type == "attachment":
            if not records.is_queued(record):
                return OTHER
            self._deliver(records.queued_text(record), session)
            return QUEUED
        return self._user_kind(line, record, session)

    def _user_kind(self, line: Line, record: Record, session: _Session) -> int:
        """What a user's record really is: few of them were typed by somebody."""
        if record.is_compact_summary:
            return SUMMARY
        if records.has_result(record, line.data or b""):
            return RESULT
        text = records.words_of(record)
        delivered = self._deliver(text, session)
        if record.is_meta:  # what was planned for a time is asked so
            beside = OTHER if text.startswith(records.CAVEAT) else NOTICE
            return PROMPT if delivered else beside
        return user_kind(text, is_side=bool(record.is_sidechain))

    def _plain(self, line: Line, record: Record, session: _Session) -> None:
        kind = record.type or "(none)"
        mapped = True
        if record.uuid:
            self.nodes.pass_on(record.uuid, record.parent_uuid)
        if kind in TITLES:
            name, rank = TITLES[kind]
            if getattr(record, name) and rank >= session.title_rank:
                session.title, session.title_rank = str(getattr(record, name)), rank
        elif kind == "summary" and record.leaf_uuid:
            self._call(record.leaf_uuid, line, str(record.summary or ""))
            return  # counted when it is known whether that record is here
        elif kind == "queue-operation" and record.operation == "enqueue" and record.content:
            if self._enqueue(line, record, session):
                return  # counted when it is known what became of it
        elif kind == "progress" and record.call_id and (agent := records.agent_at_work(record)):
            mapped = self.at_work.setdefault(record.call_id, agent) == agent
        else:
            mapped = record.parent_last_uuid is not None
            session.forked_at = record.parent_last_uuid or session.forked_at
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
        names = (self.nodes.ids.name(number) for number in range(len(self.nodes)))
        for said in self.material.titles(name for name in names if UUID.fullmatch(name)):
            known = self.leaf_titles.get(said.record_id, said)
            number = self.nodes.ids.get(said.record_id)
            paths = (own[file_id] for file_id in self.nodes.files[self.nodes.file_sets[number]])
            is_there = any(path.startswith(said.folder) for path in paths)
            if is_there and said.file_id not in own and said.rank() >= known.rank():
                self.leaf_titles[said.record_id] = said
        return tuple(
            said
            for leaf, said in self.leaf_titles.items()
            if leaf not in self.nodes.ids and UUID.fullmatch(leaf) and said.title
        )

    def _enqueue(self, line: Line, record: Record, session: _Session) -> bool:
        text = records.text_of(record.content)
        if not text or text.startswith(NOTICES):
            return False
        after = session.chain[-1] if session.chain else NONE
        queued = _Queued(session, line, text, str(record.timestamp), after)
        self.queued.append(queued)
        session.waiting.setdefault(text, deque()).append(queued)
        return True

    def _deliver(self, text: str, session: _Session) -> bool:
        """A record with the text of what was typed before is that, given to the agent."""
        waiting = session.waiting.get(text)
        if waiting:
            self.delivered.append(waiting.popleft())
            return True
        return False

    def _add_queued(self) -> None:
        """Text typed while the agent worked may stand nowhere else, and so may text typed before a
        session that never began."""
        texts: dict[str, str] = {}
        typed: dict[int, list[int]] = {}  # by the record they were typed after
        delivered = {queued.key() for queued in self.delivered}
        silent = {name for name, session in self.sessions.items() if not session.chain}
        for queued in self.queued:
            session = self.sessions[queued.session.session_id]
            begins, is_known = session.session_id in silent, queued.key() in delivered
            is_shown = is_known or begins or queued.after != NONE
            self.material.count("queue-operation", "derived" if is_shown else "unmapped")
            if is_known or not is_shown:
                continue
            after = session.chain[-1] if begins and session.chain else queued.after
            number = self._add_typed(queued, after, texts)
            if begins and number != NONE:
                session.chain.append(number)
                session.last_at = self.nodes.ats[number]
                session.first_at = session.first_at or session.last_at
            elif number != NONE:
                typed.setdefault(after, []).append(number)
        self.nodes.insert(typed)

    def _add_typed(self, queued: _Queued, after: int, texts: dict[str, str]) -> int:
        """The number of a new record; NONE if another file has told of it."""
        uuid = f"{queued.session.session_id}:queued:{queued.typed_at}"
        if texts.setdefault(uuid, queued.text) != queued.text:  # typed in the same instant
            uuid = f"{uuid}:{zlib.crc32(queued.text.encode(errors='replace')):08x}"
        if uuid in self.nodes.ids:
            return NONE
        number = self.nodes.number(uuid)
        self.nodes.add(
            uuid,
            QUEUED,
            queued.line,
            at=milliseconds(queued.typed_at),
            parent=None,
            previous=after,
            side=MAIN,
            file_set=self.nodes.files.of([queued.line.file.id]),
        )
        return number

    def _sides(self, session: _Session) -> dict[int, list[int]]:
        """The records of each subagent written into a session, by the first of them."""
        if not session.side_chain:
            return {}
        parents = self.nodes.parents
        tops = openers(session.side_chain, parents, lambda record: parents[record] < 0)
        found: dict[int, list[int]] = {}
        for record in session.side_chain:
            found.setdefault(tops[record], []).append(record)
        return found

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        tree = Tree(self.nodes)
        extras = Extras(self.spills, self._spawned(), tree.kept(self.preserved))
        turns, sessions = Turns(tree, self.version, extras), tuple(self._sessions(tree))
        tree.let_go()
        return Derivation(
            turns=turns,
            sessions=sessions,
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            titles=self.titles,
        )

    def _spawned(self) -> dict[int, dict[str, str]]:
        """The sessions of subagents that no result names, by the record and the call that spawned:
        those that are still at work, and those written into their parent's file."""
        found: dict[int, dict[str, str]] = {}
        given = {
            prompt: iter([call for call in calls if call not in self.at_work])
            for prompt, calls in self.tasks.items()
        }
        told: set[int] = set()
        for call, agent in self.at_work.items():
            if call in self.callers:
                found.setdefault(self.callers[call], {})[call] = f"{NAME}:agent-{agent}"
        for session in self.sessions.values():
            for root in self.sides[session.session_id]:
                text = records.words_of(records.read(self.nodes.places.bytes_of(root)))
                giver = next(given.get(_digest(text), iter(())), None) if root not in told else None
                told.add(root)
                if giver is not None:
                    label = f"{NAME}:{session.session_id}:{self.nodes.ids.name(root)}"
                    found.setdefault(self.callers[giver], {})[giver] = label
        for call, agent in self._given_alone():
            found.setdefault(self.callers[call], {}).setdefault(call, f"{NAME}:agent-{agent}")
        return found

    def _given_alone(self) -> Iterator[tuple[str, str]]:
        """The calls that gave a prompt no other gave, and the one subagent that was given it."""
        asked: dict[bytes, list[str]] = {}
        for session in self.sessions.values():
            first = session.chain[0] if session.agent_id and session.chain else NONE
            if first != NONE and self.tasks and self.nodes.sides[first] == OWN_FILE:
                text = records.words_of(records.read(self.nodes.places.bytes_of(first)))
                asked.setdefault(_digest(text), []).append(str(session.agent_id))
        for prompt, agents in asked.items():
            calls = self.tasks.get(prompt, [])
            if len(calls) == len(agents) == 1:
                yield calls[0], agents[0]

    def _sessions(self, tree: Tree) -> Iterator[DerivedSession]:
        nodes, half_way = self.nodes, tree.half_way()
        for session in self.sessions.values():
            if session.chain:
                yield self._session(session, tree, half_way)
            for root, own in self.sides[session.session_id].items():
                if nodes.files[nodes.file_sets[root]] & session.file_ids:
                    name = nodes.ids.name(root)
                    yield DerivedSession(
                        session_id=f"{session.session_id}:{name}",
                        label=f"{NAME}:{session.session_id}:{name}",
                        head=tree.name(tree.head(own[-1])),
                        file_ids=frozenset(session.file_ids),
                        is_subagent=True,
                        parent_label=f"{NAME}:{session.session_id}",
                        parent_turn_id=self._asked_in([root], tree),
                        created_at=nodes.ats[root],
                        updated_at=max(nodes.ats[record] for record in own),
                        metadata=session.metadata,
                    )

    def _asked_in(self, records: Iterable[int], tree: Tree) -> str | None:
        """The turn that a subagent with these records hangs on."""
        on = next((self.hung[record] for record in records if record in self.hung), NONE)
        return tree.name(tree.turn_of[on]) if on != NONE else None

    def _forked_within(self, head: int, tree: Tree, half_way: dict[int, int]) -> dict[str, str]:
        """The turns on a thread that it left half way, each with the last record it has of it: the
        agent went on from there in another session, or before this one was taken back."""
        left: dict[str, str] = {}
        while head >= 0 and half_way:
            if head in half_way and (parent := tree.name(tree.parents[head])) is not None:
                left[parent] = self.nodes.ids.name(half_way[head])
            head = tree.parents[head]
        return left

    def _session(self, session: _Session, tree: Tree, half_way: dict[int, int]) -> DerivedSession:
        called = {self.nodes.ids.get(leaf): said.title for leaf, said in self.leaf_titles.items()}
        titles = [called[record] for record in session.chain if record in called] if called else []
        metadata = dict(session.metadata)
        if "cwd" in metadata:
            metadata["project"] = project_name(metadata["cwd"])
        last = session.chain[-1]
        is_given = session.agent_id is not None and self.nodes.sides[last] == MAIN
        head = NONE if is_given else tree.head(last)
        within = self._forked_within(head, tree, half_way)
        metadata |= {"forked_within": within} if within else {}
        spills = self.nodes.spills
        named = [spills[record] for record in session.chain if record in spills] if spills else []
        beside = {self.spills[key].file.id for keys in named for key in keys}
        return DerivedSession(
            session_id=session.session_id,
            label=f"{NAME}:{session.session_id}",
            head=tree.name(head),
            file_ids=frozenset(session.file_ids | beside),
            title=session.title or (titles[-1] if titles else None),
            agent_id=session.agent_id,
            created_at=session.first_at,
            updated_at=session.last_at,
            is_subagent=session.agent_id is not None,
            parent_label=f"{NAME}:{session.parent_session}" if session.parent_session else None,
            parent_turn_id=self._asked_in(session.chain, tree),
            task_description=session.task,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )


def _above(record: Record) -> str | None:
    return record.parent_uuid or record.logical_parent_uuid


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
