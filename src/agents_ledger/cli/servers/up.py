"""up: create the ledger, import what is on this machine, and open the Command Center."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.explore.tree import Draw
from agents_ledger.cli.servers.serve import start
from agents_ledger.cli.terminal import note
from agents_ledger.cli.transfer.imports import importing_all
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model import settings
from agents_ledger.model.errors import HeadMoved

TREES = 5
STOP_TIMEOUT_S = 3


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

    While the Command Center runs, new history is imported as agents write it. If there is nothing
    to import, an empty ledger gets a small demonstration: a conversation with tool calls, a
    subagent, a fork and a compaction.
    """
    import_all = None if no_import else importing_all(run)
    with run.writing(create=True) as ledger:
        report = import_all(ledger) if import_all else None
        roots = ledger.latest_roots(limit=1, subagents=True)
        is_empty = not roots and not ledger.sessions(status=None, limit=1)
        recorded = is_empty and not no_demo
        if recorded:
            from agents_ledger.cli.servers.demonstration import Demonstration

            try:
                Demonstration(ledger).record()
            except HeadMoved:
                # Another `up` records the demonstration at the same time.
                recorded = False
        if run.as_json:
            heads = [session.label for session in ledger.sessions()]
            counts = report.counts if report else None
            run.out.json(
                address=run.address, demonstration=recorded, sessions=heads, imported=counts
            )
            return
        note(("ledger ", "dim"), run.address, (" with a demonstration" if recorded else "", "dim"))
        note()
        Draw(ledger, run).newest(limit=TREES)
        latest = ledger.sessions(limit=1)
        if latest:
            _suggest(latest[0].label)
        if no_serve:
            return
        from agents_ledger.cli.servers.server import Serving

        with _importing_in_background(ledger) if not no_import else nullcontext():
            start(run, ledger, Serving(port=port), browser=not no_browser)


@contextmanager
def _importing_in_background(ledger: Ledger) -> Iterator[None]:
    """Import while agents write, if watchfiles is installed."""
    if find_spec("watchfiles") is None:
        yield
        return
    from agents_ledger.importers import discovery, watch

    stop = threading.Event()
    wanted = discovery.FileSelection(0, settings.excluded())
    follow = partial(watch.watch, ledger, discovery.this_home(), selection=wanted, stop=stop)
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(STOP_TIMEOUT_S)


def _suggest(label: str) -> None:
    program = _program()
    commands = (
        (f"{program} sessions", "list the sessions"),
        (f"{program} show {label}", "show the conversation"),
        (f"{program} fork {label} --before", "ask the last question again, on a branch"),
        (f"{program} audit", "check the ledger"),
    )
    note()
    note(("Try next:", "title"))
    longest = max(len(text) for text, _ in commands)
    for text, about in commands:
        note("  ", text.ljust(longest), "  ", (about, "dim"))


def _program() -> str:
    """The name of this program, or its path if it is not on PATH."""
    path = Path(sys.argv[0])
    if path.name != "agents-ledger" or shutil.which("agents-ledger"):
        return "agents-ledger"
    return str(path)
