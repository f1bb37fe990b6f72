"""copy, backup and restore: whole ledgers, each verified before it counts."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.maintenance import copying
from agents_ledger.ledger.maintenance.copying import Copied
from agents_ledger.model import settings
from agents_ledger.model.text import humanize


@command
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(run: Invocation, *, source: str, target: str) -> None:
    """Copy a ledger to a new one at another address, on either engine, and verify the copy."""
    settings.make_default_folder(target)
    _tell(run, copying.copy(source, target), source, target)


@command
@click.argument("file", type=click.Path())
def backup(run: Invocation, *, file: str) -> None:
    """Save the ledger to a new file while others go on writing, and verify it."""
    saved = copying.backup(run.address, file)
    length = saved.stat().st_size
    if run.as_json:
        run.out.json(file=str(saved), bytes=length)
        return
    run.out.line("saved and verified ", (str(saved), "title"), f", {humanize.size(length)}")


@command
@click.argument("file", type=click.Path())
@click.argument("target", metavar="[TO]", required=False)
def restore(run: Invocation, *, file: str, target: str | None) -> None:
    """Make a new ledger from a backup: at TO, else where the ledger is looked for."""
    address = target or run.address
    settings.make_default_folder(address)
    _tell(run, copying.restore(file, address), file, address)


def _tell(run: Invocation, copied: Copied, source: str, target: str) -> None:
    rows, tokens = copied
    if run.as_json:
        run.out.json(rows=rows, tokens_revoked=tokens)
        return
    run.out.table(
        ["TABLE", "ROWS"],
        [[table, f"{count:,}"] for table, count in rows.items() if count],
        right=("ROWS",),
    )
    run.out.line("copied and verified ", humanize.count(sum(rows.values()), "row"))
    if tokens:
        note(
            f"{humanize.count(tokens, 'access token')} revoked in the copy; "
            "make new ones with `agents-ledger token create`"
        )
