"""Agents Ledger: the permanent record of AI agent conversations."""

from agents_ledger.ledger.async_ledger import AsyncLedger, AsyncLiveCall, AsyncLiveTurn
from agents_ledger.ledger.ledger import Ledger, LiveCall, LiveTurn
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.config import Config, Setting
from agents_ledger.model.errors import (
    Ambiguous,
    Conflict,
    Damaged,
    DiskFull,
    HeadMoved,
    LedgerError,
    Locked,
    NameTaken,
    NewerLedger,
    NotALedger,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    Refused,
    StoreUnavailable,
    Unreachable,
)
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.sessions import Alias, Finding, Move, Session, Thread
from agents_ledger.model.turns import (
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Turn,
    Usage,
)

__all__ = [
    "Alias",
    "Ambiguous",
    "AsyncLedger",
    "AsyncLiveCall",
    "AsyncLiveTurn",
    "Compaction",
    "Config",
    "Conflict",
    "Damaged",
    "DiskFull",
    "Finding",
    "HeadMoved",
    "Ledger",
    "LedgerError",
    "LiveCall",
    "LiveTurn",
    "Locked",
    "Message",
    "MessageCodeblock",
    "MessageFile",
    "MessageLint",
    "Move",
    "NameTaken",
    "NewerLedger",
    "NotALedger",
    "NotFound",
    "OutcomeUnknown",
    "ReadOnly",
    "Refused",
    "Session",
    "Setting",
    "StoreUnavailable",
    "Thread",
    "ToolCall",
    "Turn",
    "Unreachable",
    "Usage",
    "new_id",
    "now_ms",
]
