"""What waits to be asked of a session, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, TurnRole

QueueMode = Literal["followup", "collect", "interrupt", "steer"]
QueueStatus = Literal["waiting", "claimed", "done", "failed", "cancelled", "dropped"]
Drop = Literal["old", "new", "summarize"]


class Ask(Struct, frozen=True, omit_defaults=True):
    """What is asked: messages, and what holds for their turn alone."""

    messages: tuple[Message, ...]
    directives: Mapping[str, Any] = {}  # model, thinking, max_tokens, temperature, toolset
    role: TurnRole | None = None  # None: worker in a subagent's session, else as the policy says
    source_event_id: str | None = None
    workspace_path: str | None = None
    reply_to: str | None = None  # the session that gets the answer as a message: a worker's manager
    left_out: tuple[str, ...] = ()  # how messages began that a full line could not hold


class QueueLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """How a line behaves: set for all sessions of a broker, never for one."""

    mode: QueueMode = "followup"  # where the caller says none
    debounce_ms: int = 1000  # how long a batch waits for one more message
    cap: int = 20  # messages that may wait in a line
    drop: Drop = "old"  # which one goes when it is full


class QueueEntry(Struct, frozen=True):
    """One place in a session's line.

    `turn_id` is chosen when the entry is claimed: the turn that answers it, once it has begun.
    """

    position: int
    id: str
    session_label: str
    mode: QueueMode
    status: QueueStatus
    enqueued_at: int
    ready_at: int
    turn_id: str | None
    writer_id: str | None
    stop_at: int | None  # somebody wants its turn to stop, since then
    error: str | None
    ask: Ask | None  # None once its turn is completed: the turn has it


class Claim(Struct, frozen=True):
    """Entries that are answered next, all by one turn, by one writer."""

    session_label: str
    turn_id: str
    writer_id: str
    entries: tuple[QueueEntry, ...]
    session: Session  # where the answer is recorded; another session if it was merged since
    config_json: str | None  # the effective configuration of its head


class Rollup(Struct, frozen=True):
    """What a session and all that were spawned below it have used, failed turns included."""

    sessions: int
    turns: int
    input_tokens: int
    output_tokens: int
    total_tokens: int
    duration_ms: int
