"""Translates errors of SQLite into ours."""

from __future__ import annotations

import sqlite3

from agents_ledger.model.errors import (
    Damaged,
    DiskFull,
    Locked,
    NotALedger,
    ReadOnly,
    Refused,
    StoreUnavailable,
)
from agents_ledger.store.violations import violation


def name_of(error: BaseException) -> str:
    """The name of an error code, SQLITE_FULL for one."""
    return getattr(error, "sqlite_errorname", "") or ""


_UNDECODED = "UNDECODED"
_FAMILIES: tuple[tuple[tuple[str, ...], type[StoreUnavailable], str], ...] = (
    (("SQLITE_BUSY", "SQLITE_LOCKED"), Locked, "{address} is locked by another program"),
    (("SQLITE_READONLY",), ReadOnly, "{address} cannot be written: {text}"),
    (("SQLITE_FULL",), DiskFull, "there is no room left for {address}"),
    (("SQLITE_NOTADB",), NotALedger, "{address} is not a database"),
    (("SQLITE_CORRUPT",), Damaged, "{address} is damaged: {text}"),
    ((_UNDECODED,), Damaged, "{address} is damaged: a text is not UTF-8"),
    (("SQLITE_CANTOPEN", "SQLITE_PERM"), ReadOnly, "{address} cannot be opened: {text}"),
)


# What the driver raises. A message of SQLite's that quotes damaged text is no UTF-8 itself.
DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeDecodeError)


def translate(error: Exception, address: str) -> Exception:
    """A driver's error in our words; others stay as they are."""
    if isinstance(error, OverflowError):
        return Refused("a number is too large", "Numbers have at most 64 bits.")
    if not isinstance(error, DRIVER_ERRORS):
        return error
    name, text = name_of(error), str(error)
    if not isinstance(error, sqlite3.Error) or text.startswith("Could not decode to UTF-8"):
        name = _UNDECODED  # raised by the driver itself, without a code
    # Before the constraints: RAISE(ABORT) in a trigger is reported as SQLITE_CONSTRAINT_TRIGGER.
    if text.startswith("guard: "):
        return Refused(text.removeprefix("guard: "))
    if name.startswith("SQLITE_CONSTRAINT"):
        return violation(text)
    if "too big" in text:
        return Refused(f"a value is too large to store: {text}")
    kind, message = next(
        ((kind, message) for names, kind, message in _FAMILIES if name.startswith(names)),
        (StoreUnavailable, "{address}: {text}"),
    )
    return kind(message.format(address=address, text=text))
