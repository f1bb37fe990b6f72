"""Folders of projects: one way to compare them, however each was written."""

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

from agents_ledger.importers.port.source import Project, Trace
from agents_ledger.model.settings import is_windows

FOLDS_CASE = sys.platform in ("darwin", "win32")
BEFORE_DRIVE = re.compile(r"^(?:\\\\\?\\|/)(?=[A-Za-z]:)")  # as some write it
NO_LETTERS = re.compile(r"[^0-9A-Za-z]+")


def normal(path: str) -> str:
    """A path as it is compared. A path of Windows is one wherever it is read."""
    path = unicodedata.normalize("NFC", BEFORE_DRIVE.sub("", path, count=1))
    if is_windows(path):
        return ntpath.normpath(path).replace("\\", "/").casefold()
    path = re.sub("^//+", "/", posixpath.normpath(path))
    return path.casefold() if FOLDS_CASE else path


@lru_cache(maxsize=4096)
def _real(path: str) -> str:
    """Where links lead; a path that is none here leads nowhere."""
    try:
        return os.path.realpath(path) if os.path.isabs(path) else path
    except (OSError, ValueError):
        return path


def dashed(path: str) -> str:
    """A path as some sources make the name of a folder from it."""
    return NO_LETTERS.sub("-", path).strip("-")


class Folder(NamedTuple):
    """A folder whose projects are left out."""

    given: str
    ways: frozenset[str]  # to write it, as a source may have

    @classmethod
    def of(cls, given: str) -> Folder:
        """As it was given, and where links lead."""
        path = ntpath if is_windows(given) else posixpath
        ways = {path.normpath(each) for each in (given, _real(given))}
        if is_windows(given):  # some write the drive small
            ways |= {
                turned + each[1:] for each in ways for turned in (each[0].lower(), each[0].upper())
            }
        return cls(given, frozenset(ways))

    def has(self, path: str) -> bool:
        """Whether a path is it, or within."""
        own = {normal(each) for each in self.ways}
        within = tuple(each.rstrip("/") + "/" for each in own)
        told = (normal(path), normal(_real(path)))
        return any(each in own or each.startswith(within) for each in told)

    def holds(self, project: Project) -> bool | None:
        """Whether a project is it, or within. None: the disk does not say which of two folders it
        is, or it is too long to look for."""
        if isinstance(project, str):
            return self.has(project)
        if project.kind == "long":
            return None
        if project.kind == "dashes":
            return self._holds_dashed(project.value)
        return any(_hashed(project, each) for each in self.ways)

    def _holds_dashed(self, name: str) -> bool | None:
        """`home-dev-shop-2` may be a folder within /home/dev/shop, or the one beside it."""
        name, own = dashed(name), {dashed(each) for each in self.ways}
        if FOLDS_CASE or is_windows(self.given):
            name, own = name.casefold(), {each.casefold() for each in own}
        if name not in own and not name.startswith(tuple(f"{each}-" for each in own)):
            return False
        reached = _reached(name, _root(self.given))
        exact = [path for path in reached if _dashes(path) == name]
        # Of one that is gone, what is above it tells, unless that is above both.
        found = exact or [path for path in reached if not Folder.of(path).has(self.given)]
        told = {self.has(path) for path in found}
        if len(told) == 1:
            return told.pop()
        return True if name in own and not told else None


def _hashed(project: Trace, folder: str) -> bool:
    made = hashlib.new(project.kind, os.fsencode(folder), usedforsecurity=False)
    return made.hexdigest() == project.value.lower()


def _root(path: str) -> str:
    return os.path.join(os.path.splitdrive(path)[0], os.sep)


def _dashes(path: str) -> str:
    return dashed(path).casefold() if FOLDS_CASE else dashed(path)


def _reached(name: str, above: str) -> list[str]:
    """The folders on the disk that dashes may mean, or those nearest above what may be meant."""
    found: list[str] = []
    for path in _folders(above):
        if _dashes(path) == name:
            found.append(path)
        elif name.startswith(f"{_dashes(path)}-"):
            found += _reached(name, path) or [path]
    return found


def _folders(above: str) -> list[str]:
    try:
        with os.scandir(above) as entries:
            return sorted(each.path for each in entries if each.is_dir())
    except OSError:
        return []
