"""Claude Code: JSON lines, one record per content block, linked by parentUuid.

A record's uuid is its identity in all files: a resumed or forked session copies records, and so
shares turns. docs/sources/claude-code.md tells where each rule was learned.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.port.source import Home, Look, Material, Project, Source, Trace
from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.outline import NAME, Outline
from agents_ledger.importers.transcript.turn_tree import BROKEN
from agents_ledger.model.imports.sources import Derivation, SourceKind

SUBAGENTS = "subagents"
QWENS = b'"systemPayload"'  # in records of Qwen Code, which look much the same
FOLDER = re.compile("-|[A-Za-z]--")  # begins the name of a project's: a path, with dashes


class ClaudeCode(Source):
    """Reader of Claude Code's sessions, with what stands beside them in files of their own."""

    name = NAME
    version = 20
    kind: SourceKind = "lines"

    def roots(self, home: Home) -> Sequence[Path]:
        """`projects` below each configuration folder."""
        chosen = home.environment.get("CLAUDE_CONFIG_DIR", "")
        folders = [Path(part.strip()) for part in chosen.split(",") if part.strip()]
        folders = folders or [home.home / ".claude", home.home / ".config" / "claude"]
        return [folder / "projects" for folder in folders]

    def wants(self, path: Path) -> bool:
        """Sessions and subagents alike, what is said of these, and outputs kept apart."""
        return path.suffix == ".jsonl" or _is_beside(path)

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        """What stands beside a session is written once, as a whole."""
        return "document" if _is_beside(path) else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A record with a session id, or one of the kinds only this source has."""
        if _is_beside(path):
            return True
        for line in head.split(b"\n")[:50]:
            try:
                record = records.read(line)
            except BROKEN:
                continue
            if record.type in records.PLAIN:
                return True
            said = records.raw_content(record) != b"null"
            speaks = record.type in ("user", "assistant")
            known = record.session_id and record.uuid and QWENS not in line
            if record.type in records.CHAIN and known and (said or not speaks):
                return True
            if speaks and said and isinstance(record.timestamp, str):
                return True
        return False

    def family(self, path: Path) -> str:
        """A session with its folder of subagents and outputs. Sessions that share records are
        found by their turns."""
        if records.ABOUT_NAME.search(path.name):
            path = path.with_name(path.name.removesuffix(records.ABOUT) + ".jsonl")
        if records.is_spill(path):
            path = path.parent.parent.with_name(path.parent.parent.name + ".jsonl")
        for folder in path.parents if SUBAGENTS in path.parts else ():
            if folder.name == SUBAGENTS:
                path = folder.parent.with_name(folder.parent.name + ".jsonl")
        return f"{self.name}:{path}"

    def projects(self, path: Path, look: Look) -> Collection[Project] | None:
        """As the session says, else this file, else the others of its folder: there are files with
        nothing but their titles. Else by the name of that folder."""
        session = Path(self.family(path).partition(":")[2])
        said = (
            look.working_folder(session)
            or look.working_folder(path)
            or look.working_folder_within(session.parent)
        )
        if said:
            return [said]
        name = session.parent.name
        return [Trace("dashes", name)] if FOLDER.match(name) else None

    def derive(self, material: Material) -> Derivation:
        """What the records say."""
        return Outline(material, self.version).derivation()


def _is_beside(path: Path) -> bool:
    return records.is_spill(path) or records.ABOUT_NAME.search(path.name) is not None
