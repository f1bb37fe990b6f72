"""resume: the command that continues a session in the agent it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import note
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.sessions import NATIVE, Session

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.turns import Turn


@command
@click.argument("session", shell_complete=complete_target)
def resume(run: Invocation, *, session: str) -> None:
    """Print the command that continues a session in its agent, or else in the ledger."""
    with run.reading() as ledger:
        stored = _session(ledger, ledger.lookup(session))
        turn = ledger.get_turn(stored.thread_id) if stored.thread_id else None
        folder = _folder(ledger, stored.label, turn)
    there = command_there(stored, folder)
    here = command_here(stored)
    continued_here = bool(there and turn and not turn.projected)
    if run.as_json:
        run.out.json(command=there, ledger_command=here, continued_in_ledger=continued_here)
        return
    run.out.line(there or here)
    if there is None:
        agent = "its agent" if stored.origin == NATIVE else stored.origin
        note((f"No command of {agent} continues it; this continues it in the ledger.", "dim"))
    elif continued_here:
        note(("It was continued in the ledger; its agent lacks the newest turns.", "live"))


def _session(ledger: Ledger, target: str) -> Session:
    try:
        return ledger.session(target)
    except NotFound:  # lookup() found a turn
        raise Refused(
            f"{target} is a turn; a session is continued at its head",
            f"Create a session at the turn: `agents-ledger fork {target}`.",
        ) from None


def _folder(ledger: Ledger, label: str, turn: Turn | None) -> str | None:
    """The folder in which its agent worked: that of the latest imported turn."""
    if turn is None or turn.projected:
        return turn.workspace_path if turn else None
    heads = [run.head_turn_id for run in ledger.pages.imported_as(label) if run.head_turn_id]
    return ledger.get_turn(heads[-1]).workspace_path if heads else None
