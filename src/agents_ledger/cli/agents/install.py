"""install and uninstall: connect the agents on this machine to the ledger."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.integrations.agents.install.changes import Done, Installation
from agents_ledger.integrations.agents.install.targets import TARGETS, Place, Scope, agents_here
from agents_ledger.model.errors import NotFound
from agents_ledger.model.installation import program, settings

_AGENT = click.argument("agents", nargs=-1, type=click.Choice(list(TARGETS)), metavar="[AGENT]...")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
_SCOPE = click.option(
    "--scope",
    type=click.Choice(["user", "project"]),
    default="user",
    show_default=True,
    help="The agents' settings of this user, or those of the current folder.",
)


@command
@_AGENT
@_DRY_RUN
@_SCOPE
def install(run: Invocation, *, agents: tuple[str, ...], dry_run: bool, scope: Scope) -> None:
    """Register the MCP server, the skill and the hooks in agents' settings.

    AGENT is claude-code, codex, cursor, gemini-cli or opencode; the default is all that are found
    here. Nothing else in the settings changes, a backup is kept, and `uninstall` undoes it.
    """
    _run(run, agents, scope, dry_run=dry_run, is_install=True)


@command
@_AGENT
@_DRY_RUN
@_SCOPE
def uninstall(run: Invocation, *, agents: tuple[str, ...], dry_run: bool, scope: Scope) -> None:
    """Remove from agents' settings what `install` has added."""
    _run(run, agents, scope, dry_run=dry_run, is_install=False)


def _run(
    run: Invocation, agents: tuple[str, ...], scope: Scope, *, dry_run: bool, is_install: bool
) -> None:
    place = Place(Path.home(), Path.cwd(), scope, _command(run), os.environ)
    names = list(dict.fromkeys(agents)) or agents_here(place)
    if not names:
        raise NotFound("no agent was found on this machine", f"Name one: {', '.join(TARGETS)}.")
    installation = Installation()
    act = installation.install if is_install else installation.uninstall
    done: list[Done] = []
    for name in names:
        done += [act(name, change, dry_run=dry_run) for change in TARGETS[name].changes(place)]
    if run.as_json:
        run.out.json(dry_run=dry_run, files=[d._asdict() for d in done])
        return
    _print(run, done, dry_run=dry_run)
    if is_install and not dry_run:
        for name in names:
            if TARGETS[name].note:
                note((f"{TARGETS[name].title}: ", "dim"), TARGETS[name].note)


def _print(run: Invocation, done: list[Done], *, dry_run: bool) -> None:
    last = ""
    for step in done:
        if step.agent != last:
            run.out.line((TARGETS[step.agent].title, "title"))
            last = step.agent
        result = (
            f"would be {step.result}" if dry_run and step.result != "unchanged" else step.result
        )
        run.out.line("  ", result.ljust(10), "  ", step.path, (f"  {step.what}", "dim"))
        if step.backup and not dry_run:
            run.out.line("              ", (f"backup: {step.backup}", "dim"))


def _command(run: Invocation) -> tuple[str, ...]:
    words = tuple(shlex.split(program.command(anywhere=True)))
    if settings.absolute(run.address) == str(settings.default_file()):
        return words
    return (*words, "--ledger", settings.absolute(run.address))
