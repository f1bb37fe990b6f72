"""What the writer of a live turn knows of it, and the works that commit its verbs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import live, recording
from agents_ledger.ledger.turns.live import LiveKey, LiveSteps, Sealing
from agents_ledger.ledger.turns.recording import PreparedTurn
from agents_ledger.model.errors import HeadMoved, OutcomeUnknown, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import (
    Answer,
    CallStatus,
    Message,
    ToolCall,
    Usage,
    check_text,
    encoded,
)
from agents_ledger.store.database import ServerCall, Transaction, Work

# The fields that the ledger fills in.
FILLED = {
    Message: ("id", "turn_id", "sequence", "created_at"),
    ToolCall: ("id", "turn_id", "message_id", "started_at", "completed_at", "sequence"),
}
StepT = TypeVar("StepT", Message, ToolCall)

EMPTY_RESPONSE = 'Pass the text of the response, "" if it is empty, or fail the turn.'


class BeginTurn:
    """The work that begins a live turn."""

    def __init__(self, prepared: PreparedTurn, writer_id: str) -> None:
        self.prepared = prepared
        self.writer_id = writer_id
        self.key = prepared.new.session

    def __call__(self, tx: Transaction) -> None:
        live.begin(tx, self.prepared, self.writer_id)

    def call(self, works: Sequence[BeginTurn], /) -> ServerCall | None:
        from agents_ledger.ledger.turns import server_recording

        return server_recording.begin([work.prepared for work in works], self.writer_id)

    def repeat(self, tx: Transaction, /) -> None:
        # First the lock, which a call that is still under way holds.
        heads.find(tx, self.key)
        live.begin(tx, self.prepared._replace(chosen=True), self.writer_id)


class AddSteps:
    """The work that commits steps of a live turn."""

    def __init__(self, key: LiveKey, steps: LiveSteps) -> None:
        self.live = key
        self.steps = steps
        self.key = key.turn_id

    def __call__(self, tx: Transaction) -> None:
        live.add_steps(tx, self.live, self.steps)

    def call(self, works: Sequence[AddSteps], /) -> ServerCall | None:
        from agents_ledger.ledger.turns import server_recording

        return server_recording.add_steps([(work.live, work.steps) for work in works])

    def repeat(self, tx: Transaction, /) -> None:
        live.add_steps(tx, self.live, self.steps._replace(again=True))


class SealTurn:
    """The work that seals a live turn."""

    def __init__(self, key: LiveKey, sealing: Sealing) -> None:
        self.live = key
        self.sealing = sealing
        self.key = key.session

    def __call__(self, tx: Transaction) -> HeadMoved | None:
        return live.seal(tx, self.live, self.sealing)

    def call(self, works: Sequence[SealTurn], /) -> ServerCall | None:
        from agents_ledger.ledger.turns import server_recording

        return server_recording.seal([(work.live, work.sealing) for work in works])

    # A call that is still under way holds the lock of the live turn, which sealing takes first.
    repeat = __call__


class LiveState:
    """What the writer of a live turn knows of it, and its verbs as works to be committed.

    A step that is repeated after a commit with unknown outcome is the same step.
    """

    def __init__(self, prepared: PreparedTurn, writer_id: str) -> None:
        self.id = prepared.id
        self.prepared = prepared
        self.live = LiveKey(prepared.id, writer_id, prepared.new.session)
        self.sealed = False
        # Tools may run in parallel threads, and each step needs a sequence number of its own.
        self._guard = threading.Lock()
        self._sequence = len(prepared.turn.messages) + len(prepared.turn.tool_calls)
        self._speaker: str | None = None
        self._pieces = 0  # of the answer that are certainly stored
        self._call_ids = {call.id for call in prepared.turn.tool_calls}
        self._unsure: list[Message | ToolCall | str] = []

    @contextmanager
    def committing(self, *steps: Message | ToolCall | str) -> Iterator[None]:
        """Around the commit of messages, calls or a piece: notes whether they may be stored."""
        try:
            yield
        except OutcomeUnknown:
            self._unsure += [step for step in steps if step not in self._unsure]
            raise
        except BaseException:  # not stored
            self._call_ids -= {step.id for step in steps if isinstance(step, ToolCall)}
            raise
        self._unsure = [step for step in self._unsure if step not in steps]

    def _repeated(self, new: StepT) -> StepT | None:
        """The earlier step with the same content, if that may be stored."""
        for step in self._unsure:
            if isinstance(step, type(new)) and new.id in ("", step.id):
                filled = {name: getattr(step, name) for name in FILLED[type(new)]}
                if replace(new, **filled) == step:
                    return step
        return None

    def _next(self) -> int:
        with self._guard:
            self._sequence += 1
            return self._sequence - 1

    def begin(self) -> Work[None]:
        return BeginTurn(self.prepared, self.live.writer_id)

    def message(
        self, message: str | Message, *, streamed: bool = False
    ) -> tuple[Message, Work[None]]:
        """A message between query and response; a text becomes an assistant message."""
        if isinstance(message, str):
            message = Message("assistant", message)
        message = recording.checked_step(message)
        earlier = self._repeated(message)
        filled = earlier or recording.fill_message(message, self.id, self._next(), now_ms())
        again = earlier is not None
        return filled, self.add(LiveSteps((filled,), is_streamed=streamed, again=again))

    def committed(self, message: Message, *, streamed: bool) -> Message:
        """After a message's commit: calls after an assistant message belong to it."""
        if message.role == "assistant":
            self._speaker = message.id
        if streamed:
            self._pieces = 0
        return message

    def call(
        self, tool_name: str, params: object, call_id: str, tool_number: int | None
    ) -> ToolCall:
        params_json = "{}" if params is None else encoded(params, "params")
        call = recording.checked_step(
            ToolCall(tool_name, params_json, status="running", id=call_id, tool_number=tool_number)
        )
        earlier = self._repeated(call)
        if earlier is not None:
            return earlier
        if call_id in self._call_ids:
            raise recording.repeated_call(call_id)
        filled = recording.fill_call(call, self.id, self._next(), now_ms(), self._speaker)
        self._call_ids.add(filled.id)
        return filled

    def steps(self, steps: Sequence[Message | ToolCall]) -> LiveSteps:
        """Messages and calls as they are stored. Calls after an assistant message belong to it; a
        call that the turn has already is its outcome."""
        now, speaker = now_ms(), self._speaker
        messages: list[Message] = []
        calls: list[ToolCall] = []
        outcomes: list[ToolCall] = []
        for step in map(recording.checked_step, steps):
            if isinstance(step, Message):
                message = self._repeated(step)
                messages.append(message or recording.fill_message(step, self.id, self._next(), now))
                if step.role == "assistant":
                    speaker = messages[-1].id
            elif step.id in self._call_ids:
                outcomes.append(step)
            else:
                call = self._repeated(step)
                calls.append(call or recording.fill_call(step, self.id, self._next(), now, speaker))
        again = any(step in self._unsure for step in (*messages, *calls))
        return LiveSteps(tuple(messages), tuple(calls), tuple(outcomes), again=again)

    def add(self, steps: LiveSteps) -> Work[None]:
        return AddSteps(self.live, steps)

    def added(self, steps: LiveSteps) -> None:
        """After the commit of steps."""
        self._call_ids.update(call.id for call in steps.calls)
        speakers = [message.id for message in steps.messages if message.role == "assistant"]
        self._speaker = speakers[-1] if speakers else self._speaker

    def start(self, call: ToolCall) -> Work[None]:
        return self.add(LiveSteps(calls=(call,), again=call in self._unsure))

    def finish(self, call: ToolCall, status: CallStatus, **outcome: str | None) -> Work[None]:
        if outcome.get("error") is not None:
            check_text(outcome["error"], "the error of a tool call")
        outcomes = (replace(call, status=status, **outcome),)
        return self.add(LiveSteps(outcomes=outcomes))

    def spawn(self, call: ToolCall, child: Session) -> Work[Session]:
        return partial(live.spawn, live=self.live, call_id=call.id, child=child)

    def stream(self, text: str) -> Work[None]:
        check_text(text, "a piece of the answer")
        return self.add(LiveSteps(piece=(self._pieces, text), again=text in self._unsure))

    def streamed(self) -> None:
        self._pieces += 1

    def check_answered(self, response: Answer, steps: Sequence[Message | ToolCall]) -> None:
        """Refuse to complete the turn if the assistant said nothing: neither now nor before."""
        speaks = any(isinstance(step, Message) for step in steps)
        if response is None and not (self._pieces or self._unsure or self._speaker or speaks):
            raise Refused("the response is None, and no text was streamed", EMPTY_RESPONSE)

    def respond(self, response: Answer, **fields: Any) -> Work[HeadMoved | None]:
        if isinstance(response, str):
            response = Message("assistant", response)
        if response is not None:
            response = recording.checked_step(response)
            recording.check_response(response)
        if fields.get("permissions_used") is not None:
            fields["permissions_used"] = encoded(fields["permissions_used"], "permissions_used")
        return self._sealing(Sealing("completed", None, response, **fields))

    def fail(
        self,
        error: str,
        usage: Usage,
        *,
        model: str | None = None,
        permissions_used: str | None = None,
    ) -> Work[HeadMoved | None]:
        check_text(error, "the error of a turn")
        sealing = Sealing(
            "failed", error, usage=usage, model=model, permissions_used=permissions_used
        )
        return self._sealing(sealing)

    def _sealing(self, sealing: Sealing) -> Work[HeadMoved | None]:
        recording.check_usage(sealing.usage)
        return SealTurn(self.live, sealing._replace(message_id=new_id()))

    def close(self, moved: HeadMoved | None) -> None:
        """After the last commit: the turn is stored. Raises `moved` if the head did not follow."""
        self.sealed = True
        if moved is not None:
            raise moved
