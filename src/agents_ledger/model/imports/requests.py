"""The values of `sessions.import`: what another program sends, and the answers it gets.

The JSON Schema of a request is generated from these types, and requests are validated with them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

NUMBER_MAX = 1 << 53
ITEM_MAX = 64 << 20  # bytes of an uncompressed item
CHUNKS_MAX = 100_000

ImportStatus = Literal["imported", "upserted", "skipped", "failed"]

# Python's `$` also matches before a final line feed, that of JSON Schema does not.
SOURCE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$(?!\n)"
SourceName = Annotated[
    str,
    Meta(
        pattern=SOURCE_PATTERN,
        description="The program that sends: 1 to 64 letters, digits, `-` and `_`; the first is"
        " a letter or a digit.",
    ),
]
Text = Annotated[str, Meta(pattern=r"\S")]
Id = Annotated[str, Meta(min_length=1)]
Number = Annotated[float, Meta(ge=0, lt=NUMBER_MAX)]
Time = Annotated[float, Meta(ge=0, lt=NUMBER_MAX, description="Unix milliseconds.")]


class ImportSession(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A session. All fields are optional."""

    label_hint: Annotated[
        str | None, Meta(description="An active session to import into; otherwise the title.")
    ] = None
    created_at_ms: Time | None = None
    updated_at_ms: Time | None = None
    model: Annotated[str | None, Meta(description="For turns that name none.")] = None
    provider: Annotated[str | None, Meta(description="For turns that name none.")] = None
    workspace_path: Annotated[str | None, Meta(description="The project folder.")] = None
    project: str | None = None
    is_subagent: bool | None = None
    parent_source_session_id: Annotated[
        str | None, Meta(description="Of a subagent: the session that started it.")
    ] = None
    parent_source_message_id: Annotated[
        str | None, Meta(description="Of a subagent: the message that started it.")
    ] = None
    spawn_tool_call_id: Annotated[
        str | None, Meta(description="Of a subagent: the tool call that started it.")
    ] = None
    task_description: Annotated[str | None, Meta(description="The task of a subagent.")] = None
    task_status: Annotated[
        str | None,
        Meta(description="`pending`, `running`, `completed`, `failed` or `cancelled`."),
    ] = None
    metadata: Annotated[Any, Meta(description="Anything else. `title` is the title.")] = None


class ImportTurn(Struct, rename="camel", omit_defaults=True):
    """A turn. Its messages and tool calls name it."""

    source_turn_id: Annotated[Id, Meta(description="Unique in the session.")]
    parent_source_turn_id: Annotated[
        str | None,
        Meta(
            description="The turn it follows, of this session. Default: the turn before it in"
            " `turns`; for the first, the last one of the previous request."
        ),
    ] = None
    started_at_ms: Time | None = None
    completed_at_ms: Time | None = None
    model: str | None = None
    provider: str | None = None
    input_tokens: Number | None = None
    output_tokens: Number | None = None
    cached_input_tokens: Number | None = None
    cache_write_tokens: Number | None = None
    reasoning_tokens: Number | None = None
    total_tokens: Annotated[
        Number | None, Meta(description="Default: the sum of input and output.")
    ] = None
    response_message_source_id: Annotated[
        str | None, Meta(description="The response. Default: the last assistant message.")
    ] = None
    query_message_source_ids: Annotated[
        list[str] | None,
        Meta(description="The query. Default: the user messages before the first answer."),
    ] = None
    metadata: Annotated[Any, Meta(description="The effective configuration of the turn.")] = None


class ImportMessage(Struct, rename="camel", omit_defaults=True):
    """A message of a turn."""

    source_message_id: Annotated[Id, Meta(description="Unique in the session.")]
    role: Literal["user", "assistant", "system", "tool"]
    source_turn_id: Annotated[
        str | None, Meta(description="Its turn. Default: the first turn of the item.")
    ] = None
    content: str | None = None
    sequence: Annotated[
        Number | None, Meta(description="The order of messages and tool calls in a turn.")
    ] = None
    created_at_ms: Time | None = None
    thinking: str | None = None
    context_json: Annotated[
        Any, Meta(description="What was attached: any value, or JSON text.")
    ] = None
    metadata_json: Annotated[Any, Meta(description="Anything else: any value, or JSON text.")] = (
        None
    )


class ImportToolCall(Struct, rename="camel", omit_defaults=True):
    """A tool call of a turn, with its result."""

    source_tool_call_id: Annotated[
        Id, Meta(description="The provider's id of the call, unique in the session.")
    ]
    source_turn_id: Annotated[
        str | None, Meta(description="Its turn. Default: that of its message.")
    ] = None
    source_message_id: Annotated[
        str | None, Meta(description="The assistant message that made the call.")
    ] = None
    tool_name: Annotated[str | None, Meta(description="Default: `unknown`.")] = None
    tool_number: Annotated[
        Number | None, Meta(description="The provider's number of the tool.")
    ] = None
    params_json: Annotated[Any, Meta(description="Parameters: any value, or JSON text.")] = None
    result_json: Annotated[Any, Meta(description="The result: any value, or JSON text.")] = None
    status: Annotated[
        str | None,
        Meta(
            description="`pending`, `running`, `completed`, `failed`, `cancelled` or `rejected`, or"
            " a word for one of them, as `success`. Default: by `error` and `resultJson`."
        ),
    ] = None
    spawned_source_session_id: Annotated[
        str | None, Meta(description="The session of the subagent that it started.")
    ] = None
    started_at_ms: Time | None = None
    completed_at_ms: Time | None = None
    sequence: Annotated[
        Number | None, Meta(description="The order of messages and tool calls in a turn.")
    ] = None
    error: str | None = None


class ImportItem(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A session with its turns, messages and tool calls, or what is new of it."""

    source_provider: Annotated[Text, Meta(description="The agent; the origin of the session.")]
    source_session_id: Annotated[Text, Meta(description="The agent's id of the session.")]
    source_session_fingerprint: Annotated[
        Text, Meta(description="Changes with the content; an unchanged one is skipped.")
    ]
    session: ImportSession | None = None
    turns: list[ImportTurn] | None = None
    messages: list[ImportMessage] | None = None
    tool_calls: list[ImportToolCall] | None = None
    imported_at_ms: Annotated[Any, Meta(description="Ignored.")] = None
    system_context_profiles: Annotated[Any, Meta(description="Archived, not shown.")] = None
    artifacts: Annotated[Any, Meta(description="Archived, not shown.")] = None


class ImportEnvelope(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The fields of every request."""

    source: SourceName
    idempotency_key: Annotated[
        Text, Meta(description="A retry with the same key gets the same answer.")
    ]
    mode: Annotated[
        Literal["backfill", "tail"],
        Meta(description="Whole sessions, or what is new of them. Stored with the answer only."),
    ] = "backfill"
    persona_id: Annotated[
        str | None, Meta(description="The persona of new sessions. Default: `main`.")
    ] = None
    run_id: Annotated[str | None, Meta(description="Default: a new id.")] = None


class ImportRequest(ImportEnvelope, rename="camel", omit_defaults=True, kw_only=True):
    """A `sessions.import` request."""

    items: Annotated[list[ImportItem], Meta(min_length=1)]


class ImportChunk(ImportEnvelope, rename="camel", omit_defaults=True, kw_only=True):
    """A part of one item: its JSON compressed with gzip, in base64, split."""

    upload_id: Annotated[Text, Meta(description="The same for all chunks of an item.")]
    chunk_index: Annotated[int, Meta(ge=0, lt=CHUNKS_MAX, description="From 0.")]
    chunk_total: Annotated[int, Meta(ge=1, le=CHUNKS_MAX)]
    data: Annotated[str, Meta(min_length=1)]
    source_provider: Annotated[Text, Meta(description="As in the item.")]
    source_session_id: Annotated[Text, Meta(description="As in the item.")]
    source_session_fingerprint: Annotated[Text, Meta(description="As in the item.")]
    encoding: Literal["gzip+base64"] = "gzip+base64"
    payload_sha256: Annotated[
        str | None, Meta(description="SHA-256 of the item's JSON in hexadecimal; checked.")
    ] = None


class ImportResult(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The outcome of one item."""

    source_provider: str
    source_session_id: str
    status: ImportStatus
    session_label: Annotated[str | None, Meta(description="The session in the ledger.")] = None
    reason: Annotated[str | None, Meta(description="Why it was skipped or failed: a code.")] = None
    detail: Annotated[
        str | None, Meta(description="The JSON path and the value that made it fail.")
    ] = None
    ignored: Annotated[
        list[str] | None,
        Meta(description="Unknown fields, such as `turns[].parent`: archived, but not shown."),
    ] = None


class ImportResponse(Struct, rename="camel", kw_only=True):
    """The answer to a request: the number of sessions by outcome, and each result."""

    ok: Annotated[bool, Meta(description="Whether no item failed.")]
    run_id: str
    imported: int
    upserted: int
    skipped: int
    failed: int
    results: list[ImportResult]


class ChunkResponse(Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The answer to a chunk. The last chunk of an upload imports the item."""

    ok: Annotated[bool, Meta(description="Whether the item, once complete, did not fail.")]
    run_id: str
    upload_id: str
    status: Literal["staged", "completed"]
    received: Annotated[int, Meta(description="The number of chunks so far.")]
    total: int
    response: Annotated[
        ImportResponse | None, Meta(description="The answer to the item, once complete.")
    ] = field(name="import", default=None)


def import_schema() -> dict[str, Any]:
    """The JSON Schema of a `sessions.import` request: items, or a chunk of one."""
    from msgspec.json import schema_components

    kinds, definitions = schema_components(
        (ImportRequest, ImportChunk), ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sessions.import",
        "anyOf": list(kinds),
        "$defs": definitions,
    }
