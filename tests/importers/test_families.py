"""Whose a kept file is, and with which others it is derived."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.ledger.sources import Sources
from agents_ledger.model.sources import SourceFile
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths


def a_log(folder: Path) -> Path:
    log = Log(folder)
    log.user("1", "Which shed?")
    log.assistant("2", text("The red one."))
    return log.save()


def test_a_compressed_file_is_kept_in_the_family_that_it_is_derived_in(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    begin = Sources.begin

    def noted(self: Sources, **said: object) -> SourceFile:
        kept.append(str(said["family"]))
        return begin(self, **said)  # type: ignore[arg-type]

    monkeypatch.setattr(Sources, "begin", noted)
    plain = a_log(tmp_path)
    plain.with_suffix(".jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()

    assert import_paths(ledger, tmp_path).counts.imported == 1

    assert kept == [f"claude-code:{plain}"]
    assert ledger.query("SELECT family FROM source_files")[1] == [(kept[0],)]
