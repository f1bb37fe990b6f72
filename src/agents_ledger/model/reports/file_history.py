"""The history of one file, as values."""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.reports.search import Action


class ChangelogEntry(Struct, frozen=True):
    """A call that changed or read a file, with what it did to it."""

    turn_id: str
    path: str  # as the call spells it
    action: Action
    at: int
    session_label: str | None
    also_in: int  # other sessions with this turn
    prompt: str | None  # how the turn's first message begins
    call_id: str | None = None  # None: a message says so itself
    sequence: int = 0
    tool_name: str | None = None
    added: int = 0  # lines
    removed: int = 0
    diff: str | None = None  # None: the call does not say what it changed
    has_content: bool = False  # the whole file is known after this call


class FileHistory(Struct, frozen=True):
    """A page of a file's changes, latest first."""

    changes: tuple[ChangelogEntry, ...]
    reads: int  # left out, of the turns of this page
    next: str | None = None


class FileVersion(Struct, frozen=True):
    """A file as a call left or read it; the content is None where the calls do not tell it."""

    change: ChangelogEntry
    content: str | None
