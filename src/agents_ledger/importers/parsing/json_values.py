"""What cells of other programs' databases say: JSON as text or bytes, empty, or broken."""

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
    """The objects of a list."""
    return [each for each in as_list(value) if isinstance(each, dict)]


def is_blank(cell: Any) -> bool:
    """Whether a cell that should hold text holds none."""
    data = raw(cell)
    return not data or data.isspace()


def loose(cell: Any) -> Any:
    """What the JSON in a cell says, bare control characters allowed; None if it says nothing."""
    data = raw(cell)
    try:
        return msgspec.json.decode(data)
    except BROKEN:
        pass
    return parse_loosely(data, strict=False)


def decoded(cell: Any, decoder: msgspec.json.Decoder[T]) -> T | None:
    """An object, as far as the decoder's type names its fields; None if it is none."""
    try:
        return decoder.decode(raw(cell))
    except BROKEN:
        pass
    mended = repair_json(raw(cell), strict=False)
    try:
        return decoder.decode(mended) if mended is not None else None
    except BROKEN:
        return None


def encoded(value: Any) -> bytes:
    """The JSON of a plain value."""
    return to_json([value])[1:-1].encode(errors="surrogatepass")


def json_or_text(value: Any) -> Any:
    """A value for a JSON column: text that is JSON already is not wrapped once more."""
    if not isinstance(value, str):
        return value
    data = raw(value)
    try:
        msgspec.json.decode(data)
    except BROKEN:
        return value
    return msgspec.Raw(data)


def pruned(value: Any, levels: int = DEPTH_MAX) -> Any:
    """Without what is empty, keys of encryption, and what is nested too deeply."""
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [kept for each in value if (kept := pruned(each, levels - 1)) not in EMPTY]
    found = {
        name: pruned(
            loose(each) if name == EMBEDDED and isinstance(each, str) else each, levels - 1
        )
        for name, each in value.items()
        if name not in SECRET_NAMES
    }
    return {name: each for name, each in found.items() if each not in EMPTY}


def path_of(uri: Any) -> str | None:
    """The path that the address of a file means, given as text or as an object."""
    if isinstance(uri, dict):
        found = (as_text(uri.get(name)) for name in ("fsPath", "path", "external"))
        return next((path_of(each) for each in found if each), None)
    text = as_text(uri)
    if text is None or "://" not in text:
        return text
    try:
        path = unquote(urlsplit(text).path)
    except ValueError:
        return text
    return path[1:] if path[2:3] == ":" else path or None


def exchanges(items: Iterable[T], asks: Callable[[T], bool]) -> Iterator[list[T]]:
    """What was asked with all that was answered; a question after an answer opens another."""
    found: list[T] = []
    answered = False
    for item in items:
        if answered and asks(item):
            yield found
            found, answered = [], False
        found.append(item)
        answered = answered or not asks(item)
    if found:
        yield found
