"""Claude Code: reads all files of a family, and derives its sessions and turns."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    UUID,
    as_text,
    parse_json,
    project_name,
)
from agents_ledger.importers.parsing.text_size import exceeds
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.claude_code import records, rules
from agents_ledger.importers.sources.claude_code.entries import (
    MAIN,
    ClaudeEntries,
    ClaudeSession,
    PreservedRecords,
    ReadRecord,
    RepeatedAnswers,
    find_repeats,
    parent_of,
    side_of,
)
from agents_ledger.importers.sources.claude_code.prompt_queue import PromptQueue
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.sources.claude_code.subagents import SubagentCalls, helper_prompt
from agents_ledger.importers.sources.claude_code.titles import LeafTitles
from agents_ledger.importers.sources.claude_code.tree import ClaudeTree
from agents_ledger.importers.sources.claude_code.turns import ClaudeTurns, SpilledOutput, TurnExtras
from agents_ledger.importers.transcript.columns import Column, nearest_above
from agents_ledger.importers.transcript.lines import report_malformed
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    Fault,
    SourceFile,
    SourceTitle,
)


class ClaudeFamily:
    """The files of a family: their entries, and the sessions they are in."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.entries = ClaudeEntries(material)
        self.sessions: dict[str, ClaudeSession] = {}
        self.spills: dict[str, SpilledOutput] = {}
        self.automatic_compactions: set[int] = set()
        self.preserved_first: dict[int, str] = {}  # by compaction, the first record that it left
        self._queue = PromptQueue(self.entries)
        self._subagents = SubagentCalls(self.entries)
        self._titles = LeafTitles(material, self.entries)
        self._descriptions: dict[str, tuple[SourceFile, dict[str, Any]]] = {}  # of subagents
        self._answers = RepeatedAnswers(material.limits.held_names)  # of the file that is read
        self._rewritten: list[Column] = []  # the chains of files with repeated answers
        self._only_repeated: set[int] = set()  # entries of which only a later copy is here
        # First entries of subagents and forks: where they hang.
        self._detached: dict[int, int] = {}
        # By session that only helpers have copies of: its last record, and that helper.
        self._copied: dict[str, tuple[int, ClaudeSession]] = {}
        self._inline: dict[str, dict[int, list[int]]] = {}  # by session, then by first entry

    def derivation(self, version: int) -> Derivation:
        """The phases, in their order."""
        self.read()
        titles = self.finish_reading()
        self.link_entries()
        tree = ClaudeTree(self.entries, self.automatic_compactions)
        extras = TurnExtras(self.spills, self.spawned(), tree.preserved_turns(self.preserved_first))
        sessions = tuple(self.sessions_of(tree))
        tree.free()
        turns = ClaudeTurns(tree, version, extras)
        self.entries.free_files()
        return Derivation(
            turns=turns,
            sessions=sessions,
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            titles=titles,
        )

    # -- phases -------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the files; outputs and descriptions first, as records refer to them."""
        for file in self.material.files:
            if file.kind == "document":
                self._read_document(file)
        for file in self.material.files:
            if file.kind != "document":
                self._add_session(self._read_log(file))

    def finish_reading(self) -> tuple[SourceTitle, ...]:
        """Add what is known only when all files are read. Returns titles for other families."""
        self._queue.add_undelivered(self.sessions)
        for session_id, (file, description) in self._descriptions.items():
            self._describe_subagent(session_id, file, description)
        referred = {key for keys in self.entries.spills.values() for key in keys}
        for key in self.spills:
            self.material.count(records.SPILL_FOLDER, "derived" if key in referred else "unmapped")
        return self._titles.finish()

    def link_entries(self) -> None:
        """Settle the parent of every entry. The order matters: repeats are found by their parents,
        and a copy may be the only record below which a subagent was."""
        entries = self.entries
        entries.resolve_parents()
        entries.cut_leading_hooks()
        repeats = [find_repeats(entries, chain) for chain in self._rewritten]
        entries.mark_copies(pair for pairs in repeats for pair in pairs.items())
        self._detached = entries.detach_subagents()
        for session in self.sessions.values():
            # A background fork of 2.1 has no copies; a `fork-context-ref` names where it begins.
            at = self.entries.find(session.forked_at) if session.forked_at else None
            if session.chain and at is not None:
                self._detached[session.chain[0]] = at
            self._detach_helper(session)
        self._inline = {s.session_id: self._inline_subagents(s) for s in self.sessions.values()}

    def _detach_helper(self, session: ClaudeSession) -> None:
        prompt, parents = helper_prompt(session, self.entries), self.entries.parents
        above = None if prompt is None else parents[prompt]
        if prompt is None or above is None:
            return
        self._detached[prompt], parents[prompt] = above, None
        parent, times = session.parent_session, self.entries.times
        if parent is not None and parent not in self.sessions:
            last, _ = self._copied.get(parent, (above, session))
            if times[above] >= times[last]:
                self._copied[parent] = above, session

    def _inline_subagents(self, session: ClaudeSession) -> dict[int, list[int]]:
        """The entries of each subagent in the file of a session, by the first of them."""
        chain, parents = session.inline_chain, self.entries.parents
        if not chain:
            return {}
        tops = nearest_above(chain, parents, lambda entry: parents[entry] is None)
        subagents: dict[int, list[int]] = {}
        for entry in chain:
            subagents.setdefault(tops[entry], []).append(entry)
        return subagents

    def spawned(self) -> dict[int, dict[str, str]]:
        """The sessions that calls started, by entry and call."""
        inline = ((name, root) for name, roots in self._inline.items() for root in roots)
        return self._subagents.spawned(self.sessions.values(), inline)

    # -- outputs and descriptions in files of their own ---------------------------------------

    def _read_document(self, file: SourceFile) -> None:
        """The latest generation of a file counts."""
        material, name = self.material, records.META_NAME.search(file.path)
        limits = material.limits
        if file.kept_bytes > limits.record_bytes or exceeds(
            data := material.document(file), limits.text_bytes
        ):
            what = f"{file.kept_bytes:,} bytes are kept, but too many to read"
            material.faults.append(Fault(file.path, what))
            material.count("(overlong)", "malformed")
            return
        if name is None:
            self.spills[records.spill_key(file.path)] = SpilledOutput(
                file, b"%d;" % zlib.crc32(data)
            )
            return
        material.check(file, data)
        description = parse_json(data)
        if isinstance(description, dict):
            self._descriptions[name[1]] = (file, description)
        else:
            material.faults.append(Fault(file.path, "not an object"))
            material.count(records.META_SUFFIX, "malformed")

    def _describe_subagent(
        self, session_id: str, file: SourceFile, description: dict[str, Any]
    ) -> None:
        session = self.sessions.get(session_id)
        self.material.count(records.META_SUFFIX, "derived" if session else "unmapped")
        if session is not None:
            session.file_ids.add(file.id)
            session.task = as_text(description.get("description"))
            session.metadata["agent"] = description
            if agent_type := as_text(description.get("agentType")):
                session.metadata["agent_type"] = agent_type

    # -- logs ---------------------------------------------------------------------------------

    def _read_log(self, file: SourceFile) -> ClaudeSession:
        path = PurePosixPath(file.path.replace("\\", "/"))
        session = ClaudeSession(path.stem, file.path, {file.id})
        # Since 2.1; up to 2.0 the file is next to its session, which only its records name.
        if path.parent.name == "subagents":  # in a folder named after the session
            session.parent_session = path.parent.parent.name or None
        self._queue.start_file()
        self._answers = RepeatedAnswers(self.material.limits.held_names)
        for line in self.material.lines(file):
            try:
                record = records.read_record(line.data or b"")
            except BROKEN as error:
                report_malformed(self.material, line, error)
                continue
            # Before anything else sees the record: parents are compared by these ids.
            records.make_ids_unique(record, session.session_id, line.offset)
            if record.uuid and record.type in records.CHAIN:
                self._read_chain_record(line, record, session)
            else:
                self._read_other_record(line, record, session)
        if self._answers.were_found:
            self._rewritten.append(session.chain)
        # A session has the name of its file; if that was renamed, the name in its records.
        if session.agent_id is not None:
            session.session_id = f"agent-{session.agent_id}"
        # The last record, as copied ones may keep the id of the session they came from (121 real
        # records).
        elif not UUID.fullmatch(session.session_id):
            session.session_id = session.last_session_id or session.session_id
        return session

    def _add_session(self, session: ClaudeSession) -> None:
        """A session may be in several files: states of one file, or copies of it."""
        merged = self.sessions.setdefault(session.session_id, session)
        if merged is session:
            return
        merged.file_ids |= session.file_ids
        inline = dict.fromkeys([*merged.inline_chain, *session.inline_chain])
        merged.inline_chain = Column("i", inline)
        merged.last_at = max(merged.last_at, session.last_at)
        merged.set_title(session.title, session.title_rank)
        if self._goes_further(session, merged):
            merged.chain, merged.path = session.chain, session.path

    def _goes_further(self, other: ClaudeSession, merged: ClaudeSession) -> bool:
        """Whether another state of a session is the one to show. A truncated one shows less; of two
        that diverged the current state of the file counts, else the later one."""
        if not other.chain or not merged.chain:
            return bool(other.chain)
        # One state contains the other, as when a backup is older: this is no divergence.
        if other.chain[-1] in merged.chain or merged.chain[-1] in other.chain:
            return len(other.chain) > len(merged.chain)
        times = self.entries.times
        ends = [(times[s.chain[-1]], len(s.chain), s.path) for s in (other, merged)]
        return other.path == merged.path or ends[0] > ends[1]

    def _read_chain_record(self, line: SourceLine, record: Record, session: ClaudeSession) -> None:
        kind = self._kind_of(line, record)
        self.material.count(str(record.type), "unmapped" if kind == "other" else "derived")
        at = self.material.timestamp(record.timestamp, line)
        session.describe(record, at)
        is_inline = record.is_sidechain and not record.agent_id
        chain = session.inline_chain if is_inline else session.chain
        is_repeat = session.preserved is not None and session.preserved.repeats(record)
        before = chain[-1] if chain else None
        read = ReadRecord(
            str(record.uuid), kind, line, at, parent_of(record), before, side_of(record), is_repeat
        )
        entry = self._add_entry(read, record, session)
        if kind == "assistant":
            self._subagents.add_calls(entry, record, line.data or b"")
            if not is_inline and record.message and record.message.id:
                above = self.entries.parents[entry]
                self._answers.add(record.message.id, entry, above, before)
        elif kind == "prompt":
            self._answers.end()
        elif kind == "boundary":
            if record.is_automatic_compaction:
                self.automatic_compactions.add(entry)
            last = self.entries.name(session.chain[-1]) if session.chain else None
            session.preserved = PreservedRecords.of(record, last)
            if session.preserved is not None:
                self.preserved_first[entry] = session.preserved.first
        chain.append(entry)

    def _add_entry(self, read: ReadRecord, record: Record, session: ClaudeSession) -> int:
        """The entry of a record, which may be there already: copied, or on another line."""
        entry = self.entries.ids.add(read.uuid)
        if entry == len(self.entries):
            self.entries.add(read, self._files_of(entry, read, record, session))
            if read.is_repeat:
                self._only_repeated.add(entry)
            return entry
        if entry in self._only_repeated and not read.is_repeat:  # here it has its own parent
            self.entries.hang(entry, read)
        self._merge_copy(entry, read)
        return entry

    def _files_of(
        self, entry: int, read: ReadRecord, record: Record, session: ClaudeSession
    ) -> Iterable[int]:
        """The file of a record, and those of the outputs that it refers to."""
        file_id, data = read.line.file.id, read.line.data or b""
        if read.kind != "result" or not self.spills:
            return (file_id,)
        referred = records.spills_of(record, data, session.session_id) & self.spills.keys()
        if referred:
            self.entries.spills[entry] = tuple(sorted(referred))
        return (file_id, *(self.spills[key].file.id for key in referred))

    def _merge_copy(self, entry: int, read: ReadRecord) -> None:
        """Of two contents under one uuid that is shown which was not repeated behind a compaction,
        then which is not a subagent's copy, then the longer one, then by hash."""
        entries, line = self.entries, read.line
        entries.files.include(entry, (line.file.id,))
        present = (
            entry in self._only_repeated,
            entries.sides[entry] != MAIN,
            -entries.length(entry),
            entries.fingerprint(entry),
        )
        if (read.is_repeat, read.side != MAIN, -line.length, line.fingerprint()) < present:
            entries.replace(entry, line)
            entries.set_kind(entry, read.kind)
            entries.sides[entry] = read.side
            if not read.is_repeat:
                self._only_repeated.discard(entry)

    def _kind_of(self, line: SourceLine, record: Record) -> str:
        if record.type == "assistant":
            return "assistant"
        if record.type == "system":
            return rules.kind_of_system_record(record)
        if record.type == "attachment":
            prompt = records.queued_prompt(record)
            if prompt is None:
                return "other"
            self._queue.deliver(prompt)
            return "queued"
        return self._kind_of_user(line, record)

    def _kind_of_user(self, line: SourceLine, record: Record) -> str:
        if record.is_compact_summary:
            return "summary"
        if records.has_result(record, line.data or b""):
            return "result"
        text = records.message_text(record)
        is_delivered = self._queue.deliver(text)
        # A scheduled prompt is queued when it is due, and given as meta.
        if record.is_meta and not text.startswith(rules.SIDE_QUESTION):
            ignored = "other" if text.startswith(rules.CAVEAT) else "notice"
            return "prompt" if is_delivered else ignored
        return rules.kind_of_user_text(text, is_subagent=bool(record.is_sidechain))

    def _read_other_record(self, line: SourceLine, record: Record, session: ClaudeSession) -> None:
        kind = record.type or "(none)"
        if record.uuid:
            self.entries.pass_on(record.uuid, record.parent_uuid)
        if kind == "summary" and record.leaf_uuid:
            self._titles.add(record.leaf_uuid, line, str(record.summary or ""))
            # Counted when it is known whether the record is here.
            return
        if kind == "queue-operation" and record.operation == "enqueue" and record.content:
            # Counted when it is known whether it was delivered.
            if not self._queue.enqueue(session, line, record):
                self.material.count(kind, "derived")
            return
        # `fork-context-ref` of 2.1.
        is_mapped = record.parent_last_uuid is not None
        session.forked_at = record.parent_last_uuid or session.forked_at
        if kind in rules.TITLES:
            name, rank = rules.TITLES[kind]
            session.set_title(getattr(record, name), rank)
            is_mapped = True
        elif kind == "progress":
            is_mapped = self._subagents.add_progress(record)
        self.material.count(kind, "derived" if is_mapped else "unmapped")

    # -- sessions -----------------------------------------------------------------------------

    def sessions_of(self, tree: ClaudeTree) -> Iterator[DerivedSession]:
        """The sessions, each followed by the subagents in its file."""
        forks, titles = tree.forks_within(), self._titles.by_entry()
        for session in self.sessions.values():
            if session.chain:
                yield self._session(session, tree, forks, titles)
            for root, entries in self._inline[session.session_id].items():
                if self.entries.files[root] & session.file_ids:
                    yield self._inline_session(session, tree, root, entries)
        for session_id, (last, helper) in self._copied.items():
            yield self._copied_session(session_id, tree, last, helper)

    def _copied_session(
        self, session_id: str, tree: ClaudeTree, last: int, helper: ClaudeSession
    ) -> DerivedSession:
        """A session without a file, as far as its helpers have copies of it."""
        return DerivedSession(
            session_id=session_id,
            label=f"{rules.NAME}:{session_id}",
            head=tree.head_name(tree.turn_of(last)),
            file_ids=frozenset(helper.file_ids),
            created_at=helper.first_at,
            updated_at=self.entries.times[last],
            routing_key=helper.metadata.get("cwd"),
            metadata=helper.metadata,
        )

    def _session(
        self,
        session: ClaudeSession,
        tree: ClaudeTree,
        forks: Mapping[int, int],
        titles: Mapping[int, str],
    ) -> DerivedSession:
        own_titles = [titles[e] for e in session.chain if e in titles] if titles else []
        metadata = dict(session.metadata)
        if "cwd" in metadata:
            metadata["project"] = project_name(metadata["cwd"])
        last = session.chain[-1]
        # A helper that was given copies of a session's records has no head of its own.
        is_copy = session.agent_id is not None and self.entries.sides[last] == MAIN
        head = None if is_copy else tree.nearest_settled(tree.turn_of(last))
        within = self._forked_within(head, tree, forks)
        metadata |= {"forked_within": within} if within else {}
        spills = self.entries.spills
        keys = {key for e in session.chain for key in spills.get(e, ())} if spills else ()
        return DerivedSession(
            session_id=session.session_id,
            label=f"{rules.NAME}:{session.session_id}",
            head=tree.optional_name(head),
            file_ids=frozenset(session.file_ids.union(self.spills[key].file.id for key in keys)),
            title=session.title or (own_titles[-1] if own_titles else None),
            agent_id=session.agent_id,
            created_at=session.first_at,
            updated_at=session.last_at,
            is_subagent=session.agent_id is not None,
            parent_label=f"{rules.NAME}:{session.parent_session}"
            if session.parent_session
            else None,
            parent_turn_id=self._parent_turn(session.chain, tree),
            task_description=session.task,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )

    def _inline_session(
        self, session: ClaudeSession, tree: ClaudeTree, root: int, entries: list[int]
    ) -> DerivedSession:
        name, times = self.entries.name(root), self.entries.times
        return DerivedSession(
            session_id=f"{session.session_id}:{name}",
            label=f"{rules.NAME}:{session.session_id}:{name}",
            head=tree.head_name(tree.turn_of(entries[-1])),
            file_ids=frozenset(session.file_ids),
            is_subagent=True,
            parent_label=f"{rules.NAME}:{session.session_id}",
            parent_turn_id=self._parent_turn([root], tree),
            created_at=times[root],
            updated_at=max(times[entry] for entry in entries),
            metadata=session.metadata,
        )

    def _parent_turn(self, chain: Iterable[int], tree: ClaudeTree) -> str | None:
        """The turn that a subagent or a fork with these entries hangs on."""
        above = next((self._detached[entry] for entry in chain if entry in self._detached), None)
        return None if above is None else tree.optional_name(tree.turn_of(above))

    def _forked_within(
        self, head: int | None, tree: ClaudeTree, forks: Mapping[int, int]
    ) -> dict[str, str]:
        """The turns of a thread that it left in the middle, each with the last record it has."""
        left: dict[str, str] = {}
        while head is not None and forks:
            parent = tree.parent(head)
            if head in forks and parent is not None:
                left[tree.name(parent)] = self.entries.name(forks[head])
            head = parent
        return left
