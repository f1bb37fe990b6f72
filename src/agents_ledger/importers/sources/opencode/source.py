"""opencode: a database, or a tree of small JSON files, or one exported file; ids are the same.

docs/sources/opencode.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Sequence
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.json_spans import LONG
from agents_ledger.importers.parsing.json_values import decoded, dicts, encoded, loose, pruned
from agents_ledger.importers.parsing.text_size import has_text_exceeding
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import (
    Home,
    Look,
    Material,
    Project,
    Row,
    Select,
    Sieve,
    Source,
    Table,
)
from agents_ledger.importers.sources.opencode.lazy_turns import VERSION, Session, Turns
from agents_ledger.importers.sources.opencode.projects import projects, sieve
from agents_ledger.importers.sources.opencode.records import (
    ANSWERS,
    ASKS,
    SUMMARY,
    TYPES,
    WEAKEST,
    Loader,
    Messages,
    Parts,
    Said,
    Task,
    inside,
    kind_of,
    rank_of,
    task_of,
)
from agents_ledger.importers.sources.opencode.second_format import SUBAGENTS, tasks_of
from agents_ledger.importers.sources.opencode.turns import NAME, label_of
from agents_ledger.importers.transcript.turn_tree import (
    NONE,
    as_dict,
    as_list,
    as_number,
    as_text,
    made,
    parents_first,
    project_name,
)
from agents_ledger.model.imports.records import digest
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    Fault,
    SourceFile,
    SourceKind,
)
from agents_ledger.model.sessions import TaskStatus

NO_TITLE = re.compile(r"(?:New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z(?: \(fork #\d+\))?")
# Not account, control_account, credential and session_share: they hold secrets.
TABLES = (
    Table("project", ("id",)),
    Table("session", ("id",)),
    Table("message", ("id",)),
    Table("part", ("id",)),
    Table("todo", ()),
    Table("session_v2", ("id",)),
    Table("session_message", ("id",)),
    Table("session_inbox", ("id",)),
    Table("session_pending", ("id",)),
    Table("session_input", ()),
    Table("session_context_epoch", ()),
    Table("instruction_entry", ("session_id", "key")),
    Table("instruction_state", ("session_id",)),
)
SESSIONS = ("session", "session_v2")
DERIVED = (*SESSIONS, "message", "part", "session_message")
FOLDERS = {"info", "message", "part", "project", "session", "session_diff", "todo"}
KINDS = FOLDERS - {"info", "project"}  # below a folder of files, the first one is one of these
DEEPEST = 4  # folders between that and a file
STATUSES: dict[str, TaskStatus] = {
    "completed": "completed",
    "error": "failed",
    "pending": "pending",
    "running": "running",
    "success": "completed",
}
KEPT_OF_SESSION = (
    "agent",
    "cost",
    "fork",
    "model",
    "projectID",
    "revert",
    "slug",
    "summary",
    "version",
)
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
OWN = re.compile(r"(?:msg|prt)_(?!redacted|x+$)", re.IGNORECASE)
EXPORT = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')
READABLE = re.compile(r"ses_(?!redacted|x+$)\w+", re.IGNORECASE)
SCHEMA = re.compile(
    rb'CREATE TABLE (?:["`]?part["`]?\s*\(.*?message_id|["`]?session_(?:v2|message)["`]?\s*\()',
    re.DOTALL,
)


class OpenCode(Source):
    """Reader of opencode's sessions, all four generations."""

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
        """A database by its name or its tables, another file by its keys."""
        if head.startswith(MAGIC):
            return self.wants(path) or bool(SCHEMA.search(head))
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
        above = max(0, len(parts) - DEEPEST - 1)
        known = [at for at in range(above, len(parts) - 1) if parts[at] in KINDS]
        if path.suffix == ".json" and known:  # it was renamed
            return f"{self.name}:{PurePath(*parts[: known[0]])}"
        return f"{self.name}:{path.parent}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As the session or the project says that a file is of."""
        return projects(path, look)

    def row_filter(
        self, _: Path, own: Select, __: Look, is_left: Callable[[Project], bool]
    ) -> Sieve:
        """All but the sessions of projects that are left out."""
        return sieve(own, is_left)

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return _Outline(material).derivation()


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
    status: Any = None
    content: Raw = field(default_factory=lambda: Raw(b"null"))


_INFO = msgspec.json.Decoder(_Info)


class _Outline:
    def __init__(self, material: Material) -> None:
        self.material = material
        loader = Loader(material)
        self.sessions: dict[str, Session] = {}
        self.messages = Messages(loader)
        self.parts = Parts(loader)
        self.superseded: set[int] = set()
        self.seconds = _in_second_format(material)
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
        if row.table not in DERIVED or name is None:
            self.material.count(row.table, "unmapped")
            return
        if not row.latest:
            if row.table in SESSIONS:
                self._revert(name, loose(values.get("revert")), values.get("time_updated"))
            self.material.count(f"{row.table} (earlier)", "unmapped")
            return
        if row.table in SESSIONS:
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
        updated = milliseconds(values.get("time_updated"))
        is_known = True
        if row.table == "message":
            self._message(info, said, values.get("time_created"), updated)
        elif row.table == "part":
            self._part(info, said)
        else:
            info.type = values.get("type")
            is_known = self._second(info, said, values, updated)
        self.material.count(row.table, "derived" if is_known else "unmapped")

    def _session_row(self, name: str, values: dict[str, Any], row: Row, file: SourceFile) -> None:
        said = {key: value for key, value in values.items() if value is not None}
        for key in ("model", "metadata", "revert", "summary_diffs"):
            said[key] = loose(said.get(key))
        said |= {
            "parentID": values.get("parent_id"),
            "projectID": values.get("project_id"),
            "fork": {
                "sessionID": values.get("fork_session_id"),
                "boundary": loose(values.get("fork_boundary")),
            },
            "time": {"created": values.get("time_created"), "updated": values.get("time_updated")},
        }
        generation = 1 + SESSIONS.index(row.table)
        self._session(name, said, (generation, row.length, row.print), file)
        self._session_of(name).is_second |= generation > 1
        self.material.count(row.table, "derived")

    def _document(self, file: SourceFile, newest: bool) -> None:
        data = self.material.text_document(file)
        if has_text_exceeding(data, self.material.limits.text_bytes):
            self.material.faults.append(Fault(file.path, LONG))
            self.material.count("(overlong)", "malformed")
            return
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
        session, messages = as_dict(info.info), as_list(info.messages)
        name = _name_of(session, as_dict(messages[0]) if messages else {}, said.file)
        above = as_text(session.get("parentID"))
        session = {**session, "parentID": above if above and READABLE.fullmatch(above) else None}
        self._session(name, session, (0, said.length, said.print), said.file)
        for at, each in enumerate(map(as_dict, messages)):
            value = each.get("info", each)  # in the second format there are no parts beside it
            message = self._inside(value, said, inside(at), f"{name}:{at}", session=name)
            before = message or ""
            for number, part in enumerate(as_list(each.get("parts"))):
                at_part, place = inside(at, number), f"{before}:{number:06}"
                found = self._inside(part, said, at_part, place, session=name, message=message)
                before = before if found in (None, place) else str(found)

    def _inside(
        self,
        value: Any,
        said: Said,
        at: int,
        place: str,
        *,
        session: str,
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
        info.session = info.session if READABLE.fullmatch(str(info.session)) else session
        inner = Said(said.file, at, len(data), digest(data))
        if message is not None or as_text(info.role):
            self._of_kind(self._kind(info), info, inner, data)
        elif self._second(info, inner, {"seq": at}, 0):
            self._session_of(session).is_second = True
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

    def _session_of(self, name: str) -> Session:
        if name not in self.sessions:
            self.sessions[name] = Session(name)
        return self.sessions[name]

    def _revert(self, name: str, revert: Any, updated: Any) -> None:
        """Messages from this one on were taken back; what came later stands before them."""
        first = as_text(as_dict(revert).get("messageID"))
        if first:
            reverts = self._session_of(name).reverts
            reverts[first] = max(reverts.get(first, 0), milliseconds(updated))

    def _message(self, info: _Info, said: Said, created: Any, updated: int = 0) -> None:
        session_id = as_text(info.session)
        if session_id is None:
            return
        times = as_dict(info.time)
        is_summary = bytes(info.summary) == b"true"
        self.messages.add(
            str(info.id),
            said,
            session=session_id,
            created=milliseconds(times.get("created")) or milliseconds(created),
            kind=(ASKS if info.role == "user" else ANSWERS) | SUMMARY * is_summary,
            rank=rank_of(updated, is_first=True),
        )

    def _second(self, info: _Info, said: Said, values: dict[str, Any], updated: int) -> bool:
        """A message of the second format; whether it is part of a conversation."""
        session_id, type_ = as_text(info.session), as_text(info.type)
        if session_id is None or type_ not in TYPES:
            return False
        is_summary = type_ == "compaction"
        if is_summary and info.status not in (None, "completed"):
            return False
        is_weak = is_summary or (said.file.kind == "rows" and session_id not in self.seconds)
        created = milliseconds(as_dict(info.time).get("created"))
        seq = as_number(values.get("seq"))
        self.messages.add(
            str(info.id),
            said,
            session=session_id,
            created=created or milliseconds(values.get("time_created")),
            kind=kind_of(type_),
            rank=WEAKEST if is_weak else rank_of(updated, is_first=False),
            seq=NONE if seq is None else seq,
            tasks=tasks_of(bytes(info.content)) if type_ == "assistant" else None,
        )
        return True

    def _part(self, info: _Info, said: Said) -> None:
        part_id, message_id = as_text(info.id), as_text(info.message)
        if part_id is None or message_id is None:
            return
        starts = str(info.tool) in SUBAGENTS
        task = task_of(as_dict(loose(bytes(info.state)))) if starts else None
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
        self._link(sessions)
        for session in self.sessions.values():
            session.messages = array("I", messages.in_order(self._told_once(session)))
            parent = as_text(session.said.get("parentID"))
            session.parent = parent if parent and parent != session.id else session.parent

    def _link(self, sessions: Sequence[Session]) -> None:
        """Calls and the sessions that they started."""
        messages, parts = self.messages, self.parts
        started = [(parts.message(part), task) for part, task in sorted(parts.tasks.items())]
        for message, tasks in sorted(messages.tasks.items()):
            started += [(message, task) for task in tasks]
        for message, task in started:
            if message in messages:
                self._started(task, sessions[messages.session(message)].id)

    def _started(self, task: Task, caller: str) -> None:
        if task.session != caller:
            child = self._session_of(task.session)
            child.task, child.parent = task, caller

    def _told_once(self, session: Session) -> array[int]:
        found = session.messages
        kept = self.messages.without_repeated(found, is_second=session.is_second)
        if not session.is_second:  # they make no rows
            self.material.count("session_message", "derived", len(kept) - len(found))
            self.material.count("session_message", "unmapped", len(found) - len(kept))
        return kept

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        known = [self.sessions[name] for name in sorted(self.sessions)]
        forks = {each.id: each.forked_from for each in known if each.messages}
        turns = Turns(self.messages, self.parts, frozenset(forks.values()))
        sessions = []
        for name in parents_first(forks):
            session = self.sessions[name]
            sessions.append(self._derived(session, turns.add(session)))
        return Derivation(
            turns=made(range(len(turns)), turns.made),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
            superseded=frozenset(self.superseded),
        )

    def _derived(self, session: Session, head: str | None) -> DerivedSession:
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


def _in_second_format(material: Material) -> set[str | None]:
    """The sessions that are written in the second format, known before any message is read."""
    databases = [file for file in material.files if file.kind == "rows"]
    rows = chain.from_iterable(map(material.peek, databases))
    return {as_text(row.key) for row in rows if row.table == SESSIONS[1]}


def _name_of(session: dict[str, Any], first: dict[str, Any], file: SourceFile) -> str:
    """What an exported session is called. If its id was made unreadable, it is told by when and how
    it begins, and without times also by the name of its file."""
    info = as_dict(first.get("info"))
    for said in (session.get("id"), info.get("sessionID")):
        if isinstance(said, str) and READABLE.fullmatch(said):
            return said
    times = [as_dict(each.get("time")).get("created") for each in (session, info or first)]
    texts = [part.get("text") for part in dicts(first.get("parts"))] or [first.get("text")]
    name = None if any(map(milliseconds, times)) else PurePath(file.path).stem
    return f"export-{digest(encoded([times, texts, name])).hex()}"
