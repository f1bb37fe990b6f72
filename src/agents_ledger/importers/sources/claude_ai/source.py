"""Claude.ai's data export: conversations.json, an array of conversations."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.export_documents import Service, derive
from agents_ledger.importers.port.source import Home, Look, Material, Project
from agents_ledger.importers.sources.claude_ai.records import conversation_id
from agents_ledger.importers.sources.claude_ai.tree import ClaudeAiTree
from agents_ledger.model.imports.sources import Derivation, SourceKind

SIGNATURES = (rb'"chat_messages"\s*:\s*\[', rb'"uuid"\s*:')


class ClaudeAi:
    """Conversations of Claude.ai exports."""

    name = "claude-ai"
    version = 1
    kind: SourceKind = "document"

    def roots(self, home: Home) -> Sequence[Path]:
        return ()  # an export is wherever its owner put it

    def wants(self, path: Path) -> bool:
        return path.name == "conversations.json"

    def recognises(self, path: Path, head: bytes) -> bool:
        start = head.lstrip()
        return start[:1] in (b"[", b"{") and all(re.search(sign, start) for sign in SIGNATURES)

    def family(self, path: Path) -> str:
        """The file alone: a conversation that is also in another is matched by its messages."""
        return f"{self.name}:{path}"

    def projects(self, _: Path, __: Look) -> Collection[Project] | None:
        return ()  # conversations of a web page have no folder

    def derive(self, material: Material) -> Derivation:
        return derive(Service(self.name, self.version, conversation_id, ClaudeAiTree), material)
