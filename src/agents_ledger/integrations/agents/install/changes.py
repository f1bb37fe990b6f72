"""Applies changes to the settings files of agents, with a backup, and undoes them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation import settings

Result = Literal["created", "changed", "unchanged", "removed", "restored", "kept", "failed"]


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
    error: Refused | None = None


class Installation:
    """What was installed, in a file of the user's data folder: by path where its backup is, what it
    looked like after the change, and for which agents."""

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
            if not dry_run:
                self._used_by(change.path, agent)
            return Done(agent, str(change.path), change.what, "unchanged")
        backup = None if before is None else self._backup_of(change.path, before)
        if not dry_run:
            if before is not None and backup is not None:
                _write(backup, before)
            _write(change.path, after)
            self._keep(agent, change.path, before, after, backup)
        result: Result = "created" if before is None else "changed"
        return Done(agent, str(change.path), change.what, result, str(backup) if backup else None)

    def _backup_of(self, path: Path, text: str) -> Path:
        name = f"{_digest(str(path))[:8]}-{_digest(text)[:8]}-{path.name}"
        return self._folder / "backups" / name

    def _keep(
        self, agent: str, path: Path, before: str | None, after: str, backup: Path | None
    ) -> None:
        entry = self._entries.get(str(path))
        # The state before the first change is what uninstall restores, unless others changed it.
        if entry is None or before is None or entry["after"] != _digest(before):
            users = entry.get("agents", []) if entry else []
            entry = {"backup": str(backup) if backup else None, "agents": users}
        self._entries[str(path)] = {**entry, "after": _digest(after)}
        self._used_by(path, agent)

    def _used_by(self, path: Path, agent: str) -> None:
        entry = self._entries.get(str(path))
        if entry is not None:
            entry["agents"] = sorted({*entry.get("agents", []), agent})
            self._save()

    def uninstall(self, agent: str, change: FileChange, *, dry_run: bool) -> Done:
        before = _read(change.path)
        entry = self._entries.get(str(change.path), {})
        other_agents = [name for name in entry.get("agents", []) if name != agent]
        if before is None:
            return Done(agent, str(change.path), change.what, "unchanged")
        if other_agents:
            if not dry_run:
                entry["agents"] = other_agents
                self._save()
            what = f"{change.what}, also used by {', '.join(other_agents)}"
            return Done(agent, str(change.path), what, "kept")
        if entry.get("after") == _digest(before):
            original = _read(Path(entry["backup"])) if entry["backup"] else None
            result: Result = "restored" if entry["backup"] else "removed"
        else:
            original = _changed(change.path, before, change.uninstall)
            was_created = not entry.get("backup")
            result = "removed" if original == "" and was_created else "changed"
        if original == before:
            return Done(agent, str(change.path), change.what, "unchanged")
        if not dry_run:
            if result == "removed":
                Path(os.path.realpath(change.path)).unlink()
                _remove_empty(change.path.parent)
            else:
                _write(change.path, original or "")
            self._entries.pop(str(change.path), None)
            self._save()
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
            f"{path} cannot be read: {error}", "Correct the file, then retry. It is unchanged."
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
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
    if not mode & 0o200:
        raise Refused(f"{path} is read-only", "Make it writable, or change it by hand.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise Refused(
            f"{path} cannot be written: {error.strerror}", "Check the permissions of its folder."
        ) from error


def _remove_empty(folder: Path) -> None:
    """The folder of a skill, which is named after it and held nothing else."""
    if folder.name == "agents-ledger" and not any(folder.iterdir()):
        folder.rmdir()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
