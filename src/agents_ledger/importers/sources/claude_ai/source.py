"""Claude.ai's data export: conversations.json, an array of conversations."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.claude_ai.records import conversation_id
from agents_ledger.importers.sources.claude_ai.tree import ClaudeAiTree
from agents_ledger.importers.transcript.exports import ExportTurns
from agents_ledger.model.imports.sources import Derivation, SourceKind

SIGNATURES = (rb'"chat_messages"\s*:\s*\[', rb'"uuid"\s*:')


class ClaudeAi(Source):
    name = "claude-ai"
    version = 1
    kind: SourceKind = "document"

    def wants(self, path: Path) -> bool:
        return path.name == "conversations.json"

    def recognises(self, path: Path, head: bytes) -> bool:
        start = head.lstrip()
        return start[:1] in (b"[", b"{") and all(re.search(sign, start) for sign in SIGNATURES)

    def projects(self, _: Path, __: FileProbe) -> Collection[Project] | None:
        return ()  # conversations of a web page have no folder

    def derive(self, material: Material) -> Derivation:
        turns = ExportTurns(material, self.name, self.version, conversation_id, ClaudeAiTree)
        return turns.derivation()
