"""Aider: one Markdown history per repository, to which every run is appended."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.aider.rules import CHAT_FILE, INPUT_FILE, NAME, STARTED
from agents_ledger.importers.sources.aider.turns import AiderLog
from agents_ledger.model.imports.sources import Derivation


class Aider(Source):
    """Runs of Aider. Histories are in the repositories, of which there is no list: no roots."""

    name = NAME
    version = 1

    def wants(self, path: Path) -> bool:
        return path.name in (CHAT_FILE, INPUT_FILE)

    def recognises(self, path: Path, head: bytes) -> bool:
        if path.name == INPUT_FILE:
            return head.lstrip().startswith(b"# ")
        return any(map(STARTED.match, head.split(b"\n")[:20]))

    def family(self, path: Path) -> str:
        """The history of a repository with that of its inputs."""
        return f"{NAME}:{path.parent if self.wants(path) else path}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return [str(path.parent)]

    def derive(self, material: Material) -> Derivation:
        return AiderLog(material, self.version).derivation()
