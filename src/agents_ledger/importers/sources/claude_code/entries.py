"""Claude Code: the records of a family as entries, and the parent of each."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, parse_json
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.claude_code.records import (
    Record,
    blocks_of,
    raw_content,
    read_record,
)
from agents_ledger.importers.sources.claude_code.rules import KINDS
from agents_ledger.importers.transcript.columns import (
    Column,
    Links,
    SetColumn,
    nearest_above,
    roots_first,
)
from agents_ledger.importers.transcript.entries import Entries
from agents_ledger.model.imports.interning import Numbering

# Whose a record is. In 1.0 the records of subagents are in the file of their parent.
MAIN, INLINE, OWN_FILE = range(3)


def side_of(record: Record) -> int:
    """Whether a record belongs to a subagent, and is in a file of its own."""
    if not record.is_sidechain:
        return MAIN
    return OWN_FILE if record.agent_id else INLINE


def parent_of(record: Record) -> str | None:
    """The uuid of the record above. A compaction names it as its logical parent."""
    # A compact_boundary has a parentUuid of null in all real files (21 of them).
    return record.parent_uuid or record.logical_parent_uuid


class PreservedRecords(Struct):
    """The records that a compaction left in the context.

    A fork that begins behind the compaction writes them again (2.1): below the summary, and with a
    usage of 0. They stay where they were, and what follows them is below the summary.
    """

    first: str
    last: str | None
    summary: str | None
    uuids: frozenset[str | None]
    before: str | None  # the record before the compaction in its file
    were_repeated: bool = False

    @classmethod
    def of(cls, boundary: Record, before: str | None) -> PreservedRecords | None:
        """Those that a boundary names; None if it names none."""
        metadata = as_dict(parse_json(boundary.compact_metadata))
        segment = as_dict(metadata.get("preservedSegment"))
        first, last = as_text(segment.get("headUuid")), as_text(segment.get("tailUuid"))
        if first is None:
            return None
        uuids = as_list(as_dict(metadata.get("preservedMessages")).get("uuids"))
        named = {first, last, *(uuid for uuid in uuids if isinstance(uuid, str))}
        return cls(first, last, as_text(segment.get("anchorUuid")), frozenset(named), before)

    def repeats(self, record: Record) -> bool:
        """Whether a record behind the compaction is one of these. Corrects its parent."""
        if record.uuid in self.uuids:
            self.were_repeated |= record.uuid == self.last
            if record.uuid == self.first and self.before is not None:
                record.parent_uuid = self.before
            return True
        if self.were_repeated and record.parent_uuid == self.last:
            record.parent_uuid = self.summary
        return False


DESCRIBED = ("cwd", "git_branch", "version", "entrypoint", "session_kind")


class ClaudeSession(Struct):
    session_id: str
    path: str
    file_ids: set[int]
    chain: Column = field(default_factory=lambda: Column("i"))  # entries in the file's order
    inline_chain: Column = field(default_factory=lambda: Column("i"))  # of subagents inside it
    title: str | None = None
    title_rank: int = 0
    parent_session: str | None = None
    last_session_id: str | None = None  # as its last record says
    agent_id: str | None = None
    first_at: int = 0
    last_at: int = 0
    task: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    preserved: PreservedRecords | None = None  # by the last compaction
    forked_at: str | None = None  # the last record of its parent that it knows

    def set_title(self, title: Any, rank: int) -> None:
        """Of several titles of the highest rank the last counts."""
        if title and rank >= self.title_rank:
            self.title, self.title_rank = str(title), rank

    def describe(self, record: Record, at: int) -> None:
        """Note what the first record to say so says of the session."""
        self.first_at = self.first_at or at
        self.last_at = max(self.last_at, at)
        if len(self.metadata) < len(DESCRIBED):
            for name in DESCRIBED:
                value = getattr(record, name)
                if value:
                    self.metadata.setdefault(name, value)
        if record.is_sidechain and record.agent_id:
            self.agent_id = record.agent_id
            self.parent_session = record.session_id
        self.last_session_id = record.session_id or self.last_session_id


class ReadRecord(NamedTuple):
    """A record while its file is read, before it is an entry."""

    uuid: str
    kind: str
    line: SourceLine
    at: int
    parent: str | None
    previous: int | None  # the entry before it in its file
    side: int
    is_repeat: bool = False  # behind a compaction, of one that it left


class _UnresolvedParent(NamedTuple):
    uuid: str
    previous: int | None  # the record before it in its file


class ClaudeEntries(Entries):
    """The records of a family. The uuid of a record identifies it in all files."""

    def __init__(self, material: Material) -> None:
        super().__init__(material, KINDS)
        self.ids = Numbering(held=material.limits.held_names)
        self.parents = Links()
        self.files = SetColumn()
        self.times = Column("Q")
        self.sides = Column("B")
        self.spills: dict[int, tuple[str, ...]] = {}  # by entry, the outputs in files of their own
        self._inserted: Mapping[int, Iterable[int]] = {}
        self._unresolved: dict[int, _UnresolvedParent] = {}
        # Records that are no entries pass their children on to their own parents.
        self._passing = Numbering(held=material.limits.held_names)
        self._passed_to = Links()
        self._passed_to_missing: dict[int, str] = {}

    def find(self, uuid: str) -> int | None:
        """The number of a record, if it is here."""
        entry = self.ids.get(uuid)
        return entry if entry >= 0 else None

    def name(self, entry: int) -> str:
        return self.ids.name(entry)

    def add(self, read: ReadRecord, file_ids: Iterable[int]) -> int:
        """Add the record that was numbered last."""
        entry = self.add_record(read.line, read.kind)
        self.parents.append(None)
        self.hang(entry, read)
        self.sides.append(read.side)
        self.times.append(read.at)
        self.files.append(file_ids)
        return entry

    def hang(self, entry: int, read: ReadRecord) -> None:
        """Put a record below its parent. A parent that is not known yet is looked up in
        `resolve_parents`."""
        self._unresolved.pop(entry, None)
        above = read.previous
        if read.parent is None:
            # Several roots are normal (29 of 188 files): notices, attachments and boundaries have
            # no parent.
            above = None if read.side else read.previous
        elif read.parent != read.uuid:
            is_known, above = self._resolve(read.parent)
            if not is_known:
                self._unresolved[entry] = _UnresolvedParent(read.parent, read.previous)
            elif above is None:
                above = read.previous
        self.parents[entry] = above

    def pass_on(self, uuid: str, parent: str | None) -> None:
        """A record that is no entry, such as progress: what is below it is below its parent."""
        is_known, target = (True, None) if parent is None else self._resolve(parent)
        number = self._passing.add(uuid)
        if number == len(self._passed_to):
            self._passed_to.append(target)
        self._passed_to[number] = target
        if is_known:
            self._passed_to_missing.pop(number, None)
        else:
            self._passed_to_missing[number] = str(parent)

    def _resolve(self, parent: str) -> tuple[bool, int | None]:
        """Whether a parent is known yet, and the entry it leads to."""
        entry = self.find(parent)
        if entry is not None:
            return True, entry
        passing = self._passing.get(parent)
        is_known = passing >= 0 and passing not in self._passed_to_missing
        return is_known, self._passed_to[passing] if is_known else None

    def insert(self, after: Mapping[int, Iterable[int]]) -> None:
        """Say after which records those added last were written."""
        self._inserted = after

    # -- phases, once all files are read ------------------------------------------------------

    def resolve_parents(self) -> None:
        """Look up the parents that were not known when their children were read. Where one is
        missing, the parent is the record before in the file: a damaged line loses its children."""
        for entry, (parent, previous) in self._unresolved.items():
            target, missing = self._follow(entry, parent)
            # 166 of 197 orphans in real files had lost their parent to a redaction that broke the
            # line.
            self.parents[entry] = previous if target is None else target
            # The first record of a helper names one of its session, which may not be imported.
            if missing is not None and self.sides[entry] != OWN_FILE:
                what = f"the record it follows is missing: {missing}"
                self.material.fault(self.line(entry), what)
        self._unresolved.clear()

    def _follow(self, entry: int, parent: str) -> tuple[int | None, str | None]:
        """The entry that a parent leads to, or the uuid that is missing."""
        seen = {self.name(entry)}
        # `seen`: two records may name each other as parent in a file that was edited.
        while parent not in seen:
            seen.add(parent)
            is_known, target = self._resolve(parent)
            if is_known:
                return target, None
            passing = self._passing.get(parent)
            if passing < 0:
                return None, parent
            parent = self._passed_to_missing[passing]
        return None, None

    def cut_leading_hooks(self) -> None:
        """Make roots of the records below what hooks left before the first prompt: that is no part
        of the conversation."""
        if not self.has_kind("other"):
            return
        hook_entries = array("i", (e for e in range(len(self)) if self.kind(e) == "other"))
        tops = nearest_above(hook_entries, self.parents, lambda entry: self.kind(entry) != "other")
        leads = bytearray(len(self))
        for entry in hook_entries:
            leads[entry] = self.kind(tops[entry]) == "other"
        for entry, parent in enumerate(self.parents):
            if parent is not None and leads[parent]:
                self.parents[entry] = None

    def mark_copies(self, copies: Iterable[tuple[int, int]]) -> None:
        """Mark records that repeat others: they belong to those, and so do their children."""
        originals: dict[int, int] = {}
        for copy, original in copies:
            first = _original(original, originals)
            if first != copy:
                originals[copy] = first
        # Where repetitions lead back to a record, it becomes a root: never its own parent.
        for entry, parent in enumerate(self.parents) if originals else ():
            above = originals.get(entry, parent)
            first_above = None if above is None else _original(above, originals)
            self.parents[entry] = first_above if first_above != entry else None
        for copy in originals:
            self.set_kind(copy, "copy")

    def detach_subagents(self) -> dict[int, int]:
        """Make roots of the prompts of subagents. Returns those that were below a record of the
        session, and that record."""
        detached: dict[int, int] = {}
        if not any(self.sides):
            return detached
        for entry, side in enumerate(self.sides):  # a subagent's copy may be all that is left
            above = self.parents[entry] if side == MAIN else None
            while above is not None and self.sides[above] == OWN_FILE:
                self.sides[above] = MAIN
                above = self.parents[above]
        for entry, side in enumerate(self.sides):
            above = self.parents[entry]
            # In a file of its own, only a prompt begins a thread: the rest may be copies of the
            # session's.
            begins = side == INLINE or (side == OWN_FILE and self.kind(entry) == "prompt")
            if begins and above is not None and self.sides[above] == MAIN:
                detached[entry] = above
                self.parents[entry] = None
        return detached

    def order(self) -> Sequence[int]:
        """The records in the order they were first read, each after its parent, which may be in a
        file that is read later."""
        order = self._reading_order()
        # Only then: files that were read in order need no sorting.
        if self.parents.lead_forward():
            order = array("i", roots_first(order, self.parents.copy()))
        return order

    def _reading_order(self) -> Sequence[int]:
        if not self._inserted:
            return range(len(self))
        order = array("i")
        inserted = {entry for entries in self._inserted.values() for entry in entries}
        for entry in range(len(self)):
            if entry not in inserted:
                order.append(entry)
                order.extend(self._inserted.get(entry, ()))
        return order

    def free(self) -> None:
        """Free what only the tree and sessions need: a million turns may yet have to be written."""
        self.ids.close()
        self.sides, self.times, self.parents = Column("B"), Column("Q"), Links()

    def free_files(self) -> None:
        """Free what turns need only at first."""
        self.files = SetColumn()


def _original(entry: int, originals: Mapping[int, int]) -> int:
    while entry in originals:  # a repeated record may repeat one of another file
        entry = originals[entry]
    return entry


# -- history that is written again under new ids ----------------------------------------------
# Versions 2.0.29 to 2.1.12 split records of several blocks when a session is resumed. From the
# first of them on, all records are written again, one for each block, and the thread continues
# from there.


class RepeatedAnswers:
    """The answers of one file, to notice one that comes again."""

    def __init__(self, held_names: int) -> None:
        self.were_found = False
        self._ids = Numbering(forgets=True, held=held_names)
        self._latest: tuple[str, int | None] = ("", None)

    def add(self, answer: str, entry: int, above: int | None, before: int | None) -> None:
        """A record of an answer, its parent, and the record before it. Those that were written at
        once are below each other, or below what was written meanwhile."""
        if answer != self._latest[0] or above not in (self._latest[1], before):
            # 546 of 7,836 answers have results between their records: those are no repetition.
            count = len(self._ids)
            self.were_found |= self._ids.add(answer) < count
        self._latest = (answer, entry)

    def end(self) -> None:
        """A prompt: no more records of the last answer follow."""
        self._latest = ("", None)


def find_repeats(entries: ClaudeEntries, chain: Iterable[int]) -> dict[int, int]:
    """The records of a file that repeat others of it, and those.

    A record repeats another with the same content and parent. Without an id of the API the same may
    have been said twice: then it is a repeat if its answer is one, or if it has the same time.
    """
    first: dict[bytes, int] = {}  # by parent and content
    stands_for: dict[int, int | None] = {}  # what the children of a record are below instead
    candidates: dict[int, int | None] = {}  # possible repeats, and their parents
    originals: dict[int, int] = {}
    repeats: dict[int, int] = {}
    for entry in dict.fromkeys(chain):
        record = read_record(entries.data(entry))
        parent = entries.parents[entry] if record.parent_uuid else None
        above = parent if parent is None else stands_for.get(parent, parent)
        blocks = blocks_of(parse_json(raw_content(record)))
        # Without content there is nothing to compare; its children are compared below its parent.
        if not blocks:
            stands_for[entry] = above
            continue
        original = first.setdefault(_content_key(above, record, blocks[0]), entry)
        # A record of several blocks is never a repetition: the program splits those, it does not
        # join.
        if original == entry or len(blocks) > 1:
            for block in blocks[1:]:
                first.setdefault(_content_key(entry, record, block), entry)
            continue
        stands_for[entry] = originals[entry] = original
        candidates[entry] = parent
        at = entry if _api_id(record, blocks[0]) else None
        while at is not None and at in candidates:
            repeats[at], at = originals[at], candidates.pop(at)
    times = entries.times
    same_time = (entry for entry in candidates if 0 < times[entry] == times[originals[entry]])
    return repeats | {entry: originals[entry] for entry in same_time}


def _api_id(record: Record, block: dict[str, Any]) -> str | None:
    return (record.message and record.message.id) or as_text(block.get("tool_use_id"))


def _content_key(above: int | None, record: Record, block: dict[str, Any]) -> bytes:
    call = as_text(block.get("id")) or as_text(block.get("tool_use_id"))
    key = repr((above, record.type, _api_id(record, block), call or block))
    return hashlib.blake2b(key.encode(errors="replace"), digest_size=16).digest()
