"""What hooks remember, in a folder beside the ledger: failures, and what a session was shown."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from agents_ledger.model.installation import settings

FAILURES_MAX = 50
KEPT_DAYS = 30
NAME_MAX = 120  # characters of a file's name
_SHOWN_MAX = 200  # files; then the old ones are removed


class Failure(NamedTuple):
    at_ms: int
    event: str
    agent: str
    error: str


def folder_of(address: str) -> Path:
    """`ledger.hooks` beside `ledger.db`; of a PostgreSQL ledger, beside the default file."""
    file = settings.default_file() if settings.is_postgres(address) else Path(address).absolute()
    return file.with_suffix(".hooks")


def record_failure(address: str, event: str, agent: str, error: BaseException) -> None:
    """Keep the last failures, for `doctor`. Never raises: an agent waits."""
    try:
        file = _made(folder_of(address)) / "failures.jsonl"
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        line = json.dumps([int(time.time() * 1000), event, agent, text])
        recent = [*lines[1 - FAILURES_MAX :], line]
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text("\n".join(recent) + "\n", encoding="utf-8")
        os.replace(temporary, file)
    except OSError:
        return


def failures(address: str) -> list[Failure]:
    """The failures of the last days, oldest first."""
    try:
        lines = (folder_of(address) / "failures.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    oldest = (time.time() - KEPT_DAYS * 86_400) * 1000
    recent_failures = []
    for line in lines:
        try:
            failure = Failure(*json.loads(line))
            recent = failure.at_ms >= oldest
        except (ValueError, TypeError):
            continue
        if recent:
            recent_failures.append(failure)
    return recent_failures


class Shown:
    """What was recalled in a session, so that nothing is recalled twice: turns, and texts."""

    def __init__(self, address: str, session_id: str) -> None:
        from urllib.parse import quote  # not hashlib, whose import takes 8 ms

        self._folder = folder_of(address) / "shown"
        self._file = self._folder / quote(session_id, safe="", errors="replace")[:NAME_MAX]

    def passages(self) -> set[str]:
        try:
            return set(self._file.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return set()

    def add(self, turn_id: str, digest: str) -> None:
        _made(self._folder)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{turn_id} {digest}\n")
        self._remove_old()

    def _remove_old(self) -> None:
        files = list(self._folder.iterdir())
        if len(files) <= _SHOWN_MAX:
            return
        oldest = time.time() - KEPT_DAYS * 86_400
        for file in files:
            if file.stat().st_mtime < oldest:
                file.unlink(missing_ok=True)


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
