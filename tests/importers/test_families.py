"""Whose a kept file is, with which others it is derived, and what is told of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.discovery import HistoryFile, Unrecognised, files_at
from agents_ledger.importers.pipeline import Importer, rederive
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import SourceFile
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths, result


def a_log(folder: Path, name: str = "a") -> Path:
    log = Log(folder, f"{name * 8}-1111-4111-8111-111111111111")
    log.user(f"{name}1", "Which shed?")
    log.assistant(f"{name}2", text("The red one."))
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


@pytest.mark.parametrize("version", [1, SOURCES["claude-code"].version])
def test_a_file_that_was_taken_for_another_s_is_its_reader_s_from_then_on(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    path = a_log(tmp_path / "logs")
    status = path.stat()
    with monkeypatch.context() as patch:
        patch.setattr(type(SOURCES["cursor"]), "version", version)
        found = HistoryFile(path, SOURCES["cursor"], status.st_size, status.st_mtime)
        Importer(ledger).run([found])

    import_paths(ledger, path)

    before = result(ledger)
    assert [session.label for session in ledger.sessions()] == [f"claude-code:{path.stem}"]
    rederive(ledger)
    assert result(ledger) == before
    assert import_paths(ledger, path).written_turns == 0
    assert ledger.audit() == ()


def test_faults_and_first_records_are_reported_by_path_in_any_order_of_files(
    ledger: Ledger, tmp_path: Path
) -> None:
    for name in ("b", "a", "c"):
        with a_log(tmp_path, name).open("a") as log:
            log.write('{"type": "poem"}\n{"type": "us\n{"type": "u\n')

    report = Importer(ledger).run(files_at(tmp_path, Unrecognised([], []))[::-1])

    told = [(Path(fault.path).name[0], fault.line) for fault in report.faults]
    assert told == [(name, line) for name in "abc" for line in (4, 5)]
    (first,) = report.firsts.values()
    assert (Path(first).name[0], first[-2:]) == ("a", ":3")
