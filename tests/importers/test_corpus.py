"""Real logs, if there are any here: nothing fails, nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.importing import rederive
from agents_ledger.ledger.sources import Sources
from tests.importers.helping import import_paths, result

CORPUS = os.environ.get("AGENTS_LEDGER_CORPUS")
SOURCES = sorted(p.name for p in Path(CORPUS).iterdir() if p.is_dir()) if CORPUS else []
WITHOUT_READER = {"crush", "goose"}

pytestmark = pytest.mark.skipif(CORPUS is None, reason="there is no corpus of real logs here")


@pytest.mark.parametrize("source", SOURCES)
def test_real_logs(source: str, tmp_path: Path) -> None:
    folder = Path(str(CORPUS)) / source
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        report = import_paths(ledger, folder)

        assert report.counts.failed == 0
        assert not ledger.audit()
        if source not in WITHOUT_READER:
            assert report.counts.imported
        first = result(ledger)
        again = import_paths(ledger, folder)
        assert (again.read_bytes, again.derived_records, again.written_turns) == (0, 0, 0)
        assert rederive(ledger).written_turns == 0
        assert result(ledger) == first
        _every_byte_and_record_is_kept(ledger, report.records.total(), folder)


def _every_byte_and_record_is_kept(ledger: Ledger, records: int, folder: Path) -> None:
    sources = Sources(ledger._core)
    lines = 0
    for file in sources.all_files():
        if file.kind == "rows":
            continue
        kept = b"".join(sources.stream(file.id))
        assert kept == Path(file.path).read_bytes()
        if file.kind == "lines":
            lines += sum(1 for line in kept.split(b"\n") if line.strip())
    assert records >= lines
