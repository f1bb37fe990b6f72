"""A turn and what it consists of, as values. The words are those stored in the database."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from agents_ledger.model.agents.config import Config
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.errors import Damaged, Refused
from agents_ledger.model.ids import LATEST_MS

TurnType = Literal["normal", "compaction"]
TurnStatus = Literal["pending", "streaming", "completed", "failed"]
TurnRole = Literal["manager", "worker", "unified"]
MessageRole = Literal["user", "assistant", "system", "tool"]
MessageSource = Literal["human", "trigger", "agent", "webhook", "cron", "event"]
CallStatus = Literal["pending", "running", "completed", "failed", "cancelled", "rejected"]
FileKind = Literal["read", "written", "referenced", "attached"]
Severity = Literal["error", "warning", "info"]

S = TypeVar("S")
# Messages or calls in order: a tuple, as which they are decoded, too; of a large turn that is
# imported, something that reads them whenever somebody goes through them.
if TYPE_CHECKING:
    Steps: TypeAlias = Sequence[S]
else:
    Steps = tuple[S, ...]

# The times from 2001 to 2286 in seconds. In milliseconds they are days of 1970, before any agent.
LIKELY_SECONDS = range(10**9, 10**10)
_ids = msgspec.json.Decoder(tuple[str, ...]).decode
_any_json = msgspec.json.Decoder(msgspec.Raw).decode

_BY_SEQUENCE = attrgetter("sequence")

SEALED: tuple[TurnStatus, ...] = ("completed", "failed")
# Seconds without a request after which a live turn of a client fails, and the longest that a client
# may choose.
IDLE_S = 1800
IDLE_MAX_S = 86_400
OPEN_CALL: tuple[CallStatus, ...] = ("pending", "running")
# These calls did nothing: what they name was neither read nor written.
UNSUCCESSFUL_CALL: tuple[CallStatus, ...] = ("failed", "cancelled", "rejected")


def to_json(value: object) -> str:
    """The JSON text of a value; text is taken to be JSON already and kept as it is."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or a very large number
        import json

        return json.dumps(_plain(value), separators=(",", ":"))
    except RecursionError:
        return '"(nested too deeply)"'


def is_json(text: str) -> bool:
    """Whether a text is JSON, or what Python's parser accepts too: NaN and unpaired surrogates."""
    try:
        _any_json(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        import json

        try:
            json.loads(text)
        except ValueError:
            return False
        except RecursionError:
            return True
    except RecursionError:
        return True
    return True


def encoded(value: object, name: str) -> str:
    """The JSON text of a value that a caller passed; text that is JSON already is kept.

    `name`: of the value, for the error if it cannot be encoded.
    """
    if isinstance(value, str):
        return value if is_json(value) else to_json([value])[1:-1]
    try:
        return to_json(value)
    except TypeError as error:
        raise Refused(f"{name} cannot be encoded as JSON: {error}") from error


def check_text(value: object, name: str) -> None:
    """Refuse a value that a caller passed, if it is not text."""
    if not isinstance(value, str):
        raise Refused(f"{name} is {value!r:.80}", "It is text.")


def check_time(at: object, name: str, latest: int = LATEST_MS) -> None:
    """Refuse what is not a time, or most likely one in seconds."""
    if type(at) is not int or not 0 <= at < latest:
        raise Refused(f"{name} is {at!r:.80}", "Times are Unix milliseconds, from 1970 to 9998.")
    if at in LIKELY_SECONDS:
        raise Refused(
            f"{name} is {at}, which is in early 1970",
            "Times are Unix milliseconds. If this is a time in seconds, multiply it by 1000.",
        )


def check_number(value: object, name: str, least: int = 0) -> None:
    """Refuse what is no whole number, or less than `least`."""
    if type(value) is not int or value < least:
        raise Refused(f"{name} is {value!r:.80}", f"It is a whole number, {least} or more.")


def check_limit(limit: object, most: int) -> None:
    """Refuse a number of results that is not between 1 and `most`."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise Refused(f"limit is {limit!r:.80}; it must be between 1 and {most}")


def _plain(value: object) -> object:
    """Without numbers that are none: JSON has no word for them."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Usage(Struct, frozen=True, gc=False):
    """Tokens of one turn. None: not said.

    Without `total_tokens` the total is input plus output: cached, cache-write and reasoning tokens
    are then taken as parts of these. Pass it where your provider counts otherwise.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """The total said, else input plus output, else None."""
        if self.total_tokens is not None:
            return self.total_tokens
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class MessageFile(Struct, frozen=True, gc=False):
    """A file that a message read, wrote, referred to or carried."""

    kind: FileKind
    file_path: str
    line_start: int | None = None
    line_end: int | None = None


class MessageLint(Struct, frozen=True, gc=False):
    """A linter's complaint that was visible with a message."""

    file_path: str | None = None
    message: str | None = None
    lint_source: str | None = None
    start_line: int | None = None
    start_col: int | None = None
    end_line: int | None = None
    end_col: int | None = None
    severity: Severity | None = None


class MessageCodeblock(Struct, frozen=True, gc=False):
    """Code that a message proposed."""

    content: str
    language: str | None = None
    file_path: str | None = None
    line_start: int | None = None
    line_end: int | None = None


class Message(Struct, frozen=True, gc=False):
    """One piece of content. The last four plain fields are filled in when it is recorded."""

    role: MessageRole
    content: str | None = None
    source: MessageSource | None = None
    thinking: str | None = None
    context_json: str | None = None
    metadata_json: str | None = None
    tool_call_id: str | None = None
    id: str = ""
    turn_id: str = ""
    sequence: int = -1
    created_at: int = 0
    files: tuple[MessageFile, ...] = ()
    lints: tuple[MessageLint, ...] = ()
    codeblocks: tuple[MessageCodeblock, ...] = ()

    @property
    def letters(self) -> int:
        """How long its texts are."""
        length = len(self.content or "") + len(self.thinking or "") + len(self.metadata_json or "")
        if self.context_json or self.codeblocks:
            length += len(self.context_json or "") + sum(len(b.content) for b in self.codeblocks)
        return length

    @property
    def has_details(self) -> int:
        """1 if it has files, lints or codeblocks, else 0."""
        return int(bool(self.files or self.lints or self.codeblocks))


class ToolCall(Struct, frozen=True, gc=False):
    """One invocation of a tool, with what came of it."""

    tool_name: str
    params_json: str = "{}"
    result_json: str | None = None
    error: str | None = None
    status: CallStatus = "completed"
    id: str = ""
    turn_id: str = ""
    message_id: str | None = None
    tool_number: int | None = None
    source_status: str | None = None
    spawned_session_label: str | None = None
    started_at: int = 0
    completed_at: int | None = None
    sequence: int = -1

    @property
    def letters(self) -> int:
        """How long its texts are."""
        return len(self.params_json) + len(self.result_json or "") + len(self.error or "")

    @classmethod
    def of(
        cls,
        tool_name: str,
        params: object,
        result: object = None,
        error: str | None = None,
        *,
        id: str = "",
    ) -> ToolCall:
        """A finished call, from plain values. `id`: that of the provider, else one is made."""
        return cls(
            tool_name,
            encoded(params, "params"),
            None if result is None else encoded(result, "result"),
            error,
            "completed" if error is None else "failed",
            id,
        )


class Turn(Struct, frozen=True, gc=False):
    """One exchange: what was asked, what the agent did, what it answered."""

    id: str
    parent_turn_id: str | None = None
    turn_type: TurnType = "normal"
    status: TurnStatus = "completed"
    started_at: int = 0
    completed_at: int | None = None
    model: str | None = None
    provider: str | None = None
    role: TurnRole = "unified"
    toolset_name: str | None = None
    tools_available: str | None = None
    permissions_granted: str | None = None
    permissions_used: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    query_message_ids: str | None = None
    response_message_id: str | None = None
    has_children: bool = False
    tool_call_count: int = 0
    source_event_id: str | None = None
    workspace_path: str | None = None
    effective_config_json: str | None = None
    error: str | None = None
    projected: bool = False
    long_cache_write_tokens: int | None = None  # of cache_write_tokens; imported turns
    depth: int = 0
    messages: Steps[Message] = ()
    tool_calls: Steps[ToolCall] = ()
    compaction: Compaction | None = None

    @property
    def usage(self) -> Usage:
        """Its tokens, as they were passed. `total_tokens` is filled in."""
        return Usage(*(getattr(self, name) for name in Usage.__struct_fields__))

    @property
    def query(self) -> tuple[Message, ...]:
        """The messages that asked."""
        try:
            ids = frozenset(_ids(self.query_message_ids or "[]"))
        except msgspec.DecodeError as error:
            raise Damaged(f"the query_message_ids of turn {self.id} cannot be read") from error
        return tuple(message for message in self.messages if message.id in ids)

    @property
    def response(self) -> Message | None:
        """The message that answered, if there is one."""
        wanted = self.response_message_id
        return next((message for message in self.messages if message.id == wanted), None)

    @property
    def steps(self) -> tuple[Message | ToolCall, ...]:
        """Messages and tool calls together, in the order they happened."""
        return tuple(sorted((*self.messages, *self.tool_calls), key=_BY_SEQUENCE))


Query = str | Message | Sequence[str | Message]
Answer = str | Message | None


class TurnFields(TypedDict, total=False):
    """What a caller may say about a turn beside its messages. All of it may be left out."""

    id: str  # chosen by the caller, it makes a retry safe
    parent: str | None  # the head the caller expects; left out, whatever the head is
    started_at: int
    model: str | None
    provider: str | None
    role: TurnRole
    toolset_name: str | None
    tools_available: Sequence[str] | str | None
    permissions_granted: Any  # JSON text, or a value to be encoded
    permissions_used: Any
    source_event_id: str | None
    workspace_path: str | None
    config: Config | None
    system_prompt: str | None
    thread_key: str | None
    persona_id: str | None  # of the session, if this turn creates it


class NewTurn(Struct, frozen=True, omit_defaults=True, gc=False):
    """A turn as its caller passed it. Its hash tells a retry from another turn of the same id."""

    session: str
    query: tuple[Message, ...]
    steps: tuple[Message | ToolCall, ...] = ()
    response: Message | None = None
    status: Literal["completed", "failed"] = "completed"
    error: str | None = None
    usage: Usage = Usage()
    completed_at: int | None = None
    compaction: Compaction | None = None
    parent: str | UnsetType | None = UNSET
    started_at: int = 0
    model: str | None = None
    provider: str | None = None
    role: TurnRole = "unified"
    toolset_name: str | None = None
    tools_available: str | None = None
    permissions_granted: str | None = None
    permissions_used: str | None = None
    source_event_id: str | None = None
    workspace_path: str | None = None
    config: Config | None = None
    system_prompt: str | None = None
    thread_key: str | None = None
    persona_id: str | None = None
