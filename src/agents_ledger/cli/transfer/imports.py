"""import, watch and rederive: other agents' history."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.command import Invocation, command, embed_behind
from agents_ledger.cli.terminal import note
from agents_ledger.model import settings
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import moment

if TYPE_CHECKING:
    from agents_ledger.importers.derive_worker import Ahead
    from agents_ledger.importers.discovery import Found, Wanted
    from agents_ledger.importers.pipeline import Report
    from agents_ledger.ledger.ledger import Ledger

SHOWN = 10
RARE = 3  # records of a type that may be new: who looks for them wants to know where
GARBAGE = 50_000  # objects between two looks for circles: an import makes many, hardly any in one
LARGE = 64 << 20  # bytes of files from which on memory is spared
ARRAY, ARRAY_BYTES = -3, 1 << 18  # M_MMAP_THRESHOLD of the C library
EXCLUDE = click.option(
    "--exclude", multiple=True, metavar="PATTERN", help="Leave out paths, or a project's folder."
)


@command
@click.argument("what", nargs=-1, metavar="[SOURCE|PATH]...")
@click.option("--dry-run", is_flag=True, help="Say what would be read; change nothing.")
@click.option("--since", metavar="WHEN", help="Only files changed since: 2026-03-01, 12h, 7d, 4w.")
@EXCLUDE
@click.option("--request", type=click.Path(), help="A sessions.import request in a JSON file.")
def import_(
    run: Invocation,
    *,
    what: tuple[str, ...],
    dry_run: bool,
    since: str | None,
    exclude: tuple[str, ...],
    request: str | None,
) -> int:
    """Import the history of other agents.

    Without a SOURCE or PATH, of all agents whose files are found on this machine.
    """
    if request is not None:
        if what or dry_run or since or exclude:
            raise click.UsageError("--request goes with no SOURCE, PATH or other choice")
        return _import_request(run, Path(request))
    gc.set_threshold(GARBAGE)
    from agents_ledger.importers.derive_worker import beside
    from agents_ledger.importers.pipeline import Importer, Report

    report, wanted = Report(), _wanted(since, exclude)
    found = _chosen(what, wanted, report)
    # What was set once for all need not meet anything in a part of what there is.
    asked = _patterns(exclude) if what else wanted.exclude
    if dry_run:
        return _dry_run(run, found, report, asked)
    _spare_memory(found)
    with beside(run.address, found) as ahead, run.writing(create=True) as ledger:
        importer = Importer(ledger, report, ahead)
        with _Progress(run, found) as tick:
            importer.run(found, tick)
        ledger.summarise()
    _tell(run, report, asked)
    if not (found or report.faults or report.without_reader or report.left.files):
        _tell_nothing(what)
    return 1 if report.counts.failed else 0


def _spare_memory(found: Sequence[Found]) -> None:
    """Give each large array pages of its own, where the C library can be told so: what grows beside
    others leaves holes, a fifth of all that an import of a million records takes."""
    if sys.platform == "linux" and sum(each.size for each in found) > LARGE:
        import ctypes

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(ARRAY, ARRAY_BYTES)


def _tell_nothing(what: Sequence[str]) -> None:
    """Where was looked in vain."""
    from agents_ledger.importers.discovery import this_home
    from agents_ledger.importers.sources.registry import READERS

    looked = [
        str(root)
        for name in what
        for root in (READERS[name].roots(this_home()) if name in READERS else (name,))
    ]
    where = f"in {', '.join(looked)}" if looked else "where agents keep their history"
    note(("nothing found ", "dim"), f"{where}; name a file or a folder")


@contextmanager
def importing_all(run: Invocation) -> Iterator[Callable[[Ledger], Report]]:
    """A way to import whatever is found on this machine, and to say so where somebody looks. To be
    entered before the ledger is opened."""
    from agents_ledger.importers.derive_worker import beside
    from agents_ledger.importers.pipeline import Report

    report = Report()
    found = _chosen((), _wanted(None, ()), report)
    _spare_memory(found)
    with beside(run.address, found) as ahead:
        yield partial(_import_all, run, found, report, ahead)


def _import_all(
    run: Invocation, found: Sequence[Found], report: Report, ahead: Ahead | None, ledger: Ledger
) -> Report:
    from agents_ledger.importers.pipeline import Importer

    with _Progress(run, found) as tick:
        Importer(ledger, report, ahead).run(found, tick)
    ledger.summarise()
    if found and not run.as_json:
        names = sorted({each.reader.name for each in found})
        note(("found ", "dim"), f"{', '.join(names)}: {_summary(report)}")
    return report


def _summary(report: Report) -> str:
    counts = report.counts
    return (
        f"imported {counts.imported} upserted {counts.upserted}"
        f" skipped {counts.skipped} failed {counts.failed}"
    )


def _wanted(since: str | None, exclude: Sequence[str]) -> Wanted:
    from agents_ledger.importers.discovery import Wanted

    return Wanted(
        moment(since, now_ms()) / 1000 if since else 0, (*settings.excluded(), *_patterns(exclude))
    )


def _patterns(exclude: Sequence[str]) -> tuple[str, ...]:
    """What is to be left out, wherever this is called from later: a plain name is a path here."""
    named = (os.path.expanduser(each) for each in exclude)
    return tuple(each if _is_anywhere(each) else os.path.abspath(each) for each in named)


def _is_anywhere(path: str) -> bool:
    return settings.is_pattern(path) or settings.is_windows(path)


def _chosen(what: Sequence[str], wanted: Wanted, report: Report) -> list[Found]:
    from agents_ledger.importers.discovery import Unknown, find, found_at, this_home
    from agents_ledger.importers.sources.registry import READERS

    names = [name for name in what if name in READERS]
    if "" in what:
        raise Refused("a path is empty", "Name a file or a folder; `.` is this one.")
    paths = [Path(name) for name in what if name not in READERS]
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise NotFound(f"there is no source or path {str(path)!r}", _like(str(path)))
    found = find(this_home(), names, report.faults) if names or not paths else []
    unknown = Unknown(report.faults, report.without_reader)
    told = len(report.faults)  # of what was met where sources keep their files: nobody named it
    for path in paths:
        found += found_at(path, unknown)
    report.counts.failed += len(report.faults) - told
    return wanted.of(found, report.faults, report.left)


def _like(name: str) -> str:
    """The sources that somebody may have meant, or else all."""
    from difflib import get_close_matches

    from agents_ledger.importers.requests import READER
    from agents_ledger.importers.sources.registry import READERS

    names = [each for each in READERS if each != READER.name]
    close = [each for each in names if name and each.startswith(name)]
    close = close or get_close_matches(name, names, 2)
    return f"Did you mean {' or '.join(close)}?" if close else f"Sources are {', '.join(names)}."


def _dry_run(run: Invocation, found: Sequence[Found], report: Report, asked: Sequence[str]) -> int:
    """What an import would read, of which files all is kept, and what it could not read."""
    from agents_ledger.importers.discovery import empty_of
    from agents_ledger.importers.survey import left_of

    report.empty += empty_of(found)
    report.left.add(left_of(found))
    sources: dict[str, list[Found]] = {}
    for each in found:
        sources.setdefault(each.reader.name, []).append(each)
    behind = _behind(run, found)
    if run.as_json:
        run.out.json(
            files={name: len(files) for name, files in sources.items()},
            not_imported={name: behind[name] for name in sources},
            faults=_faults(report),
            without_reader=report.without_reader,
            empty=report.empty,
            excluded=_excluded(report, asked),
        )
        return 0
    for name, files in sources.items():
        size = sum(each.size for each in files)
        said = f"  {humanize.count(len(files), 'file')}, {size:,} bytes"
        run.out.line((name, "label"), f"{said}, {behind[name]:,} not imported yet")
    run.out.line(f"{humanize.count(behind.total(), 'file')} would be read")
    _tell_excluded(report, asked)
    _tell_unread(report)
    return 0


def _behind(run: Invocation, found: Sequence[Found]) -> Counter[str]:
    """How many files of each source hold something that is not kept."""
    from agents_ledger.importers.survey import is_behind

    try:
        with run.reading() as ledger:
            kept = ledger.sources
            return Counter(each.reader.name for each in found if is_behind(kept, each))
    except NotFound:  # there is no ledger yet
        return Counter(each.reader.name for each in found)


class _Progress:
    """A bar with rate and time left, where somebody looks."""

    def __init__(self, run: Invocation, found: Sequence[Found]) -> None:
        self._bar: Any = None
        if sys.stderr.isatty() and not run.as_json and found:
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
            self._task = self._bar.add_task("", total=sum(each.size for each in found))

    def __enter__(self) -> Callable[[float], None]:
        if self._bar is None:
            return lambda _: None
        self._bar.start()
        return lambda size: self._bar.advance(self._task, size)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _tell(run: Invocation, report: Report, asked: Sequence[str] = ()) -> None:
    counts = report.counts
    if run.as_json:
        run.out.json(
            imported=counts.imported,
            upserted=counts.upserted,
            skipped=counts.skipped,
            failed=counts.failed,
            faults=_faults(report),
            records=[
                {"source": source, "type": kind, "fate": fate, "count": number}
                | ({"first": report.firsts.get((source, kind))} if fate == "unmapped" else {})
                for (source, kind, fate), number in sorted(report.records.items())
            ],
            without_reader=report.without_reader,
            empty=report.empty,
            excluded=_excluded(report, asked),
        )
        return
    run.out.line(_summary(report))
    _tell_unmapped(report)
    _tell_excluded(report, asked)
    _tell_unread(report)


def _excluded(report: Report, asked: Sequence[str]) -> dict[str, Any]:
    left = report.left
    nothing = [each for each in asked if each not in left.met]
    return {"files": left.files, "sessions": left.sessions, "met_nothing": nothing}


def _tell_excluded(report: Report, asked: Sequence[str]) -> None:
    """How much was left out; what was to be and is nowhere may be written wrong."""
    left = report.left
    if left.files or left.sessions:
        counted = ((left.files, "file"), (left.sessions, "session"))
        said = (humanize.count(number, what) for number, what in counted if number)
        note(("excluded ", "dim"), ", ".join(said))
    for each in asked:
        if each not in left.met:
            note(("excluded nothing: ", "dim"), each)


def _faults(report: Report) -> list[dict[str, Any]]:
    return [
        {"path": f.path, "line": f.line, "offset": f.offset, "what": f.what} for f in report.faults
    ]


def _tell_unread(report: Report) -> None:
    for fault in report.faults[:SHOWN]:
        where = f":{fault.line}" if fault.line else ""
        note(("fault ", "bad"), f"{fault.path}{where}  {fault.what}")
    if len(report.faults) > SHOWN:
        note((f"… {len(report.faults) - SHOWN:,} more faults (--json tells all)", "dim"))
    for path in report.without_reader[:SHOWN]:
        note(("no reader ", "dim"), path)
    if len(report.without_reader) > SHOWN:
        note((f"… {len(report.without_reader) - SHOWN:,} more without a reader", "dim"))
    if report.empty:
        first, *others = report.empty
        note(("empty ", "dim"), f"{first} and {len(others):,} more" if others else first)


def _tell_unmapped(report: Report) -> None:
    """Records that make no rows: kept, by their type; of rare ones also where the first stands."""
    by_source: dict[str, list[str]] = {}
    for (source, kind, fate), number in sorted(report.records.items()):
        if fate == "unmapped":
            where = report.firsts.get((source, kind)) if number <= RARE else None
            told = f"{kind} {number:,}" + (f" ({os.path.basename(where)})" if where else "")
            by_source.setdefault(source, []).append(told)
    for source, kinds in by_source.items():
        note(("kept, not shown: ", "dim"), f"{source}: {', '.join(kinds)}")


def _import_request(run: Invocation, path: Path) -> int:
    from agents_ledger.importers.requests import import_request
    from agents_ledger.importers.sources.import_requests.records import decoded

    try:
        request = decoded(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", "Name a JSON file.") from error
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{path} is not JSON: {error}", "Name a file with one `sessions.import` request."
        ) from error
    with run.writing(create=True) as ledger:
        answer = import_request(ledger, request)
    run.out.json(**answer)
    return 1 if answer.get("import", answer).get("failed") else 0


@command
@click.argument("what", nargs=-1, metavar="[SOURCE]...")
@EXCLUDE
@click.option("--install", "install_", is_flag=True, help="Watch from login on, as a service.")
def watch(
    run: Invocation, *, what: tuple[str, ...], exclude: tuple[str, ...], install_: bool
) -> None:
    """Import what agents write, as they write it, until interrupted."""
    from agents_ledger.importers import discovery
    from agents_ledger.importers import watch as watching
    from agents_ledger.importers.pipeline import Importer, Report
    from agents_ledger.importers.sources.registry import READERS

    unknown = [name for name in what if name not in READERS]
    if unknown:
        raise NotFound(f"there is no source {unknown[0]!r}", f"Sources are {', '.join(READERS)}.")
    home = discovery.this_home()
    if install_:
        import subprocess

        command_ = watching.this_command(run.address, what, _patterns(exclude))
        file, start = watching.install(home, command_)
        run.out.line("wrote ", str(file))
        try:
            subprocess.run(start, check=True, capture_output=True)
            run.out.line("started")
        except (OSError, subprocess.CalledProcessError):
            run.out.line("start it with: ", " ".join(start))
        return
    wanted, report = _wanted(None, exclude), Report()
    found = _chosen(what, wanted, report)

    def told(report: Report, asked: Sequence[str] = ()) -> None:
        _tell(run, report, asked)
        sys.stdout.flush()  # a log shows it now, not when there is a page of it

    with run.writing(create=True) as ledger:
        told(Importer(ledger, report).run(found), _patterns(exclude))
        embed_behind(ledger)
        watching.watch(ledger, home, sources=what, wanted=wanted, told=told)


@command
@click.option("--index", is_flag=True, help="Make only the word index anew.")
def rederive(run: Invocation, *, index: bool) -> None:
    """Derive all imported turns again from the kept records alone."""
    if index:
        _rebuild_index(run)
        return
    from agents_ledger.importers.pipeline import rederive as again

    with run.writing() as ledger:
        report = again(ledger)
    if run.as_json:
        run.out.json(
            records=report.derived_records, turns=report.written_turns, faults=len(report.faults)
        )
        return
    run.out.line(
        f"derived {humanize.count(report.derived_records, 'record')},"
        f" {humanize.count(report.written_turns, 'turn')} changed"
    )


def _rebuild_index(run: Invocation) -> None:
    with run.writing() as ledger:
        turns = ledger.rebuild_index()
    if run.as_json:
        run.out.json(turns=turns)
        return
    run.out.line(f"put {humanize.count(turns, 'turn')} into the word index")
