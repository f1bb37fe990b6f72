"""The bus: abilities are registered by name and invoked with JSON; every call is logged.

It is synchronous, like the ledger. From asyncio, call it in a thread:
`await asyncio.to_thread(bus.invoke("ldg:task:get"), text)`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agents_ledger.bus.ability import Ability, InvalidInput, Parse, check, parser_of
from agents_ledger.bus.introspection import INTROSPECTION
from agents_ledger.model.access import Scope
from agents_ledger.model.errors import Conflict, LedgerError, NotFound, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.turns import to_json

if TYPE_CHECKING:
    from agents_ledger.bus.live_turns import LiveTurns
    from agents_ledger.ledger.ledger import Ledger

ErrorCode = Literal["NOT_FOUND", "INVALID_INPUT", "EXECUTION_ERROR", "TYPE_MISMATCH"]
InvokeOutcome = Literal["success", "error", "invalid-ability", "invalid-input", "unknown-failure"]
LOG_LENGTH = 1000
MayUse = Callable[[Scope], bool]
"""Whether a caller has a scope. Callers in this process have all scopes."""


def _may_all(_: Scope) -> bool:
    return True


class BusError(Exception):
    """A failed invocation: an error code, the ability, and details such as the path of an invalid
    field."""

    def __init__(self, code: ErrorCode, message: str, ability_id: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.ability_id = ability_id
        self.details = details

    def as_json(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "abilityId": self.ability_id,
            "details": self.details,
        }


class ScopeMissing(Refused):
    """The caller lacks the scope that the ability requires."""


class InvokeResult(Struct, frozen=True, omit_defaults=True):
    """The outcome of `try_invoke`, which never raises. `result` is JSON text."""

    type: InvokeOutcome
    result: str | None = None
    message: str | None = None
    error: dict[str, Any] | None = None


class CallRecord(Struct, frozen=True):
    """An entry of the call log."""

    call_id: str
    caller_id: str
    ability_id: str
    started_at: int
    duration_ms: float
    success: bool
    error: str | None = None


class _Registered(NamedTuple):
    ability: Ability
    parse: Parse


class AgentBus:
    """A registry of abilities. With a ledger, the ledger's abilities are registered; `live_turns`
    are the live turns that they write, by default those of this bus alone."""

    def __init__(self, ledger: Ledger | None = None, live_turns: LiveTurns | None = None) -> None:
        self._guard = threading.Lock()
        self._abilities: dict[str, _Registered] = {}
        self._log: deque[CallRecord] = deque(maxlen=LOG_LENGTH)
        for ability in INTROSPECTION:
            self.register(ability.bound(self))
        if ledger is not None:
            from agents_ledger.bus.abilities import LEDGER_ABILITIES, LIVE_ABILITIES
            from agents_ledger.bus.live_turns import LiveTurns

            live = live_turns or LiveTurns(ledger)
            for ability in LEDGER_ABILITIES:
                self.register(ability.bound(ledger))
            for ability in LIVE_ABILITIES:
                self.register(ability.bound(live))

    # -- registering --------------------------------------------------------------------------

    def register(self, ability: Ability) -> None:
        """Register an ability; Conflict if its id is registered already."""
        check(ability)
        registered = _Registered(ability, parser_of(ability.input))
        with self._guard:
            if ability.id in self._abilities:
                raise Conflict(f"Ability already registered: {ability.id}", "Unregister it first.")
            self._abilities[ability.id] = registered

    def unregister(self, ability_id: str) -> None:
        with self._guard:
            if self._abilities.pop(ability_id, None) is None:
                raise NotFound(f"no ability {ability_id!r}", "List the modules with bus:list.")

    def has(self, ability_id: str) -> bool:
        return ability_id in self._abilities

    def list(self) -> tuple[Ability, ...]:
        """All abilities, sorted by id."""
        with self._guard:
            return tuple(self._abilities[key].ability for key in sorted(self._abilities))

    def inspect(self, ability_id: str) -> Ability:
        """One ability; BusError if it is not registered."""
        return self._find(ability_id).ability

    def log(self) -> tuple[CallRecord, ...]:
        """The latest calls, oldest first."""
        return tuple(self._log)

    # -- invoking -----------------------------------------------------------------------------

    def invoke(self, ability_id: str) -> Callable[..., str]:
        """A function that takes and returns JSON text, and raises BusError."""

        def call(
            input: str | bytes = "{}",
            *,
            call_id: str = "",
            caller_id: str = "",
            may: MayUse = _may_all,
        ) -> str:
            (answer,) = self._run(ability_id, input, call_id, caller_id, may=may, stream=False)
            return answer

        return call

    def invoke_stream(self, ability_id: str) -> Callable[..., Iterator[str]]:
        """A function that takes JSON text and yields the parts of the answer as JSON text."""

        def call(
            input: str | bytes = "{}",
            *,
            call_id: str = "",
            caller_id: str = "",
            may: MayUse = _may_all,
        ) -> Iterator[str]:
            return self._run(ability_id, input, call_id, caller_id, may=may, stream=True)

        return call

    def try_invoke(
        self,
        ability_id: str,
        input: str | bytes = "{}",
        *,
        call_id: str = "",
        caller_id: str = "",
        may: MayUse = _may_all,
    ) -> InvokeResult:
        """Invoke an ability; errors are returned in the result, never raised."""
        try:
            result = self.invoke(ability_id)(input, call_id=call_id, caller_id=caller_id, may=may)
        except BusError as error:
            return _failure(error)
        return InvokeResult("success", result)

    def _find(self, ability_id: str) -> _Registered:
        registered = self._abilities.get(ability_id)
        if registered is None:
            raise BusError("NOT_FOUND", f"no ability {ability_id!r}", ability_id)
        return registered

    def _run(
        self,
        ability_id: str,
        input: str | bytes,
        call_id: str,
        caller_id: str,
        *,
        may: MayUse,
        stream: bool,
    ) -> Iterator[str]:
        started_at, began = now_ms(), time.perf_counter()
        error: BusError | None = None
        try:
            for part in self._begin(ability_id, input, may=may, stream=stream):
                yield _guarded(ability_id, partial(encoded, part))
        except BusError as failure:
            error = failure
            raise
        finally:
            self._log.append(
                CallRecord(
                    call_id or new_id(),
                    caller_id,
                    ability_id,
                    started_at,
                    (time.perf_counter() - began) * 1000,
                    error is None,
                    None if error is None else f"{error.code}: {error.message}",
                )
            )

    def _begin(
        self, ability_id: str, input: str | bytes, *, may: MayUse, stream: bool
    ) -> Iterator[Any]:
        ability, parse = self._find(ability_id)
        if ability.is_stream != stream:
            raise BusError(
                "TYPE_MISMATCH",
                f"{ability_id} {'streams' if ability.is_stream else 'does not stream'} its answer:"
                f" use {'invoke_stream' if ability.is_stream else 'invoke'}",
                ability_id,
            )
        try:
            value = parse(input)
        except InvalidInput as error:
            raise BusError("INVALID_INPUT", str(error), ability_id, path=error.path) from error
        except TypeError as error:
            message = f"the input must be JSON text, not {type(input).__name__}"
            raise BusError("INVALID_INPUT", message, ability_id, path="$") from error
        # After parsing, because the scope may depend on the input.
        _guarded(ability_id, partial(_check_scope, ability, value, may))
        if stream:
            return _stream(ability_id, ability.function, value)
        return iter((_guarded(ability_id, partial(ability.function, value)),))


def _check_scope(ability: Ability, value: object, may: MayUse) -> None:
    scope = ability.scope_for(value)
    if not may(scope):
        raise ScopeMissing(
            f"{ability.id} with this input requires the scope {scope!r}",
            "Use a token with this scope.",
        )


def _stream(ability_id: str, function: Callable[[Any], Any], value: object) -> Iterator[Any]:
    parts = _guarded(ability_id, lambda: iter(function(value)))
    end = object()
    while (part := _guarded(ability_id, lambda: next(parts, end))) is not end:
        yield part


def _guarded(ability_id: str, action: Callable[[], Any]) -> Any:
    """The result of an action; any exception becomes a BusError."""
    try:
        return action()
    except BusError:
        raise
    except LedgerError as error:
        raise BusError(
            "EXECUTION_ERROR",
            str(error),
            ability_id,
            kind=type(error).__name__,
            hint=error.hint,
        ) from error
    except Exception as error:
        # Abilities of other authors may raise anything; the bus must survive it.
        message = f"{type(error).__name__}: {error}"
        raise BusError("EXECUTION_ERROR", message, ability_id) from error


def encoded(value: object) -> str:
    """The JSON text of an answer."""
    return to_json(msgspec.to_builtins(value))


def _failure(error: BusError) -> InvokeResult:
    if error.code == "NOT_FOUND":
        return InvokeResult("invalid-ability", message=error.message)
    if error.code == "INVALID_INPUT":
        message = f"{error.message} (at {error.details['path']})"
        return InvokeResult("invalid-input", message=message)
    if error.code == "TYPE_MISMATCH" or isinstance(error.__cause__, LedgerError):
        return InvokeResult("error", message=error.message, error=error.as_json())
    return InvokeResult("unknown-failure", message=error.message)
