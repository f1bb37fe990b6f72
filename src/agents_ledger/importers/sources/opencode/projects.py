"""opencode: which project a file or a session belongs to, to leave out those of excluded ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text
from agents_ledger.importers.parsing.row_filter import BySession, told
from agents_ledger.importers.port.source import RECORD_MAX, Look, Project, Select, Trace
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


def projects(path: Path, look: Look) -> Folders:
    """The projects of a file; those of a database are in its rows."""
    if path.suffix == ".db" or look.head(path).startswith(MAGIC):
        return ()
    if "storage" not in path.parts:
        return _folder_in(path, look)  # an export
    at = path.parts.index("storage")
    if at > 1 and path.parts[at - 2] == "project":
        return [Trace("dashes", path.parts[at - 1])]
    storage, kind = Path(*path.parts[: at + 1]), path.parts[at + 1]
    if kind == "project":
        return _folder_in(path, look)
    session = SESSION.search(look.head(path)) if kind == "part" else None
    name = path.parent.name if kind == "message" else path.stem
    return _of_session(storage, session[1].decode(errors="replace") if session else name, look)


def _folder_in(path: Path, look: Look) -> list[Project] | None:
    match = FOLDER.search(look.head(path)) or FOLDER.search(look.head(path, RECORD_MAX))
    folder = as_text(loose(match[1])) if match else None
    return [folder] if folder else None


def _of_session(storage: Path, session: str, look: Look) -> Folders:
    """The folder in the session's file, else in its row of the database, else of its parent."""
    name: str | None = session
    visited: set[str] = set()
    while name is not None and name not in visited:
        visited.add(name)
        folders, parent = _of_file(storage, name, look)
        if folders is None:
            folders, parent_in_row = _of_row(storage.parent, name, look)
            parent = parent or parent_in_row
        if folders is not None:
            return folders
        name = parent
    return None


def _of_file(storage: Path, session: str, look: Look) -> tuple[Folders, str | None]:
    """The folder and the parent of a session in its file."""
    for project in look.names(storage / "session"):
        folder = storage / "session" / project
        if f"{session}.json" in look.names(folder):
            path = folder / f"{session}.json"
            parent = PARENT.search(look.head(path))
            folders = _folder_in(path, look) or _of_project(storage, project, look)
            return folders, parent[1].decode(errors="replace") if parent else None
    return None, None


def _of_row(folder: Path, session: str, look: Look) -> tuple[Folders, str | None]:
    """The folder and the parent of a session in a database of the data folder."""
    columns = ("id", "directory", "parent_id")
    for file in look.names(folder):
        if file.startswith("opencode") and file.endswith(".db"):
            for table in SESSION_TABLES:
                row = look.row(folder / file, table, columns, session)
                if row is not None:
                    _, directory, parent = row
                    return [str(directory)] if as_text(directory) else None, as_text(parent)
    return None, None


def _of_project(storage: Path, project: str, look: Look) -> list[Project] | None:
    fields = as_dict(loose(look.head(storage / "project" / f"{project}.json")))
    folder = as_text(fields.get("worktree"))
    return [folder] if folder else None


def sieve(own: Select, is_left: Callable[[Project], bool]) -> BySession:
    """Keep the rows of a database that do not belong to sessions of excluded projects."""
    worktrees = {str(name): str(path) for name, path in own(PROJECTS, ("id", "worktree")) if path}
    sessions: set[str] = set()
    parents: dict[str, str] = {}
    of_projects: dict[str, Project] = {}
    folders: dict[str, Project] = {}
    for table in SESSION_TABLES:
        sessions.update(str(name) for (name,) in own(table, ("id",)))
        for name, project in own(table, ("id", "project_id")):
            if str(project) in worktrees:
                of_projects[str(name)] = worktrees[str(project)]
        folders |= {str(name): str(path) for name, path in own(table, ("id", "directory")) if path}
        parents |= {str(name): str(up) for name, up in own(table, ("id", "parent_id")) if up}
    left, known = told(of_projects | folders, parents, sessions, is_left)
    projects_left = {name for name, worktree in worktrees.items() if is_left(worktree)}
    return BySession(left | projects_left, known | worktrees.keys(), OWNER_COLUMNS)
