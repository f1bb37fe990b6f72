"""OpenClaw: the map from session keys to sessions, as often as it was seen."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from agents_ledger.importers.outlines import BROKEN, as_dict, as_number, as_text, parsed
from agents_ledger.importers.reader import Material
from agents_ledger.model.sources import Fault, SourceFile
from agents_ledger.model.turns import MessageSource

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
    spawner: str | None  # the session that its parent's key stood for, at first
    file_ids: set[int] = field(default_factory=set)


_decode = msgspec.json.Decoder(dict[str, StoreEntry]).decode


class Store:
    """All observations together."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.standings: dict[tuple[str, str], Standing] = {}
        self.by_session: dict[str, list[Standing]] = {}
        self.counted: dict[str, int] = {}  # observations of a session
        self._holders: dict[str, tuple[int, str]] = {}

    def read(self, file: SourceFile) -> None:
        """One state of the map."""
        data = self.material.document(file)
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
            self.counted[session_id] = self.counted.get(session_id, 0) + 1
            self._note(key, session_id, entries[key], now, file.id)

    def _one_by_one(self, file: SourceFile, data: bytes) -> dict[str, StoreEntry]:
        found = parsed(data)
        if not isinstance(found, dict):
            self.material.faults.append(Fault(file.path, "not a map of sessions"))
            self.material.count("(malformed)", "malformed")
            return {}
        return {key: msgspec.convert(as_dict(said), StoreEntry) for key, said in found.items()}

    def _note(
        self, key: str, session_id: str, entry: StoreEntry, now: dict[str, str], file_id: int
    ) -> None:
        at = as_number(entry.updated_at) or 0
        spawner = now.get(as_text(entry.spawned_by) or "")
        known = self.standings.get((key, session_id))
        if known is None:
            known = Standing(key, session_id, at, at, entry, spawner)
            self.standings[key, session_id] = known
            self.by_session.setdefault(session_id, []).append(known)
        known.file_ids.add(file_id)
        if (at, spawner or "") < (known.first_at, known.spawner or "") or known.spawner is None:
            known.spawner = spawner or known.spawner
        if (at, _text(entry)) > (known.last_at, _text(known.entry)):
            known.entry = entry
        known.first_at, known.last_at = min(at, known.first_at), max(at, known.last_at)
        self._holders[key] = max((at, session_id), self._holders.get(key, (-1, "")))

    def holder(self, key: str | None) -> str | None:
        """The session that a key stands for, as far as is known."""
        found = self._holders.get(key or "")
        return found[1] if found else None

    def of(self, session_id: str) -> list[Standing]:
        """The keys that stood for a session, the latest last."""
        mine = self.by_session.get(session_id, [])
        return sorted(mine, key=lambda standing: (standing.last_at, standing.key))


def _text(entry: StoreEntry) -> str:
    return repr(entry)


def source_of(key: str) -> MessageSource | None:
    """Who speaks in a session of this key, if it is no human."""
    if ":subagent:" in key:
        return "agent"
    if key.startswith("cron:") or ":cron:" in key:
        return "cron"
    return "webhook" if key.startswith("hook:") or ":hook:" in key else None
