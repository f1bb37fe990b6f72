"""Which rows of a database are of sessions that are left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.parsing.lenient_json import as_text
from agents_ledger.importers.port.source import Project
from agents_ledger.model.imports.records import RowRecord


class Told(NamedTuple):
    """Sessions that say their project, and those of a project that is left out."""

    left: frozenset[str]
    known: frozenset[str]


def told(
    folders: Mapping[str, Project],
    parents: Mapping[str, str],
    names: Collection[str],
    is_left: Callable[[Project], bool],
) -> Told:
    """By the folder of each, or else of the nearest above it that has one."""
    nearest: dict[str, Project | None] = dict(folders)
    for name in names:
        above: str | None = name
        way: list[str] = []
        while above is not None and above not in nearest:
            nearest[above] = None  # parents in a circle end there
            way.append(above)
            above = parents.get(above)
        found = nearest[above] if above is not None else None
        nearest |= dict.fromkeys(way, found)
    said = {name: nearest[name] for name in names}
    left_out = {each for each in set(said.values()) if each is not None and is_left(each)}
    known = frozenset(name for name, each in said.items() if each is not None)
    return Told(frozenset(name for name in known if said[name] in left_out), known)


def value_of(row: RowRecord, column: str) -> Any:
    """What a row says in a column."""
    return row.values[row.columns.index(column)] if column in row.columns else None


class BySession(Struct):
    """Rows that name what they are of."""

    excluded: frozenset[str]
    known: frozenset[str]
    columns: Mapping[str, str]  # of each table, the one that names it
    uncertain: frozenset[str] = frozenset()
    without_project: set[str] = field(default_factory=set)

    def __call__(self, row: RowRecord) -> RowRecord | None:
        """The row, unless it is of something left out."""
        name = as_text(value_of(row, self.columns.get(row.table, "")))
        if name in self.excluded:
            return None
        if name is not None and name not in self.known:
            self.without_project.add(name)
        return row
