"""What all commands share: the ledger's address, the --json option, common options."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.terminal import Output
from agents_ledger.model.installation import settings

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

Function = Callable[..., int | None]


# What people type for these options; each gets a suggestion.
OTHER_OPTIONS = {
    "--agent": "--origin", "--source": "--origin", "--archived": "--status archived",
    "--blocks": "--by block", "--daily": "--by day", "--weekly": "--by week",
    "--monthly": "--by month", "--breakdown": "--by model", "--number": "--limit",
    "--from": "--since", "--to": "--until", "--name": "--label", "--file": "--output",
}  # fmt: skip


class Invocation:
    def __init__(self, ledger: str | None, *, as_json: bool = False) -> None:
        self.address = settings.address(ledger)
        self.as_json = as_json
        self.out = Output()

    def reading(self) -> Ledger:
        """Open the ledger, which must exist, read-only."""
        from agents_ledger.ledger.ledger import Ledger

        return Ledger.open(self.address, create=False, read_only=True).for_people()

    def writing(self, *, create: bool = False) -> Ledger:
        """Open the ledger, which must exist unless `create` is set, for writing."""
        from agents_ledger.ledger.ledger import Ledger

        if create:
            settings.make_default_folder(self.address)
        return Ledger.open(self.address, create=create).for_people()


class Command(click.Command):
    """A command whose usage errors name it, so that the hint shows the right --help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            similar = OTHER_OPTIONS.get(error.option_name, "")
            if not any(similar.split(" ")[0] in parameter.opts for parameter in self.params):
                error.ctx = error.ctx or ctx
                raise
            message = f"No such option '{error.option_name}'. Did you mean '{similar}'?"
            raise click.NoSuchOption(error.option_name, message, ctx=error.ctx or ctx) from error
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise


def command(function: Function, kind: type[click.Command] = Command) -> click.Command:
    """Make a command with --ledger and --json; its function takes an Invocation first."""

    @click.pass_context
    @functools.wraps(function)
    def invoke(
        ctx: click.Context, /, *, ledger: str | None, as_json: bool, **options: Any
    ) -> int | None:
        run = Invocation(ctx.obj if ledger is None else ledger, as_json=as_json)
        return function(run, **options)

    made = click.command(function.__name__.rstrip("_"), cls=kind)(invoke)
    made.params += [
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON."),
        click.Option(["--ledger"], metavar="ADDRESS", help="Ledger file or postgresql:// URL."),
    ]
    return made


class When(click.ParamType[int]):
    """A point in time, as Unix milliseconds."""

    name = "when"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        from agents_ledger.model.errors import Refused
        from agents_ledger.model.ids import now_ms
        from agents_ledger.model.text.dates import moment

        try:
            return value if isinstance(value, int) else moment(value, now_ms())
        except Refused as error:
            self.fail(f"{error}. {error.hint}", param, ctx)


def since_option(of: str) -> Callable[..., Any]:
    """The option --since: `of` are counted from a time on."""
    help_ = f"{of} since: 2026-03-01, yesterday, 12h, 7d, 4w."
    return click.option("--since", type=When(), metavar="WHEN", help=help_)


def until_option(of: str) -> Callable[..., Any]:
    return click.option("--until", type=When(), metavar="WHEN", help=f"{of} before this time.")


def project_folder(text: str | None) -> str | None:
    """The value of --project: an existing folder by its whole path, else words of a path."""
    import os

    return os.path.abspath(text) if text and os.path.isdir(text) else text


def limit_option(default: int | None, of: str, maximum: int | None = None) -> Callable[..., Any]:
    """The option --limit: the maximum number of `of`."""
    return click.option(
        "--limit",
        type=click.IntRange(1, maximum),
        metavar="N",
        default=default,
        show_default=default is not None,
        help=f"Maximum number of {of}.",
    )


def embed_in_background(ledger: Ledger) -> None:
    """Embed turns as they are recorded from now on, if the settings name an embedder."""
    name = settings.chosen_embedder()
    if name is not None:
        from agents_ledger.model.agents.embedding import embedder

        ledger.embed(embedder(name), behind=True)


def latest_session(ledger: Ledger) -> str:
    """The label of the session that changed last; a subagent's belongs to its parent."""
    from agents_ledger.model.errors import NotFound

    lines = ledger.pages.session_lines(limit=1)
    if not lines:
        hint = "Import history or record a demonstration with `agents-ledger up`."
        raise NotFound("there is no session", hint)
    return lines[0].session.label


def complete_target(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    from agents_ledger.model.errors import LedgerError

    address = ctx.params.get("ledger") or (ctx.parent.params.get("ledger") if ctx.parent else None)
    try:
        with Invocation(address).reading() as ledger:
            labels = [session.label for session in ledger.sessions(limit=1000)]
    # A completion must not print errors.
    except LedgerError:
        return []
    return [label for label in labels if label.startswith(incomplete) and label.isprintable()]
