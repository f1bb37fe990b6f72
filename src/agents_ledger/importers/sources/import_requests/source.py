"""Import requests as a source: each archived item is a document, each session a path."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.import_requests.rules import NAME, VERSION
from agents_ledger.importers.sources.import_requests.tree import RequestTree
from agents_ledger.model.imports.sources import Derivation, SourceKind


class Requests(Source):
    """The items of import requests. No file on disk is one."""

    name = NAME
    version = VERSION
    kind: SourceKind = "document"

    def recognises(self, path: Path, head: bytes) -> bool:
        return False

    def family(self, path: Path) -> str:
        return str(path)

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        return ()

    def derive(self, material: Material) -> Derivation:
        return RequestTree(material).derivation()
