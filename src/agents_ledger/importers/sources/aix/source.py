"""AIX: a database that collects the sessions of other agents, mostly Cursor's.

See docs/sources/aix.md for the evidence behind the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.row_filter import BySession, excluded_sessions
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, SharedDatabase, Source
from agents_ledger.importers.sources.aix.rules import NAME, OWNER_COLUMNS, STORE, TABLES, VERSION
from agents_ledger.importers.sources.aix.tree import AixTree
from agents_ledger.model.imports.sources import Derivation, SourceKind


class Aix(Source):
    name = NAME
    version = VERSION
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        folder = home.config("aix") if home.platform == "darwin" else home.data("aix")
        return [folder / STORE]

    def wants(self, path: Path) -> bool:
        return path.name == STORE

    def recognises(self, path: Path, head: bytes) -> bool:
        """A database with its file name, or with tables that no other agent has."""
        if not head.startswith(MAGIC):
            return False
        return path.name == STORE or (b"message_metadata" in head and b"sync_state" in head)

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return ()

    def row_filter(self, database: SharedDatabase) -> BySession:
        """Excludes the sessions of excluded projects, their messages, and the details of these."""
        select = database.select
        sessions, messages = TABLES[:2]
        ids = [str(session) for (session,) in select(sessions, ("id",))]
        folders = {str(s): str(at) for s, at in select(sessions, ("id", "workspace_path")) if at}
        parents = {str(s): str(up) for s, up in select(sessions, ("id", "parent_session_id")) if up}
        excluded, with_project = excluded_sessions(folders, parents, ids, database.is_excluded)
        members = [(str(m), str(session)) for m, session in select(messages, ("id", "session_id"))]
        return BySession(
            excluded | {message for message, session in members if session in excluded},
            with_project | {message for message, _ in members},
            OWNER_COLUMNS,
        )

    def derive(self, material: Material) -> Derivation:
        return AixTree(material).derivation()
