"""The passphrase of encrypted files: from the environment, or typed on a terminal."""

from __future__ import annotations

import os
import sys

import click

VARIABLE = "AGENTS_LEDGER_PASSPHRASE"  # never an option: those appear in the list of processes


def passphrase(*, is_new: bool) -> str:
    """The passphrase for a file; asked for twice if it is new."""
    given = os.environ.get(VARIABLE)
    if given:
        return given
    if not sys.stdin.isatty():
        raise click.UsageError(f"a passphrase is required: set {VARIABLE}")
    chosen: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=is_new, err=True)
    return chosen
