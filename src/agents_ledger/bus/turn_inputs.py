"""Turns as JSON: the one description of what the bus, MCP and HTTP accept when a turn is written.

The fields are those of `Ledger.record` and `Ledger.turn`. The parameters and
results of tool calls are values here, never JSON text.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict, astuple

from agents_ledger.bus.ability import Count, Input, Name, Time
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.access import Scope
from agents_ledger.model.agents.config import Config
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.errors import NotFound
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.model.turns import (
    IDLE_MAX_S,
    CallStatus,
    FileKind,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageRole,
    MessageSource,
    Severity,
    ToolCall,
    Turn,
    TurnFields,
    TurnRole,
    Usage,
    to_json,
)

OwnId = Annotated[
    Name | None, Meta(description="An id of your own; a repeated request is then stored once.")
]
JsonText = Annotated[
    dict[str, Any] | tuple[Any, ...] | str | None,
    Meta(description="An object or a list, or JSON text, which is kept as it is."),
]


# -- what a turn consists of ------------------------------------------------------------------


class FileInput(Input):
    """A file that a message read, wrote, referred to or carried."""

    kind: FileKind
    file_path: str
    line_start: Count | None = None
    line_end: Count | None = None


class LintInput(Input):
    """A linter's message that was visible with a message."""

    file_path: str | None = None
    message: str | None = None
    lint_source: str | None = None
    start_line: Count | None = None
    start_col: Count | None = None
    end_line: Count | None = None
    end_col: Count | None = None
    severity: Severity | None = None


class CodeblockInput(Input):
    """Code that a message proposed."""

    content: str
    language: str | None = None
    file_path: str | None = None
    line_start: Count | None = None
    line_end: Count | None = None


class MessageInput(Input):
    """A message of a turn."""

    role: MessageRole
    content: str | None = None
    source: Annotated[MessageSource | None, Meta(description="Where a query came from.")] = None
    thinking: str | None = None
    context_json: JsonText = None
    metadata_json: JsonText = None
    tool_call_id: Annotated[
        str | None, Meta(description="The tool call that a message of the role `tool` answers.")
    ] = None
    id: OwnId = None
    created_at: Time | None = None
    files: tuple[FileInput, ...] = ()
    lints: tuple[LintInput, ...] = ()
    codeblocks: tuple[CodeblockInput, ...] = ()


class ToolCallInput(Input):
    """A tool call with its outcome."""

    tool_name: Name
    params: Any = None
    result: Any = None
    error: str | None = None
    status: Annotated[
        CallStatus | None,
        Meta(description="By default failed if there is an error, else completed."),
    ] = None
    id: OwnId = None
    message_id: Annotated[
        str | None,
        Meta(description="The message it came with; by default the assistant message before it."),
    ] = None
    tool_number: Count | None = None
    source_status: str | None = None
    spawned_session_label: Annotated[
        Name | None, Meta(description="The session of the subagent that it started.")
    ] = None
    started_at: Time | None = None
    completed_at: Time | None = None


class MessageStep(MessageInput, tag="message", tag_field="type"):
    """A message between query and response."""


class ToolCallStep(ToolCallInput, tag="tool_call", tag_field="type"):
    """A tool call between query and response."""


class UsageCounts(Input):
    """Tokens of a turn. Without a total, it is input plus output."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cached_input_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    reasoning_tokens: Count | None = None
    total_tokens: Count | None = None


class ConfigInput(Input):
    """The configuration of a turn; that of its parent is inherited."""

    directives: Annotated[dict[str, Any] | None, Meta(description="Set for this turn.")] = None
    defaults: Annotated[dict[str, Any] | None, Meta(description="Used where nothing is set.")] = (
        None
    )
    constraints: Annotated[dict[str, Any] | None, Meta(description="Imposed by permissions.")] = (
        None
    )


class CompactionFields(Input):
    """What a compaction turn summarises."""

    summary: Annotated[str, Meta(min_length=1)]
    summarized_through_turn_id: Name
    first_kept_turn_id: Name | None = None
    turns_summarized: Count | None = None
    compaction_type: Name = "summary"
    model: Annotated[Name, Meta(description="Model that summarised.")] = "none"
    provider: str | None = None
    tokens_before: Count | None = None
    tokens_after: Count | None = None
    summary_tokens: Count | None = None
    summarization_input_tokens: Count | None = None
    summarization_output_tokens: Count | None = None
    duration_ms: Count | None = None
    trigger: str | None = None
    metadata_json: JsonText = None


QueryInput = str | MessageInput | tuple[str | MessageInput, ...]
ResponseInput = str | MessageInput | None


# -- whole turns ------------------------------------------------------------------------------


class TurnInput(Input, kw_only=True):
    """What every turn has, finished or live."""

    session: Annotated[Name, Meta(description="A label or alias; a new label creates the session.")]
    query: Annotated[QueryInput, Meta(description="A text, a message, or a list of these.")] = ()
    id: OwnId = None
    parent: Annotated[
        str | UnsetType | None, Meta(description="The expected head; a conflict if it has moved.")
    ] = UNSET
    started_at: Time | None = None
    model: str | None = None
    provider: str | None = None
    role: TurnRole = "unified"
    toolset_name: str | None = None
    tools_available: tuple[str, ...] | None = None
    permissions_granted: JsonText = None
    permissions_used: JsonText = None
    source_event_id: str | None = None
    workspace_path: str | None = None
    config: ConfigInput | None = None
    system_prompt: str | None = None
    thread_key: Name | None = None
    persona_id: Annotated[
        Name | None,
        Meta(description="Of a new session. Another than `main` needs the scope `admin`."),
    ] = None


class RecordInput(TurnInput, kw_only=True):
    """A finished turn."""

    response: ResponseInput = None
    steps: Annotated[
        tuple[MessageStep | ToolCallStep, ...],
        Meta(description="Messages and tool calls between query and response, in order."),
    ] = ()
    tool_calls: Annotated[
        tuple[ToolCallInput, ...], Meta(description="Further tool calls, after the steps.")
    ] = ()
    usage: UsageCounts | None = None
    status: Annotated[
        Literal["completed", "failed"] | None,
        Meta(description="By default failed if there is an error, else completed."),
    ] = None
    error: Annotated[str | None, Meta(description="The reason of a failed turn.")] = None
    completed_at: Time | None = None
    compaction: CompactionFields | None = None


class BeginInput(TurnInput, kw_only=True):
    """A live turn."""

    idle_timeout_s: Annotated[
        Annotated[int, Meta(ge=1, le=IDLE_MAX_S)] | None,
        Meta(description="Seconds without a request after which the turn fails."),
    ] = None


# -- steps of live turns ----------------------------------------------------------------------


class LiveMessage(Input, kw_only=True):
    """A message of a live turn."""

    message: Annotated[
        str | MessageInput, Meta(description="A message, or the text of an assistant message.")
    ]
    streamed: Annotated[bool, Meta(description="It replaces the text streamed so far.")] = False


class LiveToolCall(Input, kw_only=True):
    """A tool call that begins."""

    tool_name: Name
    params: Any = None
    id: OwnId = None
    tool_number: Count | None = None
    spawned_session_label: Annotated[
        Name | None, Meta(description="The session of the subagent that it starts.")
    ] = None


class CallOutcome(Input, kw_only=True):
    """How a tool call ended."""

    status: Literal["completed", "failed", "cancelled", "rejected"] = "completed"
    result: Any = None
    error: Annotated[str | None, Meta(description="Required of a failed call.")] = None


class StreamedPiece(Input, kw_only=True):
    """A piece of the answer."""

    text: str
    piece: Annotated[
        Count | None,
        Meta(description="Its number, from 0; a repeated piece is then stored once."),
    ] = None


class TurnResponse(Input, kw_only=True):
    """The end of a live turn. Without a response, the streamed text is the response."""

    response: ResponseInput = None
    usage: UsageCounts | None = None
    model: str | None = None
    provider: str | None = None
    permissions_used: JsonText = None


class TurnFailure(Input, kw_only=True):
    """The end of a live turn that failed."""

    error: Annotated[str, Meta(min_length=1)]
    usage: UsageCounts | None = None


# -- as values of the ledger ------------------------------------------------------------------


def record(ledger: Ledger, new: RecordInput) -> Turn:
    """Record a finished turn."""
    return ledger.record(
        new.session,
        query_of(new.query),
        response_of(new.response),
        steps=[*map(_step_of, new.steps), *map(call_of, new.tool_calls)],
        usage=usage_of(new.usage),
        status=new.status or ("completed" if new.error is None else "failed"),
        error=new.error,
        completed_at=new.completed_at,
        compaction=compaction_of(new.compaction) if new.compaction else None,
        **fields_of(new),
    )


def scope_of(ledger: Ledger, new: TurnInput) -> Scope:
    """The scope that writing a turn needs."""
    # The policy grants tools by persona, so a new session with another persona requires admin.
    if new.persona_id is None:
        return "write"
    try:
        own = ledger.session(new.session).persona_id
    except NotFound:
        own = DEFAULT_PERSONA
    return "write" if new.persona_id == own else "admin"


def fields_of(new: TurnInput) -> TurnFields:
    """The fields that finished and live turns share, as the ledger takes them."""
    fields: dict[str, Any] = {
        name: value
        for name in TurnFields.__optional_keys__
        if (value := getattr(new, name)) is not UNSET and (value is not None or name == "parent")
    }
    if new.config is not None:
        layers = {name: values or {} for name, values in asdict(new.config).items()}
        fields["config"] = Config(**layers)
    return cast(TurnFields, fields)


def query_of(query: QueryInput) -> str | Message | list[str | Message]:
    if isinstance(query, tuple):
        return [part if isinstance(part, str) else message_of(part) for part in query]
    return query if isinstance(query, str) else message_of(query)


def response_of(response: ResponseInput) -> str | Message | None:
    return message_of(response) if isinstance(response, MessageInput) else response


def message_of(new: MessageInput) -> Message:
    fields = asdict(new)
    fields |= {
        "context_json": None if new.context_json is None else to_json(new.context_json),
        "metadata_json": None if new.metadata_json is None else to_json(new.metadata_json),
        "id": new.id or "",
        "created_at": new.created_at or 0,
        "files": tuple(MessageFile(**asdict(file)) for file in new.files),
        "lints": tuple(MessageLint(**asdict(lint)) for lint in new.lints),
        "codeblocks": tuple(MessageCodeblock(**asdict(block)) for block in new.codeblocks),
    }
    return Message(**fields)


def call_of(new: ToolCallInput) -> ToolCall:
    return ToolCall(
        new.tool_name,
        json_of({} if new.params is None else new.params),
        None if new.result is None else json_of(new.result),
        new.error,
        new.status or ("completed" if new.error is None else "failed"),
        new.id or "",
        message_id=new.message_id,
        tool_number=new.tool_number,
        source_status=new.source_status,
        spawned_session_label=new.spawned_session_label,
        started_at=new.started_at or 0,
        completed_at=new.completed_at,
    )


def _step_of(step: MessageStep | ToolCallStep) -> Message | ToolCall:
    return call_of(step) if isinstance(step, ToolCallStep) else message_of(step)


def usage_of(counts: UsageCounts | None) -> Usage | None:
    return None if counts is None else Usage(*astuple(counts))


def compaction_of(new: CompactionFields) -> Compaction:
    fields = {name: getattr(new, name) for name in CompactionFields.__struct_fields__}
    if new.metadata_json is not None:
        fields["metadata_json"] = to_json(new.metadata_json)
    return Compaction(**fields)


def json_of(value: object) -> str:
    """The JSON text of a value; unlike for the library, text is a value too."""
    return to_json([value])[1:-1]
