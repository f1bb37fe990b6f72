"""Agents Ledger: the permanent record of AI agent conversations.

Each name is imported from its module when it is first used, so that importing the package is quick.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.policy import Policy
    from agents_ledger.broker.tools import offer
    from agents_ledger.ledger.aio.async_ledger import (
        AsyncBatch,
        AsyncLedger,
        AsyncLiveCall,
        AsyncLiveTurn,
    )
    from agents_ledger.ledger.aio.async_queue import AsyncQueue
    from agents_ledger.ledger.context.compaction import add_strategy
    from agents_ledger.ledger.context.contexts import Context, validate
    from agents_ledger.ledger.ledger import Batch, Ledger, LiveCall, LiveTurn
    from agents_ledger.ledger.sessions.queue import Queue
    from agents_ledger.model.agents.config import Config, Setting
    from agents_ledger.model.agents.embedding import Embedder, embedder
    from agents_ledger.model.agents.engine import (
        CallBegun,
        CallFinished,
        Engine,
        Finished,
        MessageDone,
        ModelConfig,
        Request,
        TextPiece,
        ThinkingPiece,
        Tool,
    )
    from agents_ledger.model.agents.permissions import (
        Grant,
        Layer,
        MisusedCall,
        PermissionReview,
        Permissions,
        ToolUse,
        Used,
    )
    from agents_ledger.model.compaction import (
        Chosen,
        Compaction,
        CompactionPlan,
        Strategy,
        VisibleTurn,
    )
    from agents_ledger.model.context import (
        CallItem,
        Cut,
        ImageItem,
        Problem,
        Repair,
        ResultItem,
        TextItem,
        ThinkingItem,
    )
    from agents_ledger.model.errors import (
        Ambiguous,
        Conflict,
        Damaged,
        DiskFull,
        EngineError,
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
    from agents_ledger.model.queue import Ask, Claim, QueueEntry, QueueLimits, Rollup
    from agents_ledger.model.reports.comparison import (
        Branch,
        Comparison,
        Replaced,
        ToolCount,
        TouchedFile,
        WrittenFile,
    )
    from agents_ledger.model.reports.events import Digest, DigestSession, Event
    from agents_ledger.model.reports.routing import Proposal, Reason, Route, SmartFork
    from agents_ledger.model.reports.search import Found, Hit, Snippet, Touch, Touched
    from agents_ledger.model.reports.trees import Headline, Node, Subagent, Tree
    from agents_ledger.model.reports.usage import (
        ModelUsage,
        Spent,
        ToolUsage,
        UsageLine,
        UsageReport,
    )
    from agents_ledger.model.sessions import Alias, EngineCheck, Finding, Move, Session, Thread
    from agents_ledger.model.tasks import Task, TaskCall, TaskMessage
    from agents_ledger.model.text.tokens import estimate_tokens
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
    "Ask",
    "AsyncBatch",
    "AsyncLedger",
    "AsyncLiveCall",
    "AsyncLiveTurn",
    "AsyncQueue",
    "Batch",
    "Branch",
    "Broker",
    "CallBegun",
    "CallFinished",
    "CallItem",
    "Chosen",
    "Claim",
    "Compaction",
    "CompactionPlan",
    "Comparison",
    "Config",
    "Conflict",
    "Context",
    "Cut",
    "Damaged",
    "Digest",
    "DigestSession",
    "DiskFull",
    "Embedder",
    "Engine",
    "EngineCheck",
    "EngineError",
    "Event",
    "Finding",
    "Finished",
    "Found",
    "Grant",
    "HeadMoved",
    "Headline",
    "Hit",
    "ImageItem",
    "Layer",
    "Ledger",
    "LedgerError",
    "LiveCall",
    "LiveTurn",
    "Locked",
    "Message",
    "MessageCodeblock",
    "MessageDone",
    "MessageFile",
    "MessageLint",
    "MisusedCall",
    "ModelConfig",
    "ModelUsage",
    "Move",
    "NameTaken",
    "NewerLedger",
    "Node",
    "NotALedger",
    "NotFound",
    "OutcomeUnknown",
    "PermissionReview",
    "Permissions",
    "Policy",
    "Problem",
    "Proposal",
    "Queue",
    "QueueEntry",
    "QueueLimits",
    "ReadOnly",
    "Reason",
    "Refused",
    "Repair",
    "Replaced",
    "Request",
    "ResultItem",
    "Rollup",
    "Route",
    "Session",
    "Setting",
    "SmartFork",
    "Snippet",
    "Spent",
    "StoreUnavailable",
    "Strategy",
    "Subagent",
    "Task",
    "TaskCall",
    "TaskMessage",
    "TextItem",
    "TextPiece",
    "ThinkingItem",
    "ThinkingPiece",
    "Thread",
    "Tool",
    "ToolCall",
    "ToolCount",
    "ToolUsage",
    "ToolUse",
    "Touch",
    "Touched",
    "TouchedFile",
    "Tree",
    "Turn",
    "Unreachable",
    "Usage",
    "UsageLine",
    "UsageReport",
    "Used",
    "VisibleTurn",
    "WrittenFile",
    "add_strategy",
    "embedder",
    "estimate_tokens",
    "new_id",
    "now_ms",
    "offer",
    "validate",
]

_MODULES = {
    "ledger.aio.async_ledger": ("AsyncBatch", "AsyncLedger", "AsyncLiveCall", "AsyncLiveTurn"),
    "broker.broker": ("Broker",),
    "broker.policy": ("Policy",),
    "broker.tools": ("offer",),
    "ledger.context.contexts": ("Context", "validate"),
    "ledger.context.compaction": ("add_strategy",),
    "ledger.ledger": ("Batch", "Ledger", "LiveCall", "LiveTurn"),
    "model.compaction": (
        "Chosen",
        "Compaction",
        "CompactionPlan",
        "Strategy",
        "VisibleTurn",
    ),
    "model.reports.comparison": (
        "Branch",
        "Comparison",
        "Replaced",
        "ToolCount",
        "TouchedFile",
        "WrittenFile",
    ),
    "model.agents.config": ("Config", "Setting"),
    "model.context": (
        "CallItem",
        "Cut",
        "ImageItem",
        "Problem",
        "Repair",
        "ResultItem",
        "TextItem",
        "ThinkingItem",
    ),
    "model.agents.engine": (
        "CallBegun",
        "CallFinished",
        "Engine",
        "Finished",
        "MessageDone",
        "ModelConfig",
        "Request",
        "TextPiece",
        "ThinkingPiece",
        "Tool",
    ),
    "model.agents.embedding": ("Embedder", "embedder"),
    "model.reports.events": ("Digest", "DigestSession", "Event"),
    "model.ids": ("new_id", "now_ms"),
    "ledger.aio.async_queue": ("AsyncQueue",),
    "ledger.sessions.queue": ("Queue",),
    "model.agents.permissions": (
        "Grant",
        "Layer",
        "MisusedCall",
        "PermissionReview",
        "Permissions",
        "ToolUse",
        "Used",
    ),
    "model.queue": ("Ask", "Claim", "QueueEntry", "QueueLimits", "Rollup"),
    "model.reports.routing": ("Proposal", "Reason", "Route", "SmartFork"),
    "model.reports.search": ("Found", "Hit", "Snippet", "Touch", "Touched"),
    "model.sessions": ("Alias", "EngineCheck", "Finding", "Move", "Session", "Thread"),
    "model.text.tokens": ("estimate_tokens",),
    "model.tasks": ("Task", "TaskCall", "TaskMessage"),
    "model.reports.trees": ("Headline", "Node", "Subagent", "Tree"),
    "model.turns": (
        "Message",
        "MessageCodeblock",
        "MessageFile",
        "MessageLint",
        "ToolCall",
        "Turn",
        "Usage",
    ),
    "model.reports.usage": ("ModelUsage", "Spent", "ToolUsage", "UsageLine", "UsageReport"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f"{__name__}.{_HOMES.get(name, 'model.errors')}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
