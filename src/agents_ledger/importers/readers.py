"""Every source there is a reader for. A new one is a file and a line here."""

from __future__ import annotations

from agents_ledger.importers.aix import Aix
from agents_ledger.importers.chatgpt import ChatGpt
from agents_ledger.importers.claude_ai import ClaudeAi
from agents_ledger.importers.claude_code import ClaudeCode
from agents_ledger.importers.cline import Cline
from agents_ledger.importers.codex import Codex
from agents_ledger.importers.copilot import Copilot
from agents_ledger.importers.cursor import Cursor
from agents_ledger.importers.gemini import GeminiCli
from agents_ledger.importers.opencode import OpenCode
from agents_ledger.importers.pi import OpenClaw, Pi
from agents_ledger.importers.reader import Reader
from agents_ledger.importers.request_reader import Requests

READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        ClaudeCode(),
        Codex(),
        Copilot(),
        Cursor(),
        OpenClaw(),
        Pi(),
        GeminiCli(),
        ChatGpt(),
        ClaudeAi(),
        Cline(),
        OpenCode(),
        Aix(),
        Requests(),
    )
}
