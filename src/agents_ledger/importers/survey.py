"""What there is to import: which sources are here, what of them is kept, what they will delete."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from msgspec import Struct

from agents_ledger.importers import databases, files
from agents_ledger.importers.discovery import Found, find
from agents_ledger.importers.reader import Home
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.sources import Sources

# How many days a source keeps what is not touched, by its own defaults.
KEEPS_DAYS = {"claude-code": 30, "gemini-cli": 30, "openclaw": 30}
SOON_DAYS = 5
DAY = 86400


class Source(Struct):
    """One source on this machine."""

    name: str
    files: int = 0
    bytes: int = 0
    not_imported: int = 0
    deleted_soon: int = 0  # not imported either, and gone within days


def survey(home: Home, ledger: Ledger | None) -> list[Source]:
    """Every source found, compared with what a ledger keeps."""
    sources: dict[str, Source] = {}
    kept = Sources(ledger._core) if ledger is not None else None
    for found in find(home):
        source = sources.setdefault(found.reader.name, Source(found.reader.name))
        source.files += 1
        source.bytes += found.size
        if kept is None or _is_behind(kept, found):
            source.not_imported += 1
            source.deleted_soon += _goes_soon(home, found)
    return list(sources.values())


def _is_behind(kept: Sources, found: Found) -> bool:
    known = kept.file(files.logical_path(found.path))
    return known is None or (known.size, known.mtime_ns) not in _states(found)


def _states(found: Found) -> Iterable[tuple[int, int]]:
    status = found.path.lstat()
    return ((status.st_size, status.st_mtime_ns), databases.state(found.path))


def _goes_soon(home: Home, found: Found) -> bool:
    days = KEEPS_DAYS.get(found.reader.name)
    if found.reader.name == "claude-code":
        days = _claude_days(home)
    return days is not None and time.time() - found.mtime > (days - SOON_DAYS) * DAY


def _claude_days(home: Home) -> int:
    try:
        said = json.loads((home.home / ".claude" / "settings.json").read_bytes())
        return int(said["cleanupPeriodDays"])
    except (OSError, ValueError, KeyError, TypeError):
        return KEEPS_DAYS["claude-code"]
