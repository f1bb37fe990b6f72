"""Derives archived files again after some of their bytes were overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents_ledger.importers.kept_ids import Outline, renaming
from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.archive_reader import Edit
from agents_ledger.model.imports.sources import Renaming


def derive_again(ledger: Ledger, families: Iterable[tuple[str, str]]) -> None:
    """Derive these families with all that share turns with them; each is named with its source."""
    importer = Importer(ledger)
    derived: set[str] = set()
    for family, name in families:
        source = SOURCES.get(name)
        if source is not None and family not in derived:
            derived |= importer.derive_safely(source, family, superseded=True)


def renamings(
    ledger: Ledger,
    families: Iterable[tuple[str, str]],
    edits: Mapping[int, Sequence[Edit]],
) -> list[Renaming]:
    """What the ids of these families would stand for if their files were overwritten so."""
    found: list[Renaming] = []
    outlined: set[str] = set()
    for family, name in families:
        source = SOURCES.get(name)
        if source is None or family in outlined:
            continue
        importer = Importer(ledger)
        files, before = importer.outline(source, family)
        importer.sources.edits = edits
        _, after = importer.outline(source, family)
        outlined |= {file.family for file in files}
        renamed = renaming(Outline.of(before), Outline.of(after))
        if renamed is not None:
            found.append(renamed)
    return found
