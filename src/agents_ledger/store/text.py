"""The one rule for text that a database cannot hold.

PostgreSQL refuses NUL, neither engine takes a lone surrogate. Such characters, and the escape
character itself, are stored as U+001A and four hex digits, so that every text is returned exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec

_ESCAPE = "\x1a"
_NUL_BYTE, _ESCAPE_BYTE = 0x00, 0x1A
_UNSAFE = "[\x00\x1a\ud800-\udfff]"  # compiled where used: hardly any text needs it
_ESCAPED = "\x1a([0-9a-f]{4})"
IDS_AT_ONCE = 500
_encode = msgspec.json.Encoder().encode


def _is_safe(text: str) -> bool:
    try:
        stored = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return _NUL_BYTE not in stored and _ESCAPE_BYTE not in stored  # as numbers: b"" is slower


def escape(text: str) -> str:
    return re.sub(_UNSAFE, lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    return re.sub(_ESCAPED, lambda found: chr(int(found[1], 16)), text)


def normalised(stored: str) -> str:
    """A stored text as escape() would have made it. Any other form is not found by its value."""
    return stored if _is_safe(stored) else escape(unescape(stored))


def escape_row(values: tuple[object, ...]) -> tuple[object, ...]:
    """The same values, with every text as it is stored."""
    for value in values:
        if value.__class__ is not str:
            continue
        # Cheap tests first: nearly every text is plain ASCII, and this runs for every value
        # written.
        plain = value.isascii() and "\x00" not in value and _ESCAPE not in value
        if not plain and not _is_safe(value):
            return tuple(escape(v) if isinstance(v, str) else v for v in values)
    return values


def has_escapes(rows: Iterable[Sequence[object]]) -> bool:
    """Whether a text of these rows, as they are stored, holds an escape."""
    return any(value.__class__ is str and _ESCAPE in value for row in rows for value in row)


def stored_json(rows: Sequence[object]) -> str | None:
    """Rows as a JSON array, with every text as it is stored; None if there are none."""
    if not rows:
        return None
    try:
        encoded = _encode(rows)
    except UnicodeEncodeError:  # a lone surrogate
        return _encode(_as_stored(msgspec.to_builtins(rows))).decode()
    # Found as well where a text spells such an escape: then nothing changes.
    if b"\\u0000" in encoded or b"\\u001a" in encoded:
        encoded = _encode(_as_stored(msgspec.to_builtins(rows)))
    return encoded.decode()


def _as_stored(value: Any) -> Any:
    if isinstance(value, str):
        return value if _is_safe(value) else escape(value)
    if isinstance(value, list):
        return [_as_stored(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_stored(item) for name, item in value.items()}
    return value


def unescape_row(row: tuple[object, ...]) -> tuple[object, ...]:
    for value in row:
        if value.__class__ is str and _ESCAPE in value:
            return tuple(unescape(v) if isinstance(v, str) else v for v in row)
    return row


def unescape_rows(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return list(map(unescape_row, rows))


def ids_of(ids: Sequence[str]) -> str:
    """Ids as a JSON array of what is stored: what <ids> in a statement takes."""
    return msgspec.json.encode(escape_row(tuple(ids))).decode()


def in_batches(ids: Iterable[str]) -> Iterator[str]:
    more = iter(ids)
    while batch := tuple(islice(more, IDS_AT_ONCE)):
        yield ids_of(batch)
