"""Errors on the command line: two lines or one JSON object on stderr, an exit code per family."""

from __future__ import annotations

import click

from agents_ledger.cli import REFUSED
from agents_ledger.cli.terminal import diagnostic, json_diagnostic
from agents_ledger.model.errors import (
    Conflict,
    EngineError,
    LedgerError,
    NotFound,
    Refused,
    StoreUnavailable,
    code_of,
)

EXIT_CODES = {NotFound: 3, Conflict: 4, Refused: REFUSED, StoreUnavailable: 6, EngineError: 7}


def report(error: Exception, *, as_json: bool = False) -> int | None:
    """Print an error and return its exit code; None for an exception that is a defect."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if isinstance(error, click.ClickException):
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"See `{context.command_path if context else 'agents-ledger'} --help`."
        _print("usage", error.format_message(), hint, as_json=as_json)
        return error.exit_code
    if isinstance(error, LedgerError):
        _print(code_of(error), str(error), error.hint, as_json=as_json)
        return next(code for family, code in EXIT_CODES.items() if isinstance(error, family))
    return None


def _print(code: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        json_diagnostic(code=code, message=message, hint=hint)
        return
    diagnostic("error", message)
    if hint:
        diagnostic("hint", hint)
