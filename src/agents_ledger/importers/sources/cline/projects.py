"""Cline: which project a task or session belongs to."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, parse_json
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.source import FileProbe, Project
from agents_ledger.importers.sources.cline.records import HISTORY, TIMELINE
from agents_ledger.importers.sources.cline.rules import WORKSPACE

SENT_WORKSPACE = re.compile(WORKSPACE.pattern.encode())
# Of a file, for the folder that was sent with the task.
SEARCHED_BYTES = 1 << 20


def task_projects(path: Path, probe: FileProbe) -> Collection[Project] | None:
    """By the folder that was sent to the model, else by the list of tasks."""
    for name in (HISTORY, TIMELINE):
        sent = SENT_WORKSPACE.search(probe.head(path.with_name(name), SEARCHED_BYTES))
        if sent is not None:
            return [str(parse_json(b'"%s"' % sent[1]) or sent[1].decode(errors="replace"))]
    own = parse_json(probe.head(path.with_name("history_item.json"), LIMITS.record_bytes))
    state = path.parent.parent.parent / "state" / "taskHistory.json"
    folder = _task_folder(own) or probe.document(state, _listed_folders).get(path.parent.name)
    return [folder] if folder else None


def session_projects(path: Path, probe: FileProbe) -> Collection[Project] | None:
    """By the manifest: a session's own, or that of the session that a subagent works for."""
    own = path.name.removesuffix(".json").removesuffix(".messages").removesuffix(".compaction")
    for name in (own, path.parent.name):
        folder = probe.document(path.with_name(f"{name}.json"), manifest_folder)
        if folder:
            return [folder]
    return None


def manifest_folder(manifest: Any) -> str | None:
    """The folder that the manifest of a session names."""
    fields = as_dict(manifest)
    return as_text(fields.get("cwd")) or as_text(fields.get("workspace_root"))


def _task_folder(task: Any) -> str | None:
    fields = as_dict(task)
    return as_text(fields.get("cwdOnTaskInitialization")) or as_text(fields.get("workspace"))


def _listed_folders(tasks: Any) -> dict[str, str]:
    """The folder of each task, by the first entry of a list that names it."""
    folders: dict[str, str] = {}
    for task in as_list(tasks):
        task_id, folder = as_text(as_dict(task).get("id")), _task_folder(task)
        if task_id and folder:
            folders.setdefault(task_id, folder)
    return folders
