"""What Claude Code calls its sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.helping import import_paths


@pytest.mark.parametrize("name", [uid("a2"), "redacted"])
def test_a_summary_is_the_title_of_the_session_whose_record_it_names(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), uuid=name)
    log.add("summary", summary="A beginning", leafUuid=name)
    log.add("summary", summary="Of a file that is gone", leafUuid=uid("99"))
    report = import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").title == "A beginning"
    assert report.records["claude-code", "summary", "derived"] == 1
    assert report.records["claude-code", "summary", "unmapped"] == 1
