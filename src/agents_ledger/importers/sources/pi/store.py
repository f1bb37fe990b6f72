"""OpenClaw: the map from session keys to sessions, as often as it was seen."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.port.source import Material
from agents_ledger.importers.sources.pi.rows import OF, STANDINGS, WINDOWS
from agents_ledger.importers.transcript.turn_tree import (
    BROKEN,
    as_dict,
    as_number,
    as_text,
    parsed,
)
from agents_ledger.model.imports.sources import Fault, SourceFile
from agents_ledger.model.turns import MessageSource

AGENT = re.compile(r"agent:([^:]+):")
METADATA = (
    "channel",
    "chat_type",
    "claude_cli_session_id",
    "cli_session_ids",
    "delivery_context",
    "display_name",
    "elevated_level",
    "group_id",
    "label",
    "model_override",
    "origin",
    "provider_override",
    "reasoning_level",
    "spawn_depth",
    "spawned_by",
    "spawned_workspace_dir",
    "subagent_role",
    "subject",
    "thinking_level",
    "verbose_level",
)


class StoreEntry(Struct, rename="camel"):
    """What is said of a session. Counters and what can be had from the transcript are left out."""

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

    def described(self) -> dict[str, Any]:
        """What has no column of its own."""
        names = {"origin": "channel_origin"}
        return {names.get(n, n): said for n in METADATA if (said := getattr(self, n))}


class Standing(Struct):
    """That a key stood for a session, from the first time it was seen until the last."""

    key: str
    session_id: str
    first_at: int
    last_at: int
    entry: StoreEntry  # as it was last
    spawned: tuple[int, str] | None = None  # by the session that its parent's key stood for, first
    file_ids: set[int] = field(default_factory=set)


_decode = msgspec.json.Decoder(dict[str, StoreEntry]).decode


class Store:
    """All observations together."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.standings: dict[tuple[str, str], Standing] = {}
        self.by_session: dict[str, list[Standing]] = {}
        self.counted: Counter[tuple[str, str]] = Counter()  # observations of a session, by name
        self._holders: dict[str, tuple[int, str]] = {}
        self._begun: dict[str, list[Standing]] = {}  # by key

    def read(self, file: SourceFile) -> None:
        """One state of the map."""
        data = self.material.text_document(file)
        try:
            entries = _decode(data)
        except BROKEN:
            entries = self._one_by_one(file, data)
        now: dict[str, str] = {}
        for key, entry in entries.items():
            if as_text(entry.session_id):
                now[key] = entry.session_id
            else:
                self.material.count("sessions.json", "unmapped")
        for key, session_id in now.items():
            self.counted["sessions.json", session_id] += 1
            self.note(key, session_id, entries[key], now, file.id)

    def read_rows(self, file: SourceFile) -> None:
        """The map as a database has it, every version of a row; and the sessions that it led to
        before, of which less is said."""
        for row in self.material.rows(
            file, lambda row: row.table in STANDINGS or row.table in WINDOWS
        ):
            values = row.values or {}
            key, entry = as_text(values.get("session_key")), _entry(row.table, values)
            if key is None or as_text(entry.session_id) is None:
                self.material.count(row.table, "unmapped")
                continue
            self.counted[row.table, entry.session_id] += 1
            self.note(key, entry.session_id, entry, {}, file.id)

    def _one_by_one(self, file: SourceFile, data: bytes) -> dict[str, StoreEntry]:
        found = parsed(data)
        if not isinstance(found, dict):
            self.material.faults.append(Fault(file.path, "not a map of sessions"))
            self.material.count("(malformed)", "malformed")
            return {}
        return {key: msgspec.convert(as_dict(said), StoreEntry) for key, said in found.items()}

    def note(
        self, key: str, session_id: str, entry: StoreEntry, now: dict[str, str], file_id: int
    ) -> None:
        """One observation, and what the other keys stood for then."""
        at = as_number(entry.updated_at) or 0
        spawner = now.get(as_text(entry.spawned_by) or "")
        known = self.standings.get((key, session_id))
        if known is None:
            known = Standing(key, session_id, at, at, entry)
            self.standings[key, session_id] = known
            self.by_session.setdefault(session_id, []).append(known)
            self._begun.setdefault(key, []).append(known)
        known.file_ids.add(file_id)
        if spawner:
            known.spawned = min((at, spawner), known.spawned or (at, spawner))
        if (at, _rank(entry)) > (known.last_at, _rank(known.entry)):
            known.entry = entry
        known.first_at, known.last_at = min(at, known.first_at), max(at, known.last_at)
        self._holders[key] = max((at, session_id), self._holders.get(key, (-1, "")))

    def holder(self, key: str | None) -> str | None:
        """The session that a key stands for, as far as is known."""
        found = self._holders.get(key or "")
        return found[1] if found else None

    def spawner(self, child: Standing) -> str | None:
        """The session that one was started from, as far as is known: that which was seen beside
        it, else that which its parent's key stood for when it began."""
        if child.spawned:
            return child.spawned[1]
        key = as_text(child.entry.spawned_by) or ""
        begun = (s for s in self._begun.get(key, ()) if s.first_at <= child.first_at)
        held = max(begun, key=lambda s: (s.first_at, s.session_id), default=None)
        return held.session_id if held else self.holder(key)

    def of(self, session_id: str) -> list[Standing]:
        """The keys that stood for a session, the latest last."""
        mine = self.by_session.get(session_id, [])
        return sorted(mine, key=lambda standing: (standing.last_at, standing.key))


def _entry(table: str, values: dict[str, Any]) -> StoreEntry:
    """What a row says of a session."""
    if table in STANDINGS:
        said = as_dict(parsed(as_text(values.get("entry_json")) or "null"))
        times = {"updatedAt": said.get("updatedAt", values.get("updated_at"))}
        return msgspec.convert({**said, "sessionId": values.get(OF[table]), **times}, StoreEntry)
    names = ("session_id", "channel", "chat_type", "display_name", "spawned_by")
    said = {name: values.get(name) for name in names}
    return StoreEntry(**said, updated_at=values.get("created_at"))  # the map knows more, and later


def _rank(entry: StoreEntry) -> tuple[int, str]:
    """Of two that were seen at one time the one that says more is heeded."""
    return len(entry.described()), repr(entry)


def source_of(key: str) -> MessageSource | None:
    """Who speaks in a session of this key, if it is no human. Its agent may be called anything."""
    of_agent = AGENT.match(key)
    said = f":{key[of_agent.end() :] if of_agent else key}"
    if ":subagent:" in said:
        return "agent"
    if ":cron:" in said:
        return "cron"
    return "webhook" if ":hook:" in said else None
