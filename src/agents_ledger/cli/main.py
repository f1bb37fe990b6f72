"""The command `agents-ledger`. Nothing is imported for a command before it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Every command: the module of this folder that has it, and what it does.
COMMANDS = {
    "up": ("servers.up", "Import what is found here, and open the Command Center."),
    "import": ("transfer.imports", "Import the history of other agents."),
    "watch": ("transfer.imports", "Import what agents write, as they write it."),
    "sessions": ("sessions.sessions", "List sessions, latest first."),
    "show": ("explore.show", "Show a turn, or the last turns of a session."),
    "tree": ("explore.tree", "Draw the tree of turns."),
    "search": ("explore.search", "Find turns by their words."),
    "files": ("explore.search", "Find the turns that read or wrote a file."),
    "replay": ("explore.replay", "Step through what happened, in order and at a chosen speed."),
    "compare": ("explore.compare", "Compare what two branches did since they parted."),
    "usage": ("explore.usage", "Show turns, tokens and costs by day, model, project or session."),
    "tools": ("explore.usage", "Show uses, failures and durations of tools."),
    "context": ("explore.context", "Show what a model is shown at a turn, with token counts."),
    "compact": ("sessions.compact", "Make a session's context smaller; nothing is removed."),
    "fork": ("sessions.sessions", "Make a new session at a turn; nothing is copied."),
    "archive": ("sessions.session_commands", "Archive a session, or make it active again."),
    "alias": ("sessions.session_commands", "Let a session answer to another name."),
    "note": ("sessions.session_commands", "Write a title, a star or a note on a session."),
    "history": ("sessions.session_commands", "List the moves of a session's head."),
    "undo": ("sessions.session_commands", "Point a session to where it was before a move."),
    "chat": ("sessions.chat", "Talk with a session, a fork or an imported conversation."),
    "resume": ("sessions.resume", "Print the command that continues a session in its own agent."),
    "rerun": ("sessions.rerun", "Ask a turn or a thread again, on a fork, of another model."),
    "queue": ("sessions.queue", "List what waits to be asked, or cancel an entry."),
    "audit": ("health.checks", "Check every rule of the ledger, and its database."),
    "recover": ("health.checks", "Fail the turns whose writer died."),
    "doctor": ("health.checks", "Report on the ledger's engine, file and writers."),
    "export": (
        "transfer.export",
        "Give a conversation away: Markdown, JSON, HTML, its own format.",
    ),
    "rederive": ("transfer.imports", "Derive all imported turns again from the kept records."),
    "serve": ("servers.serve", "Serve the Command Center and the HTTP API."),
    "token": ("servers.serve", "Create, list or revoke tokens of the server."),
    "mcp": ("servers.mcp", "Offer the ledger to other agents over MCP."),
    "sql": ("explore.sql", "Run an SQL query that only reads."),
    "copy": ("transfer.copies", "Copy a ledger to another address, and verify the copy."),
    "backup": ("transfer.copies", "Save the ledger to a new file, and verify it."),
    "restore": ("transfer.copies", "Make a ledger from a backup, and verify it."),
    "salvage": ("transfer.salvage", "Bring what can be read of a damaged file into a new ledger."),
}
INTERRUPTED = 130
PIPE_CLOSED = 141


class Program(click.Group):
    """A group that knows its commands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"agents_ledger.cli.{COMMANDS[cmd_name][0]}")
        # A word of Python's own has an underscore behind it.
        command: click.Command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; a name mistyped is met with the likely one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            likely = get_close_matches(args[0], COMMANDS, 1)
            if not likely:
                raise
            said = f"{error.format_message()} Did you mean '{likely[0]}'?"
            raise click.UsageError(said, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names of commands, from the table alone, and our own options."""
        from click.shell_completion import CompletionItem

        return [
            *(
                CompletionItem(name, help=about)
                for name, (_, about) in COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and exit with its code."""
        options["standalone_mode"] = False
        try:
            code = super().main(*args, **options)
            sys.stdout.flush()
        except (KeyboardInterrupt, click.Abort):
            code = INTERRUPTED
        except click.ClickException as error:
            from agents_ledger.cli.errors import report_usage

            code = report_usage(error)
        sys.exit(code or 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what the ledger refuses is reported in its words."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `| head` has read enough
            return _close_pipe()
        except Exception as error:
            from agents_ledger.cli.errors import report

            code = report(error)
            if code is None:
                raise
            return code


def _close_pipe() -> int:
    """Leave nothing in the buffer that Python would try to write on its way out."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--ledger", metavar="ADDRESS", help="A file, or postgresql://... [AGENTS_LEDGER]")
@click.version_option(package_name="agents-ledger", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, ledger: str | None) -> None:
    """The permanent record of AI conversations.

    A TARGET is a session's label, alias or id in the agent it came from, or a turn's id; the first
    letters of it will do.
    """
    ctx.obj = ledger


if __name__ == "__main__":
    main()
