"""AIX: how the rows of its databases become messages, turns and sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.parsing.json_values import EMPTY, exchanges, loose, pruned
from agents_ledger.importers.parsing.lenient_json import as_number, as_text
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceRow, fingerprint
from agents_ledger.importers.sources.aix.rules import (
    DETAIL_TABLES,
    NAME,
    ROLES,
    SESSION_METADATA,
    STORE,
    TASK_STATUSES,
    VERSION,
)
from agents_ledger.importers.sources.aix.turns import AixMessage, AixTurnContext, build_turn, own_id
from agents_ledger.model.imports.sources import Derivation, DerivedSession, DerivedTurn


class AixSession(Struct):
    id: str
    row: dict[str, Any] = field(default_factory=dict)
    messages: list[AixMessage] = field(default_factory=list)
    file_ids: set[int] = field(default_factory=set)
    models: dict[str, str] = field(default_factory=dict)  # by the last message of a turn

    @property
    def parent_id(self) -> str | None:
        parent = as_text(self.row.get("parent_session_id"))
        return parent if parent != self.id else None

    @property
    def is_subagent(self) -> bool:
        return bool(self.row.get("is_subagent")) or self.parent_id is not None


class AixTree:
    """The sessions and messages of a family of databases."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.sessions: dict[str, AixSession] = {}
        self.messages: dict[str, AixMessage] = {}
        self.message_rows: list[SourceRow] = []  # calls and details, maybe before their message
        self.children: dict[str, str] = {}  # call -> the session it started
        for file in material.files:
            for row in material.rows(file):
                if row.latest:
                    self._read(row)
                else:
                    material.count(f"{row.table} (earlier)", "unmapped")
        self._attach_message_rows()
        for message in self.messages.values():
            self.sessions[message.session_id].messages.append(message)
        for session in self.sessions.values():
            session.messages.sort(key=lambda message: (message.sequence, message.id))

    def _read(self, row: SourceRow) -> None:
        values = row.values or {}
        if row.table in DETAIL_TABLES or row.table == "tool_calls":
            self.message_rows.append(self.material.held_row(row))
            child = as_text(values.get("child_session_id"))
            if child:
                self.children[str(values.get("id"))] = child
            return
        if row.table == "sessions":
            session = self._session(values.get("id"))
            session.row = {**values, "raw_json": None, "conversation_state": None}
            session.file_ids.add(row.file_id)
            call = as_text(values.get("tool_call_id"))
            if call:
                self.children.setdefault(call, session.id)
        elif row.table == "messages":
            self._read_message(values, row)
        elif row.table == "turns":
            models = self._session(values.get("session_id")).models
            models[str(values.get("response_message_id"))] = as_text(values.get("model")) or ""
        else:
            self.material.count(row.table, "unmapped")
            return
        self.material.count(row.table, "derived")

    def _session(self, session_id: Any) -> AixSession:
        return self.sessions.setdefault(str(session_id), AixSession(str(session_id)))

    def _read_message(self, values: dict[str, Any], row: SourceRow) -> None:
        """Add a message. Databases may be copies of each other: the last one read wins."""
        session = self._session(values.get("session_id"))
        session.file_ids.add(row.file_id)
        message = AixMessage(
            str(values.get("id")),
            ROLES.get(str(values.get("role")), "system"),
            as_number(values.get("sequence")) or 0,
            self.material.held_row(row),
            session.id,
            {row.file_id},
        )
        if message.id in self.messages:
            message.file_ids |= self.messages[message.id].file_ids
        self.messages[message.id] = message

    def _attach_message_rows(self) -> None:
        for row in self.message_rows:
            values = self.material.values_of(row)
            message = self.messages.get(str(values.get("message_id")))
            self.material.count(row.table, "unmapped" if message is None else "derived")
            if message is None:
                continue
            if row.table == "tool_calls":
                message.calls[str(values.get("id"))] = row
            else:
                message.details[row.table, row.digest] = row

    # -- the derivation -----------------------------------------------------------------------

    def derivation(self) -> Derivation:
        turns: list[DerivedTurn] = []
        sessions: list[DerivedSession] = []
        for _, session in sorted(self.sessions.items()):
            head: str | None = None
            for turn, is_answered in self._turns(session):
                turns.append(turn)
                head = turn.id if is_answered else head
            if session.messages or session.parent_id:
                sessions.append(self._derived_session(session, head))
        return Derivation(
            turns=tuple(turns),
            sessions=tuple(sessions),
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _turns(self, session: AixSession) -> Iterator[tuple[DerivedTurn, bool]]:
        """The turns of a session, and whether each was answered: only then another follows it."""
        parent: str | None = None
        for group in exchanges(session.messages, lambda message: message.role != "assistant"):
            turn_id = own_id(group[0])
            context = AixTurnContext(
                session.models.get(group[-1].id) or as_text(session.row.get("model")),
                as_text(session.row.get("workspace_path")),
                "agent" if session.is_subagent else "human",
                self._spawned(group),
            )
            rows = (row for message in group for row in message.rows())
            turn = DerivedTurn(
                turn_id,
                parent,
                fingerprint(VERSION, [context.evidence(), *(row.digest for row in rows)]),
                frozenset().union(*(message.file_ids for message in group)),
                tuple(map(own_id, group)),
                partial(build_turn, self.material, turn_id, parent, group, context),
            )
            is_answered = any(message.role == "assistant" for message in group)
            yield turn, is_answered
            parent = turn_id if is_answered else parent

    def _spawned(self, group: Sequence[AixMessage]) -> dict[str, str]:
        calls = (call for message in group for call in sorted(message.calls))
        return {call: self._label(self.children[call]) for call in calls if call in self.children}

    def _agent(self, session_id: str) -> str:
        session = self.sessions.get(session_id)
        return (as_text(session.row.get("source")) if session else None) or "cursor"

    def _label(self, session_id: str) -> str:
        return f"{NAME}:{self._agent(session_id)}:{'_'.join(session_id.split())}"[:500]

    def _derived_session(self, session: AixSession, head: str | None) -> DerivedSession:
        row, parent, agent = session.row, session.parent_id, self._agent(session.id)
        times = [
            self.material.timestamp(
                self.material.values_of(message.row).get("timestamp"), message.row
            )
            for message in session.messages
        ]
        created_at = milliseconds(row.get("created_at"))
        metadata = {name: row.get(name) for name in SESSION_METADATA}
        if row.get("is_agentic") is not None:
            metadata["is_agentic"] = bool(row["is_agentic"])
        metadata["context"] = pruned(loose(row.get("context_json")))
        return DerivedSession(
            session_id=session.id,
            label=self._label(session.id),
            source=STORE,
            origin=agent,
            provider=agent,
            head=head,
            file_ids=frozenset(session.file_ids),
            title=as_text(row.get("summary")),
            created_at=created_at or min(times, default=0),
            updated_at=max([created_at, *times]),
            is_subagent=session.is_subagent,
            parent_label=self._label(parent) if parent else None,
            task_description=as_text(row.get("task_description")),
            task_status=TASK_STATUSES.get(str(row.get("task_status"))),
            routing_key=as_text(row.get("workspace_path")) or as_text(row.get("project")),
            metadata={name: value for name, value in metadata.items() if value not in EMPTY},
        )
