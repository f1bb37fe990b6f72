"""Adds a table to a TOML text, replaces or removes it; every other byte stays."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

_TRAILING = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?(?:\n|\Z))+\Z")
_HEADER = re.compile(r"^[ \t]*\[\[?.*$", re.MULTILINE)


def set_table(text: str, path: Sequence[str], values: Mapping[str, Any]) -> str:
    """ValueError if the text is invalid, or has the table in a form that cannot be replaced."""
    before = tomllib.loads(text)
    if _get(before, path) == dict(values):
        return text
    text = remove_table(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    gap = "" if not text else newline if text.endswith("\n") else newline * 2
    lines = [f"[{'.'.join(path)}]", *(f"{key} = {_dumped(v)}" for key, v in values.items())]
    changed = f"{text}{gap}" + newline.join([*lines, ""])
    _check(before, changed, path)
    return changed


def remove_table(text: str, path: Sequence[str]) -> str:
    """The text without the table and the tables in it."""
    before = tomllib.loads(text)
    if _get(before, path) is None:
        return text
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in reversed(list(zip(headers, ends, strict=False))):
        if _is_own(header[0], path):
            text = _cut(text, header.start(), end)
    _check(before, text, path)
    return text


def _cut(text: str, start: int, end: int) -> str:
    """The text without a table. Comments after its last value are about the next one; the blank
    line that set_table() put before it goes with it."""
    table = _TRAILING.sub("", text[start:end])
    after = text[start + len(table) :].removeprefix("\r").removeprefix("\n")
    return re.sub(r"(\n)\r?\n\Z", r"\1", text[:start]) + after


def _is_own(header: str, path: Sequence[str]) -> bool:
    name = header.strip().strip("[]").partition("#")[0].strip().rstrip("]")
    parts = [part.strip().strip("\"'") for part in name.split(".")]
    return parts[: len(path)] == list(path)


def _get(table: Any, path: Sequence[str]) -> Any:
    for key in path:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _without(table: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    key, *rest = path
    if key not in table:
        return table
    inner = _without(table[key], rest) if rest and isinstance(table[key], dict) else {}
    others = {name: value for name, value in table.items() if name != key}
    return {**others, key: inner} if inner else others


def _check(before: dict[str, Any], changed: str, path: Sequence[str]) -> None:
    try:
        after = tomllib.loads(changed)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{'.'.join(path)} is written in a form that is not supported") from error
    if _without(after, path) != _without(before, path):
        raise ValueError(f"{'.'.join(path)} is written in a form that is not supported")


def _dumped(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_dumped, value))}]"
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
