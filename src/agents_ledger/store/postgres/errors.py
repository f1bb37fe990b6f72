"""Translates errors of PostgreSQL into ours."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolTimeout

from agents_ledger.model.errors import (
    Damaged,
    DiskFull,
    LedgerError,
    Locked,
    ReadOnly,
    Refused,
    StoreUnavailable,
    Unreachable,
)
from agents_ledger.store.violations import violation

ASK_FOR_RIGHTS = "Ask the server's administrator for rights on the schema."


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


_FAMILIES: tuple[tuple[tuple[type[Exception], ...], type[LedgerError], str], ...] = (
    ((pg.ReadOnlySqlTransaction,), ReadOnly, "{address} cannot be written: {text}"),
    ((pg.DataCorrupted, pg.IndexCorrupted, pg.IoError), Damaged, "{address} is damaged: {text}"),
    ((pg.DiskFull,), DiskFull, "there is no room left for {address}"),
    ((pg.LockNotAvailable,), Locked, "{address} is locked by another transaction: {text}"),
    ((psycopg.OperationalError, PoolTimeout), Unreachable, "{address} cannot be reached: {text}"),
    ((psycopg.DataError,), Refused, "a value cannot be stored: {text}"),
    ((psycopg.ProgrammingError,), Refused, "{text}"),
)


def translate(error: Exception, address: str) -> Exception:
    """A driver's error in our words; others stay as they are."""
    if not isinstance(error, (psycopg.Error, PoolTimeout)):
        return error
    text = first_line(error)
    if text.startswith("guard: "):
        return Refused(text.removeprefix("guard: "))
    if "password" in text or "authentication" in text:
        return Unreachable(
            f"{address} refuses the user or password: {text}",
            "Check the user and password in the address.",
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return ReadOnly(f"{address} forbids this: {text}", ASK_FOR_RIGHTS)
    if isinstance(error, psycopg.IntegrityError):
        return violation(text)
    kind, message = next(
        ((kind, message) for kinds, kind, message in _FAMILIES if isinstance(error, kinds)),
        (StoreUnavailable, "{address}: {text}"),
    )
    return kind(message.format(address=address, text=text))
