"""Imports the history on this machine in a thread, while a server shows the ledger."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import NamedTuple

from msgspec import Struct

from agents_ledger.importers import watch
from agents_ledger.importers.discovery import FileSelection, HistoryFile, find
from agents_ledger.importers.pipeline import Importer, Progress, Report
from agents_ledger.importers.port.homes import Home
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import LedgerError

_log = logging.getLogger("agents_ledger.importers")
STOP_S = 3.0


class ImportStatus(NamedTuple):
    """How far a running import is."""

    sources: tuple[str, ...]
    done_bytes: int
    total_bytes: int
    sessions: int


class ImportJob(Struct, kw_only=True):
    """What to import, and who wants to know about it."""

    files: Sequence[HistoryFile]
    report: Report
    progress: AbstractContextManager[Progress] = nullcontext(lambda _: None)
    follow: bool = False  # import what agents write afterwards, until stopped
    on_end: Callable[[], None] = lambda: None
    on_error: Callable[[LedgerError], object] = lambda _: None


class BackgroundImport:
    """One import at a time. A stopped one is continued by the next."""

    def __init__(self, ledger: Ledger, home: Home, selection: FileSelection) -> None:
        self._ledger = ledger
        self._home = home
        self._selection = selection
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._job: ImportJob | None = None
        self._done_bytes = 0.0
        self.failure: LedgerError | None = None  # of the last import
        self.on_end: list[Callable[[], None]] = []  # called after every import

    @property
    def status(self) -> ImportStatus | None:
        """None: no import is running."""
        job = self._job
        if job is None:
            return None
        counts = job.report.counts
        return ImportStatus(
            tuple(sorted({file.source.name for file in job.files})),
            int(self._done_bytes),
            sum(file.size for file in job.files),
            counts.imported + counts.upserted,
        )

    def start_all(self) -> None:
        """Import all history on this machine."""
        report = Report()
        files = self._selection.of(find(self._home), report.faults, report.excluded)
        self.start(ImportJob(files=files, report=report))

    def start(self, job: ImportJob) -> None:
        """Start a job, unless one is running."""
        with self._lock:
            if self._job is not None:
                return
            self._job, self._done_bytes, self.failure = job, 0.0, None
        # A daemon: a large session may take longer than a user waits for the end.
        thread = threading.Thread(target=self._run, args=(job,), daemon=True)
        thread.start()
        self._thread = thread  # once it can be joined: Ctrl-C may come in between

    def stop(self) -> None:
        """Stop after the session that is being imported, or after a few seconds."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def _run(self, job: ImportJob) -> None:
        try:
            with job.progress as tick:
                self._import(job, tick)
            self._job = None
            if self._stop.is_set():
                return
            for end in (*self.on_end, job.on_end):
                end()
            if job.follow and find_spec("watchfiles") is not None:
                watch.watch(self._ledger, self._home, selection=self._selection, stop=self._stop)
        except LedgerError as error:
            self._fail(job, error)
        except Exception as error:  # a defect, or a terminal that is gone
            _log.exception("the import failed")
            self._fail(job, LedgerError(f"{type(error).__name__}: {error}", "Start it again."))

    def _fail(self, job: ImportJob, error: LedgerError) -> None:
        if self._stop.is_set():  # the ledger was closed
            self._job = None
            return
        # Before the job ends: a page that asks in between shows one of them.
        self.failure = error
        self._job = None
        job.on_error(error)

    def _import(self, job: ImportJob, tick: Progress) -> None:
        def advance(size: float) -> None:
            self._done_bytes += size
            tick(size)

        Importer(self._ledger, job.report).run(job.files, advance, self._stop)
        if not self._stop.is_set():
            self._ledger.summarise()
