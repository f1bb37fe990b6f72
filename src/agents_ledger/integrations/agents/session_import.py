"""Imports the log of one session, when its agent compacts or ends it."""

from __future__ import annotations

import time
from pathlib import Path

from agents_ledger.importers.discovery import FileSelection, Unrecognised, files_at, find, this_home
from agents_ledger.importers.pipeline import Importer, Report
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.installation import settings

RECENT_S = 86_400  # without a path, the files of the agent that changed lately
SETTLE_S = 0.5  # an agent writes its last records while it ends


def import_session(address: str, agent: str, transcript: str | None) -> None:
    """Import the named log; if there is none, what the agent has written lately."""
    time.sleep(SETTLE_S)
    report = Report()
    if transcript is not None and Path(transcript).exists():
        files = files_at(Path(transcript), Unrecognised(report.faults, report.unrecognised))
        since = 0.0
    elif agent in SOURCES:
        files, since = find(this_home(), [agent], report.faults), time.time() - RECENT_S
    else:
        raise LedgerError(f"no log of {agent or 'the agent'} to import: {transcript or 'no path'}")
    chosen = FileSelection(since, settings.excluded()).of(files, report.faults, report.excluded)
    settings.make_default_folder(address)
    with Ledger.open(address, create=True) as ledger:
        Importer(ledger, report).run(chosen)
        # Closing waits for it. Passages are recalled from what is indexed.
        ledger.index_in_background()
    if report.counts.failed or report.unrecognised:
        problems = [*(f"{f.path}: {f.what}" for f in report.faults), *map(str, report.unrecognised)]
        raise LedgerError(f"not imported: {'; '.join(problems[:3]) or transcript}")
