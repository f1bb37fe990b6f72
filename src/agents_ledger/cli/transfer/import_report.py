"""What `import` and `watch` print: progress, counts, faults."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agents_ledger.cli.command import Invocation
from agents_ledger.cli.terminal import note
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.importers.discovery import HistoryFile
    from agents_ledger.importers.pipeline import Report

LINES_MAX = 10
# Records of a type up to which the path of the first is printed: the type may be new.
RARE = 3


class ImportProgress:
    """A progress bar on stderr, if that is a terminal."""

    def __init__(self, run: Invocation, files: Sequence[HistoryFile]) -> None:
        self._bar: Any = None
        if sys.stderr.isatty() and not run.as_json and files:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._bar = Progress(
                TextColumn("importing"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", total=sum(file.size for file in files))

    def __enter__(self) -> Callable[[float], None]:
        if self._bar is None:
            return lambda _: None
        self._bar.start()
        return lambda size: self._bar.advance(self._task, size)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def print_report(run: Invocation, report: Report, exclude: Sequence[str] = ()) -> None:
    """Print an import's report. `exclude`: the patterns that must match something."""
    counts = report.counts
    if run.as_json:
        run.out.json(
            imported=counts.imported,
            upserted=counts.upserted,
            skipped=counts.skipped,
            failed=counts.failed,
            records=[
                {"source": source, "type": kind, "fate": fate, "count": number}
                | ({"first": report.firsts.get((source, kind))} if fate == "unmapped" else {})
                for (source, kind, fate), number in sorted(report.records.items())
            ],
            **not_imported_as_json(report, exclude),
        )
        return
    run.out.line(summary(report))
    _print_unmapped(report)
    print_not_imported(report, exclude)


def summary(report: Report) -> str:
    counts = report.counts
    return (
        f"imported {counts.imported} upserted {counts.upserted}"
        f" skipped {counts.skipped} failed {counts.failed}"
    )


def not_imported_as_json(report: Report, exclude: Sequence[str]) -> dict[str, Any]:
    """The JSON keys that an import and a dry run share."""
    left = report.excluded
    unmatched = [pattern for pattern in exclude if pattern not in left.matched]
    return {
        "faults": [
            {"path": fault.path, "line": fault.line, "offset": fault.offset, "what": fault.what}
            for fault in report.faults
        ],
        "unrecognised": report.unrecognised,
        "empty": report.empty,
        "excluded": {"files": left.files, "sessions": left.sessions, "unmatched": unmatched},
    }


def print_not_imported(report: Report, exclude: Sequence[str]) -> None:
    """Print what was excluded, and what could not be read."""
    left = report.excluded
    counts = ((left.files, "file"), (left.sessions, "session"))
    if excluded := ", ".join(humanize.count(number, word) for number, word in counts if number):
        note(("excluded ", "dim"), excluded)
    for pattern in exclude:
        if pattern not in left.matched:  # perhaps misspelled
            note(("excluded nothing: ", "dim"), pattern)
    _print_unread(report)


def _print_unread(report: Report) -> None:
    for fault in report.faults[:LINES_MAX]:
        line = f":{fault.line}" if fault.line else ""
        note(("fault ", "bad"), f"{fault.path}{line}  {fault.what}")
    if len(report.faults) > LINES_MAX:
        note((f"… {len(report.faults) - LINES_MAX:,} more faults (--json lists all)", "dim"))
    for path in report.unrecognised[:LINES_MAX]:
        note(("unknown format ", "dim"), path)
    if len(report.unrecognised) > LINES_MAX:
        note((f"… {len(report.unrecognised) - LINES_MAX:,} more of unknown format", "dim"))
    if report.empty:
        first, *rest = report.empty
        note(("empty ", "dim"), f"{first} and {len(rest):,} more" if rest else first)


def _print_unmapped(report: Report) -> None:
    """Count the records that are archived and derive no rows, by type."""
    by_source: dict[str, list[str]] = {}
    for (source, kind, fate), number in sorted(report.records.items()):
        if fate == "unmapped":
            first = report.firsts.get((source, kind)) if number <= RARE else None
            path = f" ({os.path.basename(first)})" if first else ""
            by_source.setdefault(source, []).append(f"{kind} {number:,}{path}")
    for source, kinds in by_source.items():
        note(("kept, not shown: ", "dim"), f"{source}: {', '.join(kinds)}")
