"""Which sources are on this machine, what of them is not imported, and what they will delete."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from agents_ledger.importers.discovery import FileSelection, HistoryFile, find
from agents_ledger.importers.exclusion import ExcludedCounts, ExcludedFolders
from agents_ledger.importers.parsing import databases, files
from agents_ledger.importers.parsing.table_scan import select
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import Fault, SourceFile

# How many days agents keep files that are not touched, by their documented defaults.
RETENTION_DAYS = {"claude-code": 30, "gemini-cli": 30, "openclaw": 30}
SOON_DAYS = 5
DAY_SECONDS = 86400


class ExpiringFile(Struct, frozen=True):
    path: str
    days: int  # left
    kept: bool = False  # archived in the ledger


class SourceSurvey(Struct):
    name: str
    files: int = 0
    bytes: int = 0
    excluded: int = 0
    not_imported: int = 0
    expiring: list[ExpiringFile] = field(default_factory=list)  # within SOON_DAYS

    @property
    def deleted_soon(self) -> list[ExpiringFile]:
        """The expiring files that the ledger does not have yet."""
        return [file for file in self.expiring if not file.kept]


def survey(
    home: Home, ledger: Ledger | None, selection: FileSelection, faults: list[Fault]
) -> list[SourceSurvey]:
    """Every source on this machine, compared with a ledger. Folders that cannot be read are
    reported in `faults`."""
    surveys: dict[str, SourceSurvey] = {}
    archived = ledger.sources if ledger is not None else None
    for file in find(home, faults=faults):
        source = surveys.setdefault(file.source.name, SourceSurvey(file.source.name))
        source.files += 1
        source.bytes += file.size
        if not selection.includes(file):
            source.excluded += 1
            continue
        is_kept = archived is not None and not is_behind(archived, file)
        source.not_imported += not is_kept
        days = _days_left(home, file)
        if days is not None and days <= SOON_DAYS:
            source.expiring.append(ExpiringFile(str(file.path), max(0, days), is_kept))
    for source in surveys.values():
        source.expiring.sort(key=lambda file: (file.kept, file.days, file.path))
    return list(surveys.values())


def count_excluded_sessions(candidates: Iterable[HistoryFile]) -> ExcludedCounts:
    """What would be excluded from databases with several projects."""
    counts = ExcludedCounts()
    for file in candidates:
        exclusion = ExcludedFolders.of(file.exclude).row_exclusion(file.source, file.path)
        if exclusion.make_filter is None:
            continue
        with suppress(*databases.UNREADABLE):  # the import will report it
            if not files.head(file.path).startswith(databases.MAGIC):
                continue
            with databases.snapshot(file.path) as connection:
                row_filter = exclusion.make_filter(partial(select, connection))
            sessions = len(row_filter.excluded) if row_filter is not None else 0
            counts.add(ExcludedCounts(0, sessions, exclusion.matched))
    return counts


def is_behind(archived: Sources, file: HistoryFile) -> bool:
    """Whether a file has something that is not archived."""
    source_file = archived.file(files.logical_path(file.path))
    if source_file is None:
        return True
    path = files.on_disk(file.path)
    try:
        status, state = path.lstat(), databases.state(path)
    except FileNotFoundError:  # deleted meanwhile
        return False
    except OSError:  # the import will report it
        return True
    return (source_file.size, source_file.mtime_ns) not in (
        (status.st_size, status.st_mtime_ns),
        state,
    )


def is_gone(home: Home, file: SourceFile) -> bool:
    """Whether an agent on this machine has deleted a file that the ledger has. Of files imported
    from elsewhere nothing is known."""
    path = Path(file.path)
    source = SOURCES.get(file.source)
    roots = source.roots(home) if source else ()
    if not any(root in path.parents and root.is_dir() for root in roots):
        return False
    forms = (files.on_disk(path), path.with_name(path.name + files.COMPRESSED))
    return not any(form.exists() for form in forms)


def _days_left(home: Home, file: HistoryFile) -> int | None:
    """For how long its agent will keep a file; None: for ever."""
    days = RETENTION_DAYS.get(file.source.name)
    if file.source.name == "claude-code":
        days = _claude_code_retention(home, file)
    return None if days is None else days - int((time.time() - file.mtime) / DAY_SECONDS)


def _claude_code_retention(home: Home, file: HistoryFile) -> int:
    """`cleanupPeriodDays` in the settings of its configuration folder."""
    folders = [root.parent for root in file.source.roots(home) if root in file.path.parents]
    for folder in folders:
        try:
            settings = json.loads((folder / "settings.json").read_bytes())
            return int(settings["cleanupPeriodDays"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return RETENTION_DAYS["claude-code"]
