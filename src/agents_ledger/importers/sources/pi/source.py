"""pi, and the OpenClaw family built on it: a tree of entries in JSON lines.

docs/sources/pi.md describes what is mapped. Start at rules.py (what an entry means), at entries.py
(when two entries are the same) and at tree.py (how entries become turns, and what a fork is).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.lenient_json import BROKEN, as_text, decode_leniently
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import (
    FileProbe,
    Project,
    RowFilter,
    SharedDatabase,
    Source,
)
from agents_ledger.importers.sources.pi.database import DATABASE, EVENTS, TABLES, session_filter
from agents_ledger.importers.sources.pi.records import PiRecord, decode_record
from agents_ledger.importers.sources.pi.rules import GATEWAY_MODELS, SETTINGS
from agents_ledger.importers.sources.pi.sessions import PiFamily
from agents_ledger.model.imports.sources import Derivation, SourceKind

SESSION_MAP = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{')
NAMES = ("openclaw", "clawdbot", "moltbot")  # renamed in January 2026; old folders survive
HOMES = tuple(f".{name}" for name in NAMES)
OPENCLAW_TYPES = ("model-snapshot", "openclaw")
OWN_ROLES = ("toolResult", "bashExecution")
ARCHIVE = "session-sqlite-import-archive"  # transcripts that the database took over
FOLDERS = ("sessions", ARCHIVE)
SIDE_FILES = (".lock", ".tmp", ".trajectory.jsonl")


def _records(head: bytes) -> list[PiRecord]:
    records = []
    for line in head.split(b"\n")[:50]:
        try:
            records.append(decode_leniently(decode_record, line))
        except BROKEN:
            continue
    return records


def _is_transcript(records: list[PiRecord]) -> bool:
    """Whether there is a header or, where that is lost, a record that only this source has. Other
    sources have records of the same types, but not with these fields."""
    return any(
        (r.type == "session" and as_text(r.id) and r.timestamp and r.cwd) or _is_own(r)
        for r in records
    )


def _is_own(record: PiRecord) -> bool:
    if isinstance(record.type, str) and record.type in SETTINGS:
        return bool(as_text(record.model_id) or as_text(record.thinking_level))
    message = record.message
    if record.type != "message" or not record.timestamp or message is None:
        return False
    has_model = message.role == "assistant" and as_text(message.model) is not None
    return message.role in OWN_ROLES or has_model


def _is_session_map(head: bytes) -> bool:
    return bool(SESSION_MAP.match(head)) and b'"sessionId"' in head and b'"updatedAt"' in head


def _is_openclaw(path: Path, records: list[PiRecord]) -> bool:
    if any(part in HOMES for part in path.parts):
        return True
    for record in records:
        session_id = record.id if record.type == "session" else None
        marks = (record.custom_type, record.provider, session_id)
        if any(isinstance(mark, str) and mark.startswith(OPENCLAW_TYPES) for mark in marks):
            return True
        if record.message is not None and as_text(record.message.model) in GATEWAY_MODELS:
            return True
    return False


class Pi(Source):
    name = "pi"
    version = 12
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """The sessions of all projects, also those from before the variable was set."""
        usual = home.chosen("PI_CODING_AGENT_DIR", home.home / ".pi" / "agent") / "sessions"
        return list({usual: None, home.chosen("PI_CODING_AGENT_SESSION_DIR", usual): None})

    def wants(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A transcript that is not of the OpenClaw family."""
        records = _records(head)
        return _is_transcript(records) and not _is_openclaw(path, records)

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        folder = probe.working_folder(path)
        return [folder] if folder else None

    def derive(self, material: Material) -> Derivation:
        return PiFamily(material, self.name).derivation(self.version)


class OpenClaw(Source):
    """Sessions of OpenClaw, under each of its names."""

    name = "openclaw"
    version = 12
    kind: SourceKind = "lines"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        """`agents` below each state folder."""
        chosen = [home.environment.get(f"{name.upper()}_STATE_DIR") for name in NAMES]
        folders = [Path(folder) for folder in chosen if folder]
        folders = folders or [home.home / name for name in HOMES]
        return [folder / "agents" for folder in folders]

    def wants(self, path: Path) -> bool:
        """Transcripts, also those deleted, reset or moved into the database, the session map, and
        the database that replaced both."""
        if path.name == DATABASE:
            return True
        if path.parent.name not in FOLDERS or path.name.endswith(SIDE_FILES):
            return False
        return path.name == "sessions.json" or ".jsonl" in path.suffixes

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """The session map is rewritten whole. A database must never be kept whole."""
        if head.startswith(MAGIC) or path.name == DATABASE:
            return "rows"
        return "document" if _is_session_map(head) or path.name == "sessions.json" else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A transcript with a mark of OpenClaw, a session map, or the database."""
        if head.startswith(MAGIC):
            return path.name == DATABASE or EVENTS.name.encode() in head
        if SESSION_MAP.match(head):
            return _is_session_map(head)
        records = _records(head)
        return _is_transcript(records) and _is_openclaw(path, records)

    def family(self, path: Path) -> str:
        """All sessions of an agent: the session map relates them."""
        folder = path.parent
        is_sibling = folder.name == ARCHIVE or (path.name == DATABASE and folder.name == "agent")
        return f"{self.name}:{folder.parent / 'sessions' if is_sibling else folder}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        """The folder in the header of a transcript. The session map is of all transcripts in its
        folder; in a database the rows say it."""
        if path.name == DATABASE:
            return ()
        names = [path.name]
        if path.name == "sessions.json":
            names = [name for name in probe.names(path.parent) if ".jsonl" in name]
        folders = (probe.working_folder(path.parent / name) for name in names)
        return [folder for folder in folders if folder] or None

    def row_filter(self, database: SharedDatabase) -> RowFilter:
        """All but the sessions of excluded projects."""
        return session_filter(database.select, database.is_excluded)

    def derive(self, material: Material) -> Derivation:
        return PiFamily(material, self.name).derivation(self.version)
