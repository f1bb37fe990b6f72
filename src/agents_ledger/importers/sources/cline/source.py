"""Cline, Roo Code and Kilo Code: a folder of JSON documents per task; since Cline 4 per session.

A task has two documents: `ui_messages.json` is the timeline and gives the turns,
`api_conversation_history.json` is what the model was sent. A session has a document of messages,
and next to it a manifest, the messages of subagents, and its latest compaction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath

from msgspec import structs

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.cline.projects import session_projects, task_projects
from agents_ledger.importers.sources.cline.records import COMPACTION, HISTORY, MESSAGES, TIMELINE
from agents_ledger.importers.sources.cline.rules import EXTENSIONS, NAME
from agents_ledger.importers.sources.cline.session_tree import ClineSessionTree
from agents_ledger.importers.sources.cline.tree import ClineTaskTree
from agents_ledger.model.imports.sources import Derivation, SourceFile, SourceKind

EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
ENTRY = re.compile(rb'\{\s*"ts"\s*:\s*\d+\s*,\s*"type"\s*:\s*"(say|ask)"')
VERSION = re.compile(rb'\{\s*"version"\s*:\s*\d+\s*,')
MESSAGE_LIST = re.compile(rb'"messages"\s*:\s*\[')
AGENT = re.compile(rb'"agent"\s*:\s*"(lead|subagent|teammate)"')
MANIFEST_FIELDS = (b'"session_id"', b'"started_at"', b'"workspace_root"')


class Cline(Source):
    """Tasks of Cline and its forks, and sessions of Cline."""

    name = NAME
    version = 7
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        """The storage of every extension in every editor, and that of the command line."""
        users = [home.config(editor) / "User" for editor in EDITORS]
        users.append(home.home / ".vscode-server" / "data" / "User")
        stores = [user / "globalStorage" / name for user in users for name in EXTENSIONS]
        cline = home.chosen("CLINE_DIR", home.home / ".cline")
        data = home.chosen("CLINE_DATA_DIR", cline / "data")
        sessions = home.chosen("CLINE_SESSION_DATA_DIR", data / "sessions")
        return [*(store / "tasks" for store in (*stores, data)), sessions]

    def wants(self, path: Path) -> bool:
        return _is_of_task(path) or _is_of_session(path)

    def recognises(self, path: Path, head: bytes) -> bool:
        start = head.lstrip()
        if not start.startswith(b"["):
            return _is_session_head(path, start)
        if path.name == HISTORY:
            return b'"role"' in start
        # Under its own name an odd element may precede the entries.
        find = ENTRY.search if path.name == TIMELINE else ENTRY.match
        return find(start[1:].lstrip()) is not None

    def family(self, path: Path) -> str:
        return f"{NAME}:{path.parent}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        if _is_of_session(path) and not _is_of_task(path):
            return session_projects(path, probe)
        return task_projects(path, probe)

    def derive(self, material: Material) -> Derivation:
        tasks: list[SourceFile] = []
        sessions: list[SourceFile] = []
        for file in material.files:
            (sessions if _has_session(material, file) else tasks).append(file)
        trees = ((ClineTaskTree, tasks), (ClineSessionTree, sessions))
        parts = [tree(material, files, self.version).derivation() for tree, files in trees if files]
        if len(parts) == 1:
            return parts[0]
        return structs.replace(
            parts[-1],  # with the faults and counts of both
            turns=tuple(turn for part in parts for turn in part.turns),
            sessions=tuple(session for part in parts for session in part.sessions),
            superseded=frozenset(file_id for part in parts for file_id in part.superseded),
        )


def _is_of_task(path: PurePath) -> bool:
    return path.name in (TIMELINE, HISTORY)


def _is_of_session(path: PurePath) -> bool:
    """Messages, compactions and manifests; not the index of all sessions."""
    is_manifest = path.suffix == ".json" and path.stem == path.parent.name
    return is_manifest or path.name.endswith((MESSAGES, COMPACTION))


def _is_session_head(path: PurePath, start: bytes) -> bool:
    """By the name and the list of messages, or by the fields at the beginning."""
    if not start.startswith(b"{"):
        return False
    if path.name.endswith((MESSAGES, COMPACTION)):
        return MESSAGE_LIST.search(start) is not None
    if not VERSION.match(start):
        return False
    if all(name in start for name in MANIFEST_FIELDS):
        return True
    is_compaction = b'"source_message_count"' in start
    return bool(MESSAGE_LIST.search(start) and (is_compaction or AGENT.search(start)))


def _has_session(material: Material, file: SourceFile) -> bool:
    """Whether a file is a session's, whatever its name: an object, where tasks have arrays."""
    path = PurePath(file.path)
    if _is_of_task(path) or path.name.endswith((MESSAGES, COMPACTION)):
        return not _is_of_task(path)
    first = next(iter(material.blocks(file)), b"")
    return first.removeprefix(BOM).lstrip().startswith(b"{")
