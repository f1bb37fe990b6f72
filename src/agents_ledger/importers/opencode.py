"""opencode: a database, or a tree of small JSON files, or one exported file; ids are the same.

docs/sources/opencode.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.cells import decoded, dicts, encoded, exchanges, loose, pruned
from agents_ledger.importers.databases import MAGIC
from agents_ledger.importers.opencode_projects import projects, sieve
from agents_ledger.importers.opencode_records import (
    ASKS,
    SUMMARY,
    Loader,
    Messages,
    Parts,
    Records,
    Said,
    Task,
    inside,
)
from agents_ledger.importers.opencode_turns import NAME, build_turn, label_of
from agents_ledger.importers.outlines import NONE, as_dict, as_list, as_text, made, project_name
from agents_ledger.importers.reader import (
    Home,
    Look,
    Material,
    Project,
    Row,
    Select,
    Sieve,
    Table,
    fingerprint,
)
from agents_ledger.model.records import digest
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
    SourceFile,
    SourceKind,
)
from agents_ledger.model.turns import MessageSource

VERSION = 4
NO_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z(?: \(fork #\d+\))?")
# Not account, control_account, credential and session_share: they hold secrets.
TABLES = (
    Table("project", ("id",)),
    Table("session", ("id",)),
    Table("message", ("id",)),
    Table("part", ("id",)),
    Table("todo", ()),
    Table("session_message", ("id",)),
    Table("session_input", ()),
    Table("session_context_epoch", ()),
)
FOLDERS = {"info", "message", "part", "project", "session", "session_diff", "todo"}
STATUSES: dict[str, TaskStatus] = {
    "completed": "completed",
    "error": "failed",
    "pending": "pending",
    "running": "running",
    "success": "completed",
}
KEPT_OF_SESSION = ("agent", "cost", "model", "projectID", "revert", "slug", "summary", "version")
KEYS = tuple(  # of a part, a message, a session, a project
    tuple(re.compile(rb'"%s"\s*:' % name) for name in names)
    for names in (
        (b"messageID", b"type"),
        (b"sessionID", b"role"),
        (b"projectID", b"directory"),
        (b"worktree", b"time"),
    )
)
SESSION = re.compile(rb'\s*\{[^{]*"id"\s*:\s*"ses_')
OWN = re.compile("(?:msg|prt)_")
EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')


class OpenCode:
    """Reader of opencode's sessions, all three generations."""

    name = NAME
    version = VERSION
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        """One folder on every system."""
        return [home.data("opencode")]

    def wants(self, path: Path) -> bool:
        """The database of any build, and the files of the time before it."""
        if path.suffix == ".db":
            return path.name.startswith("opencode")
        return path.suffix == ".json" and "storage" in path.parts and bool(FOLDERS & {*path.parts})

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """A database, or a file rewritten whole. A database must never be kept whole."""
        is_json = path.suffix == ".json" or EXPORT.match(head)
        return "document" if is_json and not head.startswith(MAGIC) else "rows"

    def recognises(self, path: Path, head: bytes) -> bool:
        """The tables, or the keys of one of the files."""
        if head.startswith(MAGIC):
            return b"CREATE TABLE `part`" in head or bool(
                re.search(rb'CREATE TABLE ["`]?part["`]?\s*\(.*message_id', head, re.DOTALL)
            )
        if path.suffix != ".json" and not EXPORT.match(head):  # that may have any name
            return False
        if head.lstrip()[:1] not in (b"{", b"["):
            return False
        if "session_diff" in path.parts:
            return "storage" in path.parts
        known = any(all(key.search(head) for key in keys) for keys in KEYS)
        return known or bool(SESSION.match(head))

    def family(self, path: Path) -> str:
        """One data folder: the old files stay beside the database that took them over."""
        parts = path.parts
        if path.suffix == ".json" and "storage" in parts:
            at = parts.index("storage")
            at = at - 2 if at > 1 and parts[at - 2] == "project" else at
            return f"{self.name}:{PurePath(*parts[:at]) if at else ''}"
        return f"{self.name}:{path.parent}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As the session or the project says that a file is of."""
        return projects(path, look)

    def sieve(self, _: Path, own: Select, __: Look, is_left: Callable[[Project], bool]) -> Sieve:
        """All but the sessions of projects that are left out."""
        return sieve(own, is_left)

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return _Outline(material).derivation()


class _Session(Struct):
    id: str
    said: dict[str, Any] = field(default_factory=dict)
    standing: tuple[int, int, bytes] = (-1, 0, b"")
    file_ids: set[int] = field(default_factory=set)
    reverts: dict[str, int] = field(default_factory=dict)  # message -> when it was taken back
    messages: array[int] = field(default_factory=lambda: array("I"))
    parent: str | None = None
    task: Task | None = None

    @property
    def directory(self) -> str | None:
        """Where it worked."""
        return as_text(self.said.get("directory"))


class _Info(Struct):
    """Any of the files, as far as the outline needs it."""

    id: Any = None
    type: Any = None
    role: Any = None
    tool: Any = None
    time: Any = None
    summary: Raw = field(default_factory=lambda: Raw(b"null"))
    state: Raw = field(default_factory=lambda: Raw(b"null"))
    session: Any = field(default=None, name="sessionID")
    message: Any = field(default=None, name="messageID")
    project: Any = field(default=None, name="projectID")
    directory: Any = None
    title: Any = None
    worktree: Any = None
    info: Any = None
    messages: Any = None


_INFO = msgspec.json.Decoder(_Info)


class _Outline:
    def __init__(self, material: Material) -> None:
        self.material = material
        loader = Loader(material)
        self.sessions: dict[str, _Session] = {}
        self.messages = Messages(loader)
        self.parts = Parts(loader)
        self.superseded: set[int] = set()
        newest = {file.path: file.generation for file in material.files}  # in that order
        for file in material.files:
            if file.kind == "rows":
                for row in material.rows(file):
                    self._row(file, row)
            else:
                self._document(file, newest[file.path] == file.generation)
        self._assemble()

    # -- reading ------------------------------------------------------------------------------

    def _row(self, file: SourceFile, row: Row) -> None:
        values = row.values or {}
        name = as_text(values.get("id"))
        if row.table not in ("session", "message", "part") or name is None:
            self.material.count(row.table, "unmapped")
            return
        if not row.latest:
            if row.table == "session":
                self._revert(name, loose(values.get("revert")), values.get("time_updated"))
            self.material.count(f"{row.table} (earlier)", "unmapped")
            return
        if row.table == "session":
            self._session_row(name, values, row, file)
            return
        said = Said(file, row.offset, row.length, row.print, values.get("data"))
        info = decoded(values.get("data"), _INFO)
        if info is None:
            self.material.fault(row, f"{row.table} {name} is not what it should be")
            self.material.count(row.table, "malformed")
            return
        info.id, info.session = name, values.get("session_id")
        info.message = values.get("message_id")
        if row.table == "message":
            self._message(info, said, values.get("time_created"))
        else:
            self._part(info, said)
        self.material.count(row.table, "derived")

    def _session_row(self, name: str, values: dict[str, Any], row: Row, file: SourceFile) -> None:
        said = {key: value for key, value in values.items() if value is not None}
        for key in ("model", "metadata", "revert", "summary_diffs"):
            said[key] = loose(said.get(key))
        said |= {
            "parentID": values.get("parent_id"),
            "projectID": values.get("project_id"),
            "time": {"created": values.get("time_created"), "updated": values.get("time_updated")},
        }
        self._session(name, said, (1, row.length, row.print), file)
        self.material.count("session", "derived")

    def _document(self, file: SourceFile, newest: bool) -> None:
        data = self.material.document(file)
        info = decoded(data, _INFO)
        if info is None:
            kind = PurePath(file.path).parent.name
            broken = loose(data) is None
            if broken:
                self.material.faults.append(Fault(file.path, "not a record"))
            self.material.count(kind, "malformed" if broken else "unmapped")
            return
        said = Said(file, 0, len(data), digest(data))
        kind = self._kind(info)
        if not newest:
            if kind != "session":
                self.superseded.add(file.id)
            else:
                found = as_dict(loose(data))
                updated = as_dict(found.get("time")).get("updated")
                self._revert(str(info.id), found.get("revert"), updated)
            self.material.count(f"{kind} (earlier)", "unmapped")
            return
        self._of_kind(kind, info, said, data)
        known = kind in ("session", "message", "part", "export")
        self.material.count(kind, "derived" if known else "unmapped")

    @staticmethod
    def _kind(info: _Info) -> str:
        if info.info is not None and isinstance(info.messages, list):
            return "export"
        if info.message is not None and as_text(info.type):
            return "part"
        if as_text(info.role) and as_text(info.id):
            return "message"
        if as_text(info.worktree):
            return "project"
        return "session" if as_text(info.id) and info.time is not None else "other"

    def _of_kind(self, kind: str, info: _Info, said: Said, data: bytes) -> None:
        if kind == "part":
            self._part(info, said)
        elif kind == "message":
            self._message(info, said, None)
        elif kind == "session":
            self._session(
                str(info.id), as_dict(loose(data)), (0, said.length, said.print), said.file
            )
        elif kind == "export":
            self._export(info, said)

    def _export(self, info: _Info, said: Said) -> None:
        session = as_dict(info.info)
        name = as_text(session.get("id"))
        if name:
            self._session(name, session, (0, said.length, said.print), said.file)
        for at, each in enumerate(dicts(info.messages)):
            message = self._inside(each.get("info"), said, inside(at), f"{name}:{at}")
            before = message or ""
            for number, part in enumerate(as_list(each.get("parts"))):
                place = f"{before}:{number:06}"
                found = self._inside(part, said, inside(at, number), place, message)
                before = before if found in (None, place) else str(found)

    def _inside(
        self, value: Any, said: Said, at: int, place: str, message: str | None = None
    ) -> str | None:
        """A message, or a part of one, written into another file; and its id. One that was made
        unreadable is told by its place, and stands behind the one before it."""
        data = encoded(value)
        info = decoded(data, _INFO)
        if info is None:
            return None
        info.id = info.id if OWN.match(str(info.id)) else place
        info.message = message or info.message
        inner = Said(said.file, at, len(data), digest(data))
        self._of_kind(self._kind(info), info, inner, data)
        return str(info.id)

    # -- what they are ------------------------------------------------------------------------

    def _session(
        self, name: str, said: dict[str, Any], standing: tuple[int, int, bytes], file: SourceFile
    ) -> None:
        session = self._session_of(name)
        session.file_ids.add(file.id)
        self._revert(name, said.get("revert"), as_dict(said.get("time")).get("updated"))
        if standing > session.standing:
            session.said, session.standing = said, standing

    def _session_of(self, name: str) -> _Session:
        if name not in self.sessions:
            self.sessions[name] = _Session(name)
        return self.sessions[name]

    def _revert(self, name: str, revert: Any, updated: Any) -> None:
        """Messages from this one on were taken back; what came later stands before them."""
        first = as_text(as_dict(revert).get("messageID"))
        if first:
            reverts = self._session_of(name).reverts
            reverts[first] = max(reverts.get(first, 0), milliseconds(updated))

    def _message(self, info: _Info, said: Said, created: Any) -> None:
        session_id = as_text(info.session)
        if session_id is None:
            return
        times = as_dict(info.time)
        self.messages.add(
            str(info.id),
            said,
            session=session_id,
            created=milliseconds(times.get("created")) or milliseconds(created),
            kind=ASKS * (info.role == "user") | SUMMARY * (bytes(info.summary) == b"true"),
        )

    def _part(self, info: _Info, said: Said) -> None:
        part_id, message_id = as_text(info.id), as_text(info.message)
        if part_id is None or message_id is None:
            return
        task = None
        if info.tool == "task":
            state = as_dict(loose(bytes(info.state)))
            child = as_text(as_dict(state.get("metadata")).get("sessionId"))
            description = as_text(as_dict(state.get("input")).get("description"))
            task = Task(child, as_text(state.get("status")), description) if child else None
        self.parts.add(part_id, said, self.messages.ids.add(message_id), task)

    def _assemble(self) -> None:
        messages, parts = self.messages, self.parts
        names = messages.sessions
        sessions = [self._session_of(names.name(number)) for number in range(len(names))]
        for number in messages:
            session = sessions[messages.session(number)]
            session.messages.append(number)
            session.file_ids.add(messages.file_id(number))
        for part in parts:
            message = parts.message(part)
            if message in messages:
                sessions[messages.session(message)].file_ids.add(parts.file_id(part))
            elif not parts.is_inside(part):  # it makes no row
                self.material.count("part", "derived", -1)
                self.material.count("part", "unmapped")
        parts.group(len(messages))
        for part, task in sorted(parts.tasks.items()):
            message = parts.message(part)
            caller = sessions[messages.session(message)].id if message in messages else task.session
            if task.session != caller:
                child = self._session_of(task.session)
                child.task, child.parent = task, caller
        for session in self.sessions.values():
            session.messages = array("I", messages.in_order(session.messages))
            parent = as_text(session.said.get("parentID"))
            session.parent = parent if parent and parent != session.id else session.parent

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turns = _Turns(self.messages, self.parts)
        sessions = []
        for name in sorted(self.sessions):
            session = self.sessions[name]
            if session.messages:
                sessions.append(self._derived(session, turns.add(session)))
        return Derivation(
            turns=made(range(len(turns)), turns.made),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=frozenset(self.superseded),
        )

    def _derived(self, session: _Session, head: str | None) -> DerivedSession:
        said = session.said
        times = as_dict(said.get("time"))
        created = array("Q", filter(None, map(self.messages.created, session.messages)))
        title = as_text(said.get("title"))
        directory = session.directory
        metadata = {name: pruned(said.get(name)) for name in KEPT_OF_SESSION}
        metadata |= {
            "workspace_path": directory,
            "project": project_name(directory) if directory else None,
        }
        task = session.task or Task("", None, None)
        return DerivedSession(
            session_id=session.id,
            label=label_of(session.id),
            head=head,
            file_ids=frozenset(session.file_ids),
            title=title if title and not NO_TITLE.fullmatch(title) else None,
            created_at=milliseconds(times.get("created")) or min(created, default=0),
            updated_at=max(milliseconds(times.get("updated")), max(created, default=0)),
            is_subagent=session.parent is not None,
            parent_label=label_of(session.parent) if session.parent else None,
            task_description=task.description,
            task_status=STATUSES.get(task.status or ""),
            routing_key=directory,
            metadata={k: v for k, v in metadata.items() if v not in (None, "", [], {})},
        )


class _Turns:
    """The turns of all sessions by number, parents first, each made when it is asked for."""

    def __init__(self, messages: Messages, parts: Parts) -> None:
        self._messages = messages
        self._parts = parts
        self._order = array("I")  # messages
        self._starts = array("I", [0])  # of each turn there; the last is where they end
        self._above = array("i")
        self._compacts = bytearray()
        self._sessions: list[_Session] = []
        self._of = array("I")  # its session

    def __len__(self) -> int:
        return len(self._above)

    def add(self, session: _Session) -> str | None:
        """The turns of a session; the head is the last that was answered and not taken back."""
        head = aside = NONE  # the latter is the end of the branch that was taken back
        spans = self._taken_back(session)
        messages, own = self._messages, len(self._sessions)
        self._sessions.append(session)
        for group in exchanges(session.messages, messages.asks):
            at = messages.created(group[0])
            gone = any(first <= at <= last for first, last in spans)
            above = aside if gone and aside != NONE else head
            turn = len(self)
            self._order.extend(group)
            self._starts.append(len(self._order))
            self._above.append(above)
            self._compacts.append(above != NONE and any(map(messages.is_summary, group)))
            self._of.append(own)
            if gone:
                aside = turn
            elif not all(map(messages.asks, group)):
                head, aside = turn, NONE
        return self._name(head)

    def _taken_back(self, session: _Session) -> list[tuple[int, int]]:
        """From when to when what was said was taken back."""
        messages, found = self._messages, []
        for name, until in session.reverts.items():
            number = messages.ids.get(name)
            if number in messages and self._is_of(number, session):
                found.append((messages.created(number), until))
        return found

    def _is_of(self, message: int, session: _Session) -> bool:
        return self._messages.session(message) == self._messages.sessions.get(session.id)

    def _name(self, turn: int) -> str | None:
        return self._messages.ids.name(self._order[self._starts[turn]]) if turn != NONE else None

    def made(self, turn: int) -> DerivedTurn:
        """A turn."""
        group = self._order[self._starts[turn] : self._starts[turn + 1]]
        session, parent = self._sessions[self._of[turn]], self._name(self._above[turn])
        compacts = bool(self._compacts[turn])
        asked_by: MessageSource = "agent" if session.parent else "human"
        told = f"{session.directory};{compacts};{asked_by};".encode(errors="replace")
        prints, file_ids = [told], set()
        for records, number in self._records(group):
            prints.append(records.print(number))
            file_ids.add(records.file_id(number))
        names = tuple(map(self._messages.ids.name, group))
        return DerivedTurn(
            names[0],
            parent,
            fingerprint(VERSION, prints),
            frozenset(file_ids),
            names,
            partial(
                build_turn,
                self._messages,
                self._parts,
                group,
                parent,
                workspace=session.directory,
                compacts=compacts,
                asked_by=asked_by,
            ),
        )

    def _records(self, group: Iterable[int]) -> Iterator[tuple[Records, int]]:
        """Messages, each with its parts behind it."""
        for message in group:
            yield self._messages, message
            for part in self._parts.of(message):
                yield self._parts, part
