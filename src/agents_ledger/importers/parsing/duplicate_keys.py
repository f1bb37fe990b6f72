"""Names that stand twice in one object: a decoder takes the last value and tells nobody."""

from __future__ import annotations

import re

import msgspec

AT_ONCE = 1 << 17  # bytes; of longer JSON no values are made
TOKEN = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)(?:"\s*+(:)?|\Z)|[{}]', re.DOTALL)
DEEPEST = 10_000
BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?+\s*+[{\[]")  # perhaps with a mark before it
BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def is_sound(data: bytes) -> bool:
    """Whether it is sure that some JSON is strict, and no name stands twice: most of it is written
    without spaces, and then comes back as it was unless a value was lost."""
    try:
        return len(data) <= AT_ONCE and _encode(_decode(data)) == data
    except BROKEN:
        return False


def repeated_name(data: bytes) -> str | None:
    """The first name that an object has twice; of broken JSON, and of what is nested so deeply that
    nobody reads it, as far as it goes."""
    objects: list[set[bytes]] = []
    for token in TOKEN.finditer(data) if BEGINS.match(data) else ():
        if token[0] == b"{":
            objects.append(set())
        elif token[0] == b"}":
            if objects:
                objects.pop()
        elif token[2] and objects:
            name = _plain(token[1])
            if name in objects[-1]:
                return name.decode(errors="replace")
            objects[-1].add(name)
        if len(objects) > DEEPEST:
            break
    return None


def _plain(name: bytes) -> bytes:
    """A name without escapes."""
    if b"\\" not in name:
        return name
    try:
        return _encode(_decode(b'"%b"' % name))[1:-1]
    except BROKEN:
        return name
