"""Builds a turn from messages, tool calls and tokens, in the order a source has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from msgspec import structs

from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.transcript.spill_file import LazySequence, SpillFile, SpillOffset
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.ids import as_id
from agents_ledger.model.turns import (
    OPEN_CALL,
    UNSUCCESSFUL_CALL,
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
NO_ANSWER = "no answer recorded"
NO_RESULT = "no result recorded"
STEP_CHARS = 500  # what a message or a call takes besides its texts


def json_or_none(value: object) -> str | None:
    """JSON text of a value; None if it is empty."""
    return to_json(value) if value not in (None, "", [], {}) else None


class TurnBuilder:
    """Collects the messages, tool calls and tokens of one turn, those of a large one in a file."""

    def __init__(self, turn_id: str, parent_id: str | None, limits: ImportLimits = LIMITS) -> None:
        self.id = as_id(turn_id)
        self.parent_id = as_id(parent_id) if parent_id is not None else None
        self.at = 0  # the time of the record that is being added
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
        self._messages: dict[str, Message | SpillOffset] = {}
        self._calls: dict[str, ToolCall | SpillOffset] = {}
        self._files: list[tuple[str, Sequence[MessageFile], str | None]] = []
        self._answered = False
        self._query: list[str] = []
        self._response: str | None = None
        self._spill: SpillFile | None = None
        self._unspilled: list[tuple[dict[str, Any], str]] = []
        self._chars = 0  # of the unspilled steps
        self._held_max = limits.held_turn_chars

    def _next(self, at: int, least_sequence: int) -> int:
        self.started_at = self.started_at or at
        self.ended_at = max(self.ended_at, at)
        sequence = max(self._sequence, least_sequence)
        self._sequence = sequence + 1
        return sequence

    @property
    def answered(self) -> bool:
        """Whether the agent wrote or called anything."""
        return self._answered

    @property
    def last_message_id(self) -> str:
        """The id of the message added last; empty if there is none."""
        return next(reversed(self._messages), "")

    def message(
        self,
        message_id: str,
        role: MessageRole,
        content: str | None,
        *,
        at: int | None = None,
        least_sequence: int = 0,
        source: MessageSource | None = None,
        thinking: str | None = None,
        metadata: object = None,
        context: object = None,
        tool_call_id: str | None = None,
        files: Sequence[MessageFile] = (),
        lints: Sequence[MessageLint] = (),
        codeblocks: Sequence[MessageCodeblock] = (),
    ) -> None:
        """Add a message. User messages before the first assistant message are the query.

        `at`: if not that of the record. `least_sequence`: the sequence that the source gave it, if
        that is still free.
        """
        at = self.at if at is None else at
        message_id = as_id(message_id)
        # Copies of a record may be in one turn: the first is shown.
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
            self._next(at, least_sequence),
            at,
            tuple(files),
            tuple(lints),
            tuple(codeblocks),
        )
        self._hold(self._messages, message)

    def notice(
        self,
        message_id: str,
        text: str | None,
        *,
        role: MessageRole = "system",
        metadata: object = None,
        files: Sequence[MessageFile] = (),
    ) -> None:
        """Add a message of the program."""
        self.message(message_id, role, text, source="event", metadata=metadata, files=files)

    def add_files(
        self, message_id: str, files: Sequence[MessageFile], *, call_id: str | None = None
    ) -> None:
        """Add files that a message, or a call of it, read or wrote; those of a call only if it
        succeeds."""
        if files:
            self._files.append((as_id(message_id), files, call_id))

    def _accessed(self, status: TurnStatus) -> None:
        """Add the files to their messages, now that it is known how each call ended."""
        by_message: dict[str, list[MessageFile]] = {}
        for message_id, files, call_id in self._files:
            held = self._calls.get(call_id) if call_id is not None else None
            if held is None or self._closed(status, held).status not in UNSUCCESSFUL_CALL:
                by_message.setdefault(message_id, []).extend(files)
        self._files.clear()
        for message_id, accessed in by_message.items():
            message = self._held(self._messages, message_id)
            if message is not None:
                files = tuple(dict.fromkeys((*message.files, *accessed)))
                self._hold(self._messages, structs.replace(message, files=files))

    def call(
        self,
        call_id: str,
        tool_name: str,
        params: object,
        *,
        at: int | None = None,
        least_sequence: int = 0,
        message_id: str | None = None,
        tool_number: int | None = None,
        status: CallStatus = "running",
        files: Sequence[MessageFile] = (),
        spawned: str | None = None,
    ) -> None:
        """Add a tool call. A second one with the same id is ignored.

        `files`: what it reads or writes if it succeeds. `spawned`: the label of the session that it
        started.
        """
        if message_id is not None:
            self.add_files(message_id, files, call_id=call_id)
        if call_id in self._calls:
            return
        self._answered = True
        at = self.at if at is None else at
        speaker = as_id(message_id) if message_id is not None else None
        call = ToolCall(
            tool_name or "unknown",
            "{}" if params is None else to_json(params) if not isinstance(params, str) else params,
            status=status,
            id=call_id,
            turn_id=self.id,
            message_id=speaker if speaker in self._messages else None,
            tool_number=tool_number,
            spawned_session_label=spawned,
            started_at=at,
            sequence=self._next(at, least_sequence),
        )
        self._hold(self._calls, call)

    def result(
        self,
        call_id: str,
        result: object,
        *,
        at: int | None = None,
        status: CallStatus = "completed",
        error: str | None = None,
        source_status: str | None = None,
        spawned: str | None = None,
    ) -> bool:
        """Add the result of a call; False if the turn has no such call."""
        call = self._held(self._calls, call_id)
        if call is None:
            return False
        at = self.at if at is None else at
        self.ended_at = max(self.ended_at, at)
        ended = structs.replace(
            call,
            result_json=None if result is None else json_text(result),
            status=status,
            error=error,
            source_status=source_status,
            completed_at=at or None,
            spawned_session_label=spawned or call.spawned_session_label,
        )
        self._hold(self._calls, ended)
        return True

    def lone_result(
        self, message_id: str, call_id: str | None, text: str | None, *, metadata: object = None
    ) -> None:
        """Add the result of a call that is not in the turn, as a message."""
        self.message(
            message_id, "tool", text, source="event", tool_call_id=call_id, metadata=metadata
        )

    def _held(self, steps: dict[str, S | SpillOffset], name: str) -> S | None:
        step = steps.get(name)
        return self._step(step) if step is not None else None

    def _step(self, step: S | SpillOffset) -> S:
        if self._spill is None or not isinstance(step, SpillOffset):
            return cast(S, step)
        return cast(S, self._spill.read(step))

    def _hold(self, steps: dict[str, S | SpillOffset], step: S) -> None:
        """Store a step as it is now; spill all steps if they have become too large."""
        steps[step.id] = step
        self._unspilled.append((steps, step.id))
        self._chars += step.letters + STEP_CHARS
        if self._chars > self._held_max:
            self._spill_steps()

    def _spill_steps(self) -> None:
        self._spill = spill = self._spill or SpillFile()
        for steps, name in self._unspilled:
            if not isinstance(steps[name], SpillOffset):
                steps[name] = spill.put(steps[name])
        self._unspilled.clear()
        self._chars = 0

    def add_tokens(self, **tokens: int | None) -> None:
        """Add the tokens of one more call of the model."""
        for name, number in tokens.items():
            if number is not None:
                self.tokens[name] = self.tokens.get(name, 0) + number

    @property
    def is_open(self) -> bool:
        """Whether it has no answer and is no compaction."""
        return not (self._answered or self.compaction)

    def build(self, *, status: TurnStatus | None = None, is_followed: bool = False) -> Turn:
        """The turn. Without an answer or a failure it is pending, or failed if another turn follows
        it; in any other, calls without a result are cancelled."""
        if status is None:
            status = "failed" if self.failed else "pending" if self.is_open else "completed"
        if status == "pending" and is_followed:
            status, self.error = "failed", self.error or NO_ANSWER
        self._accessed(status)
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
        if self.compaction is None:
            return None
        first_kept = self.compaction.first_kept_turn_id
        return structs.replace(
            self.compaction,
            turn_id=self.id,
            summarized_through_turn_id=as_id(self.compaction.summarized_through_turn_id),
            first_kept_turn_id=as_id(first_kept) if first_kept is not None else None,
        )

    def _all(
        self, steps: dict[str, S | SpillOffset], finish: Callable[[S | SpillOffset], S]
    ) -> Steps[S]:
        """The finished steps; those of a large turn are read whenever they are used."""
        if self._spill is None:
            return tuple(map(finish, steps.values()))
        self._spill_steps()
        return LazySequence(tuple(steps.values()), finish)

    def _closed(self, status: TurnStatus, held: ToolCall | SpillOffset) -> ToolCall:
        call = self._step(held)
        # While a turn is pending its calls may still end.
        if call.status not in OPEN_CALL or status == "pending":
            return call
        return structs.replace(call, status="cancelled", error=NO_RESULT)


def json_text(value: object) -> str:
    """JSON text of any value; a string becomes a JSON string."""
    return to_json([value])[1:-1] if isinstance(value, str) else to_json(value)
