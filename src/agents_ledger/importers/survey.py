"""What there is to import: which sources are here, what of them is kept, what they will delete."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from msgspec import Struct, field

from agents_ledger.importers.discovery import Found, Wanted, find
from agents_ledger.importers.exclusion import Excluded, Left
from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.table_scan import select
from agents_ledger.importers.port.source import Home
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import Fault

# How many days a source keeps what is not touched, by its own defaults.
KEEPS_DAYS = {"claude-code": 30, "gemini-cli": 30, "openclaw": 30}
SOON_DAYS = 5
DAY = 86400


class Going(Struct, frozen=True):
    """A file that its agent will delete."""

    path: str
    days: int  # that are left


class Source(Struct):
    """One source on this machine."""

    name: str
    files: int = 0
    bytes: int = 0
    excluded: int = 0
    not_imported: int = 0
    deleted_soon: list[Going] = field(default_factory=list)  # not imported either; first first


def survey(home: Home, ledger: Ledger | None, wanted: Wanted, faults: list[Fault]) -> list[Source]:
    """Every source found, compared with what a ledger keeps, and with what is wanted. Where one
    could not look is noted in `faults`."""
    sources: dict[str, Source] = {}
    kept = ledger.sources if ledger is not None else None
    for found in find(home, faults=faults):
        source = sources.setdefault(found.reader.name, Source(found.reader.name))
        source.files += 1
        source.bytes += found.size
        if not wanted.takes(found):
            source.excluded += 1
        elif kept is None or is_behind(kept, found):
            source.not_imported += 1
            days = _days_left(home, found)
            if days is not None and days <= SOON_DAYS:
                source.deleted_soon.append(Going(str(found.path), max(0, days)))
    for source in sources.values():
        source.deleted_soon.sort(key=lambda going: (going.days, going.path))
    return list(sources.values())


def left_of(found: Iterable[Found]) -> Left:
    """What would be left out of databases that hold many projects."""
    left = Left()
    for each in found:
        leaving = Excluded.of(each.exclude).leaving(each.reader, each.path)
        if leaving.make_filter is None:
            continue
        with suppress(*databases.UNREADABLE):  # an import will tell
            if not files.head(each.path).startswith(databases.MAGIC):
                continue
            with databases.snapshot(each.path) as connection:
                made = leaving.make_filter(partial(select, connection))
            left.add(Left(0, len(made.excluded) if made else 0, leaving.matched))
    return left


def is_behind(kept: Sources, found: Found) -> bool:
    """Whether there is something in a file that is not kept."""
    known = kept.file(files.logical_path(found.path))
    if known is None:
        return True
    path = files.on_disk(found.path)
    try:
        status, state = path.lstat(), databases.state(path)
    except FileNotFoundError:  # gone meanwhile
        return False
    except OSError:  # an import will tell
        return True
    return (known.size, known.mtime_ns) not in ((status.st_size, status.st_mtime_ns), state)


def _days_left(home: Home, found: Found) -> int | None:
    """How long its agent leaves a file; None: for ever."""
    keeps = KEEPS_DAYS.get(found.reader.name)
    if found.reader.name == "claude-code":
        keeps = _claude_days(home, found)
    return None if keeps is None else keeps - int((time.time() - found.mtime) / DAY)


def _claude_days(home: Home, found: Found) -> int:
    """As the settings of its configuration folder say."""
    folders = [root.parent for root in found.reader.roots(home) if root in found.path.parents]
    for folder in folders:
        try:
            said = json.loads((folder / "settings.json").read_bytes())
            return int(said["cleanupPeriodDays"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return KEEPS_DAYS["claude-code"]
