"""All sources, each loaded when it is first used. A new source is a package and a line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from agents_ledger.importers.port.source import Source

_CLASSES = {
    "claude-code": "claude_code.source.ClaudeCode",
    "codex": "codex.source.Codex",
    "copilot": "copilot.source.Copilot",
    "cursor": "cursor.source.Cursor",
    "openclaw": "pi.source.OpenClaw",
    "pi": "pi.source.Pi",
    "gemini-cli": "gemini.source.GeminiCli",
    "qwen-code": "qwen_code.source.QwenCode",
    "aider": "aider.source.Aider",
    "chatgpt": "chatgpt.source.ChatGpt",
    "claude-ai": "claude_ai.source.ClaudeAi",
    "cline": "cline.source.Cline",
    "opencode": "opencode.source.OpenCode",
    "aix": "aix.source.Aix",
    "request": "import_requests.source.Requests",
}


class _SourceRegistry(Mapping[str, Source]):
    def __getitem__(self, name: str) -> Source:
        return _load(name)

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


@cache
def _load(name: str) -> Source:
    module, kind = _CLASSES[name].rsplit(".", 1)
    source: Source = getattr(import_module(f"agents_ledger.importers.sources.{module}"), kind)()
    return source


SOURCES = _SourceRegistry()
