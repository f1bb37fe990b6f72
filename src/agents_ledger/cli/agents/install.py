"""install and uninstall: connect the agents on this machine to the ledger."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.integrations.agents.install.changes import Done, Installation
from agents_ledger.integrations.agents.install.targets import (
    TARGETS,
    Place,
    Scope,
    agents_here,
    claude_plugin_is_enabled,
)
from agents_ledger.model.errors import NotFound, Refused
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
    place = Place(Path.home(), Path.cwd(), scope, _command(run, scope), os.environ)
    names = list(dict.fromkeys(agents)) or agents_here(place)
    if not names:
        raise NotFound("no agent was found on this machine", f"Name one: {', '.join(TARGETS)}.")
    installation = Installation()
    act = installation.install if is_install else installation.uninstall
    done: list[Done] = []
    for name in names:
        for change in TARGETS[name].changes(place):
            try:
                done.append(act(name, change, dry_run=dry_run))
            except Refused as error:
                done.append(Done(name, str(change.path), change.what, "failed", error=error))
    _report(run, done, dry_run=dry_run)
    if is_install and not dry_run:
        _print_notes(run, names, done)
    if is_install and "claude-code" in names and claude_plugin_is_enabled(place):
        note(
            ("Claude Code: ", "dim"),
            "The plugin agents-ledger is enabled too, so hooks run twice. Remove it with ",
            ("claude plugin uninstall agents-ledger@agents-ledger", "id"),
            ".",
        )
    failed = next((step.error for step in done if step.error is not None), None)
    if failed is not None:
        raise failed


def _report(run: Invocation, done: list[Done], *, dry_run: bool) -> None:
    if not run.as_json:
        _print(run, done, dry_run=dry_run)
        return
    files = [{**d._asdict(), "error": str(d.error) if d.error else None} for d in done]
    run.out.json(dry_run=dry_run, files=files)


def _print_notes(run: Invocation, names: list[str], done: list[Done]) -> None:
    """What is left to the user: only what is new is worth saying."""
    for name in names:
        changed = {step.result for step in done if step.agent == name} - {"unchanged", "failed"}
        if changed and TARGETS[name].note:
            note((f"{TARGETS[name].title}: ", "dim"), TARGETS[name].note)
    if not settings.is_postgres(run.address) and not os.path.exists(run.address):
        note("The ledger is empty: fill it with ", (f"{program.command()} import", "id"), ".")


def _print(run: Invocation, done: list[Done], *, dry_run: bool) -> None:
    last = ""
    for step in done:
        if step.agent != last:
            run.out.line((TARGETS[step.agent].title, "title"))
            last = step.agent
        is_planned = dry_run and step.result not in ("unchanged", "kept", "failed")
        result = f"would be {step.result}" if is_planned else step.result
        style = "bad" if step.error else ""
        run.out.line("  ", (result.ljust(10), style), "  ", step.path, (f"  {step.what}", "dim"))
        if step.backup and not dry_run:
            run.out.line("              ", (f"backup: {step.backup}", "dim"))
        if step.error:
            run.out.line("              ", (str(step.error), "bad"))


def _command(run: Invocation, scope: Scope) -> tuple[str, ...]:
    """How agents call this program: by its name where others share the settings, otherwise by its
    path. Agents that are not started from a shell, or from another one, have another PATH."""
    words = tuple(shlex.split(program.command(anywhere=True)))
    if scope == "user":
        path = shutil.which(words[0])
        module = (sys.executable, "-P", "-m", "agents_ledger")
        words = (os.path.abspath(path), *words[1:]) if path else module
    address = settings.absolute(run.address)
    if address == str(settings.default_file()):
        return words
    if scope == "project" and settings.is_postgres(address) and urlsplit(address).password:
        raise Refused(
            "the address of the ledger has a password, and the settings of a project are shared",
            f"Use --scope user, or set {settings.VARIABLE} instead of --ledger.",
        )
    return (*words, "--ledger", address)
