"""Every error the ledger raises on purpose.

LedgerError
├── NotFound             no such session, turn or message
├── Conflict             the ledger has changed meanwhile, or has something else there
│   ├── HeadMoved        another turn was recorded on the session first
│   └── NameTaken        a session, alias or turn of that name exists
├── Refused              the request contradicts the ledger's rules
│   ├── Ambiguous        the prefix matches several turns or sessions
│   ├── MissingExtra     an optional package is not installed; an ImportError too
│   └── RequestRefused   a `sessions.import` request as a whole is invalid
├── EngineError          the model could not be run; `kind` says why
└── StoreUnavailable     the database could not be used
    ├── Locked           another process held it too long
    ├── ReadOnly         it may not be written
    ├── DiskFull         there is no room left
    ├── Damaged          the file is corrupt, or a row of it cannot be read
    ├── NotALedger       the file or schema holds something else
    ├── NewerLedger      written by a newer version of this program
    ├── Unreachable      the server does not answer, or refuses the connection
    └── OutcomeUnknown   the connection failed during a commit: it may or may not be stored

The message names the thing and the problem; `hint` gives the next step, and tracebacks show it.
Each of the five families has an exit code of the command line and an HTTP status.
"""

from __future__ import annotations

from typing import Literal

EngineFault = Literal["overflow", "rate", "auth", "unavailable", "bad_request", "cancelled"]
OPEN_TO_WRITE = "Open it without read_only=True."
_ENGINE_HINTS: dict[EngineFault, str] = {
    "overflow": "Compact the session with `agents-ledger compact`, then retry.",
    "rate": "Wait a moment, then retry.",
    "auth": "Check the API key of the provider.",
    "unavailable": "The provider or the network failed. Retry later.",
    "bad_request": "Check the name and the settings of the model.",
    "cancelled": "Send the message again. The text so far is recorded.",
}


class LedgerError(Exception):
    """Base of all errors raised on purpose."""

    hint = ""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint
        if self.hint:
            self.add_note(f"Hint: {self.hint}")


def code_of(error: LedgerError) -> str:
    """The kind of an error in JSON: the name of its class, as in head_moved."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in type(error).__name__)[1:]


class NotFound(LedgerError):
    """There is no such session, turn or message."""

    hint = "List the sessions with `agents-ledger sessions`."


class Conflict(LedgerError):
    """The ledger has changed meanwhile, or has something else under that id."""


class HeadMoved(Conflict):
    """Another turn was recorded on the session first.

    `turn_id` is set if the turn was recorded all the same, off the head.
    """

    hint = "Read the session again and record on its new head, or fork."

    def __init__(
        self, label: str, expected: str | None, found: str | None, turn_id: str | None = None
    ) -> None:
        not_at = f"not at {expected}" if expected else "and no longer empty"
        stored = f"; turn {turn_id} was stored as a branch" if turn_id else ""
        super().__init__(
            f"session {label!r} is at {found or 'no turn'}, {not_at}{stored}",
            "The turn is stored: fork from it, or move the session to it." if turn_id else None,
        )
        self.label, self.expected, self.found, self.turn_id = label, expected, found, turn_id


class NameTaken(Conflict):
    """A session or alias of that name exists, or a turn of that id."""

    hint = "Choose another name, or use the session of that name."


class Refused(LedgerError):
    """The request contradicts the ledger's rules; nothing was changed."""


class Ambiguous(Refused):
    """The prefix matches several turns or sessions."""

    hint = "Give a longer prefix."


class MissingExtra(Refused, ModuleNotFoundError):
    """A package that only some features need is not installed."""

    hint = "Install it."

    def __init__(self, message: str, hint: str | None = None, package: str | None = None) -> None:
        super().__init__(message, hint)
        self.name = package


class RequestRefused(Refused):
    """A `sessions.import` request as a whole is invalid. The message is its code."""

    hint = "Compare the request with docs/sources/request.md."

    @property
    def code(self) -> str:
        """One of the codes in docs/sources/request.md."""
        return str(self)


class EngineError(LedgerError):
    """The model could not be run to its end. `kind` says why.

    An engine raises it. After "overflow" the broker compacts the session and asks once more.
    """

    hint = "Retry, or use another model."

    def __init__(
        self, message: str, kind: EngineFault = "unavailable", hint: str | None = None
    ) -> None:
        if kind not in _ENGINE_HINTS:
            raise Refused(
                f"the kind of an EngineError is {kind!r:.80}: {message}",
                f"Use one of {', '.join(_ENGINE_HINTS)}.",
            )
        super().__init__(message, hint or _ENGINE_HINTS[kind])
        self.kind = kind

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later: its kind is rate or unavailable."""
        return self.kind in ("rate", "unavailable")


class StoreUnavailable(LedgerError):
    """The database could not be used."""


class Locked(StoreUnavailable):
    """Another process held the ledger too long."""

    hint = "Wait for the other process, or find it with `agents-ledger doctor`."


class ReadOnly(StoreUnavailable):
    """The ledger may not be written."""

    hint = "Check the permissions of the file, its folder and the file system."


class DiskFull(StoreUnavailable):
    """There is no room left for the ledger."""

    hint = "Free some space and retry; everything that was acknowledged is stored."


class Damaged(StoreUnavailable):
    """The database file is corrupt, or a stored row cannot be read."""

    hint = (
        "Examine the damage with `agents-ledger audit`; restore a backup with `agents-ledger"
        " restore`, or recover the readable rows with `agents-ledger salvage`."
    )


class NotALedger(StoreUnavailable):
    """The file or schema holds something other than a ledger."""

    hint = "Give the address of a ledger, or of a new file."


class NewerLedger(StoreUnavailable):
    """The ledger was written by a newer version of this program."""

    hint = "Install a newer version of agents-ledger."


class Unreachable(StoreUnavailable):
    """The database server does not answer, or refuses the connection."""

    hint = "Check that the server runs, and the host, user and password in the address."


class OutcomeUnknown(StoreUnavailable):
    """The connection failed during a commit: it may or may not be stored.

    `turn_id` is the id of the turn if it was stored.
    """

    hint = "Repeat the call with the same turn id; the turn is stored once."

    def __init__(self, message: str, turn_id: str | None = None) -> None:
        super().__init__(message)
        self.turn_id = turn_id
