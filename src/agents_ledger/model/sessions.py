"""Sessions, the moves of their heads, and threads, as values."""

from __future__ import annotations

from typing import Literal, TypedDict

from msgspec import Struct

from agents_ledger.model.turns import Turn

SessionStatus = Literal["active", "archived", "deleted"]
CreatedAs = Literal["user", "system", "subagent", "fork", "import"]
TaskStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
AliasReason = Literal["identity_promotion", "identity_merge", "import_reconciliation", "manual"]
CheckMode = Literal["quick", "full"]
MoveReason = Literal[
    "record", "fork", "move", "rollback", "undo", "clear", "import", "rename", "merge", "unmerge"
]
DEFAULT_PERSONA = "main"
NATIVE = "native"  # the origin of sessions that were not imported


class Annotations(TypedDict, total=False):
    """People's words about a session, which are not part of the record."""

    title: str | None
    starred: bool
    note: str | None


class Session(Struct, frozen=True):
    """A label that points to the head of a thread."""

    label: str
    thread_id: str | None = None  # the head; None: empty
    persona_id: str = DEFAULT_PERSONA
    agent_id: str | None = None
    created_as: CreatedAs = "user"
    is_subagent: bool = False
    parent_session_label: str | None = None
    parent_turn_id: str | None = None
    spawn_tool_call_id: str | None = None
    task_description: str | None = None
    task_status: TaskStatus | None = None
    routing_key: str | None = None
    origin: str = NATIVE
    origin_session_id: str | None = None
    created_at: int = 0
    updated_at: int = 0
    status: SessionStatus = "active"
    title: str | None = None
    starred: bool = False
    note: str | None = None
    metadata_json: str | None = None  # what a source says of it beside
    source_has_more: bool = False  # its source went on after it was continued here


class Move(Struct, frozen=True):
    """One line of a session's history: its head came to point here.

    The head is where it was if the session was renamed, merged or unmerged. A computed line was
    never recorded: it is a turn that an import brought, at the time it ended.
    """

    id: int  # of a computed line: that of the import
    session_label: str
    thread_id: str | None
    changed_at: int
    reason: MoveReason
    computed: bool = False

    @property
    def cursor(self) -> str:
        """Where the next page of the history begins, if this is the last line of one."""
        return f"{self.id}:{self.thread_id if self.computed else ''}"


class Alias(Struct, frozen=True):
    """Another key for a session."""

    alias: str
    session_label: str
    created_at: int
    reason: AliasReason | Literal["rename"] | None  # rename: a former label


class Thread(Struct, frozen=True):
    """A turn seen with all its ancestors. The tokens are sums over all of them.

    `turns` is the part that was asked for, root first.
    """

    turn_id: str | None
    depth: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    compaction_count: int = 0
    compaction_turn_id: str | None = None
    model: str | None = None
    provider: str | None = None
    persona_id: str | None = None
    system_prompt_hash: str | None = None
    thread_key: str | None = None
    turns: tuple[Turn, ...] = ()


class Finding(Struct, frozen=True):
    """A broken rule, and what breaks it."""

    rule: str
    id: str
    detail: str = ""


class EngineCheck(Struct, frozen=True):
    """Which check of the engine an audit runs."""

    mode: CheckMode
    ran: str  # in the engine's words
    complete: bool  # whether every page and every index entry is read
