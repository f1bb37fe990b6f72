"""pi: one transcript, read in order."""

from __future__ import annotations

import hashlib
from functools import cmp_to_key
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import BROKEN, as_number, as_text, parse_json
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.pi import records, rules
from agents_ledger.importers.sources.pi.database import DatabaseTranscript, unpacked
from agents_ledger.importers.sources.pi.entries import (
    NAMED,
    PREVIOUS,
    ROOT,
    PiEntries,
    SpawnedSession,
)
from agents_ledger.importers.sources.pi.records import PiMessage, PiRecord
from agents_ledger.importers.transcript.columns import Column, LastByName, Links
from agents_ledger.importers.transcript.lines import decode_fields, report_malformed, text_of
from agents_ledger.model.imports.sources import SourceFile


class _Parent(NamedTuple):
    entry: int | None
    rank: int  # how it is known


class Transcript:
    """One transcript, whose entries are added to those of its family.

    Records are counted by their position in the file; one that is no entry, such as a setting,
    stands for the entry above it.
    """

    def __init__(
        self,
        material: Material,
        entries: PiEntries,
        file: SourceFile,
        part: DatabaseTranscript | None = None,
    ) -> None:
        """`part` is one of several transcripts in a database; else it is the whole file."""
        self.material = material
        self.file = file
        self.part = part
        self._was_rewritten = part is not None and part.was_rewritten
        self.header = PiRecord()
        self.title: str | None = None
        self.started: list[str] = []  # keys of sessions
        self.ended: dict[str, str] = {}  # by key, sessions whose end it was told
        self.is_subagent: bool | None = None  # by its first prompt
        self.first_at = 0
        self.last_at = 0
        self.leaf: int | None = None  # the last entry: where the session is
        held = material.limits.held_names
        self._entries = entries
        self._first_record = b""
        self._positions = LastByName(held)  # by id of a record
        self._entry_at = Links()  # by position
        self._config_at = Column("I")  # by position
        self._no_config = entries.config_number({})
        self._config = self._no_config  # at the record before
        self._calls = LastByName(held)  # by id of a call, its entry
        self._injected = LastByName(held)  # by content, entries that are not messages
        self._leaf_at = 0
        # Of the database, and the entries there by role and time.
        self._event = 0
        self._states: dict[tuple[str, int], int] = {}
        for line in part.lines if part else material.lines(file):
            self._read(line)
        self.entries = entries.end_transcript()
        del self._positions, self._entry_at, self._config_at, self._calls
        del self._injected, self._states

    @property
    def session_id(self) -> str:
        """The id in the header, whatever the file is called."""
        name = self.part.session_id if self.part else as_text(self.header.id)
        return name or hashlib.blake2b(self._first_record, digest_size=8).hexdigest()

    def rank(self) -> tuple[Any, ...]:
        """An order of transcripts that does not depend on file names: forks after their parents."""
        created = milliseconds(self.header.timestamp)
        names = cmp_to_key(self._entries.compare)(self.entries)
        return created, self.session_id, -len(self.entries), names

    # -- reading ------------------------------------------------------------------------------

    def _read(self, line: SourceLine) -> None:
        try:
            record, data = decode_fields(records.decode_record, unpacked(line.data or b""))
        except BROKEN as error:
            report_malformed(self.material, line, error)
            return
        self._first_record = self._first_record or data
        is_mapped = self._read_record(line, data, record)
        name = str(record.type)
        if record.message is not None and record.type == "message":
            name = f"{name}/{record.message.role}"
        self.material.count(name, "derived" if is_mapped else "unmapped")

    def _read_record(self, line: SourceLine, data: bytes, record: PiRecord) -> bool:
        self.last_at = max(self.last_at, self.material.timestamp(record.timestamp, line))
        if record.type == "session":
            # Line 1 is the header; a later one does not rename the session.
            if as_text(self.header.id) is None:
                self.header = record
            self._end_record(None, None)
            return True
        if record.type == "session_info":
            self.title = as_text(record.name) or self.title
        kind = records.kind_of(record)
        position = self._positions.get(str(record.parent_id))
        self._config = self._config_after(record, position)
        parent = self._parent_of(record, position)
        if kind == "usage" and parent.entry is None:
            kind = None
        here = parent.entry
        if kind is not None:
            entry = self._add(line, data, record, kind, parent)
            if kind != "usage":  # which nothing hangs on
                here = entry
                self._follow(entry, kind, record)
        self._end_record(as_text(record.id), here)
        return (
            kind is not None or record.type == "session_info" or str(record.type) in rules.SETTINGS
        )

    def _add(
        self, line: SourceLine, data: bytes, record: PiRecord, kind: str, parent: _Parent
    ) -> int:
        """The entry of a record.

        Where OpenClaw shortens a result it writes all that follows again, with other ids and times.
        Messages are known by their own times; what the program injected, by what it is below.
        """
        key = ""
        is_named = parent.rank == NAMED and parent.entry is not None
        if is_named and kind in rules.INJECTED_KINDS and record.type != "message":
            above = self._entries.digest(parent.entry or 0)
            key = records.digest_of(record, data, self.session_id, above).hex()
            if (same := self._injected.get(key)) is not None:
                return same
        if parent.rank == PREVIOUS and isinstance(record.parent_id, str):
            self.material.fault(line, f"the entry it follows is missing: {record.parent_id}")
        entry = self._entries.add(
            records.digest_of(record, data, self.session_id, record.timestamp),
            kind,
            line,
            data,
            # OpenClaw shortens results in place, and writes other copies without their usage.
            weight=len(data) if kind == "result" else records.tokens_of(record),
            has_own_time=records.own_time(record) > 0,
            parent=parent.entry,
            parent_rank=parent.rank,
            config=self._config,
        )
        if key:
            self._injected[key] = entry
        return self._merge_states(line, record, entry) if self._may_change(record, kind) else entry

    def _may_change(self, record: PiRecord, kind: str) -> bool:
        """Whether an entry may have other states: in a database events are changed in their place.
        Of results the longest is shown anyway."""
        return self._was_rewritten and kind != "result" and records.own_time(record) > 0

    def _merge_states(self, line: SourceLine, record: PiRecord, entry: int) -> int:
        """The first of the states of an entry, which are shown as one."""
        if line.number != self._event:
            self._event, self._states = line.number, {}
        role = record.message.role if record.message else None
        first = self._states.setdefault((str(role), records.own_time(record)), entry)
        if first != entry:
            self._entries.replace_content(first, entry)
        return first

    def _end_record(self, record_id: str | None, entry: int | None) -> None:
        if record_id is not None:
            self._positions[record_id] = len(self._entry_at)
        self._entry_at.append(entry)
        self._config_at.append(self._config)

    def _config_after(self, record: PiRecord, position: int | None) -> int:
        """The settings from a record on: those at its parent, and what it sets."""
        config = self._config if position is None else self._config_at[position]
        if record.parent_id is None:
            config = self._no_config
        fields = rules.SETTINGS.get(str(record.type))
        if fields is None:
            return config
        chosen = {name: as_text(getattr(record, attribute)) for name, attribute in fields.items()}
        changed = {name: value for name, value in chosen.items() if value}
        return self._entries.config_number({**self._entries.configs[config], **changed})

    def _parent_of(self, record: PiRecord, position: int | None) -> _Parent:
        """The parent of an entry. Version 1 has no ids, and repairs lose parents (13 in real
        files): then it is the entry before."""
        parent_id = record.parent_id
        if isinstance(parent_id, str) and position is not None:
            return _Parent(self._entry_at[position], NAMED)
        # null is a root; a parent that is UNSET is of version 1, which has no ids.
        if parent_id is None or (isinstance(parent_id, str) and parent_id == self.header.id):
            return _Parent(None, ROOT)
        return _Parent(self.leaf, PREVIOUS)

    def _follow(self, entry: int, kind: str, record: PiRecord) -> None:
        """Continue at an entry, and note what links it to others."""
        at = milliseconds(record.timestamp)
        if self.leaf is None:
            self.first_at = at
        # The last entry of a file is its leaf; rows that were rewritten are no longer in that
        # order.
        if not self._was_rewritten or at >= self._leaf_at:
            self.leaf, self._leaf_at = entry, at
        message = record.message
        if kind == "result":
            self._note_result(entry, message or PiMessage())
        elif kind == "assistant":
            for call_id in records.calls_in(bytes((message or PiMessage()).content)):
                self._calls[call_id] = entry
        elif kind in ("prompt", "notice"):
            self._note_prompt(kind, bytes(message.content if message else record.content))
        elif kind == "compaction" and (first := self._first_kept(record)) is not None:
            self._entries.first_kept[entry] = first

    def _note_result(self, entry: int, message: PiMessage) -> None:
        call_id = as_text(message.tool_call_id)
        if call_id is None:
            return
        self._entries.callers[entry] = self._calls.get(call_id)
        key = records.spawned_key(message) if message.tool_name == "sessions_spawn" else None
        if key is not None:
            self._entries.spawned[entry] = SpawnedSession(call_id, key)
            self.started.append(key)

    def _note_prompt(self, kind: str, content: bytes) -> None:
        """A prompt may report the end of a subagent, or show that the session is one."""
        if rules.SUBAGENT_END in content:
            for key, session_id in rules.SUBAGENT_ENDS.findall(content):
                self.ended[key.decode(errors="replace")] = session_id.decode(errors="replace")
        if kind == "prompt" and self.is_subagent is None:
            self.is_subagent = rules.SUBAGENT_CONTEXT.encode() in content and rules.TIME.sub(
                "", text_of(parse_json(content)), count=1
            ).startswith(rules.SUBAGENT_CONTEXT)

    def _first_kept(self, record: PiRecord) -> int | None:
        """The first entry that a compaction kept; version 1 gives its index."""
        if isinstance(record.first_kept_entry_id, str):
            position = self._positions.get(record.first_kept_entry_id)
            return None if position is None else self._entry_at[position]
        index = as_number(record.first_kept_entry_index)
        if index is None:
            return None
        entries = (self._entry_at[position] for position in range(index, len(self._entry_at)))
        return next((entry for entry in entries if entry is not None), None)
