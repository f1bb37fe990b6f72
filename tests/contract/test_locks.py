"""Locks: files beside the ledger, whose lock ends with its holder."""

from __future__ import annotations

from pathlib import Path

from agents_ledger.store.locks import FileLock


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
