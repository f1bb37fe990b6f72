"""Import requests: how archived items become sessions, and which session started which."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.import_requests.merge import MergedSession
from agents_ledger.importers.sources.import_requests.records import (
    ImportKey,
    InvalidItem,
    read_archived,
    whole,
)
from agents_ledger.importers.sources.import_requests.rules import TASK_STATUSES, UNMAPPED
from agents_ledger.importers.sources.import_requests.turns import RequestTurns
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
    SourceFile,
)


class RequestSession(Struct):
    key: ImportKey
    label: str
    persona_id: str
    merged: MergedSession = field(default_factory=MergedSession)
    file_ids: set[int] = field(default_factory=set)


class RequestTree:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.sessions: dict[ImportKey, RequestSession] = {}
        for file in material.files:
            data = material.document(file)
            if data:  # empty: the import was interrupted before it archived the item
                self._read(file, data)
        self.children = self._children()

    def _read(self, file: SourceFile, data: bytes) -> None:
        try:
            archived, item = read_archived(data)
            key = ImportKey(archived.source, item.source_provider, item.source_session_id)
            session = self.sessions.get(key)
            session = session or RequestSession(key, archived.label, archived.persona_id)
            session.merged.add(item)
        except (InvalidItem, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.material.faults.append(Fault(file.path, f"not an item: {error}"))
            self.material.count("item", "malformed")
            return
        self.sessions[key] = session
        session.file_ids.add(file.id)
        count = self.material.count
        count("item", "derived")
        count("turn", "derived", len(item.turns or ()))
        count("message", "derived", len(item.messages or ()))
        count("toolCall", "derived", len(item.tool_calls or ()))
        for field_name, name in UNMAPPED.items():
            elements = getattr(item, field_name)
            if isinstance(elements, list):
                count(name, "unmapped", len(elements))

    # -- subagents ----------------------------------------------------------------------------

    def _children(self) -> dict[tuple[ImportKey, str], ImportKey]:
        """By parent and call, the session that the call started. The child's own fields take
        precedence over those of calls; a child has one call."""
        children: dict[tuple[ImportKey, str], ImportKey] = {}
        for child in sorted(self.sessions):
            call = self._spawning_call(child)
            if call is not None:
                children.setdefault(call, child)
        linked = set(children.values())
        for parent in sorted(self.sessions):
            for call_id, call_in in self.sessions[parent].merged.calls.items():
                if not call_in.spawned_source_session_id:
                    continue
                child = parent._replace(session_id=call_in.spawned_source_session_id)
                is_new = child != parent and child not in linked
                if is_new and (parent, call_id) not in children:
                    children[parent, call_id] = child
                    linked.add(child)
        return children

    def _spawning_call(self, child: ImportKey) -> tuple[ImportKey, str] | None:
        """The call that a child names as its own; or the only one of the message it names."""
        parent, session = self._parent(child), self.sessions[child].merged.session
        if parent is None or parent not in self.sessions:
            return None
        calls = self.sessions[parent].merged.calls
        if session.spawn_tool_call_id in calls:
            return parent, str(session.spawn_tool_call_id)
        by_message = [
            call_id
            for call_id, call in calls.items()
            if session.parent_source_message_id
            and call.source_message_id == session.parent_source_message_id
            and call.spawned_source_session_id in (None, "", child.session_id)
        ]
        naming_child = [call for call in by_message if calls[call].spawned_source_session_id]
        candidates = naming_child or by_message
        return (parent, candidates[0]) if len(candidates) == 1 else None

    def _parent(self, child: ImportKey) -> ImportKey | None:
        parent = self.sessions[child].merged.session.parent_source_session_id
        return child._replace(session_id=parent) if parent and parent != child.session_id else None

    def _parent_turn(self, child: ImportKey) -> str | None:
        parent, session = self._parent(child), self.sessions[child].merged.session
        if parent is None or parent not in self.sessions:
            return None
        turns = self.sessions[parent].merged.turn_of_message
        turn = turns.get(session.parent_source_message_id or "")
        return parent.id_of("turn", turn) if turn else None

    def _label(self, key: ImportKey) -> str:
        return self.sessions[key].label if key in self.sessions else key.label()

    # -- the derivation -----------------------------------------------------------------------

    def derivation(self) -> Derivation:
        turns: list[DerivedTurn] = []
        sessions: list[DerivedSession] = []
        for key, session in self.sessions.items():
            spawned = {
                call: self._label(child)
                for (parent, call), child in self.children.items()
                if parent == key
            }
            own = RequestTurns(key, session.merged, frozenset(session.file_ids), spawned)
            turns += own.turns()
            sessions.append(self._derived_session(session, own.head()))
        return Derivation(
            turns=tuple(turns),
            sessions=tuple(sessions),
            with_kin=True,
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _derived_session(self, session: RequestSession, head: str | None) -> DerivedSession:
        key, fields = session.key, session.merged.session
        spawners = (parent for (parent, _), child in self.children.items() if child == key)
        parent = next(spawners, None) or self._parent(key)
        metadata = fields.metadata if isinstance(fields.metadata, dict) else {}
        if fields.metadata and not metadata:
            metadata = {"_raw": fields.metadata}
        title = metadata.get("title")
        columns = {
            name: value
            for name in ("model", "provider", "project", "workspace_path")
            if (value := getattr(fields, name))
        }
        if fields.task_status and fields.task_status not in TASK_STATUSES:
            columns["task_status"] = fields.task_status
        is_adopted = session.label != key.label()
        return DerivedSession(
            session_id=key.session_id,
            label=session.label,
            source=key.source,
            origin=key.provider,
            fingerprint=session.merged.fingerprint,
            adopted=is_adopted,
            aliases=(key.label(),) if is_adopted else (),
            head=head,
            file_ids=frozenset(session.file_ids),
            provider=key.provider,
            title=title if isinstance(title, str) else fields.label_hint,
            persona_id=session.persona_id,
            created_at=whole(fields.created_at_ms),
            updated_at=whole(fields.updated_at_ms),
            is_subagent=bool(fields.is_subagent) or parent is not None,
            parent_label=self._label(parent) if parent else None,
            parent_turn_id=self._parent_turn(key),
            task_description=fields.task_description,
            task_status=TASK_STATUSES.get(fields.task_status or ""),
            routing_key=fields.workspace_path or fields.project,
            metadata={**metadata, **columns},
        )
