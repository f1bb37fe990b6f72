"""The command `agents-ledger`. The module of a command is imported when the command is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from agents_ledger.cli import INTERRUPTED

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Heading in the help, then command: its module below this package, and its one-line summary.
SECTIONS = {
    "Start": {
        "up": ("servers.up", "Import the history found here and open the Command Center."),
        "import": ("transfer.imports", "Import the history of other agents."),
        "watch": ("transfer.imports", "Import continuously while agents write."),
        "install": ("agents.install", "Connect agents: MCP server, skill and hooks."),
        "uninstall": ("agents.install", "Remove what install has added to agents."),
    },
    "Explore": {
        "show": ("explore.show", "Show a turn, or the last turns of a session."),
        "tree": ("explore.tree", "Draw the tree of turns."),
        "search": ("explore.search", "Search turns by words, or by meaning."),
        "files": ("explore.search", "Find the turns that read or wrote a file."),
        "recall": ("explore.ask", "Print the passages that answer a question."),
        "fix": ("explore.ask", "Find what ended an error before."),
        "how": ("explore.ask", "Show how a tool or a command was used with success."),
        "replay": ("explore.replay", "Replay a session step by step, at a chosen speed."),
        "compare": ("explore.compare", "Compare two branches since their common ancestor."),
        "usage": ("explore.usage", "Report turns, tokens and costs by day, model or agent."),
        "tools": ("explore.usage", "Report the calls, failures and durations of tools."),
        "context": ("explore.context", "Show the model context at a turn, with token counts."),
        "sql": ("explore.sql", "Run a read-only SQL query."),
    },
    "Sessions": {
        "sessions": ("sessions.sessions", "List sessions, most recent first."),
        "chat": ("sessions.chat", "Chat in a session, a fork or an imported conversation."),
        "fork": ("sessions.sessions", "Create a session at an existing turn."),
        "compact": ("sessions.compact", "Compact a session's context; no turn is removed."),
        "rerun": ("sessions.rerun", "Run a turn or a thread again on a fork, to compare models."),
        "resume": ("sessions.resume", "Print the command that continues a session in its agent."),
        "queue": ("sessions.queue", "List, cancel or retry queued messages."),
        "archive": ("sessions.session_commands", "Archive or delete a session, or reactivate it."),
        "alias": ("sessions.session_commands", "Add, list or remove the aliases of a session."),
        "rename": ("sessions.session_commands", "Give a session another label."),
        "merge": ("sessions.session_commands", "Merge two sessions, or undo a merge."),
        "note": ("sessions.session_commands", "Set the title, note or star of a session."),
        "history": ("sessions.session_commands", "List the moves of a session's head."),
        "undo": ("sessions.session_commands", "Undo a move of a session's head."),
    },
    "Transfer": {
        "export": ("transfer.export", "Export a conversation, or the original source files."),
        "copy": ("transfer.copies", "Copy a ledger to a new address and verify the copy."),
        "backup": ("transfer.copies", "Back up the ledger to a new file and verify it."),
        "restore": ("transfer.copies", "Restore a backup to a new ledger and verify it."),
        "decrypt": ("transfer.copies", "Decrypt an encrypted backup or export."),
    },
    "Privacy": {
        "secrets": ("privacy.secrets", "List the secrets in the ledger by kind and session."),
        "redact": ("privacy.redact", "Remove values from the ledger for good."),
        "retention": ("privacy.retention", "Archive, redact or purge what the policies name."),
    },
    "Evidence": {
        "verify": ("health.evidence", "Verify that nothing was changed since it was recorded."),
        "prove": ("health.evidence", "Export a proof that a turn was recorded as it is."),
        "checkpoint": ("health.evidence", "Sign what the log is now, and choose where that goes."),
    },
    "Health": {
        "audit": ("health.checks", "Check every rule of the ledger, and the database itself."),
        "doctor": ("health.checks", "Report on the database, its writers and the sources."),
        "recover": ("health.checks", "Mark turns as failed whose writer has died."),
        "rederive": ("transfer.imports", "Rebuild imported turns, or the search index."),
        "salvage": ("transfer.salvage", "Recover the readable rows of a damaged ledger file."),
    },
    "Servers": {
        "serve": ("servers.serve", "Serve the Command Center and the HTTP API."),
        "token": ("servers.serve", "Create, list or revoke access tokens."),
        "mcp": ("servers.mcp", "Serve the ledger to other agents over MCP."),
        "hook": ("agents.hook", "Answer an event of an agent; called by its hooks."),
    },
}
COMMANDS = {name: row for rows in SECTIONS.values() for name, row in rows.items()}
# What people type for these commands; each gets a suggestion.
OTHER_NAMES = {
    "list": "sessions", "ls": "sessions", "session": "sessions", "log": "sessions",
    "cat": "show", "view": "show", "open": "show", "info": "show", "last": "show",
    "grep": "search", "find": "search", "query": "search",
    "stats": "usage", "cost": "usage", "costs": "usage", "tokens": "usage", "blocks": "usage",
    "diff": "compare", "branch": "fork", "checkout": "fork", "mv": "rename", "title": "note",
    "rm": "archive", "delete": "archive", "remove": "archive", "sync": "import", "load": "import",
    "dump": "export", "save": "export", "web": "up", "ui": "up", "start": "up", "dashboard": "up",
    "server": "serve", "check": "audit", "status": "doctor", "repair": "salvage",
    "erase": "redact", "scrub": "redact", "purge": "retention",
    "help": "--help", "version": "--version",
}  # fmt: skip
PIPE_CLOSED = 141


class Program(click.Group):
    """A group that imports a command's module only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"agents_ledger.cli.{COMMANDS[cmd_name][0]}")
        # A Python keyword, such as import, has a trailing underscore in its module.
        command: click.Command = getattr(module, cmd_name, None) or getattr(module, f"{cmd_name}_")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The called command; for a mistyped name, the error suggests a similar one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            longer = [name for name in COMMANDS if name.startswith(args[0])]
            similar = OTHER_NAMES.get(args[0]) or next(
                iter(longer or get_close_matches(args[0], COMMANDS, 1)), None
            )
            if similar is None:
                raise
            message = f"{error.format_message()} Did you mean '{similar}'?"
            raise click.UsageError(message, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The version of click would import every module for its summary.
        for heading, rows in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(8), about) for name, (_, about) in rows.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [
            *(
                CompletionItem(name, help=about)
                for name, (_, about) in COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> NoReturn:
        # In standalone mode click prints errors itself, in another format.
        options["standalone_mode"] = False
        if "_AGENTS_LEDGER_COMPLETE" in os.environ:
            import_module("agents_ledger.cli.completion")
        try:
            code = super().main(args, *rest, **options)
            sys.stdout.flush()
        except (KeyboardInterrupt, click.Abort):
            code = INTERRUPTED
        except Exception as error:
            from agents_ledger.cli.errors import report

            code = report(error, as_json=_wants_json(sys.argv[1:] if args is None else args))
            if code is None:
                raise
        sys.exit(code or 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `| head` has read enough
            return _close_pipe()


def _wants_json(words: Sequence[str]) -> bool:
    """Whether --json was passed: a command line with an error may not have been parsed."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def _close_pipe() -> int:
    # Python flushes stdout at exit, and would fail again on the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return PIPE_CLOSED


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--ledger",
    metavar="ADDRESS",
    help="Ledger file or postgresql:// URL.  [env: AGENTS_LEDGER]",
)
@click.version_option(package_name="agents-ledger", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context, ledger: str | None) -> None:
    """The permanent record of AI conversations.

    TARGET is a session's label, its alias, its id in the agent that wrote it, or a turn id.
    A unique prefix is enough.
    """
    ctx.obj = ledger


if __name__ == "__main__":
    main()
