"""pi, and the OpenClaw family built on it: a tree of entries in JSON lines.

Ids of entries are unique only in their file, and old files get new ones when they are rewritten; a
fork copies entries. So an entry is known by when it was written and what it says, and a file that
has it again shares its turn. docs/sources/pi.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.port.source import Home, Look, Material, Project, Select, Sieve, Source
from agents_ledger.importers.sources.pi.outline import Outline
from agents_ledger.importers.sources.pi.rows import DATABASE, EVENTS, TABLES, sieve
from agents_ledger.importers.sources.pi.transcript import SETTINGS, decode_entry
from agents_ledger.importers.transcript.turn_tree import BROKEN, as_text, strictly
from agents_ledger.model.imports.sources import Derivation, SourceKind

STORE = re.compile(rb'\s*\{\s*"[^"]+"\s*:\s*\{')
NAMES = ("openclaw", "clawdbot", "moltbot")
HOMES = tuple(f".{name}" for name in NAMES)
OWN_TYPES = ("model-snapshot", "openclaw")
OWN_ROLES = ("toolResult", "bashExecution")
OWN_MODELS = ("delivery-mirror", "gateway-injected")
ARCHIVE = "session-sqlite-import-archive"  # transcripts that the database took over
FOLDERS = ("sessions", ARCHIVE)
SIDE_FILES = (".lock", ".tmp", ".trajectory.jsonl")


def _entries(head: bytes) -> list[Any]:
    found = []
    for line in head.split(b"\n")[:50]:
        try:
            found.append(strictly(decode_entry, line))
        except BROKEN:
            continue
    return found


def _is_transcript(entries: list[Any]) -> bool:
    """There is a header, or where that is lost an entry that only this source has. Others have
    records called so too, but not with these fields."""
    return any(
        (e.type == "session" and as_text(e.id) and e.timestamp and e.cwd) or _is_own(e)
        for e in entries
    )


def _is_own(entry: Any) -> bool:
    if isinstance(entry.type, str) and entry.type in SETTINGS:
        return bool(as_text(entry.model_id) or as_text(entry.thinking_level))
    said = entry.message
    if entry.type != "message" or not entry.timestamp or said is None:
        return False
    return said.role in OWN_ROLES or (said.role == "assistant" and as_text(said.model) is not None)


def _is_map(head: bytes) -> bool:
    return bool(STORE.match(head)) and b'"sessionId"' in head and b'"updatedAt"' in head


def _is_openclaws(path: Path, entries: list[Any]) -> bool:
    if any(part in HOMES for part in path.parts):
        return True
    for entry in entries:
        said = (entry.custom_type, entry.provider, entry.id if entry.type == "session" else None)
        if any(isinstance(each, str) and each.startswith(OWN_TYPES) for each in said):
            return True
        if entry.message is not None and as_text(entry.message.model) in OWN_MODELS:
            return True
    return False


class Pi(Source):
    """Reader of pi's sessions."""

    name = "pi"
    version = 10
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """The sessions of all projects; the folder chosen for them alone holds those since then."""
        usual = home.chosen("PI_CODING_AGENT_DIR", home.home / ".pi" / "agent") / "sessions"
        return list({usual: None, home.chosen("PI_CODING_AGENT_SESSION_DIR", usual): None})

    def wants(self, path: Path) -> bool:
        """Transcripts."""
        return path.suffix == ".jsonl"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A transcript that is not of the OpenClaw family."""
        entries = _entries(head)
        return _is_transcript(entries) and not _is_openclaws(path, entries)

    def family(self, path: Path) -> str:
        """Each file by itself; forks are found by the entries they share."""
        return f"{self.name}:{path}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As its header says."""
        said = look.working_folder(path)
        return [said] if said else None

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return Outline(material, self.name, self.version).derivation()


class OpenClaw(Source):
    """Reader of OpenClaw, under each of its names."""

    name = "openclaw"
    version = 10
    kind: SourceKind = "lines"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        """The agents below each folder of state."""
        chosen = [home.environment.get(f"{name.upper()}_STATE_DIR") for name in NAMES]
        folders = [Path(folder) for folder in chosen if folder]
        folders = folders or [home.home / name for name in HOMES]
        return [folder / "agents" for folder in folders]

    def wants(self, path: Path) -> bool:
        """Transcripts, also those deleted, reset or moved into the database, the map of sessions,
        and the database that took over both."""
        if path.name == DATABASE:
            return True
        if path.parent.name not in FOLDERS or path.name.endswith(SIDE_FILES):
            return False
        return path.name == "sessions.json" or ".jsonl" in path.suffixes

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """The map of sessions is rewritten whole. A database must never be kept whole."""
        if head.startswith(MAGIC) or path.name == DATABASE:
            return "rows"
        return "document" if _is_map(head) or path.name == "sessions.json" else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A transcript with a mark of the family, a map from keys to session ids, or the
        database."""
        if head.startswith(MAGIC):
            return path.name == DATABASE or EVENTS.name.encode() in head
        if STORE.match(head):
            return _is_map(head)
        entries = _entries(head)
        return _is_transcript(entries) and _is_openclaws(path, entries)

    def family(self, path: Path) -> str:
        """All sessions of an agent: the map says how they belong together."""
        folder = path.parent
        is_beside = folder.name == ARCHIVE or (path.name == DATABASE and folder.name == "agent")
        return f"{self.name}:{folder.parent / 'sessions' if is_beside else folder}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As a transcript says; the map of sessions is of all that stand beside it, and rows of the
        database tell."""
        if path.name == DATABASE:
            return ()
        names = [path.name]
        if path.name == "sessions.json":
            names = [name for name in look.names(path.parent) if ".jsonl" in name]
        found = (look.working_folder(path.parent / name) for name in names)
        return [said for said in found if said] or None

    def row_filter(
        self, _: Path, own: Select, __: Look, is_left: Callable[[Project], bool]
    ) -> Sieve:
        """All but the sessions of projects that are left out."""
        return sieve(own, is_left)

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return Outline(material, self.name, self.version).derivation()
