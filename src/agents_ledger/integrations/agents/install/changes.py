"""Applies changes to the settings files of agents, with a backup, and undoes them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation import settings

Result = Literal["created", "changed", "unchanged", "removed", "restored"]


class FileChange(NamedTuple):
    """A file of an agent, and how its text is to be changed; "" is a file that does not exist."""

    path: Path
    what: str
    install: Callable[[str], str]
    uninstall: Callable[[str], str]


class Done(NamedTuple):
    agent: str
    path: str
    what: str
    result: Result
    backup: str | None = None


class Installation:
    """What was installed, in a file of the user's data folder: where backups are, and what each
    file looked like after the change."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or settings.default_file().parent / "installed"
        self._file = self._folder / "files.json"
        self._entries: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            self._entries = json.loads(self._file.read_text(encoding="utf-8"))

    def install(self, agent: str, change: FileChange, *, dry_run: bool) -> Done:
        before = _read(change.path)
        after = _changed(change.path, before or "", change.install)
        if before == after:
            return Done(agent, str(change.path), change.what, "unchanged")
        result: Result = "created" if before is None else "changed"
        backup = None
        if before is not None:
            name = f"{_digest(str(change.path))[:8]}-{_digest(before)[:8]}-{change.path.name}"
            backup = self._folder / "backups" / name
        if not dry_run:
            self._keep(change.path, before, after, backup)
            _write(change.path, after)
        return Done(agent, str(change.path), change.what, result, str(backup) if backup else None)

    def _keep(self, path: Path, before: str | None, after: str, backup: Path | None) -> None:
        entry = self._entries.get(str(path))
        if backup is not None and before is not None:
            _write(backup, before)
        # The state before the first change is what uninstall restores, unless others changed it.
        if entry is None or before is None or entry["after"] != _digest(before):
            entry = {"backup": str(backup) if backup else None}
        self._entries[str(path)] = {**entry, "after": _digest(after)}
        self._save()

    def uninstall(self, agent: str, change: FileChange, *, dry_run: bool) -> Done:
        before = _read(change.path)
        if before is None:
            return Done(agent, str(change.path), change.what, "unchanged")
        entry = self._entries.get(str(change.path))
        if entry and entry["after"] == _digest(before):
            original = _read(Path(entry["backup"])) if entry["backup"] else ""
        else:
            original = _changed(change.path, before, change.uninstall)
        if original is None or original == before:
            return Done(agent, str(change.path), change.what, "unchanged")
        gone = original == ""
        if not dry_run:
            if gone:
                change.path.unlink()
                _remove_empty(change.path.parent)
            else:
                _write(change.path, original)
            self._entries.pop(str(change.path), None)
            self._save()
        restored = entry is not None and entry["after"] == _digest(before) and not gone
        result: Result = "removed" if gone else "restored" if restored else "changed"
        return Done(agent, str(change.path), change.what, result)

    def _save(self) -> None:
        _write(self._file, json.dumps(self._entries, indent=2) + "\n")


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(
            f"{path} cannot be read: {error}", "Correct it; nothing was changed."
        ) from error


def _changed(path: Path, text: str, change: Callable[[str], str]) -> str:
    try:
        return change(text)
    except ValueError as error:
        raise Refused(
            f"{path} cannot be changed: {error}", "Correct the file, then retry. It is unchanged."
        ) from error


def _write(path: Path, text: str) -> None:
    """Replace the file behind links at once, with the permissions it had."""
    target = Path(os.path.realpath(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Refused(f"{path} cannot be written: {error.strerror}") from error


def _remove_empty(folder: Path) -> None:
    """Folders that only held what was installed: named after it, as skills/agents-ledger."""
    if folder.name == "agents-ledger" and not any(folder.iterdir()):
        folder.rmdir()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
