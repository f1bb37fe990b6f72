"""Gemini CLI: which project a chat is of. A chat says its hash alone; where it also names the
folder, as most do, the hash tells which of all the paths in it that is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from agents_ledger.importers.outlines import as_dict, as_text, parsed
from agents_ledger.importers.reader import Look, Project, Trace

LOOKED = 4096  # bytes of a message: of 200 real chats more tells the folder of three
HASH = re.compile(r"[0-9a-f]{64}")
SAID = re.compile(rb'"projectHash"\s*:\s*"([0-9a-f]{64})"')
_BEGIN = rb"(?:(?<![A-Za-z])[A-Za-z]:(?:\\\\|/)|(?<![\w.~/\\-])/(?=\w))"
_WHOLE = rb'(?<=")' + _BEGIN + rb'(?:[^"\\]|\\.){1,250}(?=")'  # one may have spaces
_WORD = _BEGIN + rb"""(?:[^\s"'`<>|*?:;,()\[\]{}\\]|\\\\|\\u[0-9a-f]{4}){1,250}"""
PATH = re.compile(_WHOLE + rb"|" + _WORD)
END = re.compile(r"[\\/]|\Z")


def folder_in(data: bytes, hashed: str) -> str | None:
    """Of the paths in a piece of JSON, and of the folders above them, the one with this hash."""
    return next((folder for folder in _folders(data) if _hash(folder) == hashed), None)


def _folders(data: bytes) -> set[str]:
    paths = (as_text(parsed(b'"%b"' % word)) or "" for word in set(PATH.findall(data)))
    return {path[: end.start()] for path in paths for end in END.finditer(path, 1)}


def _hash(folder: str) -> str:
    return hashlib.sha256(folder.encode(errors="surrogatepass")).hexdigest()


def projects(path: Path, look: Look) -> Collection[Project] | None:
    """As the folder of its project says, or the program's list of them; else by its hash."""
    at = len(path.parts) - 1 - path.parts[::-1].index("chats") if "chats" in path.parts else 0
    folder = Path(*path.parts[:at]) if at else path.parent
    root = look.head(folder / ".project_root").decode(errors="replace").strip()
    if root:
        return [root]
    known = look.document(folder.parent.parent / "projects.json", _listed)
    name = folder.name
    if not HASH.fullmatch(name) and name not in known:
        told = SAID.search(look.head(path))
        name = told[1].decode() if told else name
    if name in known:
        return known[name]
    if not HASH.fullmatch(name):
        return None
    return [folder_in(look.head(path), name) or Trace("sha256", name)]


def _listed(said: Any) -> dict[str, list[Project]]:
    """The folders of projects, by their short names and by their hashes."""
    found: dict[str, list[Project]] = {}
    for folder, short in as_dict(as_dict(said).get("projects")).items():
        for name in {str(short), _hash(folder)}:
            found.setdefault(name, []).append(folder)
    return found
