"""The page of abilities, from their table; `make reference` writes it."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agents_ledger.bus import Ability, AgentBus
from agents_ledger.bus.abilities import ABILITIES
from scripts.field_meanings import common_meaning

INTRODUCTION = """\
# Abilities

Everything that can be done over the [Agent Bus](../how-to/use-the-library.md#the-agent-bus) and
over HTTP (`POST /api/v1/bus/{ability}`); over MCP, all but those that stream and those of live
turns. Unknown fields and wrong types are errors; nothing is changed then. **w** marks abilities
that may change the ledger, **s** those that stream.

Over HTTP and MCP, a token needs the scope of the ability. `write` includes `read`, and `admin`
includes all scopes. The objects that abilities take and give are described under
[Types](#types).
"""
TYPES = """\
## Types

Times are Unix milliseconds. When they are read, fields whose names end in `_json` are JSON text.
"""
REF = "#/$defs/{name}"


def page() -> str:
    """The whole page."""
    abilities = sorted((*AgentBus().list(), *ABILITIES), key=lambda ability: ability.id)
    shapes = [shape for a in abilities for shape in (a.input, a.output)]
    roots, types = msgspec.json.schema_components(
        [shape for shape in shapes if isinstance(shape, type)], ref_template=REF
    )
    top = {shape: schema["$ref"] for shape, schema in zip(shapes, roots, strict=True)}
    lines = [INTRODUCTION, "| ability | | scope | what it does |", "|---|---|---|---|"]
    lines += (
        f"| [`{a.id}`](#{anchor(a.id)}) | {marks(a)} | {scope(a)} | {a.description} |"
        for a in abilities
    )
    used: set[str] = set()
    for ability in abilities:
        lines += ["", *section(ability, top, types, used)]
    lines += ["", TYPES.rstrip("\n")]
    for name in with_inner(used, types):
        lines += ["", *type_section(name, types[name])]
    return "\n".join(lines) + "\n"


def anchor(ability_id: str) -> str:
    """As a heading becomes the target of a link."""
    return ability_id.replace(":", "")


def marks(ability: Ability) -> str:
    return " ".join(["w"] * ability.writes + ["s"] * ability.is_stream)


def scope(ability: Ability) -> str:
    """The scope of an ability; of some, other inputs need another one."""
    return f"`{ability.least_scope}`" + " or more" * (ability.scope_of is not None)


def section(
    ability: Ability, top: Mapping[Any, str], types: Mapping[str, Any], used: set[str]
) -> Iterator[str]:
    yield f"## {ability.id}"
    yield ""
    yield ability.description
    taken = types[name_of(top[ability.input])]
    output_name = name_of(top[ability.output])
    given = types[output_name]
    used |= named(taken)
    if taken.get("properties"):
        yield ""
        yield from table(taken, ability.id)
    yield ""
    pieces = "pieces of " if ability.is_stream else ""
    if given.get("description"):
        used.add(output_name)
        yield f"Gives {pieces}{link(output_name)}."
        return
    used |= named(given)
    fields = ", ".join(f"`{name}` ({kind(part)})" for name, part in given["properties"].items())
    yield f"Gives {pieces}{fields}."


def type_section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if about := " ".join(schema.get("description", "").split()):
        yield ""
        yield about
    yield ""
    if "prefixItems" in schema:
        yield list_kind(schema).capitalize() + "."
        return
    yield from table(schema, name)


def with_inner(names: set[str], types: Mapping[str, Any]) -> list[str]:
    """These types and all that they consist of, sorted."""
    reached, waiting = set(names), list(names)
    while waiting:
        inner = named(types[waiting.pop()]) - reached
        reached |= inner
        waiting += inner
    return sorted(reached)


def named(schema: Any) -> set[str]:
    """The types that a schema refers to."""
    if isinstance(schema, list):
        return set().union(*map(named, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = {name_of(schema["$ref"])} if "$ref" in schema else set()
    parts = (value for key, value in schema.items() if key != "discriminator")
    return own.union(*map(named, parts))


def name_of(reference: str) -> str:
    return reference.rpartition("/")[2]


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def table(schema: dict[str, Any], owner: str) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, part in schema["properties"].items():
        optional = "" if name in schema.get("required", ()) else ", optional"
        yield f"| `{name}` | {kind(part)}{optional} | {meaning(name, part, owner)} |"


def kind(schema: dict[str, Any]) -> str:
    """The type of a value in a word or two."""
    if "$ref" in schema:
        return link(name_of(schema["$ref"]))
    if "enum" in schema:
        return " or ".join("null" if word is None else f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(part) for part in schema["anyOf"]))
    types = schema.get("type", "any value")
    word = " or ".join(types) if isinstance(types, list) else str(types)
    if word == "array":
        return list_kind(schema)
    values = schema.get("additionalProperties")
    return f"object of {kind(values)}" if isinstance(values, dict) and values else word


def list_kind(schema: dict[str, Any]) -> str:
    if "prefixItems" in schema:
        return f"list of {' and '.join(kind(part) for part in schema['prefixItems'])}"
    items = kind(schema.get("items") or {})
    return f"list of ({items})" if " or " in items else f"list of {items}"


def meaning(name: str, schema: dict[str, Any], owner: str) -> str:
    text = schema.get("description") or common_meaning(name, owner)
    default = schema.get("default")
    if default not in (None, "", (), [], {}) and not isinstance(default, dict):
        text = f"{text} Default: {default}.".strip()
    return str(text)
