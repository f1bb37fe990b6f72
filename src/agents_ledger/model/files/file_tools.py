"""Which file a tool call touches, told by the names agents give their tools."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from agents_ledger.model.turns import FileKind

_READING = "read readfile readtextfile notebookread view viewfile openfile readfilev2"
_WRITING = (
    "write writefile edit editfile multiedit notebookedit create createfile strreplace replace"
    " searchreplace applydiff inserteditintofile writetofile replaceinfile insertcontent editfilev2"
    " strreplaceeditor deletefile"
)
_KINDS: dict[str, FileKind] = {
    **dict.fromkeys(_READING.split(), "read"),
    **dict.fromkeys(_WRITING.split(), "written"),
}
_PATHS = (
    "file_path", "path", "notebook_path", "filePath", "target_file", "targetFile", "filename",
    "relativeWorkspacePath", "absolute_path",
)  # fmt: skip
_NOT_A_LETTER = re.compile(r"[^a-z0-9]")
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_decoder = msgspec.json.Decoder()


@lru_cache(maxsize=1024)
def _plain(tool_name: str) -> str:
    return _NOT_A_LETTER.sub("", tool_name.lower())


def touched(tool_name: str, params_json: str) -> tuple[tuple[FileKind, str], ...]:
    """Kind and path of every file that a call read or wrote, as far as its parameters say."""
    name = _plain(tool_name)
    if "patch" in name:
        params = decoded(params_json)
        changed_paths = [
            path for change in changes_of(params) for path in (change.path, change.moved_to)
        ]
        paths = changed_paths or _PATCHED.findall(_text(params))
        return tuple(("written", path.strip()) for path in paths if path)
    kind = _KINDS.get(name)
    if kind is None:
        return ()
    params = decoded(params_json)
    if not isinstance(params, dict):
        return ()
    path = path_of(params)
    return ((kind, path),) if path else ()


class FileChange(NamedTuple):
    """What a patch did to a file."""

    path: str
    moved_to: str | None
    diff: str | None  # unified
    content: str  # all of it, where there is no diff; empty once it is deleted


def changes_of(params: Any) -> list[FileChange]:
    """What a patch did, where its parameters say that file by file and not as one text."""
    changes = params.get("changes") if isinstance(params, dict) else None
    file_changes: list[FileChange] = []
    for path, change in changes.items() if isinstance(changes, dict) else ():
        if isinstance(change, dict):
            texts = {name: text for name, text in change.items() if isinstance(text, str)}
            content = "" if texts.get("type") == "delete" else texts.get("content", "")
            diff = texts.get("unified_diff")
            file_changes.append(FileChange(path, texts.get("move_path"), diff, content))
    return file_changes


def path_of(params: dict[str, Any]) -> str:
    """The file a call is about."""
    paths = (params.get(key) for key in _PATHS)
    return next((path for path in paths if isinstance(path, str) and path), "")


def decoded(text: str | None) -> Any:
    """The value of a JSON text; a text that is none is its own value."""
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    lines: list[str] = []
    for part in parts:
        lines += part if isinstance(part, list) else [part]
    return "\n".join(line for line in lines if isinstance(line, str))
