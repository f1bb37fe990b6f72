"""What all commands share: which ledger is meant, and how the answer is wanted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.terminal import Output
from agents_ledger.model import settings

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

Function = Callable[..., int | None]


class Invocation:
    """One call of a command."""

    def __init__(self, ledger: str | None, *, as_json: bool = False) -> None:
        self.address = settings.address(ledger)
        self.as_json = as_json
        self.out = Output()

    def reading(self) -> Ledger:
        """The ledger, which must exist, for reading only."""
        from agents_ledger.ledger.ledger import Ledger

        return Ledger.open(self.address, create=False, read_only=True)

    def writing(self, *, create: bool = False) -> Ledger:
        """The ledger, which must exist unless it may be created."""
        from agents_ledger.ledger.ledger import Ledger

        if create:
            settings.make_default_folder(self.address)
        return Ledger.open(self.address, create=create)


class Command(click.Command):
    """A command that is named in whatever is wrong with how it was typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Understand what was typed."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def command(function: Function, kind: type[click.Command] = Command) -> click.Command:
    """A command with --ledger and --json; its function gets an Invocation before its own."""

    @click.pass_context
    @functools.wraps(function)
    def invoke(
        ctx: click.Context, /, *, ledger: str | None, as_json: bool, **given: Any
    ) -> int | None:
        return function(Invocation(ctx.obj if ledger is None else ledger, as_json=as_json), **given)

    made = click.command(function.__name__.rstrip("_"), cls=kind)(invoke)
    made.params += [
        click.Option(["--json", "as_json"], is_flag=True, help="Answer in JSON."),
        click.Option(["--ledger"], metavar="ADDRESS", help="A file, or postgresql://..."),
    ]
    return made


def embed_behind(ledger: Ledger) -> None:
    """Give turns their vectors from now on, as they are recorded, if an embedder is chosen."""
    chosen = settings.chosen_embedder()
    if chosen is not None:
        from agents_ledger.model.agents.embedding import embedder

        ledger.embed(embedder(chosen), behind=True)


def complete_target(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The labels that begin like this, for the shell."""
    from agents_ledger.model.errors import LedgerError

    given = ctx.params.get("ledger") or (ctx.parent.params.get("ledger") if ctx.parent else None)
    try:
        with Invocation(given).reading() as ledger:
            labels = [session.label for session in ledger.sessions(limit=1000)]
    except LedgerError:
        return []
    return [label for label in labels if label.startswith(incomplete) and label.isprintable()]
