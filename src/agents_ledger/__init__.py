"""Agents Ledger: the permanent record of AI agent conversations.

Importing the package loads nothing: each name is imported from its module when it is first used.
"""

TYPE_CHECKING = False
# ruff: noqa: I001 - the imports are packed
# fmt: off
if TYPE_CHECKING:  # the names of _MODULES again, for type checkers and editors
    from agents_ledger.broker.broker import Broker as Broker, Destination as Destination
    from agents_ledger.broker.events import (
        Compacted as Compacted, Completed as Completed, Failed as Failed,
        Interrupted as Interrupted, Queued as Queued, RunEvent as RunEvent, Started as Started,
        Steered as Steered,
    )
    from agents_ledger.broker.policy import Policy as Policy
    from agents_ledger.broker.tools import (
        OfferedTool as OfferedTool, ToolInvocation as ToolInvocation, offer as offer,
    )
    from agents_ledger.ledger.aio.async_ledger import (
        AsyncBatch as AsyncBatch, AsyncLedger as AsyncLedger, AsyncLiveCall as AsyncLiveCall,
        AsyncLiveTurn as AsyncLiveTurn,
    )
    from agents_ledger.ledger.aio.async_queue import AsyncQueue as AsyncQueue
    from agents_ledger.ledger.context.compaction import add_strategy as add_strategy
    from agents_ledger.ledger.context.contexts import Context as Context, validate as validate
    from agents_ledger.ledger.ledger import (
        Batch as Batch, Ledger as Ledger, LiveCall as LiveCall, LiveTurn as LiveTurn,
    )
    from agents_ledger.ledger.sessions.queue import Queue as Queue
    from agents_ledger.model.agents.config import Config as Config, Setting as Setting
    from agents_ledger.model.agents.embedding import Embedder as Embedder, embedder as embedder
    from agents_ledger.model.agents.engine import (
        AnswerFunction as AnswerFunction, CallBegun as CallBegun, CallFinished as CallFinished,
        Engine as Engine, EngineEvent as EngineEvent, Finished as Finished,
        MessageDone as MessageDone, ModelConfig as ModelConfig, Request as Request,
        TextPiece as TextPiece, ThinkingPiece as ThinkingPiece, Tool as Tool,
    )
    from agents_ledger.model.agents.permissions import (
        Grant as Grant, Layer as Layer, MisusedCall as MisusedCall,
        PermissionReview as PermissionReview, Permissions as Permissions, ToolUse as ToolUse,
        Used as Used,
    )
    from agents_ledger.model.context.compaction import (
        Chosen as Chosen, Compaction as Compaction, CompactionPlan as CompactionPlan,
        Strategy as Strategy, Trigger as Trigger, VisibleTurn as VisibleTurn,
    )
    from agents_ledger.model.context.items import (
        CallItem as CallItem, Cut as Cut, ImageItem as ImageItem, Item as Item, Problem as Problem,
        ProviderFormat as ProviderFormat, Repair as Repair, ResultItem as ResultItem,
        TextItem as TextItem, ThinkingItem as ThinkingItem,
    )
    from agents_ledger.model.errors import (
        Ambiguous as Ambiguous, Conflict as Conflict, Damaged as Damaged, DiskFull as DiskFull,
        EngineError as EngineError, HeadMoved as HeadMoved, LedgerError as LedgerError,
        Locked as Locked, MissingExtra as MissingExtra, NameTaken as NameTaken,
        NewerLedger as NewerLedger, NotALedger as NotALedger, NotFound as NotFound,
        OutcomeUnknown as OutcomeUnknown, ReadOnly as ReadOnly, Refused as Refused,
        RequestRefused as RequestRefused, StoreUnavailable as StoreUnavailable,
        Unreachable as Unreachable,
    )
    from agents_ledger.model.ids import new_id as new_id, now_ms as now_ms
    from agents_ledger.model.imports.requests import (
        ChunkResponse as ChunkResponse, ImportChunk as ImportChunk, ImportItem as ImportItem,
        ImportMessage as ImportMessage, ImportRequest as ImportRequest,
        ImportResponse as ImportResponse, ImportResult as ImportResult,
        ImportSession as ImportSession, ImportToolCall as ImportToolCall, ImportTurn as ImportTurn,
        import_schema as import_schema,
    )
    from agents_ledger.model.queue import (
        Ask as Ask, Claim as Claim, QueueEntry as QueueEntry, QueueLimits as QueueLimits,
        QueueMode as QueueMode, QueueStatus as QueueStatus, Rollup as Rollup,
    )
    from agents_ledger.model.reports.ask import (
        CallStep as CallStep, Fix as Fix, Fixes as Fixes, Passage as Passage, Recalled as Recalled,
        ToolExample as ToolExample, ToolExamples as ToolExamples,
    )
    from agents_ledger.model.reports.comparison import (
        Branch as Branch, Comparison as Comparison, Replaced as Replaced, ToolCount as ToolCount,
        TouchedFile as TouchedFile, WrittenFile as WrittenFile,
    )
    from agents_ledger.model.reports.events import (
        Digest as Digest, DigestSession as DigestSession, Event as Event,
    )
    from agents_ledger.model.reports.redaction import (
        RedactedPlace as RedactedPlace, Redaction as Redaction,
        RedactionPreview as RedactionPreview, Selection as Selection,
    )
    from agents_ledger.model.reports.routing import (
        Proposal as Proposal, Reason as Reason, Route as Route, SmartFork as SmartFork,
    )
    from agents_ledger.model.evidence.verification import (
        EvidenceFinding as EvidenceFinding, Verification as Verification,
    )
    from agents_ledger.model.reports.search import (
        Action as Action, Found as Found, Hit as Hit, Ranking as Ranking,
        SearchFacets as SearchFacets, Snippet as Snippet, ThreadMatch as ThreadMatch,
        ThreadMatches as ThreadMatches, Touch as Touch, Touched as Touched,
    )
    from agents_ledger.model.reports.trees import (
        Headline as Headline, Node as Node, Subagent as Subagent, Tree as Tree,
    )
    from agents_ledger.model.reports.usage import (
        ModelUsage as ModelUsage, SessionUsage as SessionUsage, Spent as Spent,
        ToolUsage as ToolUsage, UsageBy as UsageBy, UsageLine as UsageLine, UsagePart as UsagePart,
        UsageReport as UsageReport,
    )
    from agents_ledger.model.retention import (
        LegalHold as LegalHold, RetainedSession as RetainedSession,
        RetentionAction as RetentionAction, RetentionPolicy as RetentionPolicy,
        RetentionReport as RetentionReport, RetentionRule as RetentionRule,
    )
    from agents_ledger.model.sessions import (
        Alias as Alias, AliasReason as AliasReason, Annotations as Annotations,
        CreatedAs as CreatedAs,
        EngineCheck as EngineCheck, Finding as Finding, Move as Move, MoveReason as MoveReason,
        Session as Session, SessionStatus as SessionStatus, TaskStatus as TaskStatus,
        Thread as Thread,
    )
    from agents_ledger.model.agents.tasks import (
        Task as Task, TaskCall as TaskCall, TaskMessage as TaskMessage,
    )
    from agents_ledger.model.text.tokens import (
        Counter as Counter, estimate_tokens as estimate_tokens,
    )
    from agents_ledger.model.turns import (
        Answer as Answer, CallStatus as CallStatus, FileKind as FileKind, Message as Message,
        MessageCodeblock as MessageCodeblock, MessageFile as MessageFile,
        MessageLint as MessageLint, MessageRole as MessageRole, MessageSource as MessageSource,
        Query as Query, Severity as Severity, ToolCall as ToolCall, Turn as Turn,
        TurnFields as TurnFields, TurnRole as TurnRole, TurnStatus as TurnStatus,
        TurnType as TurnType, Usage as Usage,
    )
    __version__: str
# fmt: on

_MODULES = {
    "broker.broker": "Broker Destination",
    "broker.events": "Compacted Completed Failed Interrupted Queued RunEvent Started Steered",
    "broker.policy": "Policy",
    "broker.tools": "OfferedTool ToolInvocation offer",
    "ledger.aio.async_ledger": "AsyncBatch AsyncLedger AsyncLiveCall AsyncLiveTurn",
    "ledger.aio.async_queue": "AsyncQueue",
    "ledger.context.compaction": "add_strategy",
    "ledger.context.contexts": "Context validate",
    "ledger.ledger": "Batch Ledger LiveCall LiveTurn",
    "ledger.sessions.queue": "Queue",
    "model.agents.config": "Config Setting",
    "model.agents.embedding": "Embedder embedder",
    "model.agents.engine": (
        "AnswerFunction CallBegun CallFinished Engine EngineEvent Finished MessageDone "
        "ModelConfig Request TextPiece ThinkingPiece Tool"
    ),
    "model.agents.permissions": "Grant Layer MisusedCall PermissionReview Permissions ToolUse Used",
    "model.context.compaction": "Chosen Compaction CompactionPlan Strategy Trigger VisibleTurn",
    "model.context.items": (
        "CallItem Cut ImageItem Item Problem ProviderFormat Repair ResultItem TextItem ThinkingItem"
    ),
    "model.errors": (
        "Ambiguous Conflict Damaged DiskFull EngineError HeadMoved LedgerError Locked "
        "MissingExtra NameTaken NewerLedger NotALedger NotFound OutcomeUnknown ReadOnly Refused "
        "RequestRefused StoreUnavailable Unreachable"
    ),
    "model.ids": "new_id now_ms",
    "model.imports.requests": (
        "ChunkResponse ImportChunk ImportItem ImportMessage ImportRequest ImportResponse "
        "ImportResult ImportSession ImportToolCall ImportTurn import_schema"
    ),
    "model.queue": "Ask Claim QueueEntry QueueLimits QueueMode QueueStatus Rollup",
    "model.reports.ask": "CallStep Fix Fixes Passage Recalled ToolExample ToolExamples",
    "model.reports.comparison": "Branch Comparison Replaced ToolCount TouchedFile WrittenFile",
    "model.reports.events": "Digest DigestSession Event",
    "model.evidence.verification": "EvidenceFinding Verification",
    "model.reports.redaction": "RedactedPlace Redaction RedactionPreview Selection",
    "model.reports.routing": "Proposal Reason Route SmartFork",
    "model.reports.search": (
        "Action Found Hit Ranking SearchFacets Snippet ThreadMatch ThreadMatches Touch Touched"
    ),
    "model.reports.trees": "Headline Node Subagent Tree",
    "model.reports.usage": (
        "ModelUsage SessionUsage Spent ToolUsage UsageBy UsageLine UsagePart UsageReport"
    ),
    "model.retention": (
        "LegalHold RetainedSession RetentionAction RetentionPolicy RetentionReport RetentionRule"
    ),
    "model.sessions": (
        "Alias AliasReason Annotations CreatedAs EngineCheck Finding Move MoveReason Session "
        "SessionStatus TaskStatus Thread"
    ),
    "model.agents.tasks": "Task TaskCall TaskMessage",
    "model.text.tokens": "Counter estimate_tokens",
    "model.turns": (
        "Answer CallStatus FileKind Message MessageCodeblock MessageFile MessageLint MessageRole "
        "MessageSource Query Severity ToolCall Turn TurnFields TurnRole TurnStatus TurnType Usage"
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}
# Written out, because type checkers do not evaluate expressions.
# fmt: off
__all__ = [
    "Action", "Alias", "AliasReason", "Ambiguous", "Annotations", "Answer", "AnswerFunction",
    "Ask", "AsyncBatch", "AsyncLedger", "AsyncLiveCall", "AsyncLiveTurn", "AsyncQueue", "Batch",
    "Branch", "Broker", "CallBegun", "CallFinished", "CallItem", "CallStatus", "CallStep",
    "Chosen", "ChunkResponse", "Claim", "Compacted", "Compaction", "CompactionPlan",
    "Comparison", "Completed", "Config", "Conflict", "Context", "Counter", "CreatedAs", "Cut",
    "Damaged", "Destination", "Digest", "DigestSession", "DiskFull", "Embedder", "Engine",
    "EngineCheck", "EngineError", "EngineEvent", "Event", "EvidenceFinding", "Failed",
    "FileKind", "Finding", "Finished", "Fix", "Fixes", "Found", "Grant", "HeadMoved",
    "Headline", "Hit", "ImageItem", "ImportChunk", "ImportItem", "ImportMessage",
    "ImportRequest", "ImportResponse", "ImportResult", "ImportSession", "ImportToolCall",
    "ImportTurn", "Interrupted", "Item", "Layer", "Ledger", "LedgerError", "LegalHold",
    "LiveCall", "LiveTurn", "Locked", "Message", "MessageCodeblock", "MessageDone",
    "MessageFile", "MessageLint", "MessageRole", "MessageSource", "MissingExtra", "MisusedCall",
    "ModelConfig", "ModelUsage", "Move", "MoveReason", "NameTaken", "NewerLedger", "Node",
    "NotALedger", "NotFound", "OfferedTool", "OutcomeUnknown", "Passage", "PermissionReview",
    "Permissions", "Policy", "Problem", "Proposal", "ProviderFormat", "Query", "Queue",
    "QueueEntry", "QueueLimits", "QueueMode", "QueueStatus", "Queued", "Ranking", "ReadOnly",
    "Reason", "Recalled", "RedactedPlace", "Redaction", "RedactionPreview", "Refused", "Repair",
    "Replaced", "Request", "RequestRefused", "ResultItem", "RetainedSession", "RetentionAction",
    "RetentionPolicy", "RetentionReport", "RetentionRule", "Rollup", "Route", "RunEvent",
    "SearchFacets", "Selection", "Session", "SessionStatus", "SessionUsage", "Setting",
    "Severity", "SmartFork", "Snippet", "Spent", "Started", "Steered", "StoreUnavailable",
    "Strategy", "Subagent", "Task", "TaskCall", "TaskMessage", "TaskStatus", "TextItem",
    "TextPiece", "ThinkingItem", "ThinkingPiece", "Thread", "ThreadMatch", "ThreadMatches",
    "Tool", "ToolCall", "ToolCount", "ToolExample", "ToolExamples", "ToolInvocation",
    "ToolUsage", "ToolUse", "Touch", "Touched", "TouchedFile", "Tree", "Trigger", "Turn",
    "TurnFields", "TurnRole", "TurnStatus", "TurnType", "Unreachable", "Usage", "UsageBy",
    "UsageLine", "UsagePart", "UsageReport", "Used", "Verification", "VisibleTurn",
    "WrittenFile", "add_strategy", "embedder", "estimate_tokens", "import_schema", "new_id",
    "now_ms", "offer", "validate",
]
# fmt: on


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        from importlib.metadata import version

        value = version("agents-ledger")
    elif name in _MODULE_OF:
        from importlib import import_module

        value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
