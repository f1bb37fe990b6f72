"""copy, backup and restore: copies of whole ledgers, each verified."""

from __future__ import annotations

from pathlib import Path

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.cli.transfer.passphrase import passphrase
from agents_ledger.exporters.private_files import make_new
from agents_ledger.ledger.maintenance import copying
from agents_ledger.ledger.maintenance.copying import Copied
from agents_ledger.model.encryption import check_available
from agents_ledger.model.errors import Refused
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
@click.option("--encrypt", is_flag=True, help="Encrypt the file with a passphrase.")
def backup(run: Invocation, *, file: str, encrypt: bool) -> None:
    """Back up the ledger to a new SQLite file and verify it. Other programs may keep writing.

    The passphrase is asked for, or read from AGENTS_LEDGER_PASSPHRASE. Without it nobody can
    restore an encrypted backup.
    """
    if encrypt:
        check_available()
    chosen = passphrase(is_new=True) if encrypt else None
    saved = copying.backup(run.address, file, passphrase=chosen)
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
    chosen = passphrase(is_new=False) if copying.is_encrypted(file) else None
    _print_copied(run, copying.restore(file, address, passphrase=chosen), file, address)


@command
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.argument("target", metavar="TO", type=click.Path())
def decrypt(run: Invocation, *, file: str, target: str) -> None:
    """Decrypt an encrypted backup or export to a new file."""
    path = Path(target)
    try:
        make_new(path)
    except FileExistsError as error:
        raise Refused(f"{path} already exists", "Choose another path.") from error
    try:
        copying.decrypt(file, path, passphrase(is_new=False))
    except BaseException:
        path.unlink()
        raise
    if run.as_json:
        run.out.json(file=target, bytes=path.stat().st_size)
        return
    run.out.line("decrypted ", (target, "title"))


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
