"""Works done in one call of a PostgreSQL server, and the rows they leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.batch_recording import RecordTurn
from agents_ledger.store.concurrency.interrupts import NOT_HELD
from agents_ledger.store.database import ServerWork, Transaction
from agents_ledger.store.postgres.call_queue import LEADERS
from agents_ledger.store.postgres.engine import PostgresDatabase
from tests.raw import Raw, Rows
from tests.waiting import PATIENCE_S, until

# What the ledger's clock says when it writes, which differs between two writes.
CLOCKED = {"sessions": {"created_at", "updated_at"}, "session_history": {"changed_at"}}
CLOCKED |= {"evidence": {"position", "opening", "hash"}}
CLOCKED |= {"names": {"created_at"}, "schema_migrations": {"applied_at"}, "writers": {"seen_at"}}
ODD = 'NUL \x00, lone \ud800, escape \x1a, spelled \\u0000 "\\" 日本 😀\r\n\t'


def work(session: str, **fields: Any) -> RecordTurn:
    said = {"query": "q", "response": "r", **fields}
    query, response = said.pop("query"), said.pop("response", None)
    return RecordTurn(recording.recording(session, query, response, said))


def called(db: PostgresDatabase, *works: ServerWork) -> list[Any]:
    return db.call(works, NOT_HELD)


def rows(db: PostgresDatabase, *without: str) -> dict[str, Rows]:
    """Every row of every table, without the times of the clock and these columns."""
    tables = {}
    with Raw(db.address) as raw:
        for table in raw.tables():
            left_out = {*CLOCKED.get(table, ()), *without}
            columns = [column for column in raw.columns(table) if column not in left_out]
            tables[table] = sorted(
                raw.execute(f"SELECT {', '.join(columns)} FROM {table}"), key=repr
            )
    return tables


def begun(db: PostgresDatabase, roots: Sequence[RecordTurn]) -> None:
    for root in roots:
        db.write_alone(root)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """What each call returns or raises, each in a thread of its own."""
    outcomes: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except Exception as error:
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return outcomes


class Occupying:
    """A work that keeps whoever leads the calls until it is released."""

    def __init__(self, key: str, released: threading.Event) -> None:
        self.key = key
        self.taken = threading.Event()
        self._released = released

    def __call__(self, tx: Transaction, /) -> None:
        """Writes nothing."""

    def call(self, works: Sequence[Any], /) -> None:
        self.taken.set()
        assert self._released.wait(PATIENCE_S)

    repeat = __call__


@contextmanager
def queueing(db: PostgresDatabase, count: int) -> Iterator[None]:
    """All leaders are busy, until so many works have queued up."""
    released = threading.Event()
    works = [Occupying(f"leader {n}", released) for n in range(LEADERS)]

    def release() -> None:
        until(lambda: len(db._calls._queue) == count)
        released.set()

    threads = [threading.Thread(target=db.write, args=(each,)) for each in works]
    for thread in threads:
        thread.start()
    for each in works:
        assert each.taken.wait(PATIENCE_S)
    threads.append(threading.Thread(target=release))
    threads[-1].start()
    yield
    for thread in threads:
        thread.join(PATIENCE_S)


def transactions(db: PostgresDatabase, table: str, where: str) -> int:
    """How many transactions wrote these rows."""
    with Raw(db.address) as raw:
        return int(raw.one(f"SELECT count(DISTINCT CAST(xmin AS TEXT)) FROM {table} WHERE {where}"))
