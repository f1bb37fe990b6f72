"""Claude Code: JSON lines, one record per content block, linked by parentUuid.

docs/sources/claude-code.md describes what is mapped. Start at rules.py (what a record means) and at
tree.py (how records become turns, and what a fork is).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.lenient_json import BROKEN
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, FolderTrace, Project, Source
from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.rules import NAME
from agents_ledger.importers.sources.claude_code.sessions import ClaudeFamily
from agents_ledger.model.imports.sources import Derivation, SourceKind

SUBAGENTS = "subagents"
QWEN_MARK = b'"systemPayload"'  # Qwen Code writes similar records
# An absolute path, with dashes for all punctuation.
PROJECT_FOLDER = re.compile("-|[A-Za-z]--")


class ClaudeCode(Source):
    """Sessions of Claude Code, with their subagents and spilled outputs."""

    name = NAME
    version = 23
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """`projects` below each configuration folder."""
        chosen = home.environment.get("CLAUDE_CONFIG_DIR", "")
        # The variable may name several folders, separated by commas, as ccusage reads it.
        folders = [Path(part.strip()) for part in chosen.split(",") if part.strip()]
        # Since about 1.0.30 some installations use ~/.config/claude; both may have sessions.
        folders = folders or [home.home / ".claude", home.home / ".config" / "claude"]
        return [folder / "projects" for folder in folders]

    def wants(self, path: Path) -> bool:
        """Logs of sessions and subagents, descriptions of these, and spilled outputs."""
        return path.suffix == ".jsonl" or _is_side_file(path)

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """Side files are written once, as a whole."""
        return "document" if _is_side_file(path) else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A record with a session id, or of a type that only this source has."""
        if _is_side_file(path):
            return True
        # Dozens of `summary` records may precede the first message (2.0).
        for line in head.split(b"\n")[:50]:
            try:
                record = records.read_record(line)
            except BROKEN:
                continue
            if record.type in records.OTHER_TYPES:
                return True
            has_content = records.raw_content(record) != b"null"
            is_message = record.type in ("user", "assistant")
            has_ids = record.session_id and record.uuid and QWEN_MARK not in line
            if record.type in records.CHAIN and has_ids and (has_content or not is_message):
                return True
            if is_message and has_content and isinstance(record.timestamp, str):
                return True
        return False

    def family(self, path: Path) -> str:
        """A session with its folder of subagents and outputs. Sessions that share records are
        joined by their turns."""
        if records.META_NAME.search(path.name):
            path = path.with_name(path.name.removesuffix(records.META_SUFFIX) + ".jsonl")
        if records.is_spill(path):
            path = path.parent.parent.with_name(path.parent.parent.name + ".jsonl")
        for folder in path.parents if SUBAGENTS in path.parts else ():
            if folder.name == SUBAGENTS:
                path = folder.parent.with_name(folder.parent.name + ".jsonl")
        return f"{self.name}:{path}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        """The working folder in the session's log, else in this file, else in the other files of
        its folder, as some files have only titles; else by the name of that folder."""
        session = Path(self.family(path).partition(":")[2])
        cwd = (
            probe.working_folder(session)
            or probe.working_folder(path)
            or probe.working_folder_within(session.parent)
        )
        if cwd:
            return [cwd]
        name = session.parent.name
        # Every character but letters and digits became a dash: the name cannot be decoded.
        return [FolderTrace("dashes", name)] if PROJECT_FOLDER.match(name) else None

    def derive(self, material: Material) -> Derivation:
        return ClaudeFamily(material).derivation(self.version)


def _is_side_file(path: Path) -> bool:
    return records.is_spill(path) or records.META_NAME.search(path.name) is not None
