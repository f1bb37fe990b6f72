"""Errors as the command line tells them: two lines on stderr, and an exit code per family."""

from __future__ import annotations

import click

from agents_ledger.cli.terminal import complain
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
    """Tell an error and return its exit code; None: it is not one of ours."""
    if not isinstance(error, LedgerError):
        return None
    complain("error", str(error))
    if error.hint:
        complain("hint", error.hint)
    return next(code for family, code in EXIT_CODES.items() if isinstance(error, family))


def report_usage(error: click.ClickException) -> int:
    """Tell what is wrong with the command as it was typed, and return its exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    complain("error", error.format_message())
    context = error.ctx if isinstance(error, click.UsageError) else None
    complain("hint", f"See `{context.command_path if context else 'agents-ledger'} --help`.")
    return error.exit_code
