"""hook: the help of `agents-ledger hook`, which __main__ runs without loading the command line."""

from __future__ import annotations

import sys

import click

from agents_ledger.integrations.agents.hook import main
from agents_ledger.integrations.agents.hook_events import AGENTS


@click.command
@click.argument("event", metavar="EVENT")
@click.option("--agent", type=click.Choice(AGENTS), help="The agent that sends the event.")
@click.pass_context
def hook(ctx: click.Context, *, event: str, agent: str | None) -> None:
    """Answer an agent's event, read from stdin as JSON.

    EVENT is session-start, prompt, compact or session-end. Agents call it once `agents-ledger
    install` has registered it. It always exits with 0; `agents-ledger doctor` reports failures.
    """
    ledger = ["--ledger", ctx.obj] if ctx.obj else []
    sys.exit(main([*ledger, "hook", event, *(["--agent", agent] if agent else [])]))
