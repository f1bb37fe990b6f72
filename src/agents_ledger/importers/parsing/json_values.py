"""JSON in the cells of other programs' databases: text or bytes, empty, or broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from agents_ledger.importers.parsing.lenient_json import (
    DEPTH_MAX,
    TOO_DEEP,
    as_list,
    as_text,
    parse_loosely,
    repair_json,
)
from agents_ledger.model.imports.records import raw
from agents_ledger.model.turns import to_json

T = TypeVar("T")

BROKEN = (msgspec.DecodeError, RecursionError, ValueError)  # ValueError: Unicode, json
EMPTY: tuple[object, ...] = (None, "", [], {})
SECRET_NAMES = {"speculativeSummarizationEncryptionKey", "blobEncryptionKey", "encryptionKey"}
# A chat written into another's; in some versions as text.
EMBEDDED = "composerData"


def dicts(value: Any) -> list[dict[str, Any]]:
    return [element for element in as_list(value) if isinstance(element, dict)]


def is_blank(cell: Any) -> bool:
    """Whether a cell that should hold text holds none."""
    data = raw(cell)
    return not data or data.isspace()


def loose(cell: Any) -> Any:
    """The value of JSON in a cell, unescaped control characters allowed; None if it has none."""
    data = raw(cell)
    try:
        return msgspec.json.decode(data)
    except BROKEN:
        pass
    return parse_loosely(data, strict=False)


def decoded(cell: Any, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The JSON in a cell as the decoder's type; None if it is of another."""
    try:
        return decoder.decode(raw(cell))
    except BROKEN:
        pass
    repaired = repair_json(raw(cell), strict=False)
    try:
        return decoder.decode(repaired) if repaired is not None else None
    except BROKEN:
        return None


def encoded(value: Any) -> bytes:
    return to_json([value])[1:-1].encode(errors="surrogatepass")


def json_or_text(value: Any) -> Any:
    """A value for a JSON column: text that is already JSON is not encoded again."""
    if not isinstance(value, str):
        return value
    data = raw(value)
    try:
        msgspec.json.decode(data)
    except BROKEN:
        return value
    return msgspec.Raw(data)


def pruned(value: Any, levels: int = DEPTH_MAX) -> Any:
    """A value without empty values and encryption keys; TOO_DEEP where it is nested too deeply."""
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, list):
        elements = (pruned(element, levels - 1) for element in value)
        return [element for element in elements if element not in EMPTY]
    fields = {
        name: pruned(
            loose(inner) if name == EMBEDDED and isinstance(inner, str) else inner, levels - 1
        )
        for name, inner in value.items()
        if name not in SECRET_NAMES
    }
    return {name: inner for name, inner in fields.items() if inner not in EMPTY}


def path_of(uri: Any) -> str | None:
    """The path in the URI of a file, which is a text or an object."""
    if isinstance(uri, dict):
        paths = (as_text(uri.get(name)) for name in ("fsPath", "path", "external"))
        return next((path_of(path) for path in paths if path), None)
    text = as_text(uri)
    if text is None or "://" not in text:
        return text
    try:
        path = unquote(urlsplit(text).path)
    except ValueError:
        return text
    return path[1:] if path[2:3] == ":" else path or None


def exchanges(items: Iterable[T], asks: Callable[[T], bool]) -> Iterator[list[T]]:
    """Split messages into exchanges: a question after an answer begins the next one."""
    exchange: list[T] = []
    answered = False
    for item in items:
        if answered and asks(item):
            yield exchange
            exchange, answered = [], False
        exchange.append(item)
        answered = answered or not asks(item)
    if exchange:
        yield exchange
