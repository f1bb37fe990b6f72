"""The one rule for text that a database cannot hold.

PostgreSQL refuses NUL, neither engine takes a lone surrogate. Such characters, and the escape
character itself, are stored as U+001A and four hex digits, so that every text comes back as it was.
"""

from __future__ import annotations

import re

_ESCAPE = "\x1a"
_UNSAFE = re.compile("[\x00\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")


def escape(text: str) -> str:
    """Text as it is stored."""
    if "\x00" not in text and _ESCAPE not in text:
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _UNSAFE.sub(lambda found: f"{_ESCAPE}{ord(found[0]):04x}", text)


def unescape(text: str) -> str:
    """Stored text as it was."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


def escape_values(values: dict[str, object]) -> dict[str, object]:
    """The same values, with every text as it is stored."""
    for name, value in values.items():
        if value.__class__ is str:
            values[name] = escape(value)
    return values


def unescape_rows(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """The same rows, with every text as it was."""
    for index, row in enumerate(rows):
        for value in row:
            if value.__class__ is str and _ESCAPE in value:
                rows[index] = tuple(unescape(v) if isinstance(v, str) else v for v in row)
                break
    return rows
