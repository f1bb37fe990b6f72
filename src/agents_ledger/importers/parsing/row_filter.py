"""Filters for the rows of a database that contains sessions of several projects."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct, field

from agents_ledger.importers.parsing.lenient_json import as_text
from agents_ledger.importers.port.source import Project
from agents_ledger.model.imports.records import RowRecord


def excluded_sessions(
    folders: Mapping[str, Project],
    parents: Mapping[str, str],
    sessions: Collection[str],
    is_excluded: Callable[[Project], bool],
) -> tuple[frozenset[str], frozenset[str]]:
    """The sessions of excluded projects, and all sessions with a project: that of their own folder
    or of the nearest parent with one."""
    nearest: dict[str, Project | None] = dict(folders)
    for session in sessions:
        above: str | None = session
        path: list[str] = []
        while above is not None and above not in nearest:
            nearest[above] = None  # ends a cycle of parents
            path.append(above)
            above = parents.get(above)
        nearest |= dict.fromkeys(path, nearest[above] if above is not None else None)
    projects = {session: at for session in sessions if (at := nearest[session]) is not None}
    excluded = {project for project in set(projects.values()) if is_excluded(project)}
    return (
        frozenset(session for session, project in projects.items() if project in excluded),
        frozenset(projects),
    )


class BySession(Struct):
    """A filter for rows that name their session, or whatever else they belong to."""

    excluded: frozenset[str]
    with_project: frozenset[str]
    columns: Mapping[str, str]  # by table, the column with the name
    uncertain: frozenset[str] = frozenset()
    without_project: set[str] = field(default_factory=set)

    def __call__(self, row: RowRecord) -> RowRecord | None:
        name = as_text(row.named.get(self.columns.get(row.table, "")))
        if name in self.excluded:
            return None
        if name is not None and name not in self.with_project:
            self.without_project.add(name)
        return row
