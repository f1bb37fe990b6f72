"""The table of sources: each is loaded when it is asked for, and known by its own name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.sources.aider.source import Aider
from agents_ledger.importers.sources.aix.source import Aix
from agents_ledger.importers.sources.chatgpt.source import ChatGpt
from agents_ledger.importers.sources.claude_ai.source import ClaudeAi
from agents_ledger.importers.sources.claude_code.source import ClaudeCode
from agents_ledger.importers.sources.cline.source import Cline
from agents_ledger.importers.sources.codex.source import Codex
from agents_ledger.importers.sources.copilot.source import Copilot
from agents_ledger.importers.sources.cursor.source import Cursor
from agents_ledger.importers.sources.gemini.source import GeminiCli
from agents_ledger.importers.sources.import_requests.source import Requests
from agents_ledger.importers.sources.opencode.source import OpenCode
from agents_ledger.importers.sources.pi.source import OpenClaw, Pi
from agents_ledger.importers.sources.qwen_code.source import QwenCode
from agents_ledger.importers.sources.registry import SOURCES
from tests.importers.claude_log import SESSION, a_log
from tests.importers.helping import import_paths, result
from tests.raw import Raw

ALL: tuple[Source, ...] = (
    ClaudeCode(),
    Codex(),
    Copilot(),
    Cursor(),
    OpenClaw(),
    Pi(),
    GeminiCli(),
    QwenCode(),
    Aider(),
    ChatGpt(),
    ClaudeAi(),
    Cline(),
    OpenCode(),
    Aix(),
    Requests(),
)


def test_every_source_is_known_by_the_name_of_its_reader() -> None:
    assert [(name, type(reader)) for name, reader in SOURCES.items()] == [
        (reader.name, type(reader)) for reader in ALL
    ]


def test_of_the_sources_only_what_is_asked_for_is_loaded() -> None:
    program = """
import sys
from agents_ledger.importers import discovery, pipeline
from agents_ledger.importers.sources import registry as readers
assert "codex" in readers.SOURCES and len(readers.SOURCES) > 9
readers.SOURCES["claude-code"]
print(sorted(name for name in sys.modules if name.startswith("agents_ledger.importers.sources.c")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "claude_code.tree" in ran.stdout
    assert "codex" not in ran.stdout
    assert "cursor.tree" not in ran.stdout


def test_files_of_a_source_that_has_no_reader_here_are_left_as_they_are(
    ledger: Ledger, raw: Raw, tmp_path: Path
) -> None:
    import_paths(ledger, a_log(tmp_path).path)
    before = result(ledger)
    raw.execute("UPDATE source_files SET source = 'of tomorrow', derived_bytes = 0")

    report = import_paths(ledger, a_log(tmp_path, f"2{SESSION[1:]}").path)
    again = rederive(ledger)

    assert (report.faults, report.counts.imported, again.counts.failed) == ([], 1, 0)
    assert [row for row in result(ledger)["turns"] if row in before["turns"]] == before["turns"]
