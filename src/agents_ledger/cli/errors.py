"""Errors on the command line: up to two lines on stderr, and one exit code per error family."""

from __future__ import annotations

import click

from agents_ledger.cli.terminal import diagnostic
from agents_ledger.model.errors import (
    Conflict,
    EngineError,
    LedgerError,
    NotFound,
    Refused,
    StoreUnavailable,
)

EXIT_CODES = {NotFound: 3, Conflict: 4, Refused: 5, StoreUnavailable: 6, EngineError: 7}


def report(error: Exception) -> int | None:
    """Print an error of the ledger and return its exit code; None for any other exception."""
    if not isinstance(error, LedgerError):
        return None
    diagnostic("error", str(error))
    if error.hint:
        diagnostic("hint", error.hint)
    return next(code for family, code in EXIT_CODES.items() if isinstance(error, family))


def report_usage(error: click.ClickException) -> int:
    """Print a usage error and return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    diagnostic("error", error.format_message())
    context = error.ctx if isinstance(error, click.UsageError) else None
    diagnostic("hint", f"See `{context.command_path if context else 'agents-ledger'} --help`.")
    return error.exit_code
