"""resume: the command that continues a session in the agent it came from."""

from __future__ import annotations

import shlex

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import note
from agents_ledger.model.sessions import Session

# By origin; {id} is the session's id there. What is missing cannot be continued from a shell.
COMMANDS = {
    "claude-code": "claude --resume {id}",
    "codex": "codex resume {id}",
    "copilot": "copilot --resume {id}",
    "gemini-cli": "gemini --resume {id}",
    "opencode": "opencode --session {id}",
    "pi": "pi --session {id}",
}


@command
@click.argument("session", shell_complete=complete_target)
def resume(run: Invocation, *, session: str) -> None:
    """Print the command that continues a session in its own agent, or here."""
    with run.reading() as ledger:
        found = ledger.session(session)
        head = found.thread_id
        turn = ledger.get_turn(head) if head else None
        folder = turn.workspace_path if turn else None
    there = _command(found, folder)
    here = f"agents-ledger chat {shlex.quote(found.label)}"
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


def _command(session: Session, folder: str | None) -> str | None:
    pattern = COMMANDS.get(session.origin or "")
    if pattern is None or session.origin_session_id is None or session.is_subagent:
        return None
    command = pattern.format(id=shlex.quote(session.origin_session_id))
    return f"cd {shlex.quote(folder)} && {command}" if folder else command
