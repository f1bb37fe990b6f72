"""How much work an import does: few commits, and each session counted once."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.discovery import FileSelection, Unrecognised, files_at
from agents_ledger.importers.parsing import files
from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.transcript.copy_detection import Heads
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection import reconcile
from agents_ledger.ledger.projection import sessions as projected_sessions
from agents_ledger.ledger.projection.archive_reader import TAIL_BYTES
from agents_ledger.model.imports.sources import DerivedSession, SourceFile
from agents_ledger.store.database import Database, Row, Transaction, Work
from agents_ledger.store.sqlite.statements import Statements
from tests.engines import on_sqlite
from tests.importers.claude_log import Log, text
from tests.importers.codex_log import Rollout
from tests.importers.helping import import_paths


def sessions(folder: Path, number: int) -> list[Log]:
    logs = []
    for each in range(number):
        log = Log(folder, f"{each:08}-0000-4000-8000-000000000000")
        log.user(f"{each}a", f"question {each}")
        log.assistant(f"{each}b", text("answer"))
        log.save()
        logs.append(log)
    return logs


def test_small_files_are_kept_in_one_commit_and_derived_in_one(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions(tmp_path / "logs", 20)
    with Ledger(Core(db)) as ledger:
        ledger.recover()
        commits = []
        write = db.write

        def counted(work: Work[Any]) -> Any:
            commits.append(work)
            return write(work)

        monkeypatch.setattr(db, "write", counted)

        report = import_paths(ledger, tmp_path / "logs")

        assert report.counts.imported == 20
        assert len(commits) == 1 + 1 + 1  # kept, derived, the run noted


@on_sqlite
def test_statements_are_compiled_anew_only_where_turns_are_rewritten(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sessions(tmp_path / "logs", 3)[0]
    deferred = []
    defer = Statements.defer_references

    def counted(self: Statements) -> None:
        deferred.append(self)
        defer(self)

    monkeypatch.setattr(Statements, "defer_references", counted)

    import_paths(ledger, tmp_path / "logs")
    assert deferred == []

    log.assistant("c", text("more of the answer"))
    import_paths(ledger, log.save())
    assert len(deferred) == 1


@on_sqlite
def test_turns_of_many_files_take_one_statement_a_table(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, log in enumerate(sessions(tmp_path / "logs", 20)):
        log.user(f"{number}c", "and then")
        log.assistant(f"{number}d", text("more"))
        log.save()
    ran: Counter[str] = Counter()
    run, run_many = Statements.run, Statements.run_many

    def counted(self: Statements, name: str, /, **values: object) -> list[Row]:
        ran[name] += 1
        return run(self, name, **values)

    def counted_many(self: Statements, name: str, things: Sequence[object], /) -> int:
        ran[name] += bool(things)
        return run_many(self, name, things)

    monkeypatch.setattr(Statements, "run", counted)
    monkeypatch.setattr(Statements, "run_many", counted_many)
    import_paths(ledger, tmp_path / "logs")

    written = ("insert_turn", "project_message", "insert_turn_source", "insert_words")
    assert {name: ran[name] for name in written} == dict.fromkeys(written, 1)
    assert ran["mark_parent"] == 0  # told with the row
    assert ledger.query("SELECT sum(has_children) FROM turns")[1] == [(20,)]


def test_one_that_cannot_be_written_does_not_take_the_others_with_it(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions(tmp_path / "logs", 5)
    describe = projected_sessions._describe

    def broken(tx: Transaction, session: DerivedSession, origin: str) -> None:
        if session.session_id.startswith("00000002"):
            raise ZeroDivisionError
        describe(tx, session, origin)

    monkeypatch.setattr(projected_sessions, "_describe", broken)
    report = import_paths(ledger, tmp_path / "logs")

    assert (report.counts.imported, report.counts.failed) == (4, 1)
    assert [(Path(f.path).stem[:8], f.what) for f in report.faults] == [
        ("00000002", "claude-code could not be derived: ZeroDivisionError: ")
    ]
    assert sum(report.records.values()) == 8

    monkeypatch.undo()
    assert import_paths(ledger, tmp_path / "logs").counts.imported == 1
    assert ledger.audit() == ()


def test_a_session_is_counted_once_however_often_it_is_derived(
    ledger: Ledger, tmp_path: Path
) -> None:
    origin = sessions(tmp_path, 1)[0]
    for number in (7, 8, 9):  # three copies that went on: each derives the first one again
        copy = Log(tmp_path, f"{number:08}-0000-4000-8000-000000000000")
        copy.lines, copy.last, copy.clock = list(origin.lines), origin.last, origin.clock
        copy.user(f"{number}c", "more")
        copy.assistant(f"{number}d", text("said"))
        copy.save()

    first = import_paths(ledger, tmp_path)
    again = import_paths(ledger, tmp_path)
    origin.user("e", "and more")
    origin.assistant("f", text("said"))
    third = import_paths(ledger, origin.save())

    assert (first.counts.imported, first.counts.upserted, first.counts.skipped) == (4, 0, 0)
    assert (again.counts.imported, again.counts.upserted, again.counts.skipped) == (0, 0, 4)
    assert third.counts.imported == 0
    assert third.counts.upserted + third.counts.skipped == 4


@pytest.mark.parametrize(("known", "times"), [(True, 1), (False, 2)])
def test_a_file_with_many_forks_is_read_once_or_twice_not_once_for_every_fork(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool, times: int
) -> None:
    if not known:  # as copies, from their first records
        monkeypatch.setattr(Heads, "shares_ids", lambda *_: False)
    origin = sessions(tmp_path / "logs", 1)[0]
    for number in range(10, 22):
        copy = Log(tmp_path / "logs", f"{number:08}-0000-4000-8000-000000000000")
        copy.lines, copy.last, copy.clock = list(origin.lines), origin.last, origin.clock
        copy.user(f"{number}c", "more")
        copy.assistant(f"{number}d", text("said"))
        copy.save()
    read: Counter[str] = Counter()
    lines = Material.lines

    def counted(self: Material, file: SourceFile) -> Iterator[SourceLine]:
        read[file.path] += 1
        return lines(self, file)

    monkeypatch.setattr(Material, "lines", counted)
    report = import_paths(ledger, tmp_path / "logs")

    assert report.counts.imported == 13
    assert (len(read), max(read.values())) == (13, times)
    assert sum(report.records.values()) == 2 + 12 * 4  # each told once
    assert len(ledger.query("SELECT id FROM turns")[1]) == 13
    assert ledger.audit() == ()


def test_files_of_titles_alone_are_looked_at_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(40):
        log = Log(tmp_path / "p", f"{n:08}-3333-4333-8333-333333333333")
        log.add("summary", summary="Title", leafUuid="x")
        log.save()
    unknown = Unrecognised([], [])
    found = files_at(tmp_path, unknown)
    read: list[Path] = []
    head = files.head

    def counted(path: Path, *size: int) -> bytes:
        read.append(path)
        return head(path, *size)

    monkeypatch.setattr(files, "head", counted)

    FileSelection(0, ("/home/dev/secret",)).of(found)

    assert len(read) == 40


def test_a_file_is_opened_once_to_be_kept(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chats").mkdir()
    path = tmp_path / "chats" / "session-2026-01-01T00-00-aaaaaaaa.json"  # its head tells its kind
    path.write_text('{"sessionId": "s", "projectHash": "p", "messages": []}')
    found = files_at(path, Unrecognised([], []))
    opened: list[Path] = []
    open_regular = files.open_regular

    def counted(path: Path) -> Any:
        opened.append(path)
        return open_regular(path)

    monkeypatch.setattr(files, "open_regular", counted)
    Importer(ledger).run(found)

    assert opened == [path]
    assert ledger.query("SELECT kept_bytes FROM source_files")[1] == [(path.stat().st_size,)]


def test_to_read_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"some")
    with path.open("rb") as file:
        tracemalloc.start()
        assert b"".join(files.chunks(path, file, 0)) == b"some"
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 4 * files.HEAD_BYTES


def test_what_a_file_grew_by_while_it_is_read_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"one")
    more = b"two" * files.HEAD_BYTES
    with path.open("rb") as file, path.open("ab", buffering=0) as writing:
        read = files.chunks(path, file, 0)
        first = next(read)
        writing.write(more)
        assert first + b"".join(read) == b"one" + more


def test_families_that_share_turns_are_found_without_comparing_all_of_them(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 30
    logs = sessions(tmp_path / "logs", number)
    import_paths(ledger, tmp_path / "logs")
    for each, log in enumerate(logs):
        fork = Log(tmp_path / "forks", f"{each:08}-1111-4000-8000-000000000000")
        fork.lines, fork.last, fork.clock = list(log.lines), log.last, log.clock
        fork.user(f"{each}c", "more")
        fork.assistant(f"{each}d", text("said"))
        fork.save()
    gone_through: list[reconcile.Names] = []
    of_trees = reconcile.Names.of_trees

    def counted(self: reconcile.Names) -> Iterator[str]:
        gone_through.append(self)
        return of_trees(self)

    monkeypatch.setattr(reconcile.Names, "of_trees", counted)
    report = import_paths(ledger, tmp_path / "forks")

    assert report.counts.imported == number
    assert len(gone_through) <= 6 * number


@pytest.mark.parametrize("ending", ["", ".zst"])
def test_a_long_file_that_grows_is_read_on_where_it_ended(
    ledger: Ledger, tmp_path: Path, ending: str
) -> None:
    log = Rollout(tmp_path / "written")
    path = tmp_path / "seen" / (log.path.name + ending)
    path.parent.mkdir()
    read = 0
    for number in range(1, 5):
        log.exchange(number, "x" * 3 * TAIL_BYTES if number == 1 else "Go on.")
        data = log.save().read_bytes()
        path.write_bytes(zstandard.compress(data) if ending else data)

        report = import_paths(ledger, path)

        assert report.read_bytes == len(data) - read
        read = len(data)
    assert ledger.query("SELECT kept_bytes FROM source_files")[1] == [(read,)]
