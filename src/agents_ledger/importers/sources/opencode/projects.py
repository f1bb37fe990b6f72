"""opencode: which project a file or a session belongs to, to leave out those of excluded ones."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text
from agents_ledger.importers.parsing.row_filter import BySession, excluded_sessions
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.source import FileProbe, FolderTrace, Project, SharedDatabase
from agents_ledger.importers.sources.opencode.rules import (
    PROJECTS,
    SESSION_TABLES,
    SESSIONS,
    TABLES,
)

# By table, the column with the id of the session or project that a row belongs to.
OWNER_COLUMNS = {
    **{table.name: "session_id" for table in TABLES},
    **dict.fromkeys((PROJECTS.name, *SESSIONS), "id"),
}
SESSION = re.compile(rb'"sessionID"\s*:\s*"([^"]+)"')
PARENT = re.compile(rb'"parentID"\s*:\s*"([^"]+)"')
FOLDER = re.compile(rb'"(?:directory|worktree|cwd)"\s*:\s*("(?:[^"\\]|\\.)*+")', re.DOTALL)

Folders = Collection[Project] | None


def projects(path: Path, probe: FileProbe) -> Folders:
    """The projects of a file; those of a database are in its rows."""
    if path.suffix == ".db" or probe.head(path).startswith(MAGIC):
        return ()
    if "storage" not in path.parts:
        return _folder_in(path, probe)  # an export
    at = path.parts.index("storage")
    if at > 1 and path.parts[at - 2] == "project":
        return [FolderTrace("dashes", path.parts[at - 1])]
    storage, kind = Path(*path.parts[: at + 1]), path.parts[at + 1]
    if kind == "project":
        return _folder_in(path, probe)
    session = SESSION.search(probe.head(path)) if kind == "part" else None
    name = path.parent.name if kind == "message" else path.stem
    return _of_session(storage, session[1].decode(errors="replace") if session else name, probe)


def _folder_in(path: Path, probe: FileProbe) -> list[Project] | None:
    match = FOLDER.search(probe.head(path)) or FOLDER.search(probe.head(path, LIMITS.record_bytes))
    folder = as_text(loose(match[1])) if match else None
    return [folder] if folder else None


def _of_session(storage: Path, session: str, probe: FileProbe) -> Folders:
    """The folder in the session's file, else in its row of the database, else of its parent."""
    name: str | None = session
    visited: set[str] = set()
    while name is not None and name not in visited:
        visited.add(name)
        folders, parent = _of_file(storage, name, probe)
        if folders is None:
            folders, parent_in_row = _of_row(storage.parent, name, probe)
            parent = parent or parent_in_row
        if folders is not None:
            return folders
        name = parent
    return None


def _of_file(storage: Path, session: str, probe: FileProbe) -> tuple[Folders, str | None]:
    for project in probe.names(storage / "session"):
        folder = storage / "session" / project
        if f"{session}.json" in probe.names(folder):
            path = folder / f"{session}.json"
            parent = PARENT.search(probe.head(path))
            folders = _folder_in(path, probe) or _of_project(storage, project, probe)
            return folders, parent[1].decode(errors="replace") if parent else None
    return None, None


def _of_row(folder: Path, session: str, probe: FileProbe) -> tuple[Folders, str | None]:
    """The folder and the parent of a session in a database of the data folder."""
    columns = ("id", "directory", "parent_id")
    for file in probe.names(folder):
        if file.startswith("opencode") and file.endswith(".db"):
            for table in SESSION_TABLES:
                row = probe.row(folder / file, table, columns, session)
                if row is not None:
                    _, directory, parent = row
                    return [str(directory)] if as_text(directory) else None, as_text(parent)
    return None, None


def _of_project(storage: Path, project: str, probe: FileProbe) -> list[Project] | None:
    fields = as_dict(loose(probe.head(storage / "project" / f"{project}.json")))
    folder = as_text(fields.get("worktree"))
    return [folder] if folder else None


def row_filter(database: SharedDatabase) -> BySession:
    """Keep the rows of a database that do not belong to sessions of excluded projects."""
    select, is_excluded = database.select, database.is_excluded
    rows = select(PROJECTS, ("id", "worktree"))
    worktrees = {str(name): str(path) for name, path in rows if path}
    sessions: set[str] = set()
    parents: dict[str, str] = {}
    of_projects: dict[str, Project] = {}
    folders: dict[str, Project] = {}
    for table in SESSION_TABLES:
        sessions.update(str(name) for (name,) in select(table, ("id",)))
        for name, project in select(table, ("id", "project_id")):
            if str(project) in worktrees:
                of_projects[str(name)] = worktrees[str(project)]
        folders |= {str(name): str(at) for name, at in select(table, ("id", "directory")) if at}
        parents |= {str(name): str(up) for name, up in select(table, ("id", "parent_id")) if up}
    excluded, with_project = excluded_sessions(
        of_projects | folders, parents, sessions, is_excluded
    )
    excluded_projects = {name for name, worktree in worktrees.items() if is_excluded(worktree)}
    return BySession(excluded | excluded_projects, with_project | worktrees.keys(), OWNER_COLUMNS)
