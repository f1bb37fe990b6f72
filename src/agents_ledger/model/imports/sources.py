"""Imported history as values: what was kept of a source, and what was derived from it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from agents_ledger.model.sessions import TaskStatus
from agents_ledger.model.turns import Turn

SourceKind = Literal["lines", "document", "rows"]
"""Lines are appended to a file; a document is rewritten whole; rows come from a database."""

SHA256 = re.compile(r"[0-9a-f]{64}")

SUPERSEDED = -1
"""The version a file was derived by that need not be read again, until its reader changes."""

Fate = Literal["derived", "unmapped", "malformed"]
"""What became of a record: rows were made from it, it deliberately makes none, it is broken."""


class SourceFile(Struct, frozen=True):
    """A file of a source, as far as it is kept. A rewritten file has several generations."""

    id: int
    source: str
    path: str
    generation: int
    family: str  # files of one family are derived together
    kind: SourceKind
    size: int
    mtime_ns: int
    kept_bytes: int
    tail_hash: bytes | None = None
    cursor_json: str | None = None  # where a reader of rows goes on
    derived_bytes: int = -1
    derived_version: int = 0


class Fault(Struct, frozen=True):
    """Something in a source that could not be understood. Its bytes are kept all the same."""

    path: str
    what: str
    offset: int = 0
    line: int | None = None


class DerivedTurn(Struct, frozen=True):
    """A turn of a source. `build` makes its content, only if the fingerprint is new."""

    id: str
    parent_id: str | None
    fingerprint: bytes  # of the records it comes from
    file_ids: frozenset[int]
    record_ids: Iterable[str]  # that become its messages, and no other turn's: who has one is kin
    build: Callable[[], Turn]
    system_prompt_hash: str | None = None  # None: as in the turn above
    owner: str | None = None  # the session it belongs to, should it stand on no session's thread
    repeated_ids: Iterable[str] = ()  # of records that only repeat some of its own


class DerivedSession(Struct, frozen=True, kw_only=True):
    """A session of a source: a pointer to one of its turns, and where it came from."""

    session_id: str  # the source's own
    label: str
    source: str | None = None  # None: the reader's name
    origin: str | None = None  # None: as the source
    fingerprint: str | None = None  # as the source itself says; None: computed
    adopted: bool = False  # a session that was there: what is said of it stays
    head: str | None  # a turn that was answered
    file_ids: frozenset[int]
    provider: str = ""
    title: str | None = None
    persona_id: str = "main"
    agent_id: str | None = None
    created_at: int = 0
    updated_at: int = 0
    is_subagent: bool = False
    parent_label: str | None = None  # known from the child's side
    parent_turn_id: str | None = None  # where no call names the child
    task_description: str | None = None
    task_status: TaskStatus | None = None
    routing_key: str | None = None
    aliases: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # aliases that the source moves from one session to the next
    metadata: Mapping[str, Any] = {}


class Part(Struct, frozen=True):
    """What was read again, where the rest is as it was."""

    files: frozenset[int]  # to their end
    rows: Mapping[int, set[int]]  # of others: the offsets of what was read
    is_rest: Callable[[str], bool]  # whether a turn comes from what was not read


class SourceTitle(NamedTuple):
    """What a file calls the session of a record that stands in another, or the project of one."""

    record_id: str  # or the label of the session itself, or the hash of the project's folder
    file_id: int
    path: str
    generation: int
    position: int
    title: str

    def rank(self) -> tuple[str, int, int]:
        """Which of several counts, whatever was read first: the largest."""
        return self.path, self.generation, self.position

    @property
    def kind(self) -> Literal["record", "session", "project"]:
        """What `record_id` is. Labels have a colon, record ids do not; only folders are hashed."""
        if ":" in self.record_id:
            return "session"
        return "project" if SHA256.fullmatch(self.record_id) else "record"

    @property
    def folder(self) -> str:
        """Where it stands: what a file there calls something is there, or below."""
        return self.path[: max(self.path.rfind("/"), self.path.rfind("\\")) + 1]


class Turns(Protocol):
    """Turns, each after its parent. They may be made anew whenever they are gone through."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[DerivedTurn]: ...


class Derivation(Struct, frozen=True, kw_only=True):
    """All that a set of files says. Turns stand after their parents."""

    turns: Turns
    sessions: tuple[DerivedSession, ...]
    with_kin: bool = False  # parents and children of its sessions are derived with them
    faults: tuple[Fault, ...] = ()
    counts: Mapping[tuple[str, Fate], int] = Counter()
    firsts: Mapping[str, str] = {}  # by a type of records that make no rows, where one stands
    superseded: frozenset[int] = frozenset()  # files that later states of them say all of
    part: Part | None = None  # None: these are all turns of the files
    titles: tuple[SourceTitle, ...] = ()  # of sessions of other files


class ImportCounts(Struct):
    """What an import did, by session."""

    imported: int = 0
    upserted: int = 0
    skipped: int = 0
    failed: int = 0
