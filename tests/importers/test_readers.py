"""The table of sources: each is loaded when it is asked for, and known by its own name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.importers.aix import Aix
from agents_ledger.importers.chatgpt import ChatGpt
from agents_ledger.importers.claude_ai import ClaudeAi
from agents_ledger.importers.claude_code import ClaudeCode
from agents_ledger.importers.cline import Cline
from agents_ledger.importers.codex import Codex
from agents_ledger.importers.copilot import Copilot
from agents_ledger.importers.cursor import Cursor
from agents_ledger.importers.gemini import GeminiCli
from agents_ledger.importers.importing import rederive
from agents_ledger.importers.opencode import OpenCode
from agents_ledger.importers.pi import OpenClaw, Pi
from agents_ledger.importers.reader import Reader
from agents_ledger.importers.readers import READERS
from agents_ledger.importers.request_reader import Requests
from tests.importers.claude_log import SESSION, a_log
from tests.importers.helping import import_paths, result
from tests.raw import Raw

ALL: tuple[Reader, ...] = (
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


def test_every_source_is_known_by_the_name_of_its_reader() -> None:
    assert [(name, type(reader)) for name, reader in READERS.items()] == [
        (reader.name, type(reader)) for reader in ALL
    ]


def test_of_the_sources_only_what_is_asked_for_is_loaded() -> None:
    program = """
import sys
from agents_ledger.importers import ahead, discovery, importing, readers
assert "codex" in readers.READERS and len(readers.READERS) > 9
readers.READERS["claude-code"]
print(sorted(name for name in sys.modules if name.startswith("agents_ledger.importers.c")))
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "claude_code_outline" in ran.stdout
    assert "codex" not in ran.stdout
    assert "cursor_outline" not in ran.stdout


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
