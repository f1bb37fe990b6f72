"""AIX: a database that gathers the sessions of other agents, Cursor's above all.

Its message ids are those of the agents it read, which may be imported on their own: here they stand
behind `aix:`. docs/sources/aix.md tells where each rule was learned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.json_values import (
    exchanges,
    json_or_text,
    loose,
    path_of,
    pruned,
)
from agents_ledger.importers.parsing.lenient_json import as_dict, as_number, as_text
from agents_ledger.importers.parsing.row_filter import BySession, told
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.source import (
    Home,
    Look,
    Material,
    Project,
    Row,
    Select,
    Source,
    Table,
    fingerprint,
)
from agents_ledger.importers.sources.cursor.records import metadata_of, thinking_of
from agents_ledger.importers.sources.cursor.rules import STATUSES
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, json_text
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceKind,
)
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import (
    OPEN_CALL,
    FileKind,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageRole,
    MessageSource,
    Turn,
)

NAME = "aix"
# Apart from what is imported by requests, which name aix too.
STORE = "aix.db"
VERSION = 3
DETAILS = ("message_metadata", "message_lints", "message_files", "message_codeblocks")
TABLES = (
    Table("sessions", ("id",)),
    Table("messages", ("id",)),
    Table("tool_calls", ("id", "session_id")),
    Table("turns", ("id",)),
    Table("files_referenced", ("session_id", "file_path")),
    Table("message_metadata", ("message_id",)),
    Table("message_capabilities", ("message_id", "phase", "capability")),
    Table("message_lints", ("message_id", "file_path", "message", "start_line", "start_col")),
    Table("message_files", ("message_id", "kind", "file_path", "line_number")),
    Table("message_codeblocks", ("message_id", "idx")),
)
OF = {table.name: "message_id" for table in TABLES if table.key[0] == "message_id"} | {
    "sessions": "id",
    **dict.fromkeys(("messages", "tool_calls", "turns", "files_referenced"), "session_id"),
}
ROLES: dict[str, MessageRole] = {"assistant": "assistant", "tool": "tool", "user": "user"}
FILE_KINDS: dict[str, FileKind] = {"context_file_selection": "attached"}
TASK_STATUSES: dict[str, TaskStatus] = {
    "cancelled": "cancelled",
    "completed": "completed",
    "error": "failed",
    "failed": "failed",
    "pending": "pending",
    "running": "running",
}
SAID = (
    "context_token_limit",
    "context_tokens_used",
    "force_mode",
    "model",
    "project",
    "summary",
    "workspace_path",
)


class _Call(NamedTuple):
    id: str
    row: Row


class _Message(Struct):
    id: str
    role: MessageRole
    sequence: int
    row: Row
    session: str
    file_ids: set[int]  # the databases that have it
    details: list[Row] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)

    def rows(self) -> list[Row]:
        return [self.row, *self.details, *(call.row for call in self.calls)]


class _Session(Struct):
    id: str
    said: dict[str, Any] = field(default_factory=dict)
    messages: list[_Message] = field(default_factory=list)
    file_ids: set[int] = field(default_factory=set)
    models: dict[str, str] = field(default_factory=dict)  # of turns, by their last message


class Aix(Source):
    """Reader of AIX databases."""

    name = NAME
    version = VERSION
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        """Where AIX keeps its database."""
        folder = home.config("aix") if home.platform == "darwin" else home.data("aix")
        return [folder / "aix.db"]

    def wants(self, path: Path) -> bool:
        """The database."""
        return path.name == "aix.db"

    def kind_of(self, _: Path, head: bytes) -> SourceKind:
        """Always a database."""
        return "rows"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Its name, or tables that only it has."""
        if not head.startswith(MAGIC):
            return False
        return path.name == "aix.db" or (b"message_metadata" in head and b"sync_state" in head)

    def family(self, path: Path) -> str:
        """A database stands alone."""
        return f"{self.name}:{path}"

    def projects(self, _: Path, __: Look) -> Collection[Project] | None:
        """Its rows tell."""
        return ()

    def row_filter(
        self, _: Path, own: Select, __: Look, is_left: Callable[[Project], bool]
    ) -> BySession:
        """All but the sessions of projects that are left out, and what hangs on their messages."""
        sessions, messages = TABLES[:2]
        names = [str(name) for (name,) in own(sessions, ("id",))]
        folders = {str(name): str(at) for name, at in own(sessions, ("id", "workspace_path")) if at}
        parents = {str(n): str(at) for n, at in own(sessions, ("id", "parent_session_id")) if at}
        left, known = told(folders, parents, names, is_left)
        by_message = [(str(n), str(session)) for n, session in own(messages, ("id", "session_id"))]
        return BySession(
            left | {name for name, session in by_message if session in left},
            known | {name for name, _ in by_message},
            OF,
        )

    def derive(self, material: Material) -> Derivation:
        """What the rows say."""
        return _Outline(material).derivation()


class _Outline:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.sessions: dict[str, _Session] = {}
        self.messages: dict[str, _Message] = {}
        self.late: list[Row] = []  # of messages that may come later
        self.children: dict[str, str] = {}  # call -> the session it started
        for file in material.files:
            for row in material.rows(file):
                if row.latest:
                    self._row(row)
                else:
                    material.count(f"{row.table} (earlier)", "unmapped")
        self._attach()

    def _row(self, row: Row) -> None:
        values = row.values or {}
        mapped = True
        if row.table == "sessions":
            session = self._session(values.get("id"))
            session.said = {**values, "raw_json": None, "conversation_state": None}
            session.file_ids.add(row.file_id)
            spawner = as_text(values.get("tool_call_id"))
            if spawner:
                self.children.setdefault(spawner, session.id)
        elif row.table == "messages":
            self._message(values, row)
        elif row.table == "turns":
            models = self._session(values.get("session_id")).models
            models[str(values.get("response_message_id"))] = as_text(values.get("model")) or ""
        elif row.table in DETAILS or row.table == "tool_calls":
            self.late.append(self.material.held_row(row))
            child = as_text(values.get("child_session_id"))
            if child:
                self.children[str(values.get("id"))] = child
            return
        else:
            mapped = False
        self.material.count(row.table, "derived" if mapped else "unmapped")

    def _session(self, name: Any) -> _Session:
        return self.sessions.setdefault(str(name), _Session(str(name)))

    def _message(self, values: dict[str, Any], row: Row) -> None:
        """A message as a further database says it, which wins: one may be a copy of another."""
        session = self._session(values.get("session_id"))
        session.file_ids.add(row.file_id)
        message = _Message(
            str(values.get("id")),
            ROLES.get(str(values.get("role")), "system"),
            as_number(values.get("sequence")) or 0,
            self.material.held_row(row),
            session.id,
            {row.file_id},
        )
        if (known := self.messages.get(message.id)) is not None:
            message.file_ids |= known.file_ids
        self.messages[message.id] = message

    def _attach(self) -> None:
        for row in self.late:
            values = self.material.values_of(row)
            message = self.messages.get(str(values.get("message_id")))
            self.material.count(row.table, "unmapped" if message is None else "derived")
            if message is None:
                continue
            if row.table == "tool_calls":
                message.calls.append(_Call(str(values.get("id")), row))
            else:
                message.details.append(row)
        for message in self.messages.values():
            self.sessions[message.session].messages.append(message)
            calls = {call.id: call for call in message.calls}
            details = {(row.table, row.print): row for row in message.details}
            message.calls = [calls[name] for name in sorted(calls)]
            message.details = [details[name] for name in sorted(details)]
        for session in self.sessions.values():
            session.messages.sort(key=lambda message: (message.sequence, message.id))

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        """Turns, parents first, and sessions."""
        turns: list[DerivedTurn] = []
        sessions = []
        for name in sorted(self.sessions):
            session = self.sessions[name]
            head = self._turns(session, turns)
            if session.messages or self._parent(session):
                sessions.append(self._derived(session, head))
        return Derivation(
            turns=tuple(turns),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _turns(self, session: _Session, turns: list[DerivedTurn]) -> str | None:
        head: str | None = None
        asked_by: MessageSource = "agent" if self._is_subagent(session) else "human"
        workspace = as_text(session.said.get("workspace_path"))
        for group in exchanges(session.messages, lambda message: message.role != "assistant"):
            turn_id = f"{NAME}:{group[0].id}"
            model = session.models.get(group[-1].id) or as_text(session.said.get("model"))
            rows = [row for message in group for row in message.rows()]
            spawned = self._spawned(group)
            told = f"{model};{workspace};{asked_by};{sorted(spawned.items())};"
            said = told.encode(errors="replace")
            turns.append(
                DerivedTurn(
                    turn_id,
                    head,
                    fingerprint(VERSION, [said, *(row.print for row in rows)]),
                    frozenset().union(*(message.file_ids for message in group)),
                    tuple(f"{NAME}:{message.id}" for message in group),
                    partial(
                        _build_turn,
                        self.material,
                        turn_id,
                        head,
                        group,
                        model=model,
                        workspace=workspace,
                        spawned=spawned,
                        asked_by=asked_by,
                    ),
                )
            )
            if any(message.role == "assistant" for message in group):
                head = turn_id
        return head

    def _spawned(self, group: Sequence[_Message]) -> dict[str, str]:
        """The sessions that calls of these messages started."""
        calls = (call.id for message in group for call in message.calls)
        return {call: self._label(self.children[call]) for call in calls if call in self.children}

    def _is_subagent(self, session: _Session) -> bool:
        return bool(session.said.get("is_subagent")) or self._parent(session) is not None

    def _origin(self, session_id: str) -> str:
        session = self.sessions.get(session_id)
        return as_text(session.said.get("source")) or "cursor" if session else "cursor"

    def _label(self, session_id: str) -> str:
        plain = "_".join(session_id.split())
        return f"{NAME}:{self._origin(session_id)}:{plain}"[:500]

    def _parent(self, session: _Session) -> str | None:
        parent = as_text(session.said.get("parent_session_id"))
        return parent if parent != session.id else None

    def _derived(self, session: _Session, head: str | None) -> DerivedSession:
        said, parent = session.said, self._parent(session)
        times = [
            self.material.moment(self.material.values_of(message.row).get("timestamp"), message.row)
            for message in session.messages
        ]
        metadata = {name: said.get(name) for name in SAID}
        if said.get("is_agentic") is not None:
            metadata["is_agentic"] = bool(said["is_agentic"])
        metadata["context"] = pruned(loose(said.get("context_json")))
        return DerivedSession(
            session_id=session.id,
            label=self._label(session.id),
            source=STORE,
            origin=f"{NAME}:{self._origin(session.id)}",
            provider=self._origin(session.id),
            head=head,
            file_ids=frozenset(session.file_ids),
            title=as_text(said.get("summary")),
            created_at=milliseconds(said.get("created_at")) or min(times, default=0),
            updated_at=max([milliseconds(said.get("created_at")), *times]),
            is_subagent=self._is_subagent(session),
            parent_label=self._label(parent) if parent else None,
            task_description=as_text(said.get("task_description")),
            task_status=TASK_STATUSES.get(str(said.get("task_status"))),
            routing_key=as_text(said.get("workspace_path")) or as_text(said.get("project")),
            metadata={k: v for k, v in metadata.items() if v not in (None, "", [], {})},
        )


# -- the content of a turn --------------------------------------------------------------------


def _build_turn(
    material: Material,
    turn_id: str,
    parent_id: str | None,
    group: Sequence[_Message],
    *,
    model: str | None,
    workspace: str | None,
    spawned: dict[str, str],
    asked_by: MessageSource,
) -> Turn:
    builder = TurnBuilder(turn_id, parent_id, material.limits)
    builder.model, builder.workspace_path = model, workspace
    for message in group:
        values = material.values_of(message.row)
        details: dict[str, list[dict[str, Any]]] = {name: [] for name in DETAILS}
        for row in message.details:
            details[row.table].append(material.values_of(row))
        bubbles = [as_dict(loose(each.get("metadata_json"))) for each in details[DETAILS[0]]]
        bubble = bubbles[0] if bubbles else {}
        content = values.get("content")
        at = milliseconds(values.get("timestamp"))
        builder.message(
            f"{NAME}:{message.id}",
            message.role,
            content if isinstance(content, str) else None,
            at=at,
            source=asked_by if message.role == "user" else None,
            thinking=thinking_of(bubble),
            metadata=_metadata(values, bubble),
            context=pruned(loose(values.get("context_json")) or bubble.get("context")),
            files=tuple(dict.fromkeys(_files(details["message_files"]))),
            lints=tuple(_lints(details["message_lints"])),
            codeblocks=tuple(_codeblocks(details["message_codeblocks"])),
        )
        for _, row in message.calls:
            _call(builder, material.values_of(row), f"{NAME}:{message.id}", at, spawned)
    return builder.build()


def _metadata(values: dict[str, Any], bubble: dict[str, Any]) -> dict[str, Any]:
    """The raw message, and what AIX made columns of, under the names Cursor gives them."""
    said = {**metadata_of(bubble), "source_message_id": values.get("id")}
    columns = {
        "checkpointId": as_text(values.get("checkpoint_id")),
        "cursorRules": pruned(loose(values.get("cursor_rules_json"))),
        "isAgentic": _flag(values.get("is_agentic")),
        "isPlanExecution": _flag(values.get("is_plan_execution")),
    }
    return said | {
        k: v for k, v in columns.items() if v not in (None, "", [], {}) and k not in said
    }


def _flag(value: Any) -> bool | None:
    return bool(value) if isinstance(value, int) else None


def _call(
    builder: TurnBuilder, values: dict[str, Any], message_id: str, at: int, spawned: dict[str, str]
) -> None:
    call_id = str(values.get("id"))
    params = values.get("params_json")
    builder.call(
        call_id,
        as_text(values.get("tool_name")) or "unknown",
        json_text(json_or_text(params)) if isinstance(params, str) and params else {},
        at=milliseconds(values.get("started_at")) or at,
        message_id=message_id,
        tool_number=as_number(values.get("tool_number")),
    )
    word = as_text(values.get("status"))
    status = STATUSES.get(word or "", "completed" if values.get("result_json") else "running")
    done = milliseconds(values.get("completed_at"))
    builder.result(
        call_id,
        json_or_text(values.get("result_json") or None),
        at=0 if status in OPEN_CALL else done or at,
        status=status,
        error="failed" if status == "failed" else None,
        source_status=word,
        spawned=spawned.get(call_id),
    )


def _files(rows: list[dict[str, Any]]) -> Iterator[MessageFile]:
    for values in rows:
        path = path_of(values.get("file_path"))
        if path:
            kind = FILE_KINDS.get(str(values.get("kind")), "referenced")
            yield MessageFile(kind, path, as_number(values.get("line_number")))


def _lints(rows: list[dict[str, Any]]) -> Iterator[MessageLint]:
    for values in rows:
        yield MessageLint(
            as_text(values.get("file_path")),
            as_text(values.get("message")),
            as_text(values.get("source")),
            as_number(values.get("start_line")),
            as_number(values.get("start_col")),
            as_number(values.get("end_line")),
            as_number(values.get("end_col")),
        )


def _codeblocks(rows: list[dict[str, Any]]) -> Iterator[MessageCodeblock]:
    for values in sorted(rows, key=lambda each: as_number(each.get("idx")) or 0):
        block = as_dict(loose(values.get("raw_json")))
        content = block.get("content")
        yield MessageCodeblock(
            content if isinstance(content, str) else "",
            as_text(block.get("languageId")),
            path_of(block.get("uri")),
        )
