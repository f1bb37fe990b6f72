"""Gemini CLI: a JSON document rewritten with every message, or since 0.40 a log of JSON lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, parse_json
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.gemini.projects import ROOT_FILE, is_root_file, projects
from agents_ledger.importers.sources.gemini.records import is_own_record
from agents_ledger.importers.sources.gemini.rules import NAME
from agents_ledger.importers.sources.gemini.tree import GeminiTree
from agents_ledger.model.imports.sources import Derivation, SourceKind

SESSION_FILE = re.compile(r"session-.*-([0-9a-f]{8})")
# For a record of ours, in a file that lost its first line.
SEARCHED_LINES = 50


class GeminiCli(Source):
    name = NAME
    version = 14
    kind: SourceKind = "document"

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """A log's first line is an object without messages; all else is one document."""
        line = head.split(b"\n", 1)[0]
        first = parse_json(line)
        if isinstance(first, dict):
            return "document" if {"messages", "history"} & first.keys() else "lines"
        # A resumed document becomes a log: "session-….json" and "session-….jsonl" may both exist.
        is_pretty_printed = line.strip() == b"{"
        return "lines" if path.suffix == ".jsonl" and not is_pretty_printed else "document"

    def roots(self, home: Home) -> Sequence[Path]:
        return [home.chosen("GEMINI_CLI_HOME", home.home) / ".gemini" / "tmp"]

    def wants(self, path: Path) -> bool:
        """Chats, those of subagents, and root files; not logs.json and checkpoints."""
        is_chat = path.suffix in (".json", ".jsonl") and "chats" in path.parts[:-1]
        return is_chat or path.name == ROOT_FILE

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the head of a chat, by a later record, or by the history of the oldest form."""
        if path.name == ROOT_FILE:
            return is_root_file(head)
        start = head.lstrip()
        if any(map(is_own_record, start.split(b"\n")[:SEARCHED_LINES])):
            return True
        if not start.startswith(b"{"):
            return False
        first = parse_json(start.split(b"\n", 1)[0])
        if not isinstance(first, dict):
            if re.search(rb'"projectHash"\s*:', start) and re.search(rb'"sessionId"\s*:', start):
                return True
            first = as_dict(parse_json(start))
        history = as_list(first.get("history"))
        has_parts = bool(history) and all("parts" in as_dict(message) for message in history)
        return has_parts or ("projectHash" in first and "sessionId" in first)

    def family(self, path: Path) -> str:
        """All files of a session: the document, the log it became, and its subagents' files."""
        if path.parent.parent.name == "chats":
            # The file of a session has only the first 8 characters of its id in its name.
            return f"{NAME}:{path.parent.parent / path.parent.name[:8]}"
        short_id = SESSION_FILE.fullmatch(path.stem)
        return f"{NAME}:{path.parent / (short_id[1] if short_id else path.stem)}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return projects(path, probe)

    def derive(self, material: Material) -> Derivation:
        return GeminiTree(material, self.version).derivation()
