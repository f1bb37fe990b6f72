"""opencode: a database, or a tree of small JSON files, or one exported file; ids are the same.

docs/sources/opencode.md describes the rules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import (
    FileProbe,
    Project,
    RowFilter,
    SharedDatabase,
    Source,
)
from agents_ledger.importers.sources.opencode.projects import projects, row_filter
from agents_ledger.importers.sources.opencode.rules import FOLDERS, NAME, TABLES
from agents_ledger.importers.sources.opencode.storage import StorageReader
from agents_ledger.importers.sources.opencode.tree import OpencodeTree
from agents_ledger.importers.sources.opencode.turns import OpencodeTurns
from agents_ledger.model.imports.sources import Derivation, SourceKind

DATA_FOLDERS = FOLDERS - {"info", "project"}  # the topmost folder of files is one of these
DEPTH_MAX = 4  # folders between that and a file
# The keys of a part, a message, a session and a project.
RECORD_KEYS = tuple(
    tuple(re.compile(rb'"%s"\s*:' % name) for name in names)
    for names in (
        (b"messageID", b"type"),
        (b"sessionID", b"role"),
        (b"projectID", b"directory"),
        (b"worktree", b"time"),
    )
)
SESSION_HEAD = re.compile(rb'\s*\{[^{]*"id"\s*:\s*"ses_')
EXPORT_HEAD = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')
SCHEMA = re.compile(
    rb'CREATE TABLE (?:["`]?part["`]?\s*\(.*?message_id|["`]?session_(?:v2|message)["`]?\s*\()',
    re.DOTALL,
)


class OpenCode(Source):
    name = NAME
    version = 7
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        return [home.data("opencode")]  # on every system

    def wants(self, path: Path) -> bool:
        """The database of any build, and the files of the versions before it."""
        if path.suffix == ".db":
            return path.name.startswith("opencode")
        return path.suffix == ".json" and "storage" in path.parts and bool(FOLDERS & {*path.parts})

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        is_json = path.suffix == ".json" or EXPORT_HEAD.match(head)
        return "document" if is_json and not head.startswith(MAGIC) else "rows"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A database is recognised by its name or its tables, other files by their keys."""
        if head.startswith(MAGIC):
            return self.wants(path) or bool(SCHEMA.search(head))
        if path.suffix != ".json" and not EXPORT_HEAD.match(head):  # an export may have any name
            return False
        if head.lstrip()[:1] not in (b"{", b"["):
            return False
        if "session_diff" in path.parts:
            return "storage" in path.parts
        has_keys = any(all(key.search(head) for key in keys) for keys in RECORD_KEYS)
        return has_keys or bool(SESSION_HEAD.match(head))

    def family(self, path: Path) -> str:
        """One data folder: the files remain next to the database that replaced them."""
        parts = path.parts
        if path.suffix == ".json" and "storage" in parts:
            end = parts.index("storage")
            end = end - 2 if end > 1 and parts[end - 2] == "project" else end
            return f"{self.name}:{PurePath(*parts[:end]) if end else ''}"
        lowest = range(max(0, len(parts) - DEPTH_MAX - 1), len(parts) - 1)
        data_folder = next((index for index in lowest if parts[index] in DATA_FOLDERS), None)
        if path.suffix == ".json" and data_folder is not None:  # "storage" was renamed
            return f"{self.name}:{PurePath(*parts[:data_folder])}"
        return f"{self.name}:{path.parent}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return projects(path, probe)

    def row_filter(self, database: SharedDatabase) -> RowFilter:
        return row_filter(database)

    def derive(self, material: Material) -> Derivation:
        storage = StorageReader(material)
        tree = OpencodeTree(storage)
        return Derivation(
            turns=OpencodeTurns(tree, self.version),
            sessions=tuple(tree.derived_sessions),
            faults=tuple(material.faults),
            counts=material.counts,
            superseded=frozenset(storage.superseded),
        )
