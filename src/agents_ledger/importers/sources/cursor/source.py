"""Cursor: chats in SQLite databases, in five generations that may exist side by side."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePath

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.lenient_json import parse_json
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import (
    FileProbe,
    Project,
    RowFilter,
    SharedDatabase,
    Source,
    Table,
)
from agents_ledger.importers.sources.cursor import projects as cursor_projects
from agents_ledger.importers.sources.cursor import rules, tree
from agents_ledger.importers.sources.cursor.agent_sessions import is_text_transcript
from agents_ledger.model.imports.sources import Derivation, SourceKind

TABLES = (
    Table(
        "ItemTable",
        ("key",),
        # Named keys only: ItemTable also has accounts (cursorAuth/*) and secrets (secret://*).
        keys=("aiService.generations", "aiService.prompts", *rules.LISTS, rules.TABS),
        # Keys are UNIQUE ON CONFLICT REPLACE: a rewritten row gets a larger rowid.
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
    # A row per chat: few enough to compare all of them by their digests.
    Table(rules.HEADERS, ("composerId",), is_small=True),
    Table("meta", ("key",)),
    # Content-addressed: a blob never changes.
    Table("blobs", ("id",), grows=True),
)
CUT_LINE = re.compile(rb'\{"role":\s*"\w*",\s*"message":')  # of a transcript, longer than the head
CONVERSATION = re.compile(rb"\s*user:\s*(?:<\w+>|.*?^(?:assistant|A):\s*$)", re.DOTALL | re.M)
HOMES = re.compile(
    r"^(.*?)/(?:\.config|Library/Application Support|AppData/Roaming)/Cursor/User/|^(.*?)/\.cursor/"
)


class Cursor(Source):
    """Chats of the Cursor editor, and sessions of its agent."""

    name = rules.NAME
    version = 18
    kind: SourceKind = "rows"
    tables = TABLES

    def roots(self, home: Home) -> Sequence[Path]:
        user = home.config("Cursor") / "User"
        agent = home.chosen("CURSOR_DATA_DIR", home.home / ".cursor")
        editor = [user / "globalStorage", user / "workspaceStorage"]
        return [*editor, agent / "chats", agent / "projects"]

    def wants(self, path: Path) -> bool:
        """Databases, the files next to them that name folders, and transcripts."""
        if path.name in ("state.vscdb", "store.db"):
            return True
        if path.name == "workspace.json":
            return path.parent.parent.name == "workspaceStorage"
        if path.name == rules.META:
            return path.parent.parent.parent.name == "chats"
        return "agent-transcripts" in path.parts and path.suffix in (".jsonl", ".txt")

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """Rows unless it is clearly another file: a database must never be kept whole."""
        if head.startswith(MAGIC):
            return "rows"
        if path.suffix in (".jsonl", ".txt") or _is_transcript(head):
            return "lines"
        return "document" if path.suffix == ".json" else "rows"

    def recognises(self, path: Path, head: bytes) -> bool:
        if head.startswith(MAGIC):
            is_state = path.name == "state.vscdb" or b"cursorDiskKV" in head or b"ItemTable" in head
            return is_state or (b"CREATE TABLE blobs" in head and b"CREATE TABLE meta" in head)
        if path.name.endswith("workspace.json"):
            return path.parent.parent.name == "workspaceStorage"
        if path.name.endswith(rules.META):
            # Many programs write a meta.json.
            return b'"hasConversation"' in head
        return _is_transcript(head)

    def family(self, path: Path) -> str:
        """All files of one user: a chat may be in several of them."""
        home = HOMES.match(path.absolute().as_posix())
        if home:
            return f"{self.name}:{home.group(1) or home.group(2)}"
        for name in ("globalStorage", "workspaceStorage"):
            if name in path.parts:
                parts = path.parts[: path.parts.index(name)]
                return f"{self.name}:{PurePath(*parts) if parts else ''}"
        return f"{self.name}:{path.parent}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return cursor_projects.projects(path, probe)

    def row_filter(self, database: SharedDatabase) -> RowFilter:
        return cursor_projects.row_filter(database)

    def derive(self, material: Material) -> Derivation:
        return tree.derive(material, self.version)


def _is_transcript(head: bytes) -> bool:
    """Lines with a role and a message but no ids; or plain text in turns."""
    line = head.lstrip().split(b"\n", 1)[0]
    if is_text_transcript(head):
        return CONVERSATION.match(head) is not None
    if not line.startswith(b'{"role":'):
        return False
    first = parse_json(line)
    if isinstance(first, dict):
        return "message" in first
    return CUT_LINE.match(line) is not None
