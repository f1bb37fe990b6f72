"""What files hold after tool calls that wrote them, as far as parameters and results tell. Pure.

A file is known from the moment a call writes or reads all of it; edits and patches are applied to
what is known. Whatever does not fit makes the file unknown: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from agents_ledger.model.files.file_tools import FileChange, changes_of, decoded, touched

DIFF_LINES_MAX = 2000
CONTENT_MAX = 400_000  # characters: larger files are not followed
_WHOLE = ("content", "contents", "file_text", "new_source")
_PART_OF_A_FILE = ("offset", "limit", "start_line", "end_line", "view_range", "line_start")
_NUMBERED = re.compile(r" *(\d+)(?:→|\t|\| )(.*)")
_NOT_ALL = re.compile(r"\b(?:truncated|more lines)\b")
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? ")
_SECTION = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")

Change = tuple[str, str]  # text before and after


class FileContents:
    """The files of a thread while its calls pass by, oldest first."""

    def __init__(self, contents: dict[str, str] | None = None) -> None:
        self.contents = dict(contents or {})
        self.changes: dict[str, list[Change]] = {}

    def wrote(self, tool_name: str, params_json: str) -> None:
        """A call that succeeded."""
        params = decoded(params_json)
        if "patch" in tool_name.lower():
            self._patched_as(params)
            return
        if not isinstance(params, dict):
            return
        for kind, path in touched(tool_name, params_json):
            if kind != "written":
                continue
            edits = list(edits_of(params))
            whole = None if edits else first_text(params, *_WHOLE)
            if whole is not None:
                self._put(path, whole)
            elif edits:
                everywhere = bool(params.get("replace_all") or params.get("replaceAll"))
                self._edited(path, edits, everywhere=everywhere)
            else:
                self._forget(path)

    def read(self, path: str, params_json: str, result_json: str | None) -> None:
        """A call that read a file: all of it, if it says nothing else."""
        params = decoded(params_json)
        if isinstance(params, dict) and not any(name in params for name in _PART_OF_A_FILE):
            text = _text_read(decoded(result_json))
            if text is not None and len(text) <= CONTENT_MAX:
                self.contents[path] = text

    def _put(self, path: str, content: str) -> None:
        if len(content) > CONTENT_MAX:
            self._forget(path)
            return
        self.changes.setdefault(path, []).append((self.contents.get(path, ""), content))
        self.contents[path] = content

    def _forget(self, path: str) -> None:
        self.contents.pop(path, None)
        self.changes.setdefault(path, [])

    def _edited(self, path: str, edits: list[Change], *, everywhere: bool) -> None:
        self.changes.setdefault(path, []).extend(edits)
        content = self.contents.get(path)
        for old, new in edits:
            if content is None or (old and old not in content) or (not old and content):
                self.contents.pop(path, None)
                return
            content = content.replace(old, new, -1 if everywhere and old else 1)
        if content is not None:
            self.contents[path] = content

    def _patched_as(self, params: Any) -> None:
        changes = changes_of(params)
        for change in changes:
            self._changed(change)
        if not changes:
            self._patched(_patch_of(params))

    def _changed(self, change: FileChange) -> None:
        path, target = change.path, change.moved_to or change.path
        if change.diff is None:
            self._put(path, change.content)
            return
        hunks = list(_hunks(change.diff))
        before = self.contents.get(path)
        after = _with_hunks(before, hunks) if before is not None else None
        pairs = [("\n".join(hunk.old), "\n".join(hunk.new)) for hunk in hunks]
        if target != path:
            self._put(path, "")
        self.changes.setdefault(target, []).extend(pairs)
        self.contents.pop(target, None)
        if after is not None and len(after) <= CONTENT_MAX:
            self.contents[target] = after

    def _patched(self, text: str) -> None:
        kind, path, hunks = "", "", [[]]  # type: tuple[str, str, list[list[str]]]
        for line in [*text.split("\n"), "*** End"]:
            if line.startswith("*** ") and not line.startswith("*** End of File"):
                self._patch_file(kind, path, [hunk for hunk in hunks if hunk])
                section = _SECTION.match(line)
                kind, path = (section[1], section[2].strip()) if section else ("", "")
                hunks = [[]]
            elif line.startswith("@@"):
                hunks.append([])
            else:
                hunks[-1].append(line)

    def _patch_file(self, kind: str, path: str, hunks: list[list[str]]) -> None:
        if kind == "Add":
            added = "".join(f"{line[1:]}\n" for hunk in hunks for line in hunk if line[:1] == "+")
            self._put(path, added)
        elif kind == "Delete":
            self._put(path, "")
        elif kind == "Update":
            changes = [(_side(hunk, "-"), _side(hunk, "+")) for hunk in hunks]
            self._edited(path, [pair for pair in changes if pair[0]], everywhere=False)


class _Hunk(NamedTuple):
    """A piece of a unified diff."""

    at: int  # the lines before it in the old file
    old: list[str]
    new: list[str]


def _hunks(diff: str) -> Iterator[_Hunk]:
    hunk: _Hunk | None = None
    for line in diff.split("\n"):
        if header := _HUNK.match(line):
            if hunk:
                yield hunk
            hunk = _Hunk(max(0, int(header[1]) - (header[2] != "0")), [], [])
        elif hunk:
            if line[:1] in ("-", " "):
                hunk.old.append(line[1:])
            if line[:1] in ("+", " "):
                hunk.new.append(line[1:])
    if hunk:
        yield hunk


def _with_hunks(content: str, hunks: list[_Hunk]) -> str | None:
    """The content after a diff; None if it does not fit."""
    lines, grown = content.split("\n"), 0
    for at, old, new in hunks:
        begin = at + grown
        if lines[begin : begin + len(old)] != old:
            return None
        lines[begin : begin + len(old)] = new
        grown += len(new) - len(old)
    return "\n".join(lines)


def _side(hunk: list[str], sign: str) -> str:
    """One side of a hunk: what it takes away, or what it puts in, with what stays around it."""
    return "\n".join(line[1:] for line in hunk if line[:1] in (sign, " "))


def _patch_of(params: Any) -> str:
    if isinstance(params, str):
        return params
    if not isinstance(params, dict):
        return ""
    command = params.get("command")
    if isinstance(command, list):
        return "\n".join(part for part in command if isinstance(part, str))
    return first_text(params, "patch", "input", "patchText", "diff") or ""


def _text_read(value: Any) -> str | None:
    """The text of a file as a tool showed it, without the numbers of its lines."""
    while isinstance(value, dict):
        inner = [value[key] for key in ("text", "content", "output") if key in value]
        value = inner[0] if inner else None
    if isinstance(value, list) and len(value) == 1:
        return _text_read(value[0])
    if not isinstance(value, str) or _NOT_ALL.search(value[-400:]):
        return None
    return _without_numbers(value)


def _without_numbers(text: str) -> str:
    lines = text.removeprefix("<file>\n").split("\n")
    texts: list[str] = []
    for line in lines:
        numbered = _NUMBERED.fullmatch(line)
        if numbered is None or int(numbered[1]) != len(texts) + 1:
            break
        texts.append(numbered[2])
    return "".join(f"{line}\n" for line in texts) if texts else text


# -- parameters -------------------------------------------------------------------------------


def first_text(params: dict[str, Any], *names: str) -> str | None:
    """The first of these parameters that is a text."""
    return next((params[name] for name in names if isinstance(params.get(name), str)), None)


def edits_of(params: dict[str, Any]) -> Iterator[Change]:
    """What is to be replaced, and by what."""
    edits = params.get("edits")
    for pair in [params, *edits] if isinstance(edits, list) else [params]:
        if isinstance(pair, dict):
            old = first_text(pair, "old_string", "old", "oldText", "old_str", "oldString")
            new = first_text(pair, "new_string", "new", "newText", "new_str", "newString")
            if old is not None and new is not None:
                yield old, new


def difference(old: str, new: str, lines_max: int = DIFF_LINES_MAX) -> str:
    """The lines taken away and put in their place, each with its sign."""
    from difflib import unified_diff

    lines = list(unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3))[2:]
    if len(lines) > lines_max:
        lines = [*lines[:lines_max], f"@@ {len(lines) - lines_max} more lines @@"]
    return "\n".join(lines)
