"""Reads from a standby of the server, for a handle that writes to the primary.

What a handle reads includes what it has written: after a write the primary is asked how long its
log is, and a standby is read once it has replayed that much. Until then, and where no standby
answers, the primary is read.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from agents_ledger.store.concurrency.interrupts import Hold, held
from agents_ledger.store.database import CommitCallback
from agents_ledger.store.postgres.server_watch import Watch
from agents_ledger.store.postgres.server_watch import WatchedConnection as Connection

T = TypeVar("T")

# A standby that does not give a connection within this time is left alone for a while.
CONNECT_SECONDS = 2.0
PAUSE_SECONDS = 10.0
# Connections are made anew after this time: one may lead to the primary, from when no standby was
# there.
LIFETIME_SECONDS = 300.0

LOG_LENGTH = "SELECT CAST(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') AS BIGINT)"
# Of a server that is no standby nothing is left to be replayed.
REPLAYED = """
    SELECT CASE WHEN pg_is_in_recovery()
        THEN CAST(pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') AS BIGINT) END
"""


class Behind(Exception):
    """No standby can be read as it is now."""


class Primary(Protocol):
    def log_length(self) -> int:
        """How much the primary has written to its log, by LOG_LENGTH."""

    def configure(self, connection: Connection, watch: Watch) -> None:
        """Prepare a connection that was just made."""


class Standby:
    def __init__(self, primary: Primary, conninfo: str, pool_max: int, wait_seconds: float) -> None:
        self._primary = primary
        self._watch = Watch(conninfo, wait_seconds)
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo,
            connection_class=Connection,
            min_size=0,
            max_size=pool_max,
            timeout=CONNECT_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            kwargs={"autocommit": True},
            configure=lambda connection: primary.configure(connection, self._watch),
            open=True,
        )
        self._guard = threading.Lock()
        self._written = True  # by this handle, since the primary was asked
        self._required = 0  # length of the log that has to be replayed
        self._paused_until = 0.0
        self._replayed: weakref.WeakKeyDictionary[Connection, int] = weakref.WeakKeyDictionary()

    def note_write(self) -> None:
        """What is read from now on includes what was committed before."""
        self._written = True

    def read(self, attempt: Callable[[Connection, Hold], T]) -> T:
        """What `attempt` reads on a standby; Behind if it has to be read from the primary."""
        if time.monotonic() < self._paused_until:
            raise Behind
        required = self._log_length()
        with held() as hold:
            try:
                connection = self._pool.getconn(hold.wait_seconds(CONNECT_SECONDS, CONNECT_SECONDS))
            except PoolTimeout as error:
                hold.check()
                self._paused_until = time.monotonic() + PAUSE_SECONDS
                raise Behind from error
            try:
                self._check_replayed(connection, required)
                return attempt(connection, hold)
            except psycopg.Error as error:
                # It was lost, or what is replayed removes what this read still needs.
                raise Behind from error
            finally:
                self._pool.putconn(connection)

    def _log_length(self) -> int:
        with self._guard:
            if self._written:
                self._written = False
                try:
                    self._required = self._primary.log_length()
                except BaseException:
                    self._written = True
                    raise
            return self._required

    def _check_replayed(self, connection: Connection, required: int) -> None:
        """Before the snapshot of the read is taken."""
        if self._replayed.get(connection, -1) >= required:
            return
        [(replayed,)] = connection.execute(REPLAYED).fetchall()
        if replayed is None:
            return
        self._replayed[connection] = replayed
        if replayed < required:
            raise Behind

    def close(self) -> None:
        self._pool.close()
        self._watch.stop()


class NotingAnswer:
    """Hands on the outcome of a write, after it is noted."""

    def __init__(self, answer: CommitCallback, note_write: Callable[[], None]) -> None:
        self._answer = answer
        self._note_write = note_write

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        self._note_write()
        return self._answer.set(result, error)
