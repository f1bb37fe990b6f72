"""The ledger file, or its log, deleted or replaced while a program has it open."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger, OutcomeUnknown, StoreUnavailable
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance import copying
from agents_ledger.store.sqlite.engine import SqliteDatabase

HOLDER = """
import sys
from agents_ledger import Ledger

with Ledger.open(sys.argv[1]) as ledger:
    ledger.record("main", "q", "r")
    print("open", flush=True)
    sys.stdin.readline()
"""
TURNS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the ledger is."""
    return tmp_path / "ledger.db"


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """A backup of another ledger."""
    with Ledger.open(str(tmp_path / "restored.db")) as ledger:
        for number in range(TURNS):
            ledger.record("restored", f"q{number}", "r")
    return copying.backup(str(tmp_path / "restored.db"), str(tmp_path / "backup.db"))


@pytest.fixture
def ledger(path: Path) -> Iterator[Ledger]:
    """An open ledger with a log that is not moved into the file yet."""
    with Ledger.open(str(path)) as opened:
        opened.record("main", "q", "r")
        yield opened


def count(path: Path) -> int:
    """How many turns a ledger has; it must be sound."""
    with Ledger.open(str(path)) as ledger:
        assert ledger.audit() == ()
        return sum(len(ledger.thread(each.label).turns) for each in ledger.sessions())


def remove_log(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def test_a_replaced_ledger_is_neither_written_nor_read_and_the_new_file_stays_whole(
    ledger: Ledger, path: Path, backup: Path
) -> None:
    os.replace(backup, path)

    with pytest.raises(StoreUnavailable, match="was replaced by another file") as refused:
        ledger.record("main", "q2", "r")
    assert str(path) in str(refused.value)
    assert "agents-ledger restore" in refused.value.hint
    with pytest.raises(StoreUnavailable, match="was replaced by another file"):
        ledger.sessions()
    with pytest.raises(StoreUnavailable, match="was replaced by another file"):
        ledger.record("main", "q2", "r")
    ledger.close()

    with pytest.raises(StoreUnavailable, match="belongs to the file that was there before"):
        Ledger.open(str(path))
    with pytest.raises(StoreUnavailable, match="belongs to the file that was there before"):
        Ledger.open(str(path), read_only=True)
    remove_log(path)
    assert count(path) == TURNS


def test_a_replaced_ledger_cannot_be_opened_beside_the_old_handle(
    ledger: Ledger, path: Path, backup: Path
) -> None:
    os.replace(backup, path)
    with pytest.raises(StoreUnavailable, match="belongs to the file that was there before"):
        Ledger.open(str(path))


def test_a_deleted_ledger_is_not_written(ledger: Ledger, path: Path) -> None:
    path.unlink()
    with pytest.raises(StoreUnavailable, match="was deleted or moved"):
        ledger.record("main", "q2", "r")
    with pytest.raises(StoreUnavailable, match="was deleted or moved"):
        ledger.thread("main")


def test_no_ledger_is_made_where_the_log_of_a_deleted_one_may_hold_turns(
    ledger: Ledger, path: Path
) -> None:
    path.unlink()
    ledger.close()
    with pytest.raises(StoreUnavailable, match=r"its log .* is there and may hold turns"):
        Ledger.open(str(path))

    remove_log(path)
    assert count(path) == 0


def test_a_ledger_that_is_put_back_can_be_used_again(ledger: Ledger, path: Path) -> None:
    away = path.with_name("away.db")
    path.rename(away)
    with pytest.raises(StoreUnavailable):
        ledger.record("main", "q2", "r")
    away.rename(path)

    ledger.record("main", "q3", "r")
    ledger.close()
    assert count(path) == 2


def test_a_ledger_whose_log_was_deleted_is_not_written(ledger: Ledger, path: Path) -> None:
    Path(f"{path}-wal").unlink()
    with pytest.raises(StoreUnavailable, match=r"ledger\.db-wal was deleted or moved"):
        ledger.record("main", "q2", "r")
    with pytest.raises(StoreUnavailable, match="a program still has it open"):
        Ledger.open(str(path))


@pytest.mark.parametrize("gone", ["", "-wal"])
def test_nobody_opens_a_ledger_that_another_process_has_open_without_its_name(
    path: Path, gone: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        Path(f"{path}{gone}").unlink()
        if not gone:
            Path(f"{path}-wal").unlink()
        with pytest.raises(StoreUnavailable, match="a program still has it open"):
            Ledger.open(str(path))
        process.kill()
    remove_log(path)
    assert count(path) in (0, 1)


class HookedCursor(sqlite3.Cursor):
    """Calls a function before the next commit."""

    before_commit: Callable[[], None] | None = None

    def execute(self, sql: str, *values: Any) -> HookedCursor:
        hook = HookedCursor.before_commit
        if sql == "COMMIT" and hook is not None:
            HookedCursor.before_commit = None
            hook()
        return super().execute(sql, *values)


class HookedConnection(sqlite3.Connection):
    """A connection with such cursors."""

    def cursor(self, *_: Any) -> HookedCursor:  # type: ignore[override]
        return HookedCursor(self)


def test_a_commit_during_which_the_file_was_replaced_is_not_acknowledged(
    path: Path, backup: Path
) -> None:
    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(*args, factory=HookedConnection, **options)

    with Ledger(Core(SqliteDatabase(str(path), connect=connect))) as ledger:
        ledger.record("main", "q", "r")
        HookedCursor.before_commit = lambda: os.replace(backup, path)
        with pytest.raises(OutcomeUnknown, match="replaced during the commit"):
            ledger.record("main", "q2", "r")


def test_a_copy_of_all_files_of_an_open_ledger_can_be_opened(
    ledger: Ledger, path: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for file in tmp_path.glob("ledger.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, elsewhere)
    assert count(elsewhere / "ledger.db") == 1


def test_a_backup_copied_over_a_closed_ledger_is_the_ledger(path: Path, backup: Path) -> None:
    Ledger.open(str(path)).close()
    shutil.copy(backup, path)
    assert count(path) == TURNS


def test_a_restore_into_the_place_of_a_deleted_open_ledger_is_refused(
    ledger: Ledger, path: Path, backup: Path
) -> None:
    path.unlink()
    with pytest.raises(StoreUnavailable):
        copying.restore(str(backup), str(path))
    ledger.close()
    with pytest.raises(StoreUnavailable):
        copying.restore(str(backup), str(path))

    remove_log(path)
    copying.restore(str(backup), str(path))
    assert count(path) == TURNS


def test_a_handle_that_only_reads_notices_that_its_file_was_replaced(
    path: Path, backup: Path
) -> None:
    Ledger.open(str(path)).close()
    with closing(SqliteDatabase(str(path), read_only=True)) as reader:
        assert reader.read(lambda tx: tx.run("counts"))[0][1] == 0
        os.replace(backup, path)
        with pytest.raises(StoreUnavailable, match="was replaced by another file"):
            reader.read(lambda tx: tx.run("counts"))
        with pytest.raises(StoreUnavailable, match="was replaced by another file"):
            reader.query("SELECT count(*) FROM turns")
