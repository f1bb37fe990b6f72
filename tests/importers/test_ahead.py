"""Another process derives ahead of the one that writes; nothing depends on it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import ahead
from agents_ledger.importers.ahead import Ahead, Derived
from agents_ledger.importers.discovery import Found, Unknown, found_at
from agents_ledger.importers.importing import Importer, Report
from agents_ledger.importers.reader import Line, Material, Reader
from agents_ledger.ledger.sources import Sources
from agents_ledger.model.sources import Derivation, SourceFile
from tests.importers.claude_log import Log, text, tool
from tests.importers.helping import import_paths, result
from tests.importers.test_any_order import a_world

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

Meddle = Callable[[Ahead], None]


def some_sessions(folder: Path, number: int = 12) -> Path:
    for each in range(number):
        log = Log(folder, f"{each:08}-0000-4000-8000-000000000000")
        log.user(f"{each}a", f"question {each} \ud800")
        log.assistant(f"{each}b", tool(f"call-{each}", "Read", file_path=f"/f{each}"))
        log.result(f"{each}c", f"call-{each}", "seen " * each)
        log.assistant(f"{each}d", text("answer"))
        log.save()
    return folder


def imported(address: str, folder: Path, meddle: Meddle = lambda _: None) -> Report:
    """Import into a new ledger with another process beside."""
    other = Ahead(address)
    pid = other._pid
    with Ledger.open(address) as ledger:
        meddle(other)
        found: list[Found] = list(found_at(folder, Unknown([], [])))
        report = Importer(ledger, ahead=other).run(found)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    return report


def alone(folder: Path, at: Path) -> tuple[Report, dict[str, list[tuple[object, ...]]]]:
    with Ledger.open(str(at / "alone.db")) as ledger:
        return import_paths(ledger, folder), result(ledger)


def check_same(address: str, folder: Path, at: Path, meddle: Meddle = lambda _: None) -> None:
    report = imported(address, folder, meddle)
    expected, rows = alone(folder, at)
    with Ledger.open(address) as ledger:
        assert result(ledger) == rows
        assert ledger.audit() == ()
    assert report.counts == expected.counts
    assert report.records == expected.records
    assert report.faults == expected.faults
    assert report.written_turns == expected.written_turns


def test_what_is_derived_ahead_is_not_parsed_again(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    parsed: list[str] = []
    lines = Material.lines

    def counted(self: Material, file: SourceFile) -> Iterator[Line]:
        parsed.append(file.path)
        return lines(self, file)

    imported(address, folder, lambda _: monkeypatch.setattr(Material, "lines", counted))

    assert parsed == []
    with Ledger.open(address) as ledger:
        assert ledger.query("SELECT count(*) FROM turns")[1] == [(12,)]


def test_it_ends_in_the_same_ledger(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    a_world(random.Random(1), folder / "world")  # forks: derived together, by the parent
    (folder / "broken.jsonl").write_text('{"type": "user", "uuid": "x"}\n{"type": "us\n')
    check_same(address, folder, tmp_path)


def test_its_death_costs_time_only(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")

    def kill(other: Ahead) -> None:
        os.kill(other._pid, signal.SIGKILL)

    check_same(address, folder, tmp_path, kill)


def test_its_death_half_way_costs_time_only(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    answer = ahead._answer

    def short_lived(sources: Sources, reader: Reader, family: str) -> bytes:
        if "00000008" in family:
            os._exit(9)
        return answer(sources, reader, family)

    monkeypatch.setattr(ahead, "_answer", short_lived)
    check_same(address, folder, tmp_path)


def test_what_it_cannot_derive_is_derived_by_the_parent(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    parent, derived = os.getpid(), ahead._derived

    def broken(sources: Sources, reader: Reader, family: str) -> Derived | None:
        if os.getpid() != parent and "7" in Path(family).name[:8]:
            raise ZeroDivisionError
        return derived(sources, reader, family)

    monkeypatch.setattr(ahead, "_derived", broken)
    check_same(address, folder, tmp_path)


def test_what_is_large_is_derived_where_it_is_written(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    monkeypatch.setattr(ahead, "FAMILY_MAX", 1100)
    check_same(address, folder, tmp_path)


def test_a_file_that_grew_since_is_derived_anew(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")

    def outdated(sources: Sources, reader: Reader, family: str) -> Derived:
        files = ahead.files_of(sources, reader, family, again=False)
        return Derived(files[1:], Derivation(turns=(), sessions=()))

    monkeypatch.setattr(ahead, "_derived", outdated)
    check_same(address, folder, tmp_path)


def test_it_ends_when_nobody_wants_its_answers(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    with Ledger.open(address) as ledger:
        import_paths(ledger, folder)
        reader = found_at(folder, Unknown([], []))[0].reader
    other = Ahead(address)
    pid = other._pid
    other.plan({str(path): reader for path in sorted(folder.rglob("*.jsonl"))})
    other.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_few_files_are_not_worth_a_process(tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs", 2)
    with ahead.beside(str(tmp_path / "l.db"), found_at(folder, Unknown([], []))) as other:
        assert other is None
