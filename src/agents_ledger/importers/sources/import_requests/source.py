"""Import requests as a source: each kept item is a document, each session one path."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct, field, structs

from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material, fingerprint
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.import_requests.records import (
    ROLES,
    ROOT,
    CallIn,
    Invalid,
    Item,
    Key,
    Merged,
    MessageIn,
    TurnIn,
    decoded,
    encoded,
    normal,
    read_item,
    whole,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, json_or_none
from agents_ledger.importers.transcript.turn_tree import answered_above, parents_first
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fault,
    SourceFile,
    SourceKind,
)
from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import CallStatus, Turn, Usage, to_json

NAME = "request"
STATUSES: dict[str, CallStatus] = {
    "pending": "pending",
    "running": "running",
    "in_progress": "running",
    "completed": "completed",
    "success": "completed",
    "done": "completed",
    "failed": "failed",
    "error": "failed",
    "cancelled": "cancelled",
    "canceled": "cancelled",
    "aborted": "cancelled",
    "rejected": "rejected",
    "denied": "rejected",
}
TASKS: dict[str, TaskStatus] = {
    "pending": "pending",
    "running": "running",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}


class Kept(Struct, rename="camel"):
    """What is kept of an item: the item, and what was decided when it came."""

    source: str
    persona_id: str
    label: str
    item: Any


msgspec.json.Decoder(Kept)  # learnt before threads use it


class _Session(Struct):
    key: Key
    label: str
    persona_id: str
    merged: Merged = field(default_factory=Merged)
    file_ids: set[int] = field(default_factory=set)


class Requests(Source):
    """Reader of the items that import requests brought."""

    name = NAME
    version = 1
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """Requests are not found, they come."""
        return ()

    def wants(self, path: Path) -> bool:
        """No file is one."""
        return False

    def recognises(self, path: Path, head: bytes) -> bool:
        """No file is one."""
        return False

    def family(self, path: Path) -> str:
        """One session."""
        return str(path)

    def projects(self, _: Path, __: FileProbe) -> Collection[Project] | None:
        """Whoever sends a request says what is in it."""
        return ()

    def derive(self, material: Material) -> Derivation:
        """What the items say."""
        return _Outline(material).derivation()


def read_kept(data: bytes) -> tuple[Kept, Item]:
    """A kept item again."""
    kept = msgspec.convert(decoded(data), Kept)
    return kept, read_item(normal(kept.item))


class _Outline:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.sessions: dict[Key, _Session] = {}
        for file in material.files:
            data = material.document(file)
            if data:  # empty: its keeper was interrupted
                self._read(file, data)
        self.spawned = self._links()

    def _read(self, file: SourceFile, data: bytes) -> None:
        try:
            kept, item = read_kept(data)
            key = Key(kept.source, item.source_provider, item.source_session_id)
            session = self.sessions.get(key) or _Session(key, kept.label, kept.persona_id)
            session.merged.add(item)
        except (Invalid, ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.material.faults.append(Fault(file.path, f"not an item: {error}"))
            self.material.count("item", "malformed")
            return
        self.sessions[key] = session
        session.file_ids.add(file.id)
        self.material.count("item", "derived")
        self.material.count("turn", "derived", len(item.turns or ()))
        self.material.count("message", "derived", len(item.messages or ()))
        self.material.count("toolCall", "derived", len(item.tool_calls or ()))
        for extra in ("systemContextProfiles", "artifacts"):
            others = normal(kept.item).get(extra)
            if isinstance(others, list):
                self.material.count(extra, "unmapped", len(others))

    # -- who spawned whom ---------------------------------------------------------------------

    def _label(self, key: Key) -> str:
        known = self.sessions.get(key)
        return known.label if known else key.label()

    def _links(self) -> dict[tuple[Key, str], Key]:
        """The child of every call that has one. What the child says counts first; a child has one
        call."""
        links: dict[tuple[Key, str], Key] = {}
        claimed: set[Key] = set()
        for child in sorted(self.sessions):
            call = self._spawning_call(child)
            if call is not None and call not in links:
                links[call] = child
                claimed.add(child)
        for parent in sorted(self.sessions):
            for call_id, said in self.sessions[parent].merged.calls.items():
                if not said.spawned_source_session_id:
                    continue
                child = parent._replace(session_id=said.spawned_source_session_id)
                if child != parent and child not in claimed and (parent, call_id) not in links:
                    links[parent, call_id] = child
                    claimed.add(child)
        return links

    def _spawning_call(self, child: Key) -> tuple[Key, str] | None:
        parent, said = self._parent(child), self.sessions[child].merged.session
        if parent is None or parent not in self.sessions:
            return None
        calls = self.sessions[parent].merged.calls
        if said.spawn_tool_call_id in calls:
            return parent, str(said.spawn_tool_call_id)
        by_message = [
            call_id
            for call_id, call in calls.items()
            if said.parent_source_message_id
            and call.source_message_id == said.parent_source_message_id
            and call.spawned_source_session_id in (None, "", child.session_id)
        ]
        named = [c for c in by_message if calls[c].spawned_source_session_id]
        only = named or by_message
        return (parent, only[0]) if len(only) == 1 else None

    def _parent(self, child: Key) -> Key | None:
        said = self.sessions[child].merged.session.parent_source_session_id
        return child._replace(session_id=said) if said and said != child.session_id else None

    def _parent_turn(self, child: Key) -> str | None:
        parent, said = self._parent(child), self.sessions[child].merged.session
        if parent is None or parent not in self.sessions:
            return None
        merged = self.sessions[parent].merged
        turn = merged.turn_of_message.get(said.parent_source_message_id or "")
        return parent.id_of("turn", turn) if turn else None

    # -- what comes of it ---------------------------------------------------------------------

    def derivation(self) -> Derivation:
        turns: list[DerivedTurn] = []
        found: list[DerivedSession] = []
        for session in self.sessions.values():
            derived = _Turns(session, self._spawned_labels(session.key))
            turns += derived.turns()
            found.append(self._session(session, derived.head()))
        return Derivation(
            turns=tuple(turns),
            sessions=tuple(found),
            with_kin=True,
            faults=tuple(self.material.faults),
            counts=self.material.counts,
        )

    def _spawned_labels(self, key: Key) -> dict[str, str]:
        return {
            call: self._label(child)
            for (parent, call), child in self.spawned.items()
            if parent == key
        }

    def _session(self, session: _Session, head: str | None) -> DerivedSession:
        key, said = session.key, session.merged.session
        spawners = [parent for (parent, _), child in self.spawned.items() if child == key]
        parent = spawners[0] if spawners else self._parent(key)
        metadata = {
            name: value
            for name in ("model", "provider", "project", "workspace_path")
            if (value := getattr(said, name))
        }
        if said.task_status and said.task_status not in TASKS:
            metadata["task_status"] = said.task_status
        more = said.metadata if isinstance(said.metadata, dict) else {}
        if said.metadata and not more:
            more = {"_raw": said.metadata}
        title = more.get("title")
        return DerivedSession(
            session_id=key.session_id,
            label=session.label,
            source=key.source,
            origin=f"{key.source}:{key.provider}",
            fingerprint=session.merged.fingerprint,
            adopted=session.label != key.label(),
            aliases=(key.label(),) if session.label != key.label() else (),
            head=head,
            file_ids=frozenset(session.file_ids),
            provider=key.provider,
            title=title if isinstance(title, str) else said.label_hint,
            persona_id=session.persona_id,
            created_at=whole(said.created_at_ms),
            updated_at=whole(said.updated_at_ms),
            is_subagent=bool(said.is_subagent) or parent is not None,
            parent_label=self._label(parent) if parent else None,
            parent_turn_id=self._parent_turn(key),
            task_description=said.task_description,
            task_status=TASKS.get(said.task_status or ""),
            routing_key=said.workspace_path or said.project,
            metadata={**more, **metadata},
        )


class _Turns:
    """The turns of one session."""

    def __init__(self, session: _Session, spawned: dict[str, str]) -> None:
        self.key = session.key
        self.merged = session.merged
        self.file_ids = frozenset(session.file_ids)
        self.spawned = spawned
        known = self.merged.turns
        self.parents: dict[str, str | None] = {
            turn_id: turn.parent_source_turn_id if turn.parent_source_turn_id in known else None
            for turn_id, turn in known.items()
        }
        self.members: dict[str, list[MessageIn | CallIn]] = {turn_id: [] for turn_id in known}
        for message_id, turn_id in self.merged.turn_of_message.items():
            self.members[turn_id].append(self.merged.messages[message_id])
        for call_id, turn_id in self.merged.turn_of_call.items():
            self.members[turn_id].append(self.merged.calls[call_id])
        above = {parent for parent in self.parents.values() if parent}
        self.answered = {turn_id for turn_id in known if self._is_answered(turn_id)}
        self.pending = set(known) - self.answered - above

    def _is_answered(self, turn_id: str) -> bool:
        members = self.members[turn_id]
        if any(isinstance(step, CallIn) or step.role == "assistant" for step in members):
            return True
        return not members and self.merged.turns[turn_id].completed_at_ms is not None

    def head(self) -> str | None:
        """The last answered turn at the end of a branch; rather one that the last item names."""
        inner = {
            answered_above(parent, self.parents, self.answered.__contains__)
            for turn_id, parent in self.parents.items()
            if turn_id in self.answered
        }
        order = list(self.parents)
        ends = [turn_id for turn_id in order if turn_id in self.answered - inner]
        if not ends:
            return None
        best = max(ends, key=lambda t: (t in self.merged.latest, self._time(t), order.index(t)))
        return self.key.id_of("turn", best)

    def _time(self, turn_id: str) -> int:
        turn = self.merged.turns[turn_id]
        said = turn.completed_at_ms if turn.completed_at_ms is not None else turn.started_at_ms
        return whole(said)

    def turns(self) -> Iterator[DerivedTurn]:
        for turn_id in parents_first(self.parents):
            yield self._derived(turn_id)

    def _derived(self, turn_id: str) -> DerivedTurn:
        turn, steps = self.merged.turns[turn_id], self._ordered(self.members[turn_id])
        parent = self.parents[turn_id]
        spawned = {
            step.source_tool_call_id: self.spawned[step.source_tool_call_id]
            for step in steps
            if isinstance(step, CallIn) and step.source_tool_call_id in self.spawned
        }
        latest = self.merged.latest
        told_again = turn_id in latest
        gone = [self._id(step) for step in steps if told_again and self._id(step) not in latest]
        said = encoded([turn, steps, spawned, gone, turn_id in self.pending])
        return DerivedTurn(
            self.key.id_of("turn", turn_id),
            self.key.id_of("turn", parent) if parent is not None else None,
            fingerprint(Requests.version, [said]),
            self.file_ids,
            tuple(
                self.key.id_of("message", step.source_message_id)
                for step in steps
                if isinstance(step, MessageIn)
            ),
            partial(self._build, turn, steps, spawned, set(gone)),
        )

    @staticmethod
    def _id(step: MessageIn | CallIn) -> str:
        if isinstance(step, MessageIn):
            return step.source_message_id
        return step.source_tool_call_id

    def _ordered(self, steps: list[MessageIn | CallIn]) -> list[MessageIn | CallIn]:
        """By sequence; a call never before the message it came with."""
        at = {
            step.source_message_id: whole(step.sequence)
            for step in steps
            if isinstance(step, MessageIn)
        }

        def place(step: MessageIn | CallIn) -> tuple[int, int, int]:
            own = whole(step.sequence)
            if isinstance(step, MessageIn):
                return own, 0, 0
            return max(own, at.get(step.source_message_id or "", 0)), 1, own

        return sorted(steps, key=place)

    # -- content ------------------------------------------------------------------------------

    def _build(
        self,
        turn: TurnIn,
        steps: list[MessageIn | CallIn],
        spawned: dict[str, str],
        gone: set[str],
    ) -> Turn:
        parent = self.parents[turn.source_turn_id]
        builder = TurnBuilder(
            self.key.id_of("turn", turn.source_turn_id),
            self.key.id_of("turn", parent) if parent is not None else None,
        )
        for step in steps:
            if isinstance(step, MessageIn):
                self._message(builder, step, step.source_message_id in gone)
            else:
                self._call(builder, step, spawned.get(step.source_tool_call_id))
        pending = turn.source_turn_id in self.pending
        built = builder.build(status="pending" if pending else "completed")
        return self._said(turn, built)

    def _said(self, turn: TurnIn, built: Turn) -> Turn:
        """The turn with what its item says of it, which counts before what its steps show."""
        session = self.merged.session
        usage = Usage(
            *(
                None if (said := getattr(turn, name)) is None else whole(said)
                for name in Usage.__struct_fields__
            )
        )
        ended = whole(turn.completed_at_ms) or built.completed_at
        metadata = None if turn.source_turn_id == ROOT else turn.metadata
        messages = {message.id: message for message in built.messages}
        query = [self.key.id_of("message", m) for m in turn.query_message_source_ids or ()]
        query = [message_id for message_id in dict.fromkeys(query) if message_id in messages]
        response = self.key.id_of("message", turn.response_message_source_id or "")
        known = messages.get(response)
        return structs.replace(
            built,
            started_at=whole(turn.started_at_ms) or built.started_at,
            completed_at=None if built.status == "pending" else ended,
            model=turn.model or session.model,
            provider=turn.provider or session.provider,
            query_message_ids=to_json(query) if query else built.query_message_ids,
            response_message_id=response
            if known is not None and known.role == "assistant"
            else built.response_message_id,
            source_event_id=turn.source_turn_id,
            workspace_path=session.workspace_path,
            effective_config_json=json_or_none(metadata),
            **{**structs.asdict(usage), "total_tokens": usage.total},
        )

    def _message(self, builder: TurnBuilder, said: MessageIn, gone: bool) -> None:
        metadata = _object(said.metadata_json)
        metadata |= {
            "import_source": self.key.source,
            "import_provider": self.key.provider,
            "import_session_id": self.key.session_id,
            "source_message_id": said.source_message_id,
        }
        if gone:
            metadata["import_gone"] = True  # the source no longer has it
        asker = "agent" if self.merged.session.is_subagent else "human"
        builder.message(
            self.key.id_of("message", said.source_message_id),
            ROLES[said.role],
            said.content,
            at=whole(said.created_at_ms),
            source=asker if said.role == "user" else None,  # type: ignore[arg-type]
            thinking=said.thinking,
            context=_json(said.context_json),
            metadata=metadata,
        )

    def _call(self, builder: TurnBuilder, said: CallIn, spawned: str | None) -> None:
        call_id = self.key.id_of("tool", said.source_tool_call_id)
        at = whole(said.started_at_ms)
        message = said.source_message_id
        builder.call(
            call_id,
            said.tool_name or "unknown",
            _json(said.params_json),
            at=at,
            message_id=self.key.id_of("message", message) if message else None,
            tool_number=None if said.tool_number is None else whole(said.tool_number),
        )
        result = _json(said.result_json)
        builder.result(
            call_id,
            None if result is None else Raw(result.encode("utf-8", "surrogatepass")),
            at=whole(said.completed_at_ms),
            status=_status(said),
            error=said.error,
            source_status=said.status,
            spawned=spawned,
        )


def _status(said: CallIn) -> CallStatus:
    """Our word for a call's status; where the source's is unknown, what the call shows."""
    known = STATUSES.get((said.status or "").strip().lower())
    if known is not None:
        return known
    if said.error:
        return "failed"
    return "completed" if said.result_json is not None else "pending"


def _json(value: Any) -> str | None:
    """JSON text of a value that may be JSON text already."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return encoded(value).decode()
        return value
    return encoded(value).decode()


def _object(value: Any) -> dict[str, Any]:
    text = _json(value)
    if text is None:
        return {}
    found = decoded(text.encode("utf-8", "surrogatepass"))
    return found if isinstance(found, dict) else {"_raw": found}
