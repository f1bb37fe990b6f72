"""JSON of other programs: any field may be missing, of another type, or not quite JSON."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from agents_ledger.importers.parsing.encodings import BOM, is_text, texts

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NUMBER_END = 1 << 53  # JSON numbers are exact below this
UNPAIRED = re.compile("[\ud800-\udfff]")  # surrogates
DEPTH_MAX = 150  # levels of a value that are shown
TOO_DEEP = "(nested too deeply)"
REPLACEMENT = rb"\ufffd"  # as long as an escaped surrogate
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<unpaired>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_STRING_OR_NUMBER = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|(?P<not_json>NaN|-?Infinity)'
    rb"|-?(?:0|[1-9]\d*)(?P<fraction>(?:\.\d+)?(?:[eE][+-]?\d+)?)",
    re.DOTALL,
)
T = TypeVar("T")


def as_dict(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The array, or an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """The text, unless it is empty or not a text."""
    return value if isinstance(value, str) and value else None


def as_number(value: Any) -> int | None:
    """A count: a whole number that is not negative and not absurdly large."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < NUMBER_END else None


def parse_json(data: bytes | str | msgspec.Raw) -> Any:
    """The value of a JSON text; None where it is broken."""
    try:
        return msgspec.json.decode(data)
    except (*BROKEN, UnicodeEncodeError):
        return parse_loosely(data if isinstance(data, str) else bytes(data))


def parse_loosely(data: bytes | str, *, strict: bool = True) -> Any:
    """The value of JSON with unpaired surrogates, or with NaN and infinities, which become null.

    `strict=False` also accepts control characters that are not escaped.
    """
    try:
        text = data if isinstance(data, str) else _decode_text(data)
        return json.loads(text, parse_constant=lambda _: None, parse_float=_finite, strict=strict)
    except (ValueError, RecursionError):
        return None


def _decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def repair_json(data: bytes, *, strict: bool = True) -> bytes | None:
    """Standard JSON with the same value; None if `data` is not JSON at all."""
    value = parse_loosely(data, strict=strict)
    if value is None:
        return None
    try:
        text = json.dumps(value, ensure_ascii=False)
        return UNPAIRED.sub("\ufffd", text).encode()
    except (ValueError, RecursionError):
        return None


class Repaired(NamedTuple, Generic[T]):
    """A decoded value, and the JSON that the decoder accepted."""

    value: T
    # Unchanged, or with REPLACEMENT for surrogates and null for NaN.
    data: bytes
    # Offsets of added bytes; None: offsets no longer match.
    added: Sequence[int] | None


def decode_leniently(decode: Callable[[bytes], T], data: bytes) -> T:
    """The value that a strict decoder returns, after repairs where it needs them."""
    return decode_with_repairs(decode, data).value


def decode_with_repairs(decode: Callable[[bytes], T], data: bytes) -> Repaired[T]:
    """As `decode_leniently`, with the JSON that the decoder accepted.

    Documents may be large: at most one copy is held, or two if `data` is not UTF-8.
    """
    try:
        return Repaired(decode(data), data, ())
    except msgspec.ValidationError:
        raise
    except BROKEN:
        pass
    repaired = _replace_unpaired(BytesIO(data))
    try:
        return Repaired(decode(repaired), repaired, ())
    except BROKEN as error:
        del repaired
        text = _as_utf8(data)
        numbers, added = _replace_not_numbers(text)
        repaired = _replace_unpaired(numbers)
        try:
            return Repaired(decode(repaired), repaired, added if text is data else None)
        except msgspec.ValidationError:
            raise
        except BROKEN:
            raise error from None


def _replace_unpaired(data: BytesIO) -> bytes:
    """Replace escaped surrogates that have no partner; all offsets stay the same."""
    with data.getbuffer() as buffer:
        for escape in _ESCAPE.finditer(buffer):
            if escape["unpaired"]:
                buffer[escape.start() : escape.end()] = REPLACEMENT
    return data.getvalue()


def _replace_not_numbers(data: bytes) -> tuple[BytesIO, array[int]]:
    """Replace NaN and infinities by null; also the offsets of added bytes, as null is longer than
    NaN."""
    output, added, copied = BytesIO(), array("I"), 0
    with memoryview(data) as view:
        for token in _STRING_OR_NUMBER.finditer(data):
            if token["not_json"] or (token["fraction"] and math.isinf(float(token[0]))):
                output.write(view[copied : token.start()])
                output.write(b"null".ljust(len(token[0])))
                copied = token.end()
                if token[0] == b"NaN":
                    added.append(output.tell() - 1)
        output.write(view[copied:])
    return output, added


def _as_utf8(data: bytes) -> bytes:
    """The same object if it is UTF-8 without a byte order mark; else repaired with U+FFFD."""
    if is_text(data, "strict") and not data.startswith(BOM):
        return data
    output = BytesIO()
    for text in texts(data.removeprefix(BOM), "surrogatepass" if is_text(data) else "replace"):
        output.write(UNPAIRED.sub("\ufffd", text).encode())
    return output.getvalue()


def without_data(value: Any, names: Iterable[str] = ("data",), levels: int = DEPTH_MAX) -> Any:
    """The value without the bytes of images and without too deeply nested parts, which stay in the
    source record."""
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [without_data(item, names, levels - 1) for item in value]
    fields = {}
    for name, item in value.items():
        if name in names and isinstance(item, str):
            fields["bytes"] = len(item) * 3 // 4  # base64
        else:
            fields[name] = without_data(item, names, levels - 1)
    return fields


def project_name(cwd: str) -> str:
    """The last part of a path of any operating system."""
    return (PureWindowsPath(cwd) if "\\" in cwd else PurePosixPath(cwd)).name
