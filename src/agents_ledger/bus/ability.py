"""An ability: its id, the types of its input and output, and its function."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from agents_ledger.model.access import Scope
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import LATEST_MS
from agents_ledger.model.installation.extras import needed
from agents_ledger.model.text.unpaired_json import decode_unpaired

# The largest integer that a JSON number represents exactly.
COUNT_MAX = 1 << 53
PAGE_MAX = 1000

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Target = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="A session's label or alias, or a turn id or a prefix of it.",
    ),
]
Time = Annotated[int, Meta(ge=0, le=LATEST_MS, description="Unix milliseconds.")]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="Maximum number of results.")]
Next = Annotated[str | None, Meta(description="The `next` of the previous page.")]


class Input(Struct, forbid_unknown_fields=True):
    """Base of all inputs. An unknown field is an error, never ignored."""


class NoInput(Input):
    """An empty object."""


Shape = type[Any] | Mapping[str, Any]
"""A msgspec type, or a JSON Schema."""


class InvalidInput(Exception):
    """A value that an ability does not accept; `path` locates the error."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path


Parse = Callable[[str | bytes], Any]
"""Parses JSON text to the argument of an ability's function, or raises InvalidInput."""


class Ability(Struct, frozen=True, kw_only=True):
    """One operation of the bus. The function of a streaming ability yields parts of its answer;
    any other function returns it."""

    id: str  # module and name: ldg:task:save
    description: str
    input: Shape
    output: Shape
    function: Callable[..., Any]
    writes: bool = False  # it may change the ledger
    scope: Scope | None = None  # required of a remote caller; by default "write" or "read"
    scope_of: Callable[..., Scope] | None = None  # the scope where it depends on the input
    is_stream: bool = False
    for_models: bool = True  # false: no MCP tool, because a model has no use for it
    tags: tuple[str, ...] = ()

    @property
    def module_name(self) -> str:
        return self.id.partition(":")[0]

    @property
    def ability_name(self) -> str:
        return self.id.partition(":")[2]

    @property
    def least_scope(self) -> Scope:
        """The scope that a remote caller needs for any input."""
        return self.scope or ("write" if self.writes else "read")

    def scope_for(self, value: object) -> Scope:
        """The scope that a remote caller needs for an input."""
        return self.scope_of(value) if self.scope_of else self.least_scope

    @property
    def input_schema(self) -> dict[str, Any]:
        return schema_of(self.input)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of the answer, or of each part if it streams."""
        return schema_of(self.output)

    def bound(self, *first: object) -> Ability:
        """The ability with the first arguments of its functions bound."""
        scope_of = partial(self.scope_of, *first) if self.scope_of else None
        return structs.replace(self, function=partial(self.function, *first), scope_of=scope_of)


_ID = re.compile(r"[a-z][a-z0-9_-]*(:[a-z][a-z0-9_-]*)+")


def check(ability: Ability) -> None:
    """Refuse an ability with an invalid id or an asynchronous function."""
    if not _ID.fullmatch(ability.id):
        raise Refused(
            f"{ability.id[:80]!r} is not a valid ability id",
            "Use lower-case words separated by colons, such as notes:save.",
        )
    function = inspect.unwrap(ability.function)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise Refused(
            f"the function of {ability.id} is asynchronous",
            "Register a plain function; asynchronous callers use a thread.",
        )


# -- schemas ----------------------------------------------------------------------------------


def schema_of(shape: Shape) -> dict[str, Any]:
    """The JSON Schema of a shape, without references."""
    if isinstance(shape, Mapping):
        return dict(shape)
    schema = msgspec.json.schema(shape)
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inlined(schema, definitions)
    return inlined


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        rest = {name: value for name, value in part.items() if name != "$ref"}
        return _inlined({**definitions[part["$ref"].rpartition("/")[2]], **rest}, definitions)
    # A title (a str) only repeats the name of our type; a property named title is a dict. The
    # discriminator of a union refers to the definitions.
    inlined = {
        name: _inlined(value, definitions)
        for name, value in part.items()
        if name != "discriminator" and (name != "title" or not isinstance(value, str))
    }
    return _nullable(inlined)


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """Shorten `anyOf` a type or null to a list of two types."""
    options = schema.get("anyOf", ())
    if len(options) != 2 or {"type": "null"} not in options:  # noqa: PLR2004
        return schema
    [other] = [option for option in options if option != {"type": "null"}]
    if not isinstance(other.get("type"), str) or "enum" in other:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**other, **rest, "type": [other["type"], "null"]}


# -- parsing ----------------------------------------------------------------------------------

_PATH = re.compile(r" - at `(\$[^`]*)`$")  # at the end of a message of msgspec


def parser_of(shape: Shape) -> Parse:
    """The parser of the JSON text of an input."""
    if isinstance(shape, Mapping):
        return _validator_of(shape)
    return partial(_decode, msgspec.json.Decoder(shape))


def _decode(decoder: msgspec.json.Decoder[Any], text: str | bytes) -> Any:
    try:
        return _decode_exactly(decoder, text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        path = _PATH.search(str(error))
        message = _PATH.sub("", str(error))
        if path is None and "unknown field" in message:
            names = [field.encode_name for field in structs.fields(decoder.type)]
            message += f"; the fields are {', '.join(names)}" if names else "; there are none"
        raise InvalidInput(message, path[1] if path else "$") from error


def _decode_exactly(decoder: msgspec.json.Decoder[Any], text: str | bytes) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.DecodeError as error:
        try:
            value = decode_unpaired(text)
        except ValueError:
            raise error from None
    return msgspec.convert(value, decoder.type)


def _validator_of(schema: Mapping[str, Any]) -> Parse:
    with needed("bus", "an input described by a JSON Schema"):
        from jsonschema import exceptions, validators
    kind = validators.validator_for(schema)
    try:
        kind.check_schema(schema)
    except exceptions.SchemaError as error:
        raise Refused(f"the input is not a valid JSON Schema: {error.message}") from error
    validator = kind(schema)
    decoder = msgspec.json.Decoder()

    def parse(text: str | bytes) -> Any:
        value = _decode(decoder, text)
        error = exceptions.best_match(validator.iter_errors(value))
        if error is not None:
            raise InvalidInput(error.message, error.json_path)
        return value

    return parse
