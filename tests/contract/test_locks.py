"""Locks: files beside the ledger, whose lock ends with its holder."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agents_ledger import Ledger, Locked, StoreUnavailable
from agents_ledger.store.concurrency.locks import FileLock
from agents_ledger.store.sqlite.engine import SqliteDatabase


def test_a_lock_file_that_was_deleted_does_not_count(tmp_path: Path) -> None:
    one, other = (FileLock(tmp_path / "x.lock") for _ in range(2))
    assert one.try_acquire()
    one.release()
    one.path.unlink()

    assert other.try_acquire()
    assert not one.try_acquire()
    other.release()
    assert one.try_acquire()
    assert not other.try_acquire()

    one.close()
    other.close()


@pytest.mark.parametrize("suffix", [".lock", ".next"])
def test_a_symbolic_link_in_place_of_a_lock_file_is_refused_and_its_target_left_alone(
    tmp_path: Path, suffix: str
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    address = tmp_path / "ledger.db"
    Ledger.open(str(address)).close()
    lock = tmp_path / f"ledger.db{suffix}"
    lock.unlink()
    lock.symlink_to(precious)

    with Ledger.open(str(address)) as ledger:
        with pytest.raises(StoreUnavailable, match="is a symbolic link") as refused:
            ledger.record("main", "q", "r")
        assert str(lock) in str(refused.value)
        assert "remove it" in refused.value.hint
        assert precious.read_text() == "do not touch"

        lock.unlink()
        ledger.record("main", "q", "r")
        assert ledger.audit() == ()


def test_a_dangling_link_in_place_of_a_lock_file_makes_no_file(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    (tmp_path / "ledger.db.lock").symlink_to(absent)

    with pytest.raises(StoreUnavailable, match="is a symbolic link"):
        Ledger.open(str(tmp_path / "ledger.db"))

    assert not absent.exists()


def test_a_link_in_place_of_a_writers_file_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    with closing(SqliteDatabase(str(tmp_path / "ledger.db"))) as db:
        (tmp_path / "ledger.db.writer-x").symlink_to(precious)
        with pytest.raises(StoreUnavailable, match="is a symbolic link"):
            db.is_dead("x", 0)
    assert precious.read_text() == "do not touch"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_only_a_regular_file_is_a_lock_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "x.lock")
    with pytest.raises(StoreUnavailable):
        FileLock(tmp_path / "x.lock").try_acquire()


def test_a_hard_link_is_locked_but_never_written_to(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("do not touch")
    (tmp_path / "x.lock").hardlink_to(precious)
    lock = FileLock(tmp_path / "x.lock")
    assert lock.try_acquire()
    lock.sign()
    lock.close()
    assert precious.read_text() == "do not touch"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_lock_file_of_another_user_is_refused_unless_the_ledger_is_theirs(
    tmp_path: Path,
) -> None:
    ledger, path = tmp_path / "ledger.db", tmp_path / "ledger.db.lock"
    ledger.touch()
    path.touch()
    os.chown(path, 12345, -1)

    with pytest.raises(StoreUnavailable, match="belongs to another user"):
        FileLock(path, ledger).try_acquire()

    os.chown(ledger, 12345, -1)
    lock = FileLock(path, ledger)
    assert lock.try_acquire()
    lock.close()


def test_a_file_system_without_locks_is_reported_at_once(tmp_path: Path) -> None:
    def no_locks(_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    lock = FileLock(tmp_path / "x.lock", try_lock=no_locks)
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"cannot lock .*No locks available") as refused:
        lock.acquire(began + 30, pause=0.001)

    assert not isinstance(refused.value, Locked)
    assert "file system" in refused.value.hint
    assert time.monotonic() - began < 30


def test_a_lock_that_is_held_is_not_a_failure(tmp_path: Path) -> None:
    holder, other = (FileLock(tmp_path / "x.lock") for _ in range(2))
    assert holder.try_acquire()
    with pytest.raises(Locked, match="held by another process"):
        other.acquire(time.monotonic(), pause=0.001)
    holder.close()
    other.close()
