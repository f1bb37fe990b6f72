"""Compares folders of projects, in whatever form an agent recorded them."""

from __future__ import annotations

import hashlib
import ntpath
import os
import posixpath
import re
import sys
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from agents_ledger.importers.port.source import FolderTrace, Project
from agents_ledger.model.installation.settings import is_windows

# The usual file systems there do not distinguish case.
FOLDS_CASE = sys.platform in ("darwin", "win32")
DRIVE_PREFIX = re.compile(r"^(?:\\\\\?\\|/)(?=[A-Za-z]:)")  # \\?\C: and /C:
NOT_ALPHANUMERIC = re.compile(r"[^0-9A-Za-z]+")


def normalize(path: str, folds_case: bool = FOLDS_CASE) -> str:
    """A path in the form that is compared. Windows paths are recognised on any system."""
    # Composed and decomposed names are the same folder on macOS.
    path = unicodedata.normalize("NFC", DRIVE_PREFIX.sub("", path, count=1))
    if is_windows(path):
        return ntpath.normpath(path).replace("\\", "/").casefold()
    path = re.sub("^//+", "/", posixpath.normpath(path))
    return path.casefold() if folds_case else path


@lru_cache(maxsize=4096)
def _resolve(path: str) -> str:
    """The path without symbolic links, if it is a path of this system."""
    try:
        return os.path.realpath(path) if os.path.isabs(path) else path
    except (OSError, ValueError):
        return path


def dashed(path: str) -> str:
    """A path as agents turn it into the name of a folder."""
    return NOT_ALPHANUMERIC.sub("-", path).strip("-")


class ExcludedFolder(NamedTuple):
    path: str
    spellings: frozenset[str]  # in which an agent may have recorded it
    folds_case: bool = FOLDS_CASE

    @classmethod
    def of(cls, path: str, folds_case: bool = FOLDS_CASE) -> ExcludedFolder:
        system = ntpath if is_windows(path) else posixpath
        spellings = {system.normpath(spelling) for spelling in (path, _resolve(path))}
        # VS Code and its descendants write drive letters in lower case.
        if is_windows(path):
            spellings |= {
                drive + spelling[1:]
                for spelling in spellings
                for drive in (spelling[0].lower(), spelling[0].upper())
            }
        return cls(path, frozenset(spellings), folds_case)

    def contains(self, path: str) -> bool:
        """Whether a path is this folder or below it."""
        own = {normalize(spelling, self.folds_case) for spelling in self.spellings}
        prefixes = tuple(spelling.rstrip("/") + "/" for spelling in own)
        candidates = (normalize(path, self.folds_case), normalize(_resolve(path), self.folds_case))
        return any(c in own or c.startswith(prefixes) for c in candidates)

    def contains_project(self, project: Project) -> bool | None:
        """Whether a project is this folder or below it. None: the disk does not show which of two
        folders is meant, or the path is too long to look for."""
        if isinstance(project, str):
            return self.contains(project)
        if project.kind == "long":
            return None
        if project.kind == "dashes":
            return self._contains_dashed(project.value)
        return any(_has_hash(project, spelling) for spelling in self.spellings)

    def _contains_dashed(self, name: str) -> bool | None:
        """`home-dev-shop-2` may be a folder in /home/dev/shop, or its sibling /home/dev/shop-2."""
        name, own = dashed(name), {dashed(spelling) for spelling in self.spellings}
        if self.folds_case or is_windows(self.path):
            name, own = name.casefold(), {spelling.casefold() for spelling in own}
        if name not in own and not name.startswith(tuple(f"{spelling}-" for spelling in own)):
            return False
        candidates = self._candidates(name, _root(self.path))
        exact = [path for path in candidates if self._dashed(path) == name]
        # If the folder was deleted, its nearest parent decides, unless it is a parent of both.
        decisive = exact or [
            path
            for path in candidates
            if not ExcludedFolder.of(path, self.folds_case).contains(self.path)
        ]
        answers = {self.contains(path) for path in decisive}
        if len(answers) == 1:
            return answers.pop()
        return True if name in own and not answers else None

    def _candidates(self, name: str, parent: str) -> list[str]:
        """The folders on the disk that a dashed name may mean, or their nearest parents."""
        paths: list[str] = []
        for path in _subfolders(parent):
            if self._dashed(path) == name:
                paths.append(path)
            elif name.startswith(f"{self._dashed(path)}-"):
                paths += self._candidates(name, path) or [path]
        return paths

    def _dashed(self, path: str) -> str:
        return dashed(path).casefold() if self.folds_case else dashed(path)


def _has_hash(trace: FolderTrace, folder: str) -> bool:
    hashed = hashlib.new(trace.kind, os.fsencode(folder), usedforsecurity=False)
    return hashed.hexdigest() == trace.value.lower()


def _root(path: str) -> str:
    return os.path.join(os.path.splitdrive(path)[0], os.sep)


def _subfolders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError:
        return []
