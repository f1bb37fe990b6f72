"""copy, backup and restore: copies of whole ledgers, each verified."""

from __future__ import annotations

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.maintenance import copying
from agents_ledger.ledger.maintenance.copying import Copied
from agents_ledger.model.installation import settings
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.text import humanize


@command
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(run: Invocation, *, source: str, target: str) -> None:
    """Copy the ledger at FROM to a new ledger at TO, on either engine, and verify the copy."""
    settings.make_default_folder(target)
    _print_copied(run, copying.copy(source, target), source, target)


@command
@click.argument("file", type=click.Path())
def backup(run: Invocation, *, file: str) -> None:
    """Back up the ledger to a new SQLite file and verify it. Other programs may keep writing."""
    saved = copying.backup(run.address, file)
    size = saved.stat().st_size
    if run.as_json:
        run.out.json(file=str(saved), bytes=size)
        return
    run.out.line("saved and verified ", (str(saved), "title"), f", {humanize.size(size)}")


@command
@click.argument("file", type=click.Path())
@click.argument("target", metavar="[TO]", required=False)
def restore(run: Invocation, *, file: str, target: str | None) -> None:
    """Restore a backup to a new ledger at TO, by default the ledger's address, and verify it."""
    address = target or run.address
    settings.make_default_folder(address)
    _print_copied(run, copying.restore(file, address), file, address)


def _print_copied(run: Invocation, copied: Copied, source: str, target: str) -> None:
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
            + as_typed("create new ones with `agents-ledger token create`")
        )
