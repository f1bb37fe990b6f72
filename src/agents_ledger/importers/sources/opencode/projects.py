"""opencode: which project a file or a session is of, for those that are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from pathlib import Path

from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.row_filter import BySession, told
from agents_ledger.importers.port.source import RECORD_MAX, Look, Project, Select, Table, Trace
from agents_ledger.importers.transcript.turn_tree import as_dict, as_text

SESSIONS = (Table("session", ("id",)), Table("session_v2", ("id",)))
PROJECTS = Table("project", ("id",))
OF_SESSION = (
    "message",
    "part",
    "todo",
    "session_message",
    "session_inbox",
    "session_pending",
    "session_input",
    "session_context_epoch",
    "instruction_entry",
    "instruction_state",
)
OF = {
    "project": "id",
    "session": "id",
    "session_v2": "id",
    **dict.fromkeys(OF_SESSION, "session_id"),
}
SESSION = re.compile(rb'"sessionID"\s*:\s*"([^"]+)"')
PARENT = re.compile(rb'"parentID"\s*:\s*"([^"]+)"')
FOLDER = re.compile(rb'"(?:directory|worktree|cwd)"\s*:\s*("(?:[^"\\]|\\.)*+")', re.DOTALL)


def projects(path: Path, look: Look) -> Collection[Project] | None:
    """The projects of a file; of a database its rows tell."""
    if path.suffix == ".db" or look.head(path).startswith(MAGIC):
        return ()
    if "storage" not in path.parts:
        return _said(path, look)  # an export
    at = path.parts.index("storage")
    if at > 1 and path.parts[at - 2] == "project":
        return [Trace("dashes", path.parts[at - 1])]
    storage, kind = Path(*path.parts[: at + 1]), path.parts[at + 1]
    if kind == "project":
        return _said(path, look)
    named = SESSION.search(look.head(path)) if kind == "part" else None
    name = path.parent.name if kind == "message" else path.stem
    return _of_session(storage, named[1].decode(errors="replace") if named else name, look)


def _said(path: Path, look: Look) -> list[Project] | None:
    found = FOLDER.search(look.head(path)) or FOLDER.search(look.head(path, RECORD_MAX))
    said = as_text(loose(found[1])) if found else None
    return [said] if said else None


def _of_session(storage: Path, session: str, look: Look) -> Collection[Project] | None:
    """As its file says, or its row in the database beside, or those of the session above it."""
    name: str | None = session
    seen: set[str] = set()
    while name is not None and name not in seen:
        seen.add(name)
        found, above = _of_file(storage, name, look)
        if found is None:
            found, parent = _of_row(storage.parent, name, look)
            above = above or parent
        if found is not None:
            return found
        name = above
    return None


def _of_file(storage: Path, name: str, look: Look) -> tuple[Collection[Project] | None, str | None]:
    for project in look.names(storage / "session"):
        folder = storage / "session" / project
        if f"{name}.json" in look.names(folder):
            path = folder / f"{name}.json"
            above = PARENT.search(look.head(path))
            found = _said(path, look) or _of_project(storage, project, look)
            return found, above[1].decode(errors="replace") if above else None
    return None, None


def _of_row(folder: Path, name: str, look: Look) -> tuple[Collection[Project] | None, str | None]:
    for file in look.names(folder):
        if file.startswith("opencode") and file.endswith(".db"):
            columns = ("id", "directory", "parent_id")
            for table in SESSIONS:
                row = look.row(folder / file, table, columns, name)
                if row is not None:
                    _, at, above = row
                    return [str(at)] if as_text(at) else None, as_text(above)
    return None, None


def _of_project(storage: Path, project: str, look: Look) -> list[Project] | None:
    said = as_dict(loose(look.head(storage / "project" / f"{project}.json")))
    folder = as_text(said.get("worktree"))
    return [folder] if folder else None


def sieve(own: Select, is_left: Callable[[Project], bool]) -> BySession:
    """What may be kept of a database: not the sessions of projects that are left out."""
    of_projects = {str(n): str(at) for n, at in own(PROJECTS, ("id", "worktree")) if at}
    names: set[str] = set()
    parents: dict[str, str] = {}
    folders: dict[str, Project] = {}
    said: dict[str, Project] = {}
    for table in SESSIONS:  # what the later one says prevails
        names.update(str(name) for (name,) in own(table, ("id",)))
        for name, project in own(table, ("id", "project_id")):
            if str(project) in of_projects:
                folders[str(name)] = of_projects[str(project)]
        said |= {str(n): str(at) for n, at in own(table, ("id", "directory")) if at}
        parents |= {str(n): str(at) for n, at in own(table, ("id", "parent_id")) if at}
    left, known = told(folders | said, parents, names, is_left)
    projects_left = {name for name, folder in of_projects.items() if is_left(folder)}
    return BySession(left | projects_left, known | of_projects.keys(), OF)
