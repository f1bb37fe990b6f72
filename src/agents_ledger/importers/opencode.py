"""opencode: a database, or a tree of small JSON files, or one exported file; ids are the same.

docs/sources/opencode.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field, structs

from agents_ledger.importers.building import milliseconds
from agents_ledger.importers.cells import decoded, dicts, encoded, exchanges, loose, pruned
from agents_ledger.importers.databases import MAGIC
from agents_ledger.importers.opencode_projects import projects, sieve
from agents_ledger.importers.opencode_turns import NAME, Loader, Piece, Said, build_turn, label_of
from agents_ledger.importers.outlines import as_dict, as_list, as_text, made, project_name
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


class _Message(Struct):
    id: str
    session_id: str
    created: int
    role: str
    said: Said
    is_summary: bool
    pieces: dict[str, Piece] = field(default_factory=dict)


class _Turn(NamedTuple):
    """What a turn is made of."""

    parent: str | None
    group: list[_Message]
    directory: str | None
    compacts: bool
    asked_by: MessageSource


class _Session(Struct):
    id: str
    said: dict[str, Any] = field(default_factory=dict)
    standing: tuple[int, int, bytes] = (-1, 0, b"")
    file_ids: set[int] = field(default_factory=set)
    reverts: dict[str, int] = field(default_factory=dict)  # message -> when it was taken back
    messages: list[_Message] = field(default_factory=list)
    parent: str | None = None
    task: dict[str, Any] = field(default_factory=dict)


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
        self.loader = Loader(material)
        self.sessions: dict[str, _Session] = {}
        self.messages: dict[str, _Message] = {}
        self.pieces: dict[str, Piece] = {}
        self.superseded: set[int] = set()
        newest = {file.path: file.generation for file in material.files}  # in that order
        for file in material.files:
            if file.kind == "rows":
                for row in material.rows(file):
                    self._row(row)
            else:
                self._document(file, newest[file.path] == file.generation)
        self._assemble()

    # -- reading ------------------------------------------------------------------------------

    def _row(self, row: Row) -> None:
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
            self._session_row(name, values, row)
            return
        said = Said(self.material.held_row(row), None, (), row.print, row.length)
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

    def _session_row(self, name: str, values: dict[str, Any], row: Row) -> None:
        said = {key: value for key, value in values.items() if value is not None}
        for key in ("model", "metadata", "revert", "summary_diffs"):
            said[key] = loose(said.get(key))
        said |= {
            "parentID": values.get("parent_id"),
            "projectID": values.get("project_id"),
            "time": {"created": values.get("time_created"), "updated": values.get("time_updated")},
        }
        self._session(name, said, (1, row.length, row.print), self.material.file_of(row))
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
        said = Said(None, file, (), digest(data), len(data))
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
        elif kind == "session" and said.file is not None:
            self._session(
                str(info.id), as_dict(loose(data)), (0, said.length, said.print), said.file
            )
        elif kind == "export":
            self._export(info, said)

    def _export(self, info: _Info, said: Said) -> None:
        session = as_dict(info.info)
        name = as_text(session.get("id"))
        if name and said.file:
            self._session(name, session, (0, said.length, said.print), said.file)
        for at, each in enumerate(dicts(info.messages)):
            message = self._inside(each.get("info"), said, ("messages", at, "info"), f"{name}:{at}")
            before = message or ""
            for number, part in enumerate(as_list(each.get("parts"))):
                way, place = ("messages", at, "parts", number), f"{before}:{number:06}"
                found = self._inside(part, said, way, place, message)
                before = before if found in (None, place) else str(found)

    def _inside(
        self,
        value: Any,
        said: Said,
        way: tuple[str | int, ...],
        place: str,
        message: str | None = None,
    ) -> str | None:
        """A message, or a part of one, written into another file; and its id. One that was made
        unreadable is told by its place, and stands behind the one before it."""
        data = encoded(value)
        info = decoded(data, _INFO)
        if info is None:
            return None
        info.id = info.id if OWN.match(str(info.id)) else place
        info.message = message or info.message
        inner = structs.replace(said, inner=way, print=digest(data), length=len(data))
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
        message = _Message(
            str(info.id),
            session_id,
            milliseconds(times.get("created")) or milliseconds(created),
            str(info.role),
            said,
            bytes(info.summary) == b"true",
        )
        known = self.messages.get(message.id)
        if known is None or known.said.standing() < said.standing():
            self.messages[message.id] = message

    def _part(self, info: _Info, said: Said) -> None:
        part_id, message_id = as_text(info.id), as_text(info.message)
        if part_id is None or message_id is None:
            return
        task = None
        if info.tool == "task":
            state = as_dict(loose(bytes(info.state)))
            child = as_text(as_dict(state.get("metadata")).get("sessionId"))
            task = (child, state) if child else None
        known = self.pieces.get(part_id)
        if known is None or known.said.standing() < said.standing():
            message = self.messages.get(message_id)
            message_id = message.id if message is not None else message_id  # one text for all
            self.pieces[part_id] = Piece(part_id, message_id, said, task)

    def _assemble(self) -> None:
        for piece in self.pieces.values():
            message = self.messages.get(piece.message_id)
            if message is None:
                self._uncount(piece)
                continue
            message.pieces[piece.id] = piece
            if piece.task is not None and piece.task[0] != message.session_id:
                child = self._session_of(piece.task[0])
                child.task = piece.task[1]
                child.parent = message.session_id
        for message in self.messages.values():
            session = self._session_of(message.session_id)
            session.messages.append(message)
            session.file_ids.update(_file_ids(message))
        for session in self.sessions.values():
            session.messages.sort(key=lambda m: (m.created, m.id))
            parent = as_text(session.said.get("parentID"))
            session.parent = parent if parent and parent != session.id else session.parent

    def _uncount(self, piece: Piece) -> None:
        """A part of a message that is not there makes no row."""
        if not piece.said.inner:
            self.material.count("part", "derived", -1)
            self.material.count("part", "unmapped")

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turns: list[_Turn] = []
        sessions = []
        for name in sorted(self.sessions):
            session = self.sessions[name]
            if session.messages:
                head = self._turns(session, turns)
                sessions.append(self._derived(session, head))
        return Derivation(
            turns=made(turns, self._made),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=frozenset(self.superseded),
        )

    def _turns(self, session: _Session, turns: list[_Turn]) -> str | None:
        """The turns of a session; the head is the last that was answered and not taken back."""
        head: str | None = None
        aside: str | None = None  # the end of the branch that was taken back
        directory = as_text(session.said.get("directory"))
        asked_by: MessageSource = "agent" if session.parent else "human"
        spans = _taken_back(session)
        for group in exchanges(session.messages, lambda m: m.role == "user"):
            gone = any(first <= group[0].created <= last for first, last in spans)
            parent = aside or head if gone else head
            turn_id = group[0].id
            answered = any(message.role != "user" for message in group)
            compacts = parent is not None and any(m.is_summary for m in group)
            turns.append(_Turn(parent, group, directory, compacts, asked_by))
            if gone:
                aside = turn_id
            elif answered:
                head, aside = turn_id, None
        return head

    def _made(self, turn: _Turn) -> DerivedTurn:
        parent, group, directory, compacts, asked_by = turn
        turn_id = group[0].id
        return DerivedTurn(
            turn_id,
            parent,
            fingerprint(VERSION, _prints(group, directory, compacts, asked_by)),
            frozenset(i for m in group for i in _file_ids(m)),
            tuple(message.id for message in group),
            partial(
                build_turn,
                self.loader,
                turn_id,
                parent,
                [(m.id, m.said, _ordered(m)) for m in group],
                workspace=directory,
                compacts=compacts,
                asked_by=asked_by,
            ),
        )

    def _derived(self, session: _Session, head: str | None) -> DerivedSession:
        said = session.said
        times = as_dict(said.get("time"))
        created = [m.created for m in session.messages if m.created]
        title = as_text(said.get("title"))
        directory = as_text(said.get("directory"))
        metadata = {name: pruned(said.get(name)) for name in KEPT_OF_SESSION}
        metadata |= {
            "workspace_path": directory,
            "project": project_name(directory) if directory else None,
        }
        status = as_text(session.task.get("status")) or ""
        return DerivedSession(
            session_id=session.id,
            label=label_of(session.id),
            head=head,
            file_ids=frozenset(session.file_ids),
            title=title if title and not NO_TITLE.fullmatch(title) else None,
            created_at=milliseconds(times.get("created")) or min(created, default=0),
            updated_at=max([milliseconds(times.get("updated")), *created]),
            is_subagent=session.parent is not None,
            parent_label=label_of(session.parent) if session.parent else None,
            task_description=as_text(as_dict(session.task.get("input")).get("description")),
            task_status=STATUSES.get(status),
            routing_key=directory,
            metadata={k: v for k, v in metadata.items() if v not in (None, "", [], {})},
        )


def _taken_back(session: _Session) -> list[tuple[int, int]]:
    """From when to when what was said was taken back."""
    reverts = session.reverts
    return [(m.created, reverts[m.id]) for m in session.messages if m.id in reverts]


def _ordered(message: _Message) -> list[Piece]:
    return [message.pieces[name] for name in sorted(message.pieces)]


def _file_ids(message: _Message) -> Iterator[int]:
    yield from message.said.file_ids
    for piece in message.pieces.values():
        yield from piece.said.file_ids


def _prints(
    group: Sequence[_Message], directory: str | None, compacts: bool, asked_by: MessageSource
) -> Iterator[bytes]:
    yield f"{directory};{compacts};{asked_by};".encode(errors="replace")
    for message in group:
        yield message.said.print
        for piece in _ordered(message):
            yield piece.said.print
