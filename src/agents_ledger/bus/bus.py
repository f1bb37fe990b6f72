"""The bus: abilities registered by name, invoked with JSON, every call logged.

It is synchronous, as the ledger is. From asyncio, call it in a thread:
`await asyncio.to_thread(bus.invoke("ldg:task:get"), text)`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from agents_ledger.bus.ability import Ability, Parse, Unfit, check, parser_of
from agents_ledger.model.access import Scope
from agents_ledger.model.errors import Conflict, LedgerError, NotFound, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.turns import to_json

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

ErrorCode = Literal["NOT_FOUND", "INVALID_INPUT", "EXECUTION_ERROR", "TYPE_MISMATCH"]
Outcome = Literal["success", "error", "invalid-ability", "invalid-input", "unknown-failure"]
LOGGED = 1000
MayUse = Callable[[Scope], bool]
"""Whether a caller has a scope. Callers in this process have all."""


def _may_all(_: Scope) -> bool:
    return True


class BusError(Exception):
    """Why an invocation failed: its code, the ability, and details such as the path of a wrong
    field."""

    def __init__(self, code: ErrorCode, message: str, ability_id: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.ability_id = ability_id
        self.details = details

    def as_json(self) -> dict[str, object]:
        """The error as it goes to other programs."""
        return {
            "code": self.code,
            "message": self.message,
            "abilityId": self.ability_id,
            "details": self.details,
        }


class ScopeMissing(Refused):
    """The caller may not do this."""


class InvokeResult(Struct, frozen=True, omit_defaults=True):
    """What came of an invocation that never raises. `result` is JSON text."""

    type: Outcome
    result: str | None = None
    message: str | None = None
    error: dict[str, Any] | None = None


class CallRecord(Struct, frozen=True):
    """One line of the log of calls."""

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
    """Abilities by name. With a ledger, it starts with the ledger's abilities on it."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._guard = threading.Lock()
        self._abilities: dict[str, _Registered] = {}
        self._log: deque[CallRecord] = deque(maxlen=LOGGED)
        for ability in _OWN:
            self.register(ability.bound(self))
        if ledger is not None:
            from agents_ledger.bus.abilities import ABILITIES

            for ability in ABILITIES:
                self.register(ability.bound(ledger))

    # -- what is registered -------------------------------------------------------------------

    def register(self, ability: Ability) -> None:
        """Put an ability on the bus. Conflict: one with its id is there."""
        check(ability)
        registered = _Registered(ability, parser_of(ability.input))
        with self._guard:
            if ability.id in self._abilities:
                raise Conflict(f"Ability already registered: {ability.id}", "Unregister it first.")
            self._abilities[ability.id] = registered

    def unregister(self, ability_id: str) -> None:
        """Take an ability off the bus."""
        with self._guard:
            if self._abilities.pop(ability_id, None) is None:
                raise NotFound(
                    f"there is no ability {ability_id!r}", "See what there is with bus:list."
                )

    def has(self, ability_id: str) -> bool:
        """Whether an ability is on the bus."""
        return ability_id in self._abilities

    def list(self) -> tuple[Ability, ...]:
        """All abilities, by id."""
        with self._guard:
            return tuple(self._abilities[key].ability for key in sorted(self._abilities))

    def inspect(self, ability_id: str) -> Ability:
        """One ability; BusError if it is not on the bus."""
        return self._find(ability_id).ability

    def log(self) -> tuple[CallRecord, ...]:
        """The latest calls, oldest first."""
        return tuple(self._log)

    # -- invoking -----------------------------------------------------------------------------

    def invoke(self, ability_id: str) -> Callable[..., str]:
        """A function of JSON text that gives JSON text; BusError if anything is wrong."""

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
        """A function of JSON text that gives the pieces of the answer, each as JSON text."""

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
        """Invoke an ability; what is wrong is in the result, and nothing is raised."""
        try:
            result = self.invoke(ability_id)(input, call_id=call_id, caller_id=caller_id, may=may)
        except BusError as error:
            return _failure(error)
        return InvokeResult("success", result)

    def _find(self, ability_id: str) -> _Registered:
        found = self._abilities.get(ability_id)
        if found is None:
            raise BusError("NOT_FOUND", f"there is no ability {ability_id!r}", ability_id)
        return found

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
        """Check and run an ability, piece by piece, and log how it went."""
        started_at, began = now_ms(), time.perf_counter()
        error: BusError | None = None
        try:
            pieces = self._begin(ability_id, input, may=may, stream=stream)
            yield from _pieces(ability_id, pieces)
        except BusError as failed:
            error = failed
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
        except Unfit as error:
            raise BusError("INVALID_INPUT", str(error), ability_id, path=error.path) from error
        except TypeError as error:
            what = f"the input is JSON text, not {type(input).__name__}"
            raise BusError("INVALID_INPUT", what, ability_id, path="$") from error
        _guarded(ability_id, partial(_check_scope, ability, value, may))
        if stream:
            return iter(_Guarded(ability_id, ability.function, value))
        return iter((_guarded(ability_id, partial(ability.function, value)),))


def _check_scope(ability: Ability, value: object, may: MayUse) -> None:
    scope = ability.scope_for(value)
    if not may(scope):
        raise ScopeMissing(
            f"{ability.id} with this input needs the scope {scope!r}", "Use a token that has it."
        )


class _Guarded:
    """The pieces of a streaming ability; what fails becomes a BusError."""

    def __init__(self, ability_id: str, function: Callable[[Any], Any], value: object) -> None:
        self._id, self._function, self._value = ability_id, function, value

    def __iter__(self) -> Iterator[Any]:
        pieces = _guarded(self._id, lambda: iter(self._function(self._value)))
        nothing = object()
        while (piece := _guarded(self._id, lambda: next(pieces, nothing))) is not nothing:
            yield piece


def _guarded(ability_id: str, act: Callable[[], Any]) -> Any:
    try:
        return act()
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
        # An ability may be anybody's: whatever it raises is its failure, not the bus's.
        what = f"{type(error).__name__}: {error}"
        raise BusError("EXECUTION_ERROR", what, ability_id) from error


def _pieces(ability_id: str, pieces: Iterator[Any]) -> Iterator[str]:
    for piece in pieces:
        yield _guarded(ability_id, partial(encoded, piece))


def encoded(value: object) -> str:
    """The JSON text of an answer."""
    return to_json(msgspec.to_builtins(value))


def _failure(error: BusError) -> InvokeResult:
    if error.code == "NOT_FOUND":
        return InvokeResult("invalid-ability", message=error.message)
    if error.code == "INVALID_INPUT":
        said = f"{error.message} (at {error.details['path']})"
        return InvokeResult("invalid-input", message=said)
    if error.code == "TYPE_MISMATCH" or isinstance(error.__cause__, LedgerError):
        return InvokeResult("error", message=error.message, error=error.as_json())
    return InvokeResult("unknown-failure", message=error.message)


# -- the bus's own abilities ------------------------------------------------------------------


class Nothing(Struct, forbid_unknown_fields=True):
    """No input."""


class OfModule(Struct, rename="camel", forbid_unknown_fields=True):
    """A module by its name."""

    module_name: str


class OfAbility(Struct, rename="camel", forbid_unknown_fields=True):
    """An ability by its id."""

    ability_id: str


class Module(Struct, rename="camel"):
    """A module, and how many abilities it has."""

    name: str
    ability_count: int


class Modules(Struct):
    """All modules."""

    modules: tuple[Module, ...]


class Line(Struct, rename="camel"):
    """An ability in a line."""

    id: str
    description: str
    is_stream: bool


class Lines(Struct):
    """The abilities of a module."""

    abilities: tuple[Line, ...]


class Schemas(Struct, rename="camel"):
    """What an ability takes and gives."""

    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class Meta(Struct, rename="camel"):
    """All that is known of an ability."""

    id: str
    module_name: str
    ability_name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    is_stream: bool
    writes: bool
    tags: tuple[str, ...]


def _modules(bus: AgentBus, _: Nothing) -> Modules:
    counts = Counter(ability.module_name for ability in bus.list())
    return Modules(tuple(Module(name, counts[name]) for name in sorted(counts)))


def _of_module(bus: AgentBus, wanted: OfModule) -> Lines:
    found = [each for each in bus.list() if each.module_name == wanted.module_name]
    if not found:
        raise NotFound(
            f"there is no module {wanted.module_name!r}", "See what there is with bus:list."
        )
    return Lines(tuple(Line(each.id, each.description, each.is_stream) for each in found))


def _schemas(bus: AgentBus, wanted: OfAbility) -> Schemas:
    ability = bus.inspect(wanted.ability_id)
    return Schemas(ability.input_schema, ability.output_schema)


def _meta(bus: AgentBus, wanted: OfAbility) -> Meta:
    ability = bus.inspect(wanted.ability_id)
    return Meta(**{name: getattr(ability, name) for name in Meta.__struct_fields__})


_OWN = (
    Ability(
        id="bus:list",
        description="List the modules, and how many abilities each has.",
        input=Nothing,
        output=Modules,
        function=_modules,
    ),
    Ability(
        id="bus:abilities",
        description="List the abilities of a module.",
        input=OfModule,
        output=Lines,
        function=_of_module,
    ),
    Ability(
        id="bus:schema",
        description="What an ability takes and gives, as JSON Schemas.",
        input=OfAbility,
        output=Schemas,
        function=_schemas,
    ),
    Ability(
        id="bus:inspect",
        description="All that is known of an ability.",
        input=OfAbility,
        output=Meta,
        function=_meta,
    ),
)
