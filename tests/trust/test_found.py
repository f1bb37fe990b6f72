"""What the harnesses have found, each as the smallest case that shows it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger, NameTaken
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.sessions import names
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite import engine
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.store.sqlite.log import LogKeeper, LogLimits


def test_a_ledger_whose_making_was_cut_short_can_be_opened(tmp_path: Path) -> None:
    half = sqlite3.connect(tmp_path / "half.db", isolation_level=None)
    half.execute(f"PRAGMA application_id={engine.APPLICATION_ID}")
    half.execute("PRAGMA cache_size=1")
    half.execute("BEGIN")
    half.execute("CREATE TABLE t (x)")
    half.execute("INSERT INTO t SELECT randomblob(50000)")
    for name in ("half.db", "half.db-journal"):
        shutil.copyfile(tmp_path / name, tmp_path / name.replace("half", "ledger"))
    half.close()

    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        ledger.record("main", "Hello", "Hi")

        assert ledger.audit() == ()


def test_a_full_disk_does_not_keep_the_lock_from_being_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)

    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        ledger.record("main", "Hello", "Hi")


def test_a_checkpoint_that_fails_does_not_fail_the_commit_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(LogKeeper, "_checkpoint", broken)
    database = SqliteDatabase(str(tmp_path / "ledger.db"), log_limits=LogLimits(due_bytes=0))
    with Ledger(Core(database)) as ledger:
        first = ledger.record("main", "Hello", "Hi")
        second = ledger.record("main", "Still there?", "Yes")

        assert ledger.ancestry("main") == (first.id, second.id)


def test_a_ledger_can_be_closed_twice(ledger: Ledger) -> None:
    ledger.turn("main", "Hello").fail("no")
    ledger.close()
    ledger.close()


@contextmanager
def under_way(ledger: Ledger, work: Callable[[Transaction], Any]) -> Iterator[None]:
    """A transaction that has done its work, and commits a moment after the block has begun."""
    done = threading.Event()

    def wait(tx: Transaction) -> None:
        work(tx)
        done.set()
        threading.Event().wait(0.3)

    thread = threading.Thread(target=lambda: ledger._core.db.write(wait))
    thread.start()
    done.wait(10)
    yield
    thread.join()


@pytest.mark.parametrize(
    "verb",
    [
        lambda ledger: ledger.archive("b", "active"),
        lambda ledger: ledger.alias("x", "b"),
        lambda ledger: ledger.clear("b"),
        lambda ledger: ledger.record("b", "Hello", "Hi"),
    ],
    ids=["archive", "alias", "clear", "record"],
)
def test_a_key_follows_a_merge_that_was_under_way(
    new_schema: Callable[[], str], verb: Callable[[Ledger], object]
) -> None:
    address = new_schema()
    with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        for key in "aab":
            ours.record(key, "Hello", "Hi")
        before = ours.head("b")

        with under_way(theirs, lambda tx: names.merge(tx, "a", "b", reason="identity_merge")):
            verb(ours)

        assert ours.session("b", exact=True).thread_id == before
        assert ours.audit() == ()


def test_a_new_session_gives_way_to_an_alias_that_was_under_way(
    new_schema: Callable[[], str],
) -> None:
    address = new_schema()
    with Ledger.open(address) as ours, Ledger.open(address) as theirs:
        ours.record("a", "Hello", "Hi")

        with (
            under_way(theirs, lambda tx: names.add(tx, "x", "a", reason="manual")),
            suppress(NameTaken),
        ):
            ours.record("x", "Hello", "Hi")

        assert ours.session("x").label == "a"
        assert ours.audit() == ()
