"""Every source there is a reader for, loaded when it is asked for. A new one is a file and a line
here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from agents_ledger.importers.reader import Reader

_CLASSES = {
    "claude-code": "claude_code.ClaudeCode",
    "codex": "codex.Codex",
    "copilot": "copilot.Copilot",
    "cursor": "cursor.Cursor",
    "openclaw": "pi.OpenClaw",
    "pi": "pi.Pi",
    "gemini-cli": "gemini.GeminiCli",
    "chatgpt": "chatgpt.ChatGpt",
    "claude-ai": "claude_ai.ClaudeAi",
    "cline": "cline.Cline",
    "opencode": "opencode.OpenCode",
    "aix": "aix.Aix",
    "request": "request_reader.Requests",
}


class _Readers(Mapping[str, Reader]):
    """Readers by the names of their sources."""

    def __getitem__(self, name: str) -> Reader:
        return _loaded(name)

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


@cache
def _loaded(name: str) -> Reader:
    module, kind = _CLASSES[name].split(".")
    reader: Reader = getattr(import_module(f"agents_ledger.importers.{module}"), kind)()
    return reader


READERS = _Readers()
