"""Which file a tool call touches, told by the names agents give their tools."""

from __future__ import annotations

import re
from typing import Any

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


def touched(tool_name: str, params_json: str) -> tuple[tuple[FileKind, str], ...]:
    """Kind and path of every file that a call read or wrote, as far as its parameters say."""
    name = _NOT_A_LETTER.sub("", tool_name.lower())
    if "patch" in name:
        return tuple(("written", path.strip()) for path in _PATCHED.findall(_text(params_json)))
    kind = _KINDS.get(name)
    if kind is None:
        return ()
    params = _decoded(params_json)
    if not isinstance(params, dict):
        return ()
    paths = (params.get(key) for key in _PATHS)
    return next((((kind, path),) for path in paths if isinstance(path, str) and path), ())


def _decoded(params_json: str) -> Any:
    try:
        return _decoder.decode(params_json)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def _text(params_json: str) -> str:
    """All that the parameters say, one below the other."""
    value = _decoded(params_json)
    if isinstance(value, str):
        return value
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    lines: list[str] = []
    for part in parts:
        lines += part if isinstance(part, list) else [part]
    return "\n".join(line for line in lines if isinstance(line, str))
