"""up: create the ledger, import what is on this machine, and open the Command Center."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.errors import report as print_error
from agents_ledger.cli.explore.tree import Draw
from agents_ledger.cli.servers.serve import check_packages, start
from agents_ledger.cli.terminal import note
from agents_ledger.cli.transfer.import_report import ImportProgress, summary
from agents_ledger.cli.transfer.imports import AllHistory, all_history
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import HeadMoved
from agents_ledger.model.installation import program, settings
from agents_ledger.model.installation.program import as_typed

if TYPE_CHECKING:
    from agents_ledger.importers.background_import import BackgroundImport

TREES = 5


@command
@click.option("--no-import", is_flag=True, help="Do not import.")
@click.option("--no-demo", is_flag=True, help="Do not record the demonstration in an empty ledger.")
@click.option("--no-serve", is_flag=True, help="Do not start the Command Center.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port of the Command Center.  [default: 8717]"
)
@click.option("--no-browser", is_flag=True, help="Print the address; open no browser.")
def up(
    run: Invocation,
    *,
    no_import: bool,
    no_demo: bool,
    no_serve: bool,
    port: int | None,
    no_browser: bool,
) -> None:
    """Create the ledger, import the history of all agents found here, and open the Command Center.

    The Command Center opens at once; the import goes on behind it, the newest sessions first, and
    then new history is imported as agents write it. If there is nothing to import, an empty ledger
    gets a small demonstration: a conversation with tool calls, a subagent, a fork and a compaction.
    """
    serves = not (no_serve or run.as_json)
    if serves:
        check_packages()
    history = None if no_import else all_history()
    with run.writing(create=True) as ledger:
        beginning = Beginning(run, ledger, history, with_demo=not no_demo)
        if not serves:
            beginning.in_foreground()
            return
        from agents_ledger.cli.servers.server import Serving

        with beginning.in_background() as imports:
            start(
                run,
                ledger,
                Serving(port=port),
                browser=not no_browser,
                imports=imports,
                on_start=partial(beginning.begin, imports),
            )


class Beginning:
    """The first import of a ledger, and what is printed about it."""

    def __init__(
        self, run: Invocation, ledger: Ledger, history: AllHistory | None, *, with_demo: bool
    ) -> None:
        self._run = run
        self._ledger = ledger
        self._history = history
        self._with_demo = with_demo
        self._has_demo = False

    def in_foreground(self) -> None:
        from agents_ledger.importers.pipeline import Importer

        if self._history is not None:
            files, report = self._history
            with ImportProgress(self._run, files) as tick:
                Importer(self._ledger, report).run(files, tick)
            self._ledger.summarise()
        self._demonstrate()
        if not self._run.as_json:
            self._note_ledger()
            self._print_result()
            return
        self._run.out.json(
            address=self._run.address,
            demonstration=self._has_demo,
            sessions=[session.label for session in self._ledger.sessions()],
            imported=self._history.report.counts if self._history else None,
        )

    @contextmanager
    def in_background(self) -> Iterator[BackgroundImport]:
        """The import that begin() starts; it is stopped at the end."""
        from agents_ledger.importers.background_import import BackgroundImport
        from agents_ledger.importers.discovery import FileSelection, this_home

        selection = FileSelection(0, settings.excluded())
        imports = BackgroundImport(self._ledger, this_home(), selection)
        if not (self._history and self._history.files):
            self._demonstrate()  # before the page opens
        self._note_ledger()
        if self._history is None:
            self._print_result()
        try:
            yield imports
        finally:
            was_importing = imports.status is not None
            imports.stop()
            if was_importing:
                note(as_typed("The import was stopped. The next `agents-ledger up` continues it."))

    def begin(self, imports: BackgroundImport) -> None:
        """Called when the page can be opened: import, then print what the ledger contains."""
        from agents_ledger.importers.background_import import ImportJob

        if self._history is None:
            return
        files, report = self._history
        imports.start(
            ImportJob(
                files=files,
                report=report,
                progress=ImportProgress(self._run, files),
                follow=True,
                on_end=self._end,
                on_error=print_error,
            )
        )

    def _end(self) -> None:
        self._demonstrate()
        with suppress(BrokenPipeError):  # nobody reads the output; the page goes on
            self._print_result()

    def _demonstrate(self) -> None:
        """Record the demonstration in an empty ledger."""
        ledger = self._ledger
        roots = ledger.latest_roots(limit=1, subagents=True)
        is_empty = not roots and not ledger.sessions(status=None, limit=1)
        if not (self._with_demo and is_empty):
            return
        from agents_ledger.cli.servers.demonstration import Demonstration

        try:
            Demonstration(ledger).record()
            self._has_demo = True
        except HeadMoved:
            # Another `up` records the demonstration at the same time.
            self._has_demo = False

    def _note_ledger(self) -> None:
        demonstration = " with a demonstration" if self._has_demo else ""
        note(("ledger ", "dim"), self._run.address, (demonstration, "dim"))

    def _print_result(self) -> None:
        if self._history is not None and self._history.files:
            names = sorted({file.source.name for file in self._history.files})
            note(("found ", "dim"), f"{', '.join(names)}: {summary(self._history.report)}")
        note()
        Draw(self._ledger, self._run).newest(limit=TREES)
        latest = self._ledger.sessions(limit=1)
        if latest:
            self._suggest(shlex.quote(latest[0].label))

    def _suggest(self, label: str) -> None:
        here, anywhere = program.command(), program.command(anywhere=True)
        if self._run.address != settings.address(None):
            here += f" --ledger {shlex.quote(self._run.address)}"
        if self._run.address != str(settings.default_file()):
            anywhere += f" --ledger {shlex.quote(settings.absolute(self._run.address))}"
        commands = (
            ("list the sessions", f"{here} sessions"),
            ("show the conversation", f"{here} show {label}"),
            ("branch off at its last turn", f"{here} fork {label}"),
            ("check the ledger", f"{here} audit"),
            ("let your agents search it", f"{here} install")
            if self._history is not None and self._history.files
            else ("let Claude Code search it", f"claude mcp add agents-ledger -- {anywhere} mcp"),
        )
        note()
        note(("Try next:", "title"))
        longest = max(len(about) for about, _ in commands)
        for about, text in commands:
            note("  ", (about.ljust(longest), "dim"), "  ", text)
