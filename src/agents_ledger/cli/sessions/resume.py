"""resume: the command that continues a session in the agent it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import note
from agents_ledger.model.imports.resuming import command_here, command_there

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.turns import Turn


@command
@click.argument("session", shell_complete=complete_target)
def resume(run: Invocation, *, session: str) -> None:
    """Print the command that continues a session in its own agent, or here."""
    with run.reading() as ledger:
        found = ledger.session(ledger.lookup(session))
        head = found.thread_id
        turn = ledger.get_turn(head) if head else None
        folder = _folder(ledger, found.label, turn)
    there = command_there(found, folder)
    here = command_here(found)
    gone_on = bool(there and turn and not turn.projected)
    if run.as_json:
        run.out.json(command=there, here=here, went_on_here=gone_on)
        return
    run.out.line(there or here)
    if there is None:
        note(
            (
                f"{found.origin or 'This ledger'} has no command for it: this continues it here.",
                "dim",
            )
        )
    elif gone_on:
        note(("It was continued here: its own agent does not know the turns since.", "live"))


def _folder(ledger: Ledger, label: str, turn: Turn | None) -> str | None:
    """Where its own agent worked: on the latest turn that came from there."""
    if turn is None or turn.projected:
        return turn.workspace_path if turn else None
    heads = [each.head_turn_id for each in ledger.pages.imported_as(label)]
    found = [ledger.get_turn(head).workspace_path for head in heads if head]
    return found[-1] if found else None
