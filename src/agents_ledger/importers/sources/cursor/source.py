"""Cursor: chats in SQLite databases, in five generations that may stand side by side.

A bubble's id is its message's. docs/sources/cursor.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePath

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.port.source import (
    Home,
    Look,
    Material,
    Project,
    Select,
    Sieve,
    Source,
    Table,
)
from agents_ledger.importers.sources.cursor import projects as cursor_projects
from agents_ledger.importers.sources.cursor.agent import is_spoken
from agents_ledger.importers.sources.cursor.chats import VERSION, derivation
from agents_ledger.importers.sources.cursor.scope import HEADERS, META
from agents_ledger.importers.sources.cursor.turns import NAME
from agents_ledger.importers.transcript.turn_tree import parsed
from agents_ledger.model.imports.sources import Derivation, SourceKind

TABLES = (
    Table(
        "ItemTable",
        ("key",),
        keys=(
            "aiService.generations",
            "aiService.prompts",
            "composer.composerData",
            "composer.composerHeaders",
            "workbench.panel.aichat.view.aichat.chatdata",
        ),
        grows=True,
    ),
    Table(
        "cursorDiskKV",
        ("key",),
        prefixes=(
            "agentKv:",
            "bubbleId:",
            "checkpointId:",
            "codeBlockDiff:",
            "composerData:",
            "messageRequestContext:",
        ),
        grows=True,
    ),
    Table(HEADERS, ("composerId",), is_small=True),
    Table("meta", ("key",)),
    Table("blobs", ("id",), grows=True),
)
CUT = re.compile(rb'\{"role":\s*"\w*",\s*"message":')  # a line that is longer than what is seen
TALK = re.compile(rb"\s*user:\s*(?:<\w+>|.*?^(?:assistant|A):\s*$)", re.DOTALL | re.M)
HOMES = re.compile(
    r"^(.*?)/(?:\.config|Library/Application Support|AppData/Roaming)/Cursor/User/|^(.*?)/\.cursor/"
)


class Cursor(Source):
    """Reader of Cursor's chats."""

    name = NAME
    version = VERSION
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        """The editor's data, and the agent's."""
        user = home.config("Cursor") / "User"
        agent = home.chosen("CURSOR_DATA_DIR", home.home / ".cursor")
        return [
            user / "globalStorage",
            user / "workspaceStorage",
            agent / "chats",
            agent / "projects",
        ]

    def wants(self, path: Path) -> bool:
        """Databases, the files beside them that name folders, and transcripts."""
        if path.name in ("state.vscdb", "store.db"):
            return True
        if path.name == "workspace.json":
            return path.parent.parent.name == "workspaceStorage"
        if path.name == META:
            return path.parent.parent.parent.name == "chats"
        return "agent-transcripts" in path.parts and path.suffix in (".jsonl", ".txt")

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """A database, unless it is one of the files beside. It must never be kept whole."""
        if head.startswith(MAGIC):
            return "rows"
        if path.suffix in (".jsonl", ".txt") or _is_transcript(head):
            return "lines"
        return "document" if path.suffix == ".json" else "rows"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A database with one of its tables, or a file that only stands beside one."""
        if head.startswith(MAGIC):
            known = path.name == "state.vscdb" or b"cursorDiskKV" in head or b"ItemTable" in head
            return known or (b"CREATE TABLE blobs" in head and b"CREATE TABLE meta" in head)
        if path.name.endswith("workspace.json"):
            return path.parent.parent.name == "workspaceStorage"
        if path.name.endswith(META):
            return b'"hasConversation"' in head
        return _is_transcript(head)

    def family(self, path: Path) -> str:
        """Everything of one user: the same chat may stand in several places."""
        found = HOMES.match(path.absolute().as_posix())
        if found:
            return f"{self.name}:{found.group(1) or found.group(2)}"
        for name in ("globalStorage", "workspaceStorage"):
            if name in path.parts:
                parts = path.parts[: path.parts.index(name)]
                return f"{self.name}:{PurePath(*parts) if parts else ''}"
        return f"{self.name}:{path.parent}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As the files beside it say, or the name of its folder."""
        return cursor_projects.projects(path, look)

    def row_filter(
        self, path: Path, own: Select, look: Look, is_left: Callable[[Project], bool]
    ) -> Sieve:
        """All but the chats of projects that are left out."""
        return cursor_projects.sieve(path, own, look, is_left)

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return derivation(material)


def _is_transcript(head: bytes) -> bool:
    """Lines with a role beside the message, and no ids; or plain text, by turns."""
    line = head.lstrip().split(b"\n", 1)[0]
    if is_spoken(head):
        return TALK.match(head) is not None
    if not line.startswith(b'{"role":'):
        return False
    first = parsed(line)
    if isinstance(first, dict):
        return "message" in first
    return CUT.match(line) is not None
