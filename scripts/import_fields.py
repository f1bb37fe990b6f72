"""Fields and JSON Schema of `sessions.import`, from its types; `make reference` writes them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from agents_ledger.model.imports import requests

TYPES: dict[type[msgspec.Struct], str] = {
    requests.ImportRequest: "Request",
    requests.ImportItem: "Item",
    requests.ImportSession: "Session",
    requests.ImportTurn: "Turn",
    requests.ImportMessage: "Message",
    requests.ImportToolCall: "Tool call",
    requests.ImportChunk: "Chunk",
    requests.ImportResponse: "Answer to a request",
    requests.ImportResult: "Result of an item",
    requests.ChunkResponse: "Answer to a chunk",
}
TITLES = {type_.__name__: title for type_, title in TYPES.items()}
TABLES = re.compile(r"(?<=<!-- Tables: `make reference` -->\n).*?(?=<!-- End of tables -->)", re.S)


def schema() -> str:
    """The JSON Schema of a request, as a file."""
    return json.dumps(requests.import_schema(), indent=2) + "\n"


def page(text: str) -> str:
    """A page with its tables of fields written anew."""
    tables = "\n".join(line for type_ in TYPES for line in section(type_))
    return TABLES.sub(lambda _: f"\n{tables}\n", text)


def section(type_: type[msgspec.Struct]) -> Iterator[str]:
    definition = msgspec.json.schema(type_)["$defs"][type_.__name__]
    yield from (f"### {TYPES[type_]}", "", definition["description"], "")
    yield from ("| field | type | meaning |", "|---|---|---|")
    for name, part in definition["properties"].items():
        optional = "" if name in definition["required"] else ", optional"
        yield f"| `{name}` | {kind(part)}{optional} | {meaning(part)} |"
    yield ""


def kind(part: dict[str, Any]) -> str:
    """The type of a value in a few words; `optional` says that it may be null."""
    if "$ref" in part:
        title = TITLES[part["$ref"].rpartition("/")[2]].lower()
        return f"[{title}](#{title.replace(' ', '-')})"
    if "anyOf" in part:
        return " or ".join(kind(option) for option in not_null(part))
    if "enum" in part:
        return " or ".join(f"`{word}`" for word in part["enum"])
    if part.get("type") == "array":
        return f"list of {kind(part['items'])}"
    return str(part.get("type", "any value"))


def meaning(part: dict[str, Any]) -> str:
    description = part.get("description") or " ".join(
        option.get("description", "") for option in not_null(part)
    )
    default = part.get("default")
    return f"{description} Default: `{default}`.".strip() if default else str(description)


def not_null(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [option for option in part.get("anyOf", ()) if option.get("type") != "null"]
