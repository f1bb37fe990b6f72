"""ChatGPT's data export: conversations.json, whole, in shards, or one conversation."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.chatgpt.records import conversation_id
from agents_ledger.importers.sources.chatgpt.tree import ChatGptTree
from agents_ledger.importers.transcript.exports import ExportTurns
from agents_ledger.model.imports.sources import Derivation, SourceKind

FILE_NAME = re.compile(r"conversations(-\d+)?\.json")  # exports of 2025 on may come in shards
# Other programs write a "mapping" too: its first node must have the form of a node.
MAPPING = re.compile(
    rb'"mapping"\s*:\s*\{\s*"[^"]*"\s*:\s*\{\s*(?:"id"\s*:\s*"[^"]*"\s*,\s*)?'
    rb'"(?:message"\s*:\s*(?:null|\{)|parent"\s*:\s*(?:null|")|children"\s*:\s*\[)'
)


class ChatGpt(Source):
    name = "chatgpt"
    version = 3
    kind: SourceKind = "document"

    def wants(self, path: Path) -> bool:
        return FILE_NAME.fullmatch(path.name) is not None

    def recognises(self, path: Path, head: bytes) -> bool:
        start = head.lstrip()
        return start[:1] in (b"[", b"{") and MAPPING.search(start) is not None

    def projects(self, _: Path, __: FileProbe) -> Collection[Project] | None:
        return ()  # conversations of a web page have no folder

    def derive(self, material: Material) -> Derivation:
        turns = ExportTurns(material, self.name, self.version, conversation_id, ChatGptTree)
        return turns.derivation()
