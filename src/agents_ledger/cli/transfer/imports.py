"""import, watch and rederive: the history of other agents."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from agents_ledger.cli.command import Invocation, command, embed_in_background, since_option
from agents_ledger.cli.terminal import note
from agents_ledger.cli.transfer.import_report import (
    ImportProgress,
    not_imported_as_json,
    print_not_imported,
    print_report,
)
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.installation import settings
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.importers.discovery import FileSelection, HistoryFile
    from agents_ledger.importers.pipeline import Report

# An import creates many objects, hardly any of them in reference cycles.
GC_THRESHOLD = 50_000
EXCLUDE = click.option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Exclude matching paths, or the sessions of a project folder; repeatable.",
)


@command
@click.argument("what", nargs=-1, metavar="[SOURCE|PATH]...")
@click.option("--dry-run", is_flag=True, help="List what would be imported; change nothing.")
@since_option("Files changed")
@EXCLUDE
@click.option("--request", type=click.Path(), help="JSON file with a sessions.import request.")
def import_(
    run: Invocation,
    *,
    what: tuple[str, ...],
    dry_run: bool,
    since: int | None,
    exclude: tuple[str, ...],
    request: str | None,
) -> int:
    """Import the history of other agents.

    SOURCE is the name of an agent, such as claude-code; PATH is a file or a folder. Files are
    identified by their content, not their name. The default is all agents found on this machine.
    Exits with 1 if a session could not be imported.
    """
    if request is not None:
        if what or dry_run or since is not None or exclude:
            raise click.UsageError("--request cannot be combined with other arguments")
        return _import_request(run, Path(request))
    gc.set_threshold(GC_THRESHOLD)
    from agents_ledger.importers.pipeline import Importer, Report

    report, wanted = Report(), _wanted(since, exclude)
    files = _files(what, wanted, report)
    # Patterns of the settings need not match anything when only some files are imported.
    expected = _patterns(exclude) if what else wanted.exclude
    if dry_run:
        _dry_run(run, files, report, expected)
        _check_named(what, report)
        return 0
    with run.writing(create=True) as ledger:
        importer = Importer(ledger, report)
        with ImportProgress(run, files) as tick:
            importer.run(files, tick)
        ledger.summarise()
    print_report(run, report, expected)
    _check_named(what, report)
    if not (files or report.faults or report.unrecognised or report.excluded.files):
        _note_nothing_found(what)
    return 1 if report.counts.failed else 0


def _check_named(what: Sequence[str], report: Report) -> None:
    """Refused if a file was named that no importer reads; a folder may contain such files."""
    unread = {os.path.abspath(path) for path in report.unrecognised}
    named = [path for path in what if os.path.abspath(path) in unread]
    if named:
        raise Refused(
            f"no importer reads {', '.join(named)}",
            f"Importers exist for {', '.join(_importers())}. Import other formats with --request.",
        )


def _note_nothing_found(what: Sequence[str]) -> None:
    from agents_ledger.importers.discovery import this_home
    from agents_ledger.importers.sources.registry import SOURCES

    paths = [
        str(root)
        for name in what
        for root in (SOURCES[name].roots(this_home()) if name in SOURCES else (name,))
    ]
    where = f"in {', '.join(paths)}" if paths else "in the agents' default locations"
    note(("nothing found ", "dim"), f"{where}; give a file or a folder")


class AllHistory(NamedTuple):
    files: Sequence[HistoryFile]
    report: Report  # so far: what cannot be read, or is excluded


def all_history() -> AllHistory:
    """The history of all agents on this machine."""
    from agents_ledger.importers.pipeline import Report

    report = Report()
    return AllHistory(_files((), _wanted(None, ()), report), report)


def _wanted(since: int | None, exclude: Sequence[str]) -> FileSelection:
    from agents_ledger.importers.discovery import FileSelection

    return FileSelection(since / 1000 if since else 0, (*settings.excluded(), *_patterns(exclude)))


def _patterns(exclude: Sequence[str]) -> tuple[str, ...]:
    """The patterns with relative paths made absolute, so that a service can use them."""

    def absolute(path: str) -> str:
        is_anywhere = settings.is_pattern(path) or settings.is_windows(path)
        return path if is_anywhere else os.path.abspath(path)

    return tuple(absolute(os.path.expanduser(path)) for path in exclude)


def _files(what: Sequence[str], wanted: FileSelection, report: Report) -> list[HistoryFile]:
    """The files of the given sources and paths. A fault below a given path counts as a failure."""
    from agents_ledger.importers.discovery import Unrecognised, files_at, find, this_home
    from agents_ledger.importers.sources.registry import SOURCES

    names = [name for name in what if name in SOURCES]
    if "" in what:
        raise Refused("a path is empty", "Give a file or a folder; `.` is the current one.")
    paths = [Path(name) for name in what if name not in SOURCES]
    for path in paths:
        if not path.exists() and not path.is_symlink():
            raise NotFound(f"no source or path {str(path)!r}", _suggestion(str(path)))
    files = find(this_home(), names, report.faults) if names or not paths else []
    unknown = Unrecognised(report.faults, report.unrecognised)
    elsewhere = len(report.faults)
    for path in paths:
        files += files_at(path, unknown)
    report.counts.failed += len(report.faults) - elsewhere
    return wanted.of(files, report.faults, report.excluded)


def _importers() -> list[str]:
    from agents_ledger.importers.requests import READER
    from agents_ledger.importers.sources.registry import SOURCES

    return [source for source in SOURCES if source != READER.name]


def _suggestion(name: str) -> str:
    """A hint with the sources of similar name, or with all sources."""
    from difflib import get_close_matches

    sources = _importers()
    similar = [source for source in sources if name and source.startswith(name)]
    similar = similar or get_close_matches(name, sources, 2)
    if similar:
        return f"Did you mean {' or '.join(similar)}?"
    return f"Sources are {', '.join(sources)}."


def _dry_run(
    run: Invocation, files: Sequence[HistoryFile], report: Report, exclude: Sequence[str]
) -> None:
    """Print what an import would read, and what it could not read."""
    from agents_ledger.importers.discovery import empty_files
    from agents_ledger.importers.survey import count_excluded_sessions

    report.empty += empty_files(files)
    report.excluded.add(count_excluded_sessions(files))
    sources: dict[str, list[HistoryFile]] = {}
    for file in files:
        sources.setdefault(file.source.name, []).append(file)
    pending = _pending(run, files)
    if run.as_json:
        run.out.json(
            files={name: len(group) for name, group in sources.items()},
            not_imported={name: pending[name] for name in sources},
            **not_imported_as_json(report, exclude),
        )
        return
    for name, group in sources.items():
        size = sum(file.size for file in group)
        counts = f"  {humanize.count(len(group), 'file')}, {size:,} bytes"
        run.out.line((name, "label"), f"{counts}, {pending[name]:,} not imported yet")
    run.out.line(f"{humanize.count(pending.total(), 'file')} would be read")
    print_not_imported(report, exclude)


def _pending(run: Invocation, files: Sequence[HistoryFile]) -> Counter[str]:
    """The number of files per source with content that is not in the ledger."""
    from agents_ledger.importers.survey import is_behind

    try:
        with run.reading() as ledger:
            archived = ledger.sources
            return Counter(file.source.name for file in files if is_behind(archived, file))
    except NotFound:  # there is no ledger yet
        return Counter(file.source.name for file in files)


def _import_request(run: Invocation, path: Path) -> int:
    from agents_ledger.importers.requests import import_request
    from agents_ledger.importers.sources.import_requests.records import decoded

    try:
        request = decoded(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}", "Give a JSON file.") from error
    except (ValueError, RecursionError) as error:
        raise Refused(
            f"{path} is not valid JSON: {error}", "Give a file with one `sessions.import` request."
        ) from error
    with run.writing(create=True) as ledger:
        answer = import_request(ledger, request)
    run.out.json(**answer)
    return 1 if answer.get("import", answer).get("failed") else 0


@command
@click.argument("what", nargs=-1, metavar="[SOURCE]...")
@EXCLUDE
@click.option("--install", "install_", is_flag=True, help="Install a service that starts at login.")
def watch(
    run: Invocation, *, what: tuple[str, ...], exclude: tuple[str, ...], install_: bool
) -> None:
    """Import continuously, as agents write, until interrupted."""
    from agents_ledger.importers import discovery
    from agents_ledger.importers import watch as watching
    from agents_ledger.importers.pipeline import Importer, Report
    from agents_ledger.importers.sources.registry import SOURCES

    unknown = [name for name in what if name not in SOURCES]
    if unknown:
        raise NotFound(f"no source {unknown[0]!r}", f"Sources are {', '.join(SOURCES)}.")
    home = discovery.this_home()
    if install_:
        _install(run, watching.this_command(run.address, what, _patterns(exclude)))
        return
    wanted, report = _wanted(None, exclude), Report()
    files = _files(what, wanted, report)

    def print_now(report: Report, expected: Sequence[str] = ()) -> None:
        print_report(run, report, expected)
        sys.stdout.flush()  # stdout of a service is a buffered log file

    with run.writing(create=True) as ledger:
        print_now(Importer(ledger, report).run(files), _patterns(exclude))
        embed_in_background(ledger)
        watching.watch(ledger, home, sources=what, selection=wanted, on_report=print_now)


def _install(run: Invocation, service: list[str]) -> None:
    import subprocess

    from agents_ledger.importers import discovery, watch

    file, start = watch.install(discovery.this_home(), service)
    run.out.line("wrote ", str(file))
    try:
        subprocess.run(start, check=True, capture_output=True)
        run.out.line("started")
    except (OSError, subprocess.CalledProcessError):
        run.out.line("start it with: ", " ".join(start))


@command
@click.option("--index", is_flag=True, help="Rebuild only the full-text index.")
def rederive(run: Invocation, *, index: bool) -> None:
    """Derive all imported turns again from the archived records."""
    if index:
        _rebuild_index(run)
        return
    from agents_ledger.importers.pipeline import rederive as derive_again

    with run.writing() as ledger:
        report = derive_again(ledger)
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
    run.out.line(f"indexed {humanize.count(turns, 'turn')}")
