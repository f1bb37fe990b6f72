"""Group commit: writers that wait together are committed together, and none hangs on another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agents_ledger import Ledger, LedgerError, OutcomeUnknown
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import chain
from tests.engines import on_sqlite
from tests.waiting import PATIENCE_S, until


class Writer(threading.Thread):
    """A thread with one write, and what came of it."""

    def __init__(self, write: Callable[[], Any]) -> None:
        super().__init__()
        self._write = write
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._write()
        except BaseException as error:
            self.error = error


@contextmanager
def queued(db: Database, *writes: Callable[[], Any]) -> Iterator[list[Writer]]:
    """Writes that wait for one another while the block runs, and are over after it."""
    leads, go_on = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        leads.set()
        assert go_on.wait(PATIENCE_S)

    first = Writer(lambda: db.write(hold))
    first.start()
    assert leads.wait(PATIENCE_S)
    writers = [Writer(write) for write in writes]
    for writer in writers:
        writer.start()
    if isinstance(db, SqliteDatabase):
        until(lambda: len(db._group._queue) == len(writers))
    yield writers
    go_on.set()
    for writer in (first, *writers):
        writer.join(PATIENCE_S)
        assert not writer.is_alive()


def test_writers_that_wait_together_are_all_stored(ledger: Ledger, db: Database) -> None:
    chain(ledger, "main", 1)
    writes = [lambda number=number: ledger.record(f"s{number}", "q", "r") for number in range(9)]

    with queued(db, *writes) as writers:
        pass

    assert [writer.error for writer in writers] == [None] * 9
    for number, writer in enumerate(writers):
        assert ledger.head(f"s{number}") == writer.result.id


def test_writers_of_one_session_make_one_chain(ledger: Ledger, db: Database) -> None:
    root = chain(ledger, "main", 1)[0]
    writes = [lambda: ledger.record("main", "q", "r") for _ in range(6)]
    writes += [lambda: ledger.record("main", "late", "r", parent=root) for _ in range(3)]

    with queued(db, *writes) as writers:
        pass

    refused = [writer for writer in writers if writer.error is not None]
    assert len(refused) >= 2
    assert all(isinstance(writer.error, LedgerError) for writer in refused)
    assert ledger.thread("main").depth == 1 + len(writers) - len(refused)


def test_a_refusal_after_the_first_row_undoes_its_own_rows_only(
    ledger: Ledger, db: Database
) -> None:
    chain(ledger, "main", 1)

    def spoil(tx: Transaction) -> None:
        tx.execute("UPDATE sessions SET agent_id = 'spoiled'")
        raise ValueError("changed my mind")

    with queued(
        db,
        lambda: ledger.record("a", "q", "r"),
        lambda: db.write(spoil),
        lambda: ledger.record("b", "q", "r"),
    ) as (first, spoiler, second):
        pass

    assert (first.error, second.error) == (None, None)
    assert str(spoiler.error) == "changed my mind"
    assert {session.agent_id for session in ledger.sessions()} == {None}
    assert ledger.head("a") == first.result.id
    assert ledger.head("b") == second.result.id


def test_an_interrupted_leader_leaves_nothing_and_nobody_hanging(
    ledger: Ledger, db: Database
) -> None:
    chain(ledger, "main", 1)

    def interrupt(tx: Transaction) -> None:
        tx.execute("UPDATE sessions SET agent_id = 'interrupted'")
        raise KeyboardInterrupt

    with queued(db, lambda: db.write(interrupt), lambda: ledger.record("main", "q", "r")) as (
        interrupted,
        other,
    ):
        pass

    assert isinstance(interrupted.error, (KeyboardInterrupt, OutcomeUnknown))
    assert other.error is None or isinstance(other.error, (OutcomeUnknown, KeyboardInterrupt))
    assert ledger.session("main").agent_id is None
    assert ledger.record("main", "after", "r").depth >= 2


@on_sqlite
def test_an_interrupted_waiter_leaves_nothing(ledger: Ledger, db: Database) -> None:
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        pytest.skip("only a main thread is interrupted")
    chain(ledger, "main", 1)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with queued(db, lambda: ledger.record("other", "q", "r")) as [other]:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                ledger.record("main", "never", "stored")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert other.error is None
    assert ledger.thread("main").depth == 1
    assert ledger.record("main", "q", "r").depth == 2


@pytest.mark.parametrize("others", [0, 1])
@on_sqlite
def test_a_leader_interrupted_while_it_waits_for_others_leaves_nothing(
    ledger: Ledger, db: Database, others: int
) -> None:
    if not hasattr(signal, "setitimer"):
        pytest.skip("only a main thread is interrupted")
    chain(ledger, "main", 1)

    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    other = Writer(lambda: ledger.record("other", "q", "r"))
    assert isinstance(db, SqliteDatabase)
    db._group._expected, db._group._until = 5, time.monotonic() + 1
    try:
        threading.Timer(0.1, other.start if others else lambda: None).start()
        signal.setitimer(signal.ITIMER_REAL, 0.4)
        with pytest.raises(KeyboardInterrupt):
            ledger.record("main", "never", "stored")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    if others:
        other.join(PATIENCE_S)
        assert other.result.depth == 1
    assert ledger.record("main", "q", "r").depth == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_is_told_to_open_the_ledger_again(
    ledger: Ledger, address: str, db: Database
) -> None:
    chain(ledger, "main", 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        said = []
        for use in (lambda: ledger.record("main", "q", "r"), lambda: ledger.session("main")):
            try:
                use()
                said.append("used")
            except LedgerError as error:
                said.append(f"{error} {error.hint}")
        ledger.close()
        if db.engine == "sqlite":
            with Ledger.open(address) as own:
                said.append(str(own.record("main", "q", "r").depth))
        os.write(write, "|".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 1000).decode().split("|")
    os.close(read)
    os.close(write)

    told = "this ledger was opened before the process forked Open it again in the child."
    assert said[:2] == [told, told]
    assert said[2:] == (["2"] if db.engine == "sqlite" else [])
    assert ledger.record("main", "q", "r").depth == 2 + (db.engine == "sqlite")
