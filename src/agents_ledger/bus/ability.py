"""What an ability is: a name, what goes in and comes out, and a function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from agents_ledger.model.access import Scope
from agents_ledger.model.errors import Refused

ID = re.compile(r"[a-z][a-z0-9_-]*(:[a-z][a-z0-9_-]*)+")
_PATH = re.compile(r" - at `(\$[^`]*)`$")
Shape = type[Any] | Mapping[str, Any]
"""A type of msgspec, or a JSON Schema."""


class Unfit(Exception):
    """A value that is not what an ability takes; `path` says where it is wrong."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


Parse = Callable[[str | bytes], Any]
"""Turns JSON text into what an ability's function takes, or raises Unfit."""


class Ability(Struct, frozen=True, kw_only=True):
    """One thing that can be done over the bus. A streaming ability's function yields its answer
    in pieces; any other returns it whole."""

    id: str  # module and name: ldg:task:save
    description: str
    input: Shape
    output: Shape
    function: Callable[..., Any]
    writes: bool = False  # it may change the ledger
    scope: Scope | None = None  # that a remote caller needs; else "write" or "read"
    scope_of: Callable[..., Scope] | None = None  # the same for one input, where that decides
    is_stream: bool = False
    tags: tuple[str, ...] = ()

    @property
    def module_name(self) -> str:
        """The first part of its id."""
        return self.id.partition(":")[0]

    @property
    def ability_name(self) -> str:
        """The rest of its id."""
        return self.id.partition(":")[2]

    @property
    def least_scope(self) -> Scope:
        """The scope without which a remote caller cannot use it at all."""
        return self.scope or ("write" if self.writes else "read")

    def scope_for(self, value: object) -> Scope:
        """The scope that a remote caller needs for an input."""
        return self.scope_of(value) if self.scope_of else self.least_scope

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of what it takes."""
        return schema_of(self.input)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of what it gives, or of each piece if it streams."""
        return schema_of(self.output)

    def bound(self, *first: object) -> Ability:
        """The same ability with the first arguments of its functions given."""
        from functools import partial

        scope_of = partial(self.scope_of, *first) if self.scope_of else None
        return structs.replace(self, function=partial(self.function, *first), scope_of=scope_of)


def check(ability: Ability) -> None:
    """Refuse an ability that could not be found or called."""
    if not ID.fullmatch(ability.id):
        raise Refused(
            f"{ability.id[:80]!r} cannot be the id of an ability",
            "Use lower-case words with colons between them, as in notes:save.",
        )
    plain = inspect.unwrap(ability.function)
    if inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain):
        raise Refused(
            f"the function of {ability.id} is a coroutine",
            "Give a plain function: the bus is synchronous, and async callers use a thread.",
        )


def schema_of(shape: Shape) -> dict[str, Any]:
    """The JSON Schema of a shape, with nothing to look up elsewhere in it."""
    if isinstance(shape, Mapping):
        return dict(shape)
    schema = msgspec.json.schema(shape)
    known = schema.pop("$defs", {})
    plain: dict[str, Any] = _inlined(schema, known)
    return plain


def _inlined(part: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, known) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        rest = {name: value for name, value in part.items() if name != "$ref"}
        return _inlined({**known[part["$ref"].rpartition("/")[2]], **rest}, known)
    # A title only repeats the name of our type. A property may be called title, too.
    plain = {
        name: _inlined(value, known)
        for name, value in part.items()
        if name != "title" or not isinstance(value, str)
    }
    return _shortened(plain)


def _shortened(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of something or null says so in its type."""
    either = schema.get("anyOf", ())
    if len(either) != 2 or {"type": "null"} not in either:  # noqa: PLR2004
        return schema
    [other] = [part for part in either if part != {"type": "null"}]
    if not isinstance(other.get("type"), str) or "enum" in other:
        return schema
    said = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**other, **said, "type": [other["type"], "null"]}


def parser_of(shape: Shape) -> Parse:
    """How the JSON text of an input becomes the value that the function takes."""
    if isinstance(shape, Mapping):
        return _by_schema(shape)
    decoder = msgspec.json.Decoder(shape)

    def parse(text: str | bytes) -> Any:
        try:
            return decoder.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise _unfit(error) from error

    return parse


def _unfit(error: Exception) -> Unfit:
    found = _PATH.search(str(error))
    return Unfit(_PATH.sub("", str(error)), found[1] if found else "$")


def _by_schema(schema: Mapping[str, Any]) -> Parse:
    try:
        from jsonschema import exceptions, validators
    except ModuleNotFoundError as error:
        raise Refused(
            "to check a JSON Schema, jsonschema is needed, which is not installed",
            "Install it with: pip install 'agents-ledger[bus]', or give a type of msgspec.",
        ) from error
    kind = validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise Refused(f"this is no JSON Schema: {error.message}") from error
    validator = kind(schema)

    def parse(text: str | bytes) -> Any:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise _unfit(error) from error
        wrong = exceptions.best_match(validator.iter_errors(value))
        if wrong is not None:
            raise Unfit(wrong.message, wrong.json_path)
        return value

    return parse
