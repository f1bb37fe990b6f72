"""Sessions and threads as pages show them: a line each, a window at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Turn

UNTITLED = "Untitled"


def name_of(session: Session, prompt: str | None) -> str:
    """A session's title; for one that a program labelled, what it was first asked."""
    if session.title:
        return session.title
    if session.created_as in ("import", "subagent"):
        return session.task_description or prompt or UNTITLED
    return session.label


class NamedSession(Struct, frozen=True):
    """A session, and what people call it."""

    session: Session
    name: str


class SessionLine(Struct, frozen=True):
    """A session in one line, with the size of its thread."""

    session: Session
    depth: int = 0
    total_tokens: int = 0
    compaction_count: int = 0
    model: str | None = None
    workspace_path: str | None = None  # of its head
    head_status: str | None = None
    last_prompt: str | None = None  # how it begins
    first_prompt: str | None = None
    last_answer: str | None = None
    branch_count: int = 0  # branches off this thread
    subagent_count: int = 0
    short_label: str = ""  # a prefix that no other label has

    @property
    def name(self) -> str:
        """What people know it by: a label that a program made says nothing to them."""
        return name_of(self.session, self.first_prompt or self.last_prompt)


class Window(Struct, frozen=True):
    """Some turns of a thread, root first, with long texts cut.

    `sizes` has the whole length of each text that was cut, by (turn id, message or call id, field).
    `branches` are the turns that hang on these beside the thread, of each turn the first few;
    `numbers` tells which of how many turns there each is, those of the thread among them.
    """

    turns: tuple[Turn, ...]
    sizes: Mapping[tuple[str, str, str], int]
    branches: tuple[Headline, ...] = ()
    numbers: Mapping[str, tuple[int, int]] = {}


class ImportRun(Struct, frozen=True):
    """What one import did."""

    id: str
    started_at: int
    finished_at: int | None
    imported: int
    upserted: int
    skipped: int
    failed: int
    report_json: str | None = None


class ImportedSession(Struct, frozen=True):
    """Where an imported session came from."""

    source: str
    source_provider: str
    source_session_id: str
    source_session_fingerprint: str
    session_label: str
    head_turn_id: str | None
    imported_at: int
    updated_at: int
    last_run_id: str


class SourceFault(Struct, frozen=True):
    """What could not be understood in a file that was imported."""

    file_id: int
    source: str
    path: str
    position: int
    line: int | None
    what: str


class FileLine(Struct, frozen=True):
    """A file in one line: how often it was read or written, and written."""

    path: str
    touches: int
    writes: int
    last_at: int = 0


class CallCursor(NamedTuple):
    """Where a page of calls ended."""

    started_at: int = 1 << 62
    turn_id: str = ""
    sequence: int = 0


class CallLine(Struct, frozen=True):
    """A tool call in one line."""

    turn_id: str
    id: str
    params_json: str
    status: str
    started_at: int
    error: str | None
    sequence: int


class CallPage(Struct, frozen=True):
    """Some calls of a tool with what was asked in their turns, and where the next page begins."""

    calls: tuple[CallLine, ...]
    headlines: Mapping[str, Headline]
    next: CallCursor | None = None
