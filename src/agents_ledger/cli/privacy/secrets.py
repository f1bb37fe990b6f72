"""secrets: what the ledger holds, by kind and session, and what is done about it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from agents_ledger.cli import terminal
from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import Span
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.model.reports.secrets import SecretHandling, SecretReport

LINES = 50


@command
@click.option(
    "--set",
    "handling",
    type=click.Choice(["report", "mask", "redact"]),
    help="What the ledger does about secrets from now on.",
)
@limit_option(LINES, "lines")
def secrets(run: Invocation, *, handling: SecretHandling | None, limit: int) -> None:
    """List the secrets in the ledger by kind and session. None is printed.

    With `--set mask`, secrets are masked in everything that commands and pages show; `report`, the
    default, shows texts as they are. Exports and agents get masked texts in any case.
    """
    if handling is not None:
        with run.writing() as ledger:
            ledger.secrets.set_handling(handling)
        if run.as_json:
            run.out.json(handling=handling)
        else:
            run.out.line("secrets: ", (handling, "label"))
        return
    with run.reading() as ledger:
        report = ledger.secrets.report()
    if run.as_json:
        run.out.json(handling=report.handling, total=report.total, counts=report.counts)
        return
    _print(run, report, limit)


def _print(run: Invocation, report: SecretReport, limit: int) -> None:
    if not report.counts:
        run.out.line("no secrets were recognised")
        return
    lines = sorted(report.counts, key=lambda line: list(report.by_kind).index(line.kind))
    rows: list[list[Span]] = []
    for kind, of_kind in groupby(lines, lambda line: line.kind):
        for number, line in enumerate(of_kind):
            label: Span = (line.session_label or "(no session)", "label")
            turn: Span = (line.latest_turn_id or "", "id")
            rows.append([kind if number == 0 else "", label, f"{line.count:,}", turn])
    run.out.table(
        ["KIND", "SESSION", "COUNT", "LATEST TURN"],
        rows[:limit],
        right=("COUNT",),
        flexible="SESSION",
    )
    if len(rows) > limit:
        run.out.line((f"… {len(rows) - limit:,} more lines (--limit)", "dim"))
    places = humanize.count(report.total, "place")
    kinds = humanize.count(len(report.by_kind), "kind")
    run.out.line(f"{places}, {kinds}; the ledger is set to ", (report.handling, "label"))
    hide = as_typed("`agents-ledger secrets --set mask` hides them in what is shown.")
    terminal.note((f"Change them where they are in use. {hide}", "dim"))
