"""Turns put together from what a reader finds, in the order it finds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, TypeVar, cast

from msgspec import structs

from agents_ledger.importers.transcript.spill_file import Aside, ReadAgain, Spot
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.ids import LATEST_MS, as_id
from agents_ledger.model.turns import (
    OPEN_CALL,
    CallStatus,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    MessageRole,
    MessageSource,
    Steps,
    ToolCall,
    Turn,
    TurnStatus,
    to_json,
)

S = TypeVar("S", Message, ToolCall)
SECONDS_BELOW = 1e11  # a larger number counts milliseconds
NO_RESULT = "no result recorded"
HELD_LETTERS = 4 << 20  # of a turn; each takes up to four bytes
STEP_LETTERS = 500  # that a message or a call takes beside its own


def milliseconds(moment: object) -> int:
    """Unix milliseconds of an ISO time, or of a number of seconds or milliseconds; 0 if none, or if
    no agent can have been there."""
    if isinstance(moment, str):
        return _of_text(moment)
    if isinstance(moment, (int, float)) and not isinstance(moment, bool):
        scaled = moment * 1000 if abs(moment) < SECONDS_BELOW else moment
        return int(scaled) if 0 < scaled < LATEST_MS else 0
    return 0


@lru_cache(maxsize=4096)  # the same record is read for its place and for its content
def _of_text(moment: str) -> int:
    try:
        found = datetime.fromisoformat(moment)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)  # the same on every machine
        since = int(found.timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
    return since if 0 < since < LATEST_MS else 0


def json_or_none(value: object) -> str | None:
    """JSON text of what is not empty."""
    return to_json(value) if value not in (None, "", [], {}) else None


class TurnBuilder:
    """Collects messages, tool calls and tokens of one turn. Of a large one what came first waits in
    a file."""

    def __init__(self, turn_id: str, parent_id: str | None) -> None:
        self.id = as_id(turn_id)
        self.parent_id = as_id(parent_id) if parent_id is not None else None
        self.started_at = 0
        self.ended_at = 0
        self.model: str | None = None
        self.provider: str | None = None
        self.workspace_path: str | None = None
        self.error: str | None = None
        self.failed = False
        self.compaction: Compaction | None = None
        self.effective_config_json: str | None = None
        self.tokens: dict[str, int] = {}
        self._sequence = 0
        self._messages: dict[str, Message | Spot] = {}
        self._calls: dict[str, ToolCall | Spot] = {}
        self._answered = False
        self._query: list[str] = []
        self._response: str | None = None
        self._aside: Aside | None = None
        self._new: list[tuple[dict[str, Any], str]] = []  # what was not set aside
        self._letters = 0  # of that

    def _next(self, at: int) -> int:
        self.started_at = self.started_at or at
        self.ended_at = max(self.ended_at, at)
        self._sequence += 1
        return self._sequence - 1

    @property
    def answered(self) -> bool:
        """Whether the agent said or did anything."""
        return self._answered

    @property
    def last_message_id(self) -> str:
        """The message added last; empty if there is none."""
        return next(reversed(self._messages), "")

    def message(
        self,
        message_id: str,
        role: MessageRole,
        content: str | None,
        *,
        at: int,
        source: MessageSource | None = None,
        thinking: str | None = None,
        metadata: object = None,
        context: object = None,
        tool_call_id: str | None = None,
        files: Sequence[MessageFile] = (),
        lints: Sequence[MessageLint] = (),
        codeblocks: Sequence[MessageCodeblock] = (),
    ) -> None:
        """Add a message. User messages before the first of the agent's are the query."""
        message_id = as_id(message_id)
        if message_id in self._messages:
            return
        if role == "assistant":
            self._answered = True
            self._response = message_id
        elif role == "user" and not self._answered:
            self._query.append(message_id)
        message = Message(
            role,
            content,
            source,
            thinking,
            json_or_none(context),
            json_or_none(metadata),
            tool_call_id,
            message_id,
            self.id,
            self._next(at),
            at,
            tuple(files),
            tuple(lints),
            tuple(codeblocks),
        )
        self._hold(self._messages, message)

    def add_files(self, message_id: str, files: Sequence[MessageFile]) -> None:
        """Files that a message's tool calls read or wrote."""
        message = self._held(self._messages, as_id(message_id))
        if message is not None and files:
            files = (*message.files, *files)
            self._hold(self._messages, structs.replace(message, files=files))

    def call(
        self,
        call_id: str,
        tool_name: str,
        params: object,
        *,
        at: int,
        message_id: str | None = None,
        tool_number: int | None = None,
        status: CallStatus = "running",
    ) -> None:
        """Add a tool call. An id that the turn has already is the same call."""
        if call_id in self._calls:
            return
        self._answered = True
        said_by = as_id(message_id) if message_id is not None else None
        call = ToolCall(
            tool_name or "unknown",
            "{}" if params is None else to_json(params) if not isinstance(params, str) else params,
            status=status,
            id=call_id,
            turn_id=self.id,
            message_id=said_by if said_by in self._messages else None,
            tool_number=tool_number,
            started_at=at,
            sequence=self._next(at),
        )
        self._hold(self._calls, call)

    def result(
        self,
        call_id: str,
        result: object,
        *,
        at: int,
        status: CallStatus = "completed",
        error: str | None = None,
        source_status: str | None = None,
        spawned: str | None = None,
    ) -> bool:
        """What came of a call; False if the turn has no such call."""
        call = self._held(self._calls, call_id)
        if call is None:
            return False
        self.ended_at = max(self.ended_at, at)
        told = structs.replace(
            call,
            result_json=None if result is None else msgspec_text(result),
            status=status,
            error=error,
            source_status=source_status,
            completed_at=at or None,
            spawned_session_label=spawned or call.spawned_session_label,
        )
        self._hold(self._calls, told)
        return True

    def spawned(self, call_id: str, label: str) -> None:
        """Note the session of the subagent that a call started."""
        call = self._held(self._calls, call_id)
        if call is not None:
            self._hold(self._calls, structs.replace(call, spawned_session_label=label))

    def _held(self, steps: dict[str, S | Spot], name: str) -> S | None:
        step = steps.get(name)
        return self._step(step) if step is not None else None

    def _step(self, step: S | Spot) -> S:
        if self._aside is None or not isinstance(step, Spot):
            return cast(S, step)
        return cast(S, self._aside.read(step))

    def _hold(self, steps: dict[str, S | Spot], step: S) -> None:
        """Hold a message or call as it is now; or, with all others that are held, set it aside."""
        steps[step.id] = step
        self._new.append((steps, step.id))
        self._letters += step.letters + STEP_LETTERS
        if self._letters > HELD_LETTERS:
            self._set_aside()

    def _set_aside(self) -> None:
        self._aside = aside = self._aside or Aside()
        for steps, name in self._new:
            if not isinstance(steps[name], Spot):
                steps[name] = aside.put(steps[name])
        self._new.clear()
        self._letters = 0

    def add_tokens(self, **tokens: int | None) -> None:
        """Tokens of one more call of the model."""
        for name, number in tokens.items():
            if number is not None:
                self.tokens[name] = self.tokens.get(name, 0) + number

    def build(self, *, status: TurnStatus | None = None) -> Turn:
        """The turn. Without an answer or a failure it is pending; calls without a result are given
        up."""
        if status is None:
            ended = self._answered or self.compaction
            status = "failed" if self.failed else "completed" if ended else "pending"
        return Turn(
            self.id,
            self.parent_id,
            "compaction" if self.compaction else "normal",
            status,
            self.started_at,
            None if status == "pending" else self.ended_at or self.started_at,
            self.model,
            self.provider,
            query_message_ids=to_json(self._query),
            response_message_id=self._response,
            tool_call_count=len(self._calls),
            workspace_path=self.workspace_path,
            effective_config_json=self.effective_config_json,
            error=self.error,
            projected=True,
            messages=self._all(self._messages, self._step),
            tool_calls=self._all(self._calls, partial(self._closed, status)),
            compaction=self._compacted(),
            **self.tokens,  # type: ignore[arg-type]
        )

    def _compacted(self) -> Compaction | None:
        found = self.compaction
        if found is None:
            return None
        kept = found.first_kept_turn_id
        return structs.replace(
            found,
            turn_id=self.id,
            summarized_through_turn_id=as_id(found.summarized_through_turn_id),
            first_kept_turn_id=as_id(kept) if kept is not None else None,
        )

    def _all(self, steps: dict[str, S | Spot], whole: Callable[[S | Spot], S]) -> Steps[S]:
        """The steps as they are in the end; of a large turn each is read when somebody asks."""
        if self._aside is None:
            return tuple(map(whole, steps.values()))
        self._set_aside()
        return ReadAgain(tuple(steps.values()), whole)

    def _closed(self, status: TurnStatus, held: ToolCall | Spot) -> ToolCall:
        call = self._step(held)
        if call.status not in OPEN_CALL or status == "pending":
            return call
        return structs.replace(call, status="cancelled", error=NO_RESULT)


def msgspec_text(value: object) -> str:
    """JSON text of any value; a string becomes a JSON string."""
    return to_json([value])[1:-1] if isinstance(value, str) else to_json(value)
