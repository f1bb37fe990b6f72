"""Qwen Code: JSON lines, one record per message, linked by parentUuid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.qwen_code.rules import NAME
from agents_ledger.importers.sources.qwen_code.turns import QwenLog
from agents_ledger.model.imports.sources import Derivation

SEARCHED_LINES = 20


class QwenCode(Source):
    name = NAME
    version = 2

    def roots(self, home: Home) -> Sequence[Path]:
        qwen = home.chosen("QWEN_HOME", home.home / ".qwen")
        return [home.chosen("QWEN_RUNTIME_DIR", qwen) / "projects"]

    def wants(self, path: Path) -> bool:
        return path.suffix == ".jsonl" and not {"chats", "subagents"}.isdisjoint(path.parts)

    def recognises(self, path: Path, head: bytes) -> bool:
        """Claude Code's records have the same ids, but no parts in the form of the Gemini API."""
        return any(map(_is_record, map(parse_json, head.split(b"\n")[:SEARCHED_LINES])))

    def projects(self, path: Path, probe: FileProbe) -> Sequence[Project] | None:
        folder = probe.working_folder(path)
        return [folder] if folder else None

    def derive(self, material: Material) -> Derivation:
        return QwenLog(material, self.version).derivation()


def _is_record(value: Any) -> bool:
    record = as_dict(value)
    has_ids = bool(as_text(record.get("uuid")) and as_text(record.get("sessionId")))
    return has_ids and ("parts" in as_dict(record.get("message")) or "systemPayload" in record)
