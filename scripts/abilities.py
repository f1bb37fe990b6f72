"""The page of abilities, from their table; `make reference` writes it."""

from collections.abc import Iterator
from typing import Any

from agents_ledger.bus import Ability, AgentBus
from agents_ledger.bus.abilities import ABILITIES

INTRODUCTION = """\
# Abilities

Everything that can be done over the [Agent Bus](../how-to/use-the-library.md#the-agent-bus), over
MCP and over HTTP (`POST /api/v1/bus/{ability}`). Unknown fields and wrong types are errors; nothing
is changed then. **w** marks abilities that may change the ledger, **s** those that stream.
"""


def page() -> str:
    """The whole page."""
    known = sorted((*AgentBus().list(), *ABILITIES), key=lambda each: each.id)
    lines = [INTRODUCTION, "| ability | | what it does |", "|---|---|---|"]
    lines += (f"| [`{a.id}`](#{anchor(a.id)}) | {marks(a)} | {a.description} |" for a in known)
    for ability in known:
        lines += ["", *section(ability)]
    return "\n".join(lines) + "\n"


def anchor(ability_id: str) -> str:
    """As a heading becomes the target of a link."""
    return ability_id.replace(":", "")


def marks(ability: Ability) -> str:
    return " ".join(["w"] * ability.writes + ["s"] * ability.is_stream)


def section(ability: Ability) -> Iterator[str]:
    yield f"## {ability.id}"
    yield ""
    yield ability.description
    takes = list(fields(ability.input_schema))
    if takes:
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        yield from takes
    gives = ", ".join(
        f"`{name}` ({kind(schema)})"
        for name, schema in ability.output_schema.get("properties", {}).items()
    )
    yield ""
    yield f"Gives {'pieces of ' if ability.is_stream else ''}{gives}."


def fields(schema: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, part in schema.get("properties", {}).items():
        optional = "" if name in schema.get("required", ()) else ", optional"
        yield f"| `{above}{name}` | {kind(part)}{optional} | {meaning(part)} |"
        yield from fields(part, f"{above}{name}.")


def kind(schema: dict[str, Any]) -> str:
    """The type of a value in a word or two."""
    if "enum" in schema:
        return " or ".join(f"`{word}`" for word in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(part) for part in schema["anyOf"]))
    said = schema.get("type", "any value")
    if said == "array":
        return f"list of {kind(schema.get('items') or {})}"
    return " or ".join(said) if isinstance(said, list) else str(said)


def meaning(schema: dict[str, Any]) -> str:
    said = schema.get("description", "")
    default = schema.get("default")
    if default not in (None, [], {}) and not isinstance(default, dict):
        said = f"{said} Default: {default}.".strip()
    return str(said)
