"""Gemini CLI: which project a chat belongs to.

A chat records only the hash of its folder. If it also mentions the folder, or a file in it, as two
of three real chats do, the hash identifies that path among all others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, parse_json
from agents_ledger.importers.port.source import FileProbe, FolderTrace, Project
from agents_ledger.model.imports.sources import SHA256, SourceFile, SourceTitle

# Written next to the chats since 2026: the folder of the project.
ROOT_FILE = ".project_root"
# Of a message; in 200 real chats, searching more finds three more folders.
SEARCHED_BYTES = 4096
PROJECT_HASH = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]{64})"')
_PATH_START = rb"(?:(?<![A-Za-z])[A-Za-z]:(?:\\\\|/)|(?<![\w.~/\\-])/(?=\w))"
_QUOTED_PATH = rb'(?<=")' + _PATH_START + rb'(?:[^"\\]|\\.){1,250}(?=")'  # may contain spaces
_BARE_PATH = _PATH_START + rb"""(?:[^\s"'`<>|*?:;,()\[\]{}\\]|\\\\|\\u[0-9a-f]{4}){1,250}"""
PATH = re.compile(_QUOTED_PATH + rb"|" + _BARE_PATH)
ABSOLUTE_PATH = re.compile(r"(?:/|[A-Za-z]:[\\/]|\\\\)[^\r\n]{0,4095}")
SEPARATOR = re.compile(r"[\\/]|\Z")


def folder_with_hash(data: bytes, project_hash: str) -> str | None:
    """The path in some JSON, or folder above one, that has this hash."""
    paths = (as_text(parse_json(b'"%b"' % word)) or "" for word in set(PATH.findall(data)))
    # A path may be of a file in the project: every folder above it is tried.
    folders = {path[: end.start()] for path in paths for end in SEPARATOR.finditer(path, 1)}
    return next((folder for folder in folders if hash_of(folder) == project_hash), None)


def hash_of(folder: str) -> str:
    """What a chat records in place of its folder."""
    return hashlib.sha256(folder.encode(errors="surrogatepass")).hexdigest()


def root_in(data: bytes) -> str:
    return data.decode(errors="replace").strip()


def is_root_file(data: bytes) -> bool:
    """Whether a file contains one path and nothing else."""
    return ABSOLUTE_PATH.fullmatch(root_in(data)) is not None


def folder_title(folder: str, file: SourceFile) -> SourceTitle:
    """The folder that a root file names, keyed by the hash that the chats have."""
    return SourceTitle(hash_of(folder), file.id, file.path, file.generation, 0, folder)


def projects(path: Path, probe: FileProbe) -> Collection[Project] | None:
    """By the root file, else by the program's list of projects, else by the hash."""
    at = len(path.parts) - 1 - path.parts[::-1].index("chats") if "chats" in path.parts else 0
    folder = Path(*path.parts[:at]) if at else path.parent
    root = root_in(probe.head(folder / ROOT_FILE))
    if root:
        return [root]
    listed = probe.document(folder.parent.parent / "projects.json", _listed_projects)
    name = folder.name
    if not SHA256.fullmatch(name) and name not in listed:
        # Newer versions name the folder of chats by a short name instead of the hash.
        recorded = PROJECT_HASH.search(probe.head(path))
        name = recorded[1].decode() if recorded else name
    if name in listed:
        return listed[name]
    if not SHA256.fullmatch(name):
        return None
    return [folder_with_hash(probe.head(path), name) or FolderTrace("sha256", name)]


def _listed_projects(document: Any) -> dict[str, list[Project]]:
    """The folders of projects, by their short names and by their hashes."""
    listed: dict[str, list[Project]] = {}
    for folder, short_name in as_dict(as_dict(document).get("projects")).items():
        for name in {str(short_name), hash_of(folder)}:
            listed.setdefault(name, []).append(folder)
    return listed
