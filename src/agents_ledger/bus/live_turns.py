"""Live turns that clients write by requests: the turns of this process, by id.

Each request is a commit, as in the library. A client that vanishes cannot fail its turn, so a turn
without requests for some time is failed; if this process dies, the next writer fails its turns.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct, structs

from agents_ledger.bus.turn_inputs import (
    BeginInput,
    CallOutcome,
    LiveMessage,
    LiveToolCall,
    MessageInput,
    StreamedPiece,
    TurnFailure,
    TurnResponse,
    fields_of,
    json_of,
    message_of,
    query_of,
    response_of,
    usage_of,
)
from agents_ledger.ledger.ledger import Ledger, LiveCall, LiveTurn
from agents_ledger.model.errors import (
    Conflict,
    HeadMoved,
    LedgerError,
    NotFound,
    Refused,
    StoreUnavailable,
)
from agents_ledger.model.turns import IDLE_S, SEALED, Message, ToolCall, Turn

STOPPED = "the server stopped"
RETRY_S = 5.0


class LiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of the live turns that clients write."""

    idle_s: float = IDLE_S  # without a request, after which a turn fails
    ended_turns: int = 256  # whose last request may be repeated


class EndedCall(Struct, frozen=True):
    """A tool call whose outcome is stored."""

    turn_id: str
    tool_call_id: str
    status: str


class StreamedText(Struct, frozen=True):
    """How many pieces of the answer are stored."""

    turn_id: str
    pieces: int


class OpenTurn:
    """A live turn and what the repetition of a request needs. Its lock makes requests take turns:
    a step that is sent twice at once is stored once."""

    def __init__(self, turn: LiveTurn, idle_s: float) -> None:
        self.turn = turn
        self.idle_s = idle_s
        self.lock = threading.Lock()
        self.message_ids: set[str] = set()
        self.calls: dict[str, LiveCall] = {}
        self.pieces = 0
        self.touch()

    def touch(self) -> None:
        self.deadline = time.monotonic() + self.idle_s


class LiveTurns:
    """The live turns that clients of this process write."""

    def __init__(self, ledger: Ledger, limits: LiveLimits | None = None) -> None:
        self.ledger = ledger
        self._limits = limits or LiveLimits()
        self._open: dict[str, OpenTurn] = {}
        self._ended: OrderedDict[str, OpenTurn] = OrderedDict()
        self._changed = threading.Condition()
        self._sweeper: threading.Thread | None = None
        self._closed = False

    def begin(self, new: BeginInput) -> Turn:
        """Begin a turn. With an id of its own, a repeated request returns the turn."""
        turn = self.ledger.turn(new.session, query_of(new.query), **fields_of(new))
        opened = OpenTurn(turn, new.idle_timeout_s or self._limits.idle_s)
        with self._changed:
            self._open.setdefault(turn.id, opened).touch()
            if self._sweeper is None:
                self._sweeper = threading.Thread(
                    target=self._sweep, name="agents-ledger-live-turns", daemon=True
                )
                self._sweeper.start()
            self._changed.notify()
        return self.ledger.get_turn(turn.id)

    def message(self, turn_id: str, new: LiveMessage) -> Message:
        """Commit a message."""
        if isinstance(new.message, MessageInput):
            message = message_of(new.message)
        else:
            message = Message("assistant", new.message)
        with self._writing(turn_id) as opened:
            if message.id in opened.message_ids:
                return self._stored_message(turn_id, message)
            stored = opened.turn.message(message, streamed=new.streamed)
            opened.message_ids.add(stored.id)
            if new.streamed:
                opened.pieces = 0
            return stored

    def _stored_message(self, turn_id: str, message: Message) -> Message:
        messages = self.ledger.get_turn(turn_id).messages
        [stored] = [candidate for candidate in messages if candidate.id == message.id]
        filled = {"turn_id": turn_id, "sequence": stored.sequence}
        at = message.created_at or stored.created_at
        if structs.replace(message, **filled, created_at=at) != stored:
            raise Conflict(
                f"message {message.id} of turn {turn_id} is stored already, with other content",
                "Use a new id for another message.",
            )
        return stored

    def tool_call(self, turn_id: str, new: LiveToolCall) -> ToolCall:
        """Commit that a tool is being called."""
        params = json_of({} if new.params is None else new.params)
        with self._writing(turn_id) as opened:
            call = opened.calls.get(new.id or "")
            if call is None:
                call = opened.turn.tool_call(
                    new.tool_name, params, id=new.id or "", tool_number=new.tool_number
                )
                opened.calls[call.id] = call
            stored = call.call
            if (stored.tool_name, stored.params_json, stored.tool_number) != (
                new.tool_name,
                params,
                new.tool_number,
            ):
                raise Conflict(
                    f"tool call {stored.id} of turn {turn_id} is stored already, with other"
                    " content",
                    "Use a new id for another call.",
                )
            if new.spawned_session_label is not None:
                call.spawn(new.spawned_session_label)
            return structs.replace(stored, spawned_session_label=new.spawned_session_label)

    def complete(self, turn_id: str, call_id: str, outcome: CallOutcome) -> EndedCall:
        """Commit the outcome of a tool call. Repeating it changes nothing."""
        result = None if outcome.result is None else json_of(outcome.result)
        with self._writing(turn_id) as opened:
            call = opened.calls.get(call_id)
            if call is None:
                raise NotFound(
                    f"turn {turn_id} has no tool call {call_id!r}", "Begin the tool call first."
                )
            _check_outcome(call_id, outcome)
            if outcome.status == "completed":
                call.complete(result)
            elif outcome.status == "failed":
                call.fail(outcome.error or "", result)
            elif outcome.status == "cancelled":
                call.cancel(outcome.error)
            else:
                call.reject(outcome.error)
            return EndedCall(turn_id, call_id, outcome.status)

    def stream(self, turn_id: str, new: StreamedPiece) -> StreamedText:
        """Commit a piece of the answer."""
        with self._writing(turn_id) as opened:
            piece = opened.pieces if new.piece is None else new.piece
            if piece > opened.pieces:
                raise Conflict(
                    f"piece {piece} of turn {turn_id} follows {opened.pieces} stored pieces",
                    f"Send piece {opened.pieces} first.",
                )
            if piece == opened.pieces:
                opened.turn.stream(new.text)
                opened.pieces += 1
            return StreamedText(turn_id, opened.pieces)

    def respond(self, turn_id: str, new: TurnResponse) -> Turn:
        """Seal a turn and move its session's head to it. Repeating it changes nothing."""
        with self._ending(turn_id) as opened:
            opened.turn.respond(
                response_of(new.response),
                usage=usage_of(new.usage),
                model=new.model,
                provider=new.provider,
                permissions_used=new.permissions_used,
            )
        return self.ledger.get_turn(turn_id)

    def fail(self, turn_id: str, new: TurnFailure) -> Turn:
        """Seal a turn as failed. Repeating it changes nothing."""
        with self._ending(turn_id) as opened:
            opened.turn.fail(new.error, usage=usage_of(new.usage))
        return self.ledger.get_turn(turn_id)

    def close(self) -> None:
        """Fail the turns that are still open: nobody can continue them."""
        with self._changed:
            self._closed = True
            left = list(self._open.values())
            self._changed.notify()
        for opened in left:
            with suppress(LedgerError), self._using(opened.turn.id):
                opened.turn.fail(STOPPED)

    # -- which turn ---------------------------------------------------------------------------

    @contextmanager
    def _writing(self, turn_id: str) -> Iterator[OpenTurn]:
        """A turn that is not sealed."""
        with self._using(turn_id) as opened:
            if opened.turn.state.sealed:
                raise self._unavailable(turn_id)
            yield opened

    @contextmanager
    def _ending(self, turn_id: str) -> Iterator[OpenTurn]:
        """A turn to be sealed, or that the same request sealed. Otherwise the error tells how it
        ended."""
        with self._using(turn_id) as opened:
            try:
                yield opened
            except HeadMoved:
                raise
            except Conflict as error:
                turn = self.ledger.get_turn(turn_id)
                raise (_ended(turn) if turn.status in SEALED else error) from None

    @contextmanager
    def _using(self, turn_id: str) -> Iterator[OpenTurn]:
        with self._changed:
            opened = self._open.get(turn_id) or self._ended.get(turn_id)
        if opened is None:
            raise self._unavailable(turn_id)
        with opened.lock:
            try:
                yield opened
            finally:
                opened.touch()
                if opened.turn.state.sealed:
                    self._end(opened)

    def _end(self, opened: OpenTurn) -> None:
        with self._changed:
            self._open.pop(opened.turn.id, None)
            self._ended[opened.turn.id] = opened
            while len(self._ended) > self._limits.ended_turns:
                self._ended.popitem(last=False)

    def _unavailable(self, turn_id: str) -> LedgerError:
        """Why a turn cannot be written."""
        try:
            turn = self.ledger.get_turn(turn_id)
        except NotFound:
            turn = None
        if turn is None or turn.id != turn_id:
            return NotFound(f"there is no live turn {turn_id!r}", "Begin a live turn first.")
        if turn.status in SEALED:
            return _ended(turn)
        return Conflict(
            f"turn {turn_id} is being written by another process",
            "Send the request to the server that began the turn.",
        )

    # -- clients that vanished ----------------------------------------------------------------

    def _sweep(self) -> None:
        while idle := self._wait_for_idle():
            for opened in idle:
                self._expire(opened)

    def _wait_for_idle(self) -> list[OpenTurn]:
        """The turns without requests for too long; none if there are no turns left to watch."""
        with self._changed:
            while self._open and not self._closed:
                now = time.monotonic()
                idle = [opened for opened in self._open.values() if opened.deadline <= now]
                if idle:
                    return idle
                self._changed.wait(min(opened.deadline for opened in self._open.values()) - now)
            self._sweeper = None
            return []

    def _expire(self, opened: OpenTurn) -> None:
        with opened.lock:
            if opened.deadline > time.monotonic():
                return
            try:
                opened.turn.fail(f"no request for {opened.idle_s:g} seconds")
            except StoreUnavailable:
                opened.deadline = time.monotonic() + RETRY_S
                return
            except LedgerError:
                pass  # it was sealed by recovery, or the ledger is closed: nothing is left to do
            self._end(opened)


def _ended(turn: Turn) -> Conflict:
    reason = f": {turn.error}" if turn.error else ""
    return Conflict(f"turn {turn.id} is {turn.status}{reason}", "Begin a new turn.")


def _check_outcome(call_id: str, outcome: CallOutcome) -> None:
    if outcome.status == "failed" and outcome.error is None:
        raise Refused(f"tool call {call_id} failed without an `error`", "Say why in `error`.")
    if outcome.status == "completed" and outcome.error is not None:
        raise Refused(
            f"tool call {call_id} is completed, but has an `error`", "Use the status `failed`."
        )
    if outcome.status in ("cancelled", "rejected") and outcome.result is not None:
        raise Refused(
            f"tool call {call_id} was {outcome.status}, but has a `result`",
            "Use the status `completed` or `failed`, or leave out the result.",
        )
