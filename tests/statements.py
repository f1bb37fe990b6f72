"""Counts the statements of a write and makes one of them fail; notes those of a read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from agents_ledger.store.database import Database, Row, Transaction, Work

T = TypeVar("T")
# What is done at times of its own, and not for the call that is looked at.
BACKGROUND = {"agents-ledger-evidence"}  # threads
TIMED = {"redactions_count", "setting"}  # statements


class Meddled:
    """A database whose N-th statement fails, as the engine lets one fail, or with `error`.

    A statement for many rows counts once per row. The last statement is the COMMIT.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self.fail_at: int | None = None
        self.error: Exception | None = None
        self.ran: list[str] = []  # by the last write
        self.writes: list[list[str]] = []  # by each of them

    @classmethod
    def over(cls, db: Database) -> tuple[Meddled, Database]:
        """The same object twice: as what it is, and as a database."""
        meddled = cls(db)
        return meddled, cast(Database, meddled)

    def write(self, work: Work[T]) -> T:
        """The database's own, with every statement counted."""
        if threading.current_thread().name in BACKGROUND:
            return self._db.write(work)

        def meddled(tx: Transaction) -> T:
            self.ran = []
            self.writes.append(self.ran)
            result = work(cast(Transaction, _MeddledTransaction(tx, self)))
            self.count(tx, "COMMIT")
            return result

        return self._db.write(meddled)

    def count(self, tx: Transaction, name: str) -> None:
        """One more statement; perhaps the one to fail."""
        self.ran.append(name)
        if len(self.ran) == self.fail_at:
            if self.error is not None:
                raise self.error
            tx.execute("INSERT INTO no_such_table VALUES (1)")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class _MeddledTransaction:
    def __init__(self, tx: Transaction, database: Meddled) -> None:
        self._tx = tx
        self._database = database

    def run(self, name: str, /, **values: object) -> list[Row]:
        self._database.count(self._tx, name)
        return self._tx.run(name, **values)

    def read_as(self, name: str, kind: Callable[..., T], /, **values: object) -> list[T]:
        self._database.count(self._tx, name)
        return self._tx.read_as(name, kind, **values)

    def change(self, name: str, /, **values: object) -> int:
        self._database.count(self._tx, name)
        return self._tx.change(name, **values)

    def run_many(self, name: str, things: Sequence[object], /) -> int:
        written = 0
        for thing in things:
            self._database.count(self._tx, name)
            written += self._tx.run_many(name, [thing])
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


class Watched:
    """A database that notes which statements a read ran, and how many rows each gave."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.ran: list[tuple[str, int]] = []

    @classmethod
    def over(cls, db: Database) -> tuple[Watched, Database]:
        """The same object twice: as what it is, and as a database."""
        watched = cls(db)
        return watched, cast(Database, watched)

    def read(self, work: Work[T]) -> T:
        """The database's own, with every statement noted."""
        return self.noted(self._db.read, work)

    def read_anywhere(self, work: Work[T]) -> T:
        """The database's own, with every statement noted."""
        return self.noted(self._db.read_anywhere, work)

    def noted(self, read: Callable[[Work[T]], T], work: Work[T]) -> T:
        """What `read` returns for `work`, whose statements are noted."""
        self.ran = []
        return read(lambda tx: work(cast(Transaction, _WatchedTransaction(tx, self))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


class _WatchedTransaction:
    def __init__(self, tx: Transaction, database: Watched) -> None:
        self._tx = tx
        self._database = database

    def run(self, name: str, /, **values: object) -> list[Row]:
        rows = self._tx.run(name, **values)
        if name not in TIMED:
            self._database.ran.append((name, len(rows)))
        return rows

    def read_as(self, name: str, kind: Callable[..., T], /, **values: object) -> list[T]:
        found = self._tx.read_as(name, kind, **values)
        self._database.ran.append((name, len(found)))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


def fail_each_statement(
    meddled: Meddled, act: Callable[[], object], check: Callable[[str], None]
) -> list[str]:
    """Do `act` with its first statement failing, then its second, and so on, until it succeeds.

    `check` is called after each failure, with the name of the statement that failed. The names of
    all statements are returned.
    """
    failed = 0
    while True:
        failed += 1
        meddled.fail_at = failed
        try:
            act()
        except Exception:
            meddled.fail_at = None
            check(meddled.ran[-1])
        else:
            meddled.fail_at = None
            return meddled.ran
