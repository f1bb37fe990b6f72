"""Gemini CLI: which project a chat is of. A chat says its hash alone; where it also names the
folder, as most do, the hash tells which of all the paths in it that is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from agents_ledger.importers.port.source import Look, Project, Trace
from agents_ledger.importers.transcript.turn_tree import as_dict, as_text, parsed
from agents_ledger.model.imports.sources import SHA256, SourceFile, SourceTitle

ROOT = ".project_root"  # beside the chats of a project: its folder
LOOKED = 4096  # bytes of a message: of 200 real chats more tells the folder of three
SAID = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]{64})"')
_BEGIN = rb"(?:(?<![A-Za-z])[A-Za-z]:(?:\\\\|/)|(?<![\w.~/\\-])/(?=\w))"
_WHOLE = rb'(?<=")' + _BEGIN + rb'(?:[^"\\]|\\.){1,250}(?=")'  # one may have spaces
_WORD = _BEGIN + rb"""(?:[^\s"'`<>|*?:;,()\[\]{}\\]|\\\\|\\u[0-9a-f]{4}){1,250}"""
PATH = re.compile(_WHOLE + rb"|" + _WORD)
ABSOLUTE = re.compile(r"(?:/|[A-Za-z]:[\\/]|\\\\)[^\r\n]{0,4095}")
END = re.compile(r"[\\/]|\Z")


def folder_in(data: bytes, hashed: str) -> str | None:
    """Of the paths in a piece of JSON, and of the folders above them, the one with this hash."""
    return next((folder for folder in _folders(data) if hash_of(folder) == hashed), None)


def root_of(data: bytes) -> str:
    """The folder that such a file names."""
    return data.decode(errors="replace").strip()


def is_root(data: bytes) -> bool:
    """Whether a file of that name is such a one: it has one path, and nothing else."""
    return ABSOLUTE.fullmatch(root_of(data)) is not None


def called(folder: str, file: SourceFile) -> SourceTitle:
    """What a file says that the folder of its project is, by the hash that chats have of it."""
    return SourceTitle(hash_of(folder), file.id, file.path, file.generation, 0, folder)


def _folders(data: bytes) -> set[str]:
    paths = (as_text(parsed(b'"%b"' % word)) or "" for word in set(PATH.findall(data)))
    return {path[: end.start()] for path in paths for end in END.finditer(path, 1)}


def hash_of(folder: str) -> str:
    """What a chat says instead of its folder."""
    return hashlib.sha256(folder.encode(errors="surrogatepass")).hexdigest()


def projects(path: Path, look: Look) -> Collection[Project] | None:
    """As the folder of its project says, or the program's list of them; else by its hash."""
    at = len(path.parts) - 1 - path.parts[::-1].index("chats") if "chats" in path.parts else 0
    folder = Path(*path.parts[:at]) if at else path.parent
    root = root_of(look.head(folder / ROOT))
    if root:
        return [root]
    known = look.document(folder.parent.parent / "projects.json", _listed)
    name = folder.name
    if not SHA256.fullmatch(name) and name not in known:
        told = SAID.search(look.head(path))
        name = told[1].decode() if told else name
    if name in known:
        return known[name]
    if not SHA256.fullmatch(name):
        return None
    return [folder_in(look.head(path), name) or Trace("sha256", name)]


def _listed(said: Any) -> dict[str, list[Project]]:
    """The folders of projects, by their short names and by their hashes."""
    found: dict[str, list[Project]] = {}
    for folder, short in as_dict(as_dict(said).get("projects")).items():
        for name in {str(short), hash_of(folder)}:
            found.setdefault(name, []).append(folder)
    return found
