"""salvage: recover the readable rows of a damaged ledger file."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

import click

from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.maintenance import salvage as salvaging
from agents_ledger.ledger.maintenance.salvage import Missing, Salvaged
from agents_ledger.model.installation import settings
from agents_ledger.model.text import humanize

SOMETHING_MISSING = 1
MISSING_PER_KIND = 20


@command
@click.argument("file", type=click.Path())
@click.argument("target", metavar="NEW", type=click.Path())
@limit_option(MISSING_PER_KIND, "missing items to list, per kind")
def salvage(run: Invocation, *, file: str, target: str, limit: int) -> int:
    """Recover the readable rows of a damaged ledger file into the new ledger NEW.

    FILE is not changed. Exits with 1 if anything is missing.
    """
    settings.make_default_folder(target)
    salvaged = salvaging.salvage(file, target)
    if run.as_json:
        run.out.json(
            file=target,
            complete=salvaged.complete,
            tables=salvaged.tables,
            missing=salvaged.missing,
            remarks=salvaged.remarks,
            findings=salvaged.findings,
        )
    else:
        _report(run, salvaged, target, limit)
    return 0 if salvaged.complete else SOMETHING_MISSING


def _report(run: Invocation, salvaged: Salvaged, target: str, limit: int) -> None:
    run.out.table(
        ["TABLE", "READ", "LOST", "DROPPED", "REPAIRED"],
        [
            [rows.table, *(f"{n:,}" for n in (rows.read, rows.lost, rows.dropped, rows.repaired))]
            for rows in salvaged.tables
            if rows.read or rows.lost
        ],
        right=("READ", "LOST", "DROPPED", "REPAIRED"),
    )
    for remark in salvaged.remarks:
        run.out.line(("file: ", "bad"), remark)
    _report_missing(run, salvaged.missing, limit)
    for finding in salvaged.findings[:limit]:
        run.out.line((finding.rule, "bad"), "  ", (finding.id, "id"), "  ", finding.detail)
    read = humanize.count(sum(rows.read for rows in salvaged.tables), "row")
    verdict = "nothing is missing" if salvaged.complete else "some rows are missing"
    run.out.line(f"read {read} into ", (target, "title"), f"; {verdict}")
    if salvaged.findings:
        note(("error:", "bad"), " the new ledger violates rules of the audit")


def _report_missing(run: Invocation, missing: tuple[Missing, ...], limit: int) -> None:
    for kind, items in groupby(sorted(missing, key=attrgetter("what")), attrgetter("what")):
        group = list(items)
        run.out.line((kind, "bad"), f"  {len(group):,}")
        for item in group[:limit]:
            run.out.line("  ", (item.id, "id"), "  ", (item.detail, "dim"))
        if len(group) > limit:
            run.out.line((f"  … {len(group) - limit:,} more (--limit)", "dim"))
