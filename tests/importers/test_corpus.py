"""Real logs, if there are any here: nothing fails, nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.parsing import databases
from agents_ledger.importers.pipeline import rederive
from agents_ledger.ledger.projection.source_records import Sources
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
        _every_export_is_what_was_imported(ledger, tmp_path / "out")


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


def _every_export_is_what_was_imported(ledger: Ledger, folder: Path) -> None:
    sources = Sources(ledger._core)
    exported: set[str] = set()
    for number, session in enumerate(ledger.sessions(limit=10_000)):
        files = {file.path: file for file in sources.files_of_session(session.label)}
        if exported.issuperset(files):
            continue
        exported |= files.keys()
        paths = export_source(ledger, session.label, folder / str(number))
        for file, path in zip(files.values(), paths, strict=True):
            if file.kind != "rows":
                assert path.read_bytes() == Path(file.path).read_bytes()
            else:
                _rows_are_in(path, Path(file.path))


def _rows_are_in(made: Path, origin: Path) -> None:
    """Every row of an export stands in the database it came from, in the same order."""
    with closing(sqlite3.connect(made)) as ours, databases.snapshot(origin) as theirs:
        for (table,) in ours.execute("SELECT name FROM sqlite_master").fetchall():
            columns = ", ".join(
                f'"{row[1]}"' for row in ours.execute(f"PRAGMA table_info({table})")
            )
            wanted = iter(theirs.execute(f"SELECT {columns} FROM {table} ORDER BY rowid"))
            for row in ours.execute(f"SELECT {columns} FROM {table} ORDER BY rowid"):
                assert row in wanted  # which goes on from there


GROWN = [p for p in Path(CORPUS or ".").glob("*_snapshots/*/*") if p.is_dir()] if CORPUS else []


@pytest.mark.parametrize("folder", GROWN, ids=lambda path: path.name[:8])
def test_states_of_a_file_one_after_another_end_as_the_last_alone(
    folder: Path, tmp_path: Path
) -> None:
    prefix = "rollout-2026-03-01T10-00-00-" if "codex" in str(folder) else ""
    name = f"{prefix}{folder.name}.jsonl"
    states = sorted(folder.iterdir())
    found: list[dict[str, list[tuple[Any, ...]]]] = []
    for steps in (states, states[-1:]):
        place = tmp_path / str(len(found))
        place.mkdir()
        with Ledger.open(str(place / "ledger.db")) as ledger:
            for state in steps:
                (place / name).write_bytes(state.read_bytes())
                import_paths(ledger, place / name)
            found.append(result(ledger))
            assert ledger.query("SELECT count(*) FROM source_files")[1] == [(1,)]

    assert found[0] == found[1]
