"""opencode: reads the rows, files and exports of a data folder into messages and sessions."""

from __future__ import annotations

from array import array
from itertools import chain
from pathlib import PurePath
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.parsing.json_spans import LONG
from agents_ledger.importers.parsing.json_values import decoded, dicts, encoded, loose
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_number, as_text
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.opencode import rules
from agents_ledger.importers.sources.opencode.messages import (
    WEAKEST,
    MessageStore,
    RecordPlace,
    StoredMessage,
    StoredPart,
    within_export,
)
from agents_ledger.importers.sources.opencode.records import (
    RECORD_DECODER,
    OpencodeRecord,
    OpencodeTask,
    task_of,
    tasks_in,
)
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import Fault, SourceFile

DERIVED_DOCUMENTS = ("session", "message", "part", "export")


class OpencodeSession(Struct):
    id: str
    is_second_format: bool = False
    fields: dict[str, Any] = field(default_factory=dict)
    standing: tuple[int, int, bytes] = (-1, 0, b"")  # of its record: the higher one prevails
    file_ids: set[int] = field(default_factory=set)
    reverts: dict[str, int] = field(default_factory=dict)  # by message, when it was reverted
    messages: array[int] = field(default_factory=lambda: array("I"))
    parent: str | None = None
    task: OpencodeTask | None = None

    @property
    def directory(self) -> str | None:
        location = as_dict(self.fields.get("location"))
        return as_text(self.fields.get("directory")) or as_text(location.get("directory"))

    @property
    def forked_from(self) -> str | None:
        """The session whose first messages it copied."""
        session_id = as_text(as_dict(self.fields.get("fork")).get("sessionID"))
        return session_id if session_id != self.id else None


class StorageReader:
    def __init__(self, material: Material) -> None:
        self.sessions: dict[str, OpencodeSession] = {}
        self.messages = MessageStore(material)
        self.superseded: set[int] = set()  # files
        self._material = material
        # Before all rows: before version 2, session_message only repeated the first format.
        self._second_format = _sessions_in_second_format(material)
        newest = {file.path: file.generation for file in material.files}  # they are in order
        for file in material.files:
            if file.kind == "rows":
                for row in material.rows(file):
                    self._row(row)
            else:
                self._document(file, is_newest=newest[file.path] == file.generation)
        self._assign_messages()
        self._link_tasks()
        for session in self.sessions.values():
            messages = self._without_repeated(session)
            session.messages = array("I", self.messages.in_order(messages))
            parent = as_text(session.fields.get("parentID"))
            # Its own record prevails over the call that names it.
            session.parent = parent if parent and parent != session.id else session.parent

    def session(self, session_id: str) -> OpencodeSession:
        """The session of an id, added if need be."""
        if session_id not in self.sessions:
            self.sessions[session_id] = OpencodeSession(session_id)
        return self.sessions[session_id]

    # -- rows of a database -------------------------------------------------------------------

    def _row(self, row: SourceRow) -> None:
        values = row.values or {}
        name = as_text(values.get("id"))
        if row.table not in rules.DERIVED or name is None:
            self._material.count(row.table, "unmapped")
        elif not row.latest:
            if row.table in rules.SESSIONS:
                # A revert may be in an earlier version of the row only.
                self._add_revert(name, loose(values.get("revert")), values.get("time_updated"))
            self._material.count(f"{row.table} (earlier)", "unmapped")
        elif row.table in rules.SESSIONS:
            self._session_row(name, values, row)
        else:
            self._message_row(name, values, row)

    def _session_row(self, name: str, values: dict[str, Any], row: SourceRow) -> None:
        fields = {key: value for key, value in values.items() if value is not None}
        for key in ("model", "metadata", "revert", "summary_diffs"):
            fields[key] = loose(fields.get(key))
        boundary = loose(values.get("fork_boundary"))
        fields |= {
            "parentID": values.get("parent_id"),
            "projectID": values.get("project_id"),
            "fork": {"sessionID": values.get("fork_session_id"), "boundary": boundary},
            "time": {"created": values.get("time_created"), "updated": values.get("time_updated")},
        }
        # 0 is a file or an export: a row prevails over it, and the second format over the first.
        generation = 1 + rules.SESSIONS.index(row.table)
        self._add_session(name, fields, (generation, row.length, row.digest), row.file_id)
        self.session(name).is_second_format |= generation > 1
        self._material.count(row.table, "derived")

    def _message_row(self, name: str, values: dict[str, Any], row: SourceRow) -> None:
        cell = values.get("data")
        record = decoded(cell, RECORD_DECODER)
        if record is None:
            self._material.fault(row, f"{row.table} {name} is not what it should be")
            self._material.count(row.table, "malformed")
            return
        held = cell if self._material.holds else None
        place = RecordPlace(row.file_id, True, row.offset, row.length, row.digest, held)
        record.id, record.session = name, values.get("session_id")
        record.message = values.get("message_id")
        is_used = True
        if row.table == "message":
            self._add_message(record, place, values)
        elif row.table == "part":
            self._add_part(record, place)
        else:
            record.type = values.get("type")
            is_used = self._add_second_format(record, place, values)
        self._material.count(row.table, "derived" if is_used else "unmapped")

    # -- files and exports --------------------------------------------------------------------

    def _document(self, file: SourceFile, *, is_newest: bool) -> None:
        data = self._material.text_document(file)
        if has_text_exceeding(data, self._material.limits.text_bytes):
            self._material.faults.append(Fault(file.path, LONG))
            self._material.count("(overlong)", "malformed")
            return
        record = decoded(data, RECORD_DECODER)
        if record is None:
            is_broken = loose(data) is None
            if is_broken:
                self._material.faults.append(Fault(file.path, "not a record"))
            kind = PurePath(file.path).parent.name
            self._material.count(kind, "malformed" if is_broken else "unmapped")
            return
        kind = record.kind
        if is_newest:
            place = RecordPlace(file.id, False, 0, len(data), digest(data))
            if kind == "session":
                self._add_document_session(str(record.id), as_dict(loose(data)), place)
            elif kind == "export":
                self._add_export(record, place, PurePath(file.path).stem)
            else:
                self._add(record, place)
            is_used = kind in DERIVED_DOCUMENTS
            self._material.count(kind, "derived" if is_used else "unmapped")
            return
        if kind == "session":
            fields = as_dict(loose(data))
            updated = as_dict(fields.get("time")).get("updated")
            self._add_revert(str(record.id), fields.get("revert"), updated)
        else:
            self.superseded.add(file.id)
        self._material.count(f"{kind} (earlier)", "unmapped")

    def _add(self, record: OpencodeRecord, place: RecordPlace) -> None:
        if record.kind == "part":
            self._add_part(record, place)
        elif record.kind == "message":
            self._add_message(record, place, {})

    def _add_export(self, record: OpencodeRecord, place: RecordPlace, name: str) -> None:
        fields, messages = as_dict(record.info), as_list(record.messages)
        session = _exported_id(fields, as_dict(messages[0]) if messages else {}, name)
        parent = as_text(fields.get("parentID"))
        is_readable = parent and rules.READABLE_SESSION.fullmatch(parent)
        fields = {**fields, "parentID": parent if is_readable else None}
        self._add_document_session(session, fields, place)
        for index, entry in enumerate(map(as_dict, messages)):
            info = entry.get("info", entry)  # in the second format there are no parts
            at = within_export(index)
            message = self._add_exported(info, place, at, f"{session}:{index}", session)
            before = message or ""
            for number, part in enumerate(as_list(entry.get("parts"))):
                at, name = within_export(index, number), f"{before}:{number:06}"
                part_id = self._add_exported(part, place, at, name, session, message=message)
                # Parts are ordered by id: a made-up one must sort after the real one before it.
                before = before if part_id in (None, name) else str(part_id)

    def _add_exported(
        self,
        value: Any,
        export: RecordPlace,
        at: int,
        fallback: str,
        session: str,
        *,
        message: str | None = None,
    ) -> str | None:
        """Add a message of an export, or a part of one, and return its id. `fallback` is the id of
        one whose own is unreadable: it sorts after the record before it."""
        data = encoded(value)
        record = decoded(data, RECORD_DECODER)
        if record is None:
            return None
        record.id = record.id if rules.READABLE_RECORD.match(str(record.id)) else fallback
        record.message = message or record.message
        is_readable = rules.READABLE_SESSION.fullmatch(str(record.session))
        record.session = record.session if is_readable else session
        place = RecordPlace(export.file_id, False, at, len(data), digest(data))
        if message is not None or as_text(record.role):
            self._add(record, place)
        elif self._add_second_format(record, place, {"seq": at}):
            self.session(session).is_second_format = True
        return str(record.id)

    # -- records ------------------------------------------------------------------------------

    def _add_document_session(self, name: str, fields: dict[str, Any], place: RecordPlace) -> None:
        self._add_session(name, fields, (0, place.length, place.fingerprint), place.file_id)

    def _add_session(
        self, name: str, fields: dict[str, Any], standing: tuple[int, int, bytes], file_id: int
    ) -> None:
        session = self.session(name)
        session.file_ids.add(file_id)
        self._add_revert(name, fields.get("revert"), as_dict(fields.get("time")).get("updated"))
        if standing > session.standing:
            session.fields, session.standing = fields, standing

    def _add_revert(self, session_id: str, revert: Any, updated: Any) -> None:
        """Note that the messages from one on, up to the time of the revert, were taken back."""
        first = as_text(as_dict(revert).get("messageID"))
        if first:
            reverts = self.session(session_id).reverts
            reverts[first] = max(reverts.get(first, 0), milliseconds(updated))

    def _add_message(
        self, record: OpencodeRecord, place: RecordPlace, values: dict[str, Any]
    ) -> None:
        """Add a message of the first format. `values`: those of its row."""
        session = as_text(record.session)
        if session is not None:
            role = rules.ASKS if record.role == "user" else rules.ANSWERS
            is_summary = bytes(record.summary) == b"true"
            roles = role | rules.SUMMARY * is_summary
            rank = _rank(values, is_first_format=True)
            created = _created(record, values)
            self.messages.add(str(record.id), StoredMessage(place, rank, session, created, roles))

    def _add_second_format(
        self, record: OpencodeRecord, place: RecordPlace, values: dict[str, Any]
    ) -> bool:
        """Add a message of the second format; False if it is not part of a conversation."""
        session, kind = as_text(record.session), as_text(record.type)
        if session is None or kind not in rules.TYPES:
            return False
        is_compaction = kind == "compaction"
        if is_compaction and record.status not in (None, "completed"):
            return False
        # An upgraded compaction has the id of its prompt in the first format, which says more.
        is_weak = is_compaction or (place.is_row and session not in self._second_format)
        message = StoredMessage(
            place,
            WEAKEST if is_weak else _rank(values, is_first_format=False),
            session,
            _created(record, values),
            rules.TYPES[kind],
            kind,
            as_number(values.get("seq")),
            tasks_in(bytes(record.content)) if kind == "assistant" else [],
        )
        self.messages.add(str(record.id), message)
        return True

    def _add_part(self, record: OpencodeRecord, place: RecordPlace) -> None:
        part_id, message_id = as_text(record.id), as_text(record.message)
        if part_id is None or message_id is None:
            return
        starts_session = str(record.tool) in rules.SUBAGENT_TOOLS
        task = task_of(as_dict(loose(bytes(record.state)))) if starts_session else None
        message = self.messages.reserve(message_id)
        self.messages.parts.put(part_id, StoredPart(place, message=message, task=task))

    # -- once all are read --------------------------------------------------------------------

    def _assign_messages(self) -> None:
        """Give each session its messages and files."""
        for number, message in enumerate(self.messages.values):
            if message.place is not None:
                session = self.session(message.session)
                session.messages.append(number)
                session.file_ids.add(message.place.file_id)
        for part in self.messages.parts.values:
            message = self.messages.record(part.message)
            if part.place is None:
                continue
            if message.place is not None:
                self.session(message.session).file_ids.add(part.place.file_id)
            elif part.place.is_row or not part.place.at:  # without its message it is not derived
                self._material.count("part", "derived", -1)
                self._material.count("part", "unmapped")
        self.messages.group_parts()

    def _link_tasks(self) -> None:
        started = [(p.message, p.task) for p in self.messages.parts.values if p.task is not None]
        for number, message in enumerate(self.messages.values):
            started += [(number, task) for task in message.tasks]
        for number, task in started:
            caller = self.messages.record(number)
            if caller.place is not None and task.session != caller.session:
                child = self.session(task.session)
                child.task, child.parent = task, caller.session

    def _without_repeated(self, session: OpencodeSession) -> array[int]:
        messages = self.messages.without_repeated(
            session.messages, is_second=session.is_second_format
        )
        if not session.is_second_format:
            repeated = len(session.messages) - len(messages)
            self._material.count("session_message", "derived", -repeated)
            self._material.count("session_message", "unmapped", repeated)
        return messages


def _created(record: OpencodeRecord, values: dict[str, Any]) -> int:
    own = milliseconds(as_dict(record.time).get("created"))
    return own or milliseconds(values.get("time_created"))


def _rank(values: dict[str, Any], *, is_first_format: bool) -> int:
    """The later row prevails, and of two as late that of the first format, which says more than
    what an upgrade made of it."""
    return 2 * milliseconds(values.get("time_updated")) + is_first_format


def _sessions_in_second_format(material: Material) -> set[str | None]:
    """The sessions of the second format, which decide how messages are read."""
    databases = [file for file in material.files if file.kind == "rows"]
    rows = chain.from_iterable(map(material.peek, databases))
    return {as_text(row.key) for row in rows if row.table == rules.SESSIONS[1]}


def _exported_id(session: dict[str, Any], first: dict[str, Any], name: str) -> str:
    """The id of an exported session. An unreadable one is replaced by a hash of the time and text
    that it begins with, and without times also of `name`, that of its file."""
    info = as_dict(first.get("info"))
    for session_id in (session.get("id"), info.get("sessionID")):
        if isinstance(session_id, str) and rules.READABLE_SESSION.fullmatch(session_id):
            return session_id
    times = [as_dict(fields.get("time")).get("created") for fields in (session, info or first)]
    texts = [part.get("text") for part in dicts(first.get("parts"))] or [first.get("text")]
    # Without a time two exports of the same first words may be of two sessions.
    parts = [times, texts, None if any(map(milliseconds, times)) else name]
    return f"export-{digest(encoded(parts)).hex()}"
