"""OpenClaw: the map from session keys to sessions, in every state that was kept.

`sessions.json` (in the database: `session_nodes`) is rewritten whole, and forgets what a key stood
for before. So every observation is noted with its time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    as_dict,
    as_number,
    as_text,
    parse_json,
)
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.pi import database
from agents_ledger.model.imports.sources import Fault, SourceFile


class MapEntry(Struct, rename="camel"):
    """What the map says of a session. Token counters are of the last run, and are left out."""

    session_id: Any = None
    updated_at: Any = None
    channel: Any = None
    chat_type: Any = None
    claude_cli_session_id: Any = None
    cli_session_ids: Any = None
    delivery_context: Any = None
    display_name: Any = None
    elevated_level: Any = None
    group_id: Any = None
    label: Any = None
    model_override: Any = None
    origin: Any = None
    provider_override: Any = None
    reasoning_level: Any = None
    spawn_depth: Any = None
    spawned_by: Any = None
    spawned_workspace_dir: Any = None
    subagent_role: Any = None
    subject: Any = None
    thinking_level: Any = None
    verbose_level: Any = None

    def metadata(self) -> dict[str, Any]:
        """What has no column of its own."""
        values = {name: getattr(self, name) for name in self.__struct_fields__[2:]}
        renamed = {"origin": "channel_origin"}
        return {renamed.get(name, name): value for name, value in values.items() if value}


class KeyPeriod(Struct):
    """That a key stood for a session, from the first observation to the last."""

    key: str
    session_id: str
    first_at: int
    last_at: int
    entry: MapEntry  # the latest
    # First observation of its parent: time and session.
    spawned: tuple[int, str] | None = None
    file_ids: set[int] = field(default_factory=set)


_decode = msgspec.json.Decoder(dict[str, MapEntry]).decode


class SessionMap:
    def __init__(self, material: Material) -> None:
        self.material = material
        self.observations: Counter[tuple[str, str]] = Counter()  # by file or table, and session
        self._periods: dict[tuple[str, str], KeyPeriod] = {}
        self._by_session: dict[str, list[KeyPeriod]] = {}
        self._by_key: dict[str, list[KeyPeriod]] = {}
        self._latest: dict[str, tuple[int, str]] = {}  # by key

    def read(self, file: SourceFile) -> None:
        data = self.material.text_document(file)
        try:
            entries = _decode(data)
        except BROKEN:
            entries = self._read_leniently(file, data)
        sessions: dict[str, str] = {}
        for key, entry in entries.items():
            if as_text(entry.session_id):
                sessions[key] = entry.session_id
            else:
                self.material.count("sessions.json", "unmapped")
        for key, session_id in sessions.items():
            self.observations["sessions.json", session_id] += 1
            parent = sessions.get(as_text(entries[key].spawned_by) or "")
            self.observe(key, session_id, entries[key], parent, file.id)

    def read_rows(self, file: SourceFile) -> None:
        """The map in a database, every version of a row; and the earlier sessions of keys, of which
        less is known."""
        for row in self.material.rows(
            file,
            lambda row: (
                row.table in database.CURRENT_SESSIONS or row.table in database.EARLIER_SESSIONS
            ),
        ):
            values = row.values or {}
            key, entry = as_text(values.get("session_key")), _entry_of_row(row.table, values)
            if key is None or as_text(entry.session_id) is None:
                self.material.count(row.table, "unmapped")
                continue
            self.observations[row.table, entry.session_id] += 1
            self.observe(key, entry.session_id, entry, None, file.id)

    def _read_leniently(self, file: SourceFile, data: bytes) -> dict[str, MapEntry]:
        entries = parse_json(data)
        if not isinstance(entries, dict):
            self.material.faults.append(Fault(file.path, "not a map of sessions"))
            self.material.count("(malformed)", "malformed")
            return {}
        return {key: msgspec.convert(as_dict(entry), MapEntry) for key, entry in entries.items()}

    def observe(
        self, key: str, session_id: str, entry: MapEntry, parent: str | None, file_id: int
    ) -> None:
        """That a key stood for a session, and its parent's key for another."""
        at = as_number(entry.updated_at) or 0
        period = self._periods.get((key, session_id))
        if period is None:
            period = KeyPeriod(key, session_id, at, at, entry)
            self._periods[key, session_id] = period
            self._by_session.setdefault(session_id, []).append(period)
            self._by_key.setdefault(key, []).append(period)
        period.file_ids.add(file_id)
        if parent:
            # The first observation: after a reset the parent's key leads to another session.
            period.spawned = min((at, parent), period.spawned or (at, parent))
        if (at, _rank(entry)) > (period.last_at, _rank(period.entry)):
            period.entry = entry
        period.first_at, period.last_at = min(at, period.first_at), max(at, period.last_at)
        self._latest[key] = max((at, session_id), self._latest.get(key, (-1, "")))

    def session_of(self, key: str | None) -> str | None:
        """The latest session of a key."""
        latest = self._latest.get(key or "")
        return latest[1] if latest else None

    def parent_of(self, child: KeyPeriod) -> str | None:
        """The session that started one: that of its parent's key in the same state of the map, else
        at the time when it began."""
        if child.spawned:
            return child.spawned[1]
        key = as_text(child.entry.spawned_by) or ""
        begun = (p for p in self._by_key.get(key, ()) if p.first_at <= child.first_at)
        parent = max(begun, key=lambda p: (p.first_at, p.session_id), default=None)
        return parent.session_id if parent else self.session_of(key)

    def periods(self, session_id: str) -> list[KeyPeriod]:
        """The keys that stood for a session, the latest last."""
        own = self._by_session.get(session_id, [])
        return sorted(own, key=lambda period: (period.last_at, period.key))


def _entry_of_row(table: str, values: dict[str, Any]) -> MapEntry:
    if table in database.CURRENT_SESSIONS:
        entry = as_dict(parse_json(as_text(values.get("entry_json")) or "null"))
        times = {"updatedAt": entry.get("updatedAt", values.get("updated_at"))}
        session_id = values.get(database.SESSION_COLUMNS[table])
        return msgspec.convert({**entry, "sessionId": session_id, **times}, MapEntry)
    names = ("session_id", "channel", "chat_type", "display_name", "spawned_by")
    fields = {name: values.get(name) for name in names}
    return MapEntry(**fields, updated_at=values.get("created_at"))  # the map itself is newer


def _rank(entry: MapEntry) -> tuple[int, str]:
    """Of two observations of one time the one with more fields counts."""
    return len(entry.metadata()), repr(entry)
