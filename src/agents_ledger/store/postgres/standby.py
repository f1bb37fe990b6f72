"""Reads from a standby of the server, for a handle that writes to the primary.

What a handle reads includes what it has written and what it has read before: it remembers up to
where in the server's log that was, and a standby is read once it has replayed that much. Until
then, and where no standby answers, the primary is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from agents_ledger.store.concurrency.interrupts import Hold, held
from agents_ledger.store.database import CommitCallback, Transaction, Work
from agents_ledger.store.postgres.server_watch import Watch
from agents_ledger.store.postgres.server_watch import WatchedConnection as Connection

T = TypeVar("T")

# A standby that does not give a connection within this time is left alone for a while.
CONNECT_SECONDS = 2.0
PAUSE_SECONDS = 10.0
# A standby is usually behind for less than this; one that is behind for longer is left alone.
CATCH_UP_SECONDS = 0.05
LAG_PAUSE_SECONDS = 1.0
CHECK_SECONDS = 0.002
# Connections are made anew after this time: one may lead to the primary, from when no standby was
# there.
LIFETIME_SECONDS = 300.0

# Where a server's log ends. A standby's timeline is the newest that is noted in its control file:
# after a failover this may take until its next restartpoint, but a former primary, whose log went
# another way, never has the new one.
POSITION = """
    SELECT
        CASE WHEN pg_is_in_recovery()
        THEN GREATEST(
            (SELECT timeline_id FROM pg_control_checkpoint()),
            (SELECT min_recovery_end_timeline FROM pg_control_recovery())
        )
        ELSE
            (SELECT CAST(CAST('x' || left(name, 8) AS BIT(32)) AS INTEGER)
            FROM pg_walfile_name(pg_current_wal_insert_lsn()) AS name)
        END,
        CAST(
            pg_wal_lsn_diff(
                CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                ELSE pg_current_wal_insert_lsn() END,
                '0/0'
            ) AS BIGINT
        )
"""


class Position(NamedTuple):
    """A place in the log. A later timeline includes what was kept of earlier ones."""

    timeline: int
    length: int


def position(tx: Transaction) -> Position:
    [row] = tx.execute(POSITION)
    return Position(*row)


class Behind(Exception):
    """No standby can be read as it is now."""


class Primary(Protocol):
    def position(self) -> Position:
        """Where the primary's log ends."""

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
        self._asking = threading.Lock()
        self._guard = threading.Lock()  # of _required
        self._has_written = True  # this handle, since the primary was asked
        self._required = Position(0, 0)
        self._paused_until = 0.0

    def note_write(self) -> None:
        """What is read from now on includes what was committed before."""
        self._has_written = True

    def noting(self, work: Work[T]) -> Work[T]:
        """A work that reads; what is read after it includes what it has read."""

        def noted(tx: Transaction) -> T:
            result = work(tx)
            self._require(position(tx))
            return result

        return noted

    def _require(self, read: Position) -> None:
        with self._guard:
            self._required = max(self._required, read)

    def read(self, attempt: Callable[[Connection, Hold], T]) -> T:
        """What `attempt` reads on a standby; Behind if it has to be read from the primary."""
        if time.monotonic() < self._paused_until:
            raise Behind
        required = self._required_position()
        with held() as hold:
            try:
                connection = self._pool.getconn(hold.wait_seconds(CONNECT_SECONDS, CONNECT_SECONDS))
            except PoolTimeout as error:
                hold.check()
                self._pause(PAUSE_SECONDS)
                raise Behind from error
            try:
                self._await(connection, required, hold)
                return attempt(connection, hold)
            except psycopg.Error as error:
                # It was lost, or what is replayed removes what this read still needs.
                raise Behind from error
            finally:
                self._pool.putconn(connection)

    def _pause(self, seconds: float) -> None:
        self._paused_until = time.monotonic() + seconds

    def _required_position(self) -> Position:
        # Who comes while the primary is asked may have written too, and waits for its answer.
        with self._asking:
            if self._has_written:
                self._has_written = False
                try:
                    self._require(self._primary.position())
                except BaseException:
                    self._has_written = True
                    raise
        return self._required

    def _await(self, connection: Connection, required: Position, hold: Hold) -> None:
        """Wait for the standby, before the snapshot of the read is taken."""
        if connection.is_pooled:  # another server may answer the next transaction
            self._pause(PAUSE_SECONDS)
            raise Behind
        end = time.monotonic() + CATCH_UP_SECONDS
        while Position(*connection.execute(POSITION).fetchall()[0]) < required:
            if time.monotonic() > end:
                self._pause(LAG_PAUSE_SECONDS)
                raise Behind
            time.sleep(CHECK_SECONDS)
            hold.check()

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
