"""The maps that every source has in its rules.py: token fields and file tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents_ledger.importers.parsing.lenient_json import as_dict, as_number, as_text
from agents_ledger.model.turns import FileKind, MessageFile

# The grammar of apply_patch, which the tools of several agents accept.
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.*\S)", re.M)

TokenFields = Mapping[str, str]
"""Our column -> the source's field. A dot leads into an object: `cache.read`."""


def token_counts(usage: object, fields: TokenFields) -> dict[str, int]:
    """The tokens that a source reports, by our columns; fields that it leaves out are not there."""
    counts = {column: as_number(_field(usage, field)) for column, field in fields.items()}
    return {column: count for column, count in counts.items() if count is not None}


def _field(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = as_dict(value).get(name)
    return value


def as_params(value: Any) -> dict[str, Any]:
    """The parameters of a call; those that are no object become the parameter `input`."""
    return value if isinstance(value, dict) else {"input": value} if value else {}


def patched_files(patch: str) -> list[MessageFile]:
    return [MessageFile("written", path) for path in dict.fromkeys(_PATCHED.findall(patch))]


class FileTools:
    """The tools of a source that read or write a file, and the parameters that name it."""

    def __init__(self, tools: Mapping[str, FileKind], *, paths: Sequence[str]) -> None:
        self.tools = tools
        self.paths = paths

    def files(self, tool: str | None, params: Mapping[str, Any]) -> list[MessageFile]:
        """The file that a call reads or writes, if it names one."""
        kind = self.tools.get(tool or "")
        path = next(filter(None, (as_text(params.get(name)) for name in self.paths)), None)
        return [] if kind is None or path is None else [MessageFile(kind, path)]
