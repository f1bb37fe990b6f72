"""How much memory a text will take, estimated from its UTF-8 or JSON without decoding it.

Python stores all characters of a string at the width of its widest one: one emoji makes a text of
ASCII four times as large.
"""

from __future__ import annotations

import re

WIDEST = 4
JSON_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)  # or up to the end of data
WIDTHS = (  # bytes per character of a text with one of these
    (WIDEST, re.compile(rb"[\xf0-\xf4]|(?<!\\)(?:\\\\)*+\\u[dD][89abAB]")),
    (2, re.compile(rb"[\xc4-\xef]|(?<!\\)(?:\\\\)*+\\u(?!00)")),
)
CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
ESCAPE_EXCESS = len(rb"\u0000") - 1


def exceeds(text: bytes, limit: int) -> bool:
    """Whether a text, plain or as a JSON string, takes more than `limit` bytes once decoded."""
    if len(text) * WIDEST <= limit or _is_narrow(text, limit):
        return False
    escapes = text.count(rb"\u") - text.count(rb"\\u")  # a doubled backslash escapes itself
    characters = len(text.translate(None, CONTINUATION_BYTES)) - ESCAPE_EXCESS * escapes
    width = next((width for width, pattern in WIDTHS if pattern.search(text)), 1)
    return characters * width > limit


def has_text_exceeding(data: bytes, limit: int) -> bool:
    shortest = limit // WIDEST
    if len(data) <= shortest or _is_narrow(data, limit):
        return False
    for string in JSON_STRING.finditer(data):
        start, end = string.span()
        if end - start > shortest and exceeds(data[start:end], limit):
            return True
    return False


def _is_narrow(text: bytes, limit: int) -> bool:
    """The cheap test that most data passes: pure ASCII below the limit."""
    return len(text) <= limit and text.isascii() and rb"\u" not in text
