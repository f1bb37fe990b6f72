"""Limits of JSON from outside, checked before any of it is decoded.

A few bytes of JSON become an object of fifty to two hundred bytes, so the number of values decides
how much memory a text takes, and its depth whether it can be decoded at all. Both are counted on
the bytes.
"""

from __future__ import annotations

import itertools

from msgspec import Struct

from agents_ledger.model.errors import Refused

PIECE = 1 << 18
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes(2 if byte in b"[{" else 0 for byte in range(256))


class JsonTooLarge(Refused):
    """JSON with more values, or nested deeper, than is accepted."""


class JsonLimits(Struct, frozen=True, kw_only=True):
    """How large a JSON text may be once it is decoded."""

    values: int = 1_000_000  # objects, lists, keys and the rest
    depth: int = 200


def check_json(data: bytes, limits: JsonLimits) -> None:
    """Raise JsonTooLarge if the text exceeds the limits. It need not be valid JSON."""
    # Most bodies are small: four counts over the bytes settle them without a split at quotes.
    if _upper_bound(data) <= min(limits.values, limits.depth):
        return
    values, depth = 1, 0
    in_string = False
    carried = b""
    for start in range(0, len(data), PIECE):
        piece, carried = _without_escapes(carried + data[start : start + PIECE])
        parts = piece.split(b'"')
        outside = b"".join(parts[in_string::2])
        in_string ^= not len(parts) % 2
        # Only outside of strings: a text full of commas is one value.
        values += sum(map(outside.count, (b",", b":", b"[", b"{")))
        if values > limits.values:
            raise JsonTooLarge(
                f"the JSON has more than {limits.values:,} values", "Send it in smaller parts."
            )
        deepest, depth = _depths(outside, depth)
        if deepest > limits.depth:
            raise JsonTooLarge(
                f"the JSON is nested more than {limits.depth} levels deep", "Send it less nested."
            )
        if depth < 0:
            return  # not JSON: the decoder stops there, and says where


def _upper_bound(data: bytes) -> int:
    """How many values there are at most, those in strings counted too."""
    return 1 + sum(map(data.count, (b",", b":", b"[", b"{")))


def _without_escapes(piece: bytes) -> tuple[bytes, bytes]:
    """A piece without escaped quotes, and the backslash at its end that belongs to the next one."""
    backslashes = len(piece) - len(piece.rstrip(b"\\"))
    carried = b"\\" if backslashes % 2 else b""
    piece = piece[: len(piece) - len(carried)]
    if b"\\" not in piece:
        return piece, carried
    return piece.replace(b"\\\\", b"").replace(b'\\"', b""), carried


def _depths(outside: bytes, depth: int) -> tuple[int, int]:
    """The greatest depth within a text that starts at a depth, and the depth at its end, or where
    more is closed than was opened: only opening brackets count as values, so it must stop there."""
    brackets = outside.translate(_STEPS, _NOT_BRACKETS)
    deepest = last = depth
    for last in itertools.accumulate((step - 1 for step in brackets), initial=depth):
        if last < 0:
            break
        deepest = max(deepest, last)
    return deepest, last
