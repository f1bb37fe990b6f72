"""Imported history as values: archived files, and what is derived from them."""

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
"""`derived_version` of a file that is not read again until its source changes."""

PURGED = -2
"""`derived_version` of a file whose content was purged: it is not imported again."""

Fate = Literal["derived", "unmapped", "malformed"]
"""The outcome of a record: it makes rows, it deliberately makes none, or it is broken."""


class SourceFile(Struct, frozen=True):
    """An archived file of a source. A rewritten file has several generations."""

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
    cursor_json: str | None = None  # where reading the rows continues
    derived_bytes: int = -1
    derived_version: int = 0


class Fault(Struct, frozen=True):
    """Something in a source that could not be parsed. Its bytes are archived nevertheless."""

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
    record_ids: Iterable[
        str
    ]  # of its messages, and of no other turn: files that share one are related
    build: Callable[[], Turn]
    system_prompt_hash: str | None = None  # None: as in the parent turn
    owner: str | None = None  # its session, if it is on no session's thread
    repeated_ids: Iterable[str] = ()  # of records that only repeat some of its own


class DerivedSession(Struct, frozen=True, kw_only=True):
    """A session of a source: a pointer to one of its turns, and where it came from."""

    session_id: str  # the source's own
    label: str
    source: str | None = None  # None: the name of the source
    origin: str | None = None  # None: as the source
    fingerprint: str | None = None  # as the source reports it; None: computed
    adopted: bool = False  # it existed before the import: its fields stay
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
    """The part of the files that was read again, if the rest is unchanged."""

    files: frozenset[int]  # to their end
    rows: Mapping[int, set[int]]  # of others: the offsets of what was read
    is_rest: Callable[[str], bool]  # whether a turn comes from what was not read


class SourceTitle(NamedTuple):
    """A title in one file for a session in another, or for a project."""

    record_id: str  # or the label of the session itself, or the hash of the project's folder
    file_id: int
    path: str
    generation: int
    position: int
    title: str

    def rank(self) -> tuple[str, int, int]:
        """Of several titles the one with the largest rank wins, in whatever order they are read."""
        return self.path, self.generation, self.position

    @property
    def kind(self) -> Literal["record", "session", "project"]:
        """What `record_id` is. Labels have a colon, record ids do not; only folders are hashed."""
        if ":" in self.record_id:
            return "session"
        return "project" if SHA256.fullmatch(self.record_id) else "record"

    @property
    def folder(self) -> str:
        """The folder of the file: the title is of something in it or below."""
        return self.path[: max(self.path.rfind("/"), self.path.rfind("\\")) + 1]


class Turns(Protocol):
    """Turns, each after its parent. They may be made anew on every iteration."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[DerivedTurn]: ...


class Derivation(Struct, frozen=True, kw_only=True):
    """Everything derived from a set of files."""

    turns: Turns
    sessions: tuple[DerivedSession, ...]
    with_kin: bool = False  # parents and children of its sessions are derived with them
    faults: tuple[Fault, ...] = ()
    counts: Mapping[tuple[str, Fate], int] = Counter()
    firsts: Mapping[str, str] = {}  # by type of records that make no rows, the place of one
    superseded: frozenset[int] = frozenset()  # files whose content is all in later generations
    part: Part | None = None  # None: these are all turns of the files
    titles: tuple[SourceTitle, ...] = ()  # of sessions of other files


class Renaming(NamedTuple):
    """How a derivation of redacted records differs from the one before."""

    ids: dict[str, str]  # by the id that they give
    fingerprints: dict[str, tuple[bytes, bytes]]  # before and after, by turn


class ImportCounts(Struct):
    """The sessions of an import by outcome."""

    imported: int = 0
    upserted: int = 0
    skipped: int = 0
    failed: int = 0
