"""The server engine: PostgreSQL through psycopg, one PostgreSQL schema per ledger.

`postgresql://user@host/db?schema=team` keeps the ledger in the schema `team`; without it, in
`agents_ledger`.

No state is kept on a connection between two transactions: behind a pooler in transaction mode the
next one runs on another session, perhaps of another ledger. Every transaction sets its own search
path and limits, with SET LOCAL; locks end with their transaction; a writer's life is a lease.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg_pool import ConnectionPool, PoolTimeout

from agents_ledger.model.errors import (
    OPEN_TO_WRITE,
    Locked,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    Refused,
    Unreachable,
)
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.store import migrations
from agents_ledger.store.concurrency.interrupts import NOT_HELD, Hold, held
from agents_ledger.store.database import (
    UNDONE,
    CommitCallback,
    Engine,
    Row,
    ServerWork,
    Transaction,
    Work,
    Writer,
)
from agents_ledger.store.postgres import address as postgres_address
from agents_ledger.store.postgres import health
from agents_ledger.store.postgres.call_queue import CallQueue, answer_with
from agents_ledger.store.postgres.errors import ASK_FOR_RIGHTS, translate
from agents_ledger.store.postgres.query import run_query
from agents_ledger.store.postgres.server_watch import Watch
from agents_ledger.store.postgres.server_watch import WatchedConnection as Connection
from agents_ledger.store.postgres.standby import (
    Behind,
    NotingAnswer,
    Position,
    Standby,
    position,
)
from agents_ledger.store.postgres.statements import WORDS, PostgresTransaction
from agents_ledger.store.postgres.writer import PostgresWriter
from agents_ledger.store.sealed_cache import SealedCache
from agents_ledger.store.tables.copying import DERIVED, TABLES
from agents_ledger.store.text import unescape_rows

T = TypeVar("T")
Kind = Literal["read", "read anywhere", "write", "migrate"]

POOL_MAX = 10
WAIT_SECONDS = 30.0
# A writer unseen for longer is dead. A lease, since a session lock would belong to the pooler; a
# process suspended for longer loses its live turns.
LEASE_MS = 60_000
# After this the server ends a transaction whose client does nothing, and with it the locks.
IDLE_SECONDS = 60
# A session keeps the plans of foreign-key checks and guards, also those made while the tables were
# tiny: a young ledger would be read whole for every turn. What writes looks up single rows.
LOOK_UP = (
    "enable_seqscan TO off",
    "enable_hashjoin TO off",
    "enable_mergejoin TO off",
    "plan_cache_mode TO force_generic_plan",
    "jit TO off",
)
# A write that finds its rows stored, as a retry does, writes nothing, so the server would not wait
# for a standby: what the first try stored may not be there yet. A record in the log makes it wait.
COMMIT = (
    "SELECT pg_logical_emit_message(true, 'agents_ledger', '')"
    " WHERE pg_current_xact_id_if_assigned() IS NULL; COMMIT"
)
# How long Ctrl-C may have to wait for a thread that waits for a connection.
INTERRUPT_SECONDS = 0.25


class PostgresDatabase:
    engine: Engine = "postgresql"

    def __init__(
        self,
        address: str,
        *,
        create: bool = True,
        read_only: bool = False,
        pool_max: int = POOL_MAX,
        wait_seconds: float = WAIT_SECONDS,
        lease_ms: int = LEASE_MS,
        limits: LedgerLimits = LIMITS,
    ) -> None:
        self.limits = limits
        self.address = postgres_address.without_password(address)
        conninfo, self.schema, reads_standby = postgres_address.split(address)
        with self._errors():
            limited = postgres_address.with_limits(conninfo, wait_seconds)
            self._conninfo = limited
            if reads_standby:
                direct = postgres_address.to_standby if read_only else postgres_address.to_primary
                self._conninfo = direct(limited)
        self._begin = _beginnings(self.schema, wait_seconds)
        self._read_kind: Kind = "read anywhere" if read_only else "read"
        self._newest = migrations.newest()
        self._read_only = read_only
        self.wait_seconds = wait_seconds
        self._lease_ms = lease_ms
        self._pool_max = pool_max
        self._pid = os.getpid()
        self._closed = False
        self._cache = SealedCache()
        self._writer: PostgresWriter | None = None
        # Its threads are started when they are needed.
        self._executor = ThreadPoolExecutor(pool_max, "agents-ledger")
        self._calls = CallQueue(self)
        self._guard = threading.Lock()
        self._watch = Watch(self._conninfo, wait_seconds)
        self._standby: Standby | None = None
        try:
            self._open(create=create, pool_max=pool_max)
            if reads_standby and not read_only:
                apart = postgres_address.to_standby(limited)
                self._standby = Standby(self, apart, pool_max, wait_seconds)
        except BaseException:
            self._watch.stop()
            raise

    def _open(self, *, create: bool, pool_max: int) -> None:
        with self._errors():
            self._prepare(create=create)
            self._pool: ConnectionPool[Connection] = ConnectionPool(
                self._conninfo,
                connection_class=Connection,
                min_size=1,
                max_size=pool_max,
                timeout=self.wait_seconds,
                kwargs={"autocommit": True},
                configure=lambda connection: self.configure(connection, self._watch),
                open=True,
            )

    def _prepare(self, *, create: bool) -> None:
        """Bring the schema up to date, while everyone else who opens it waits."""
        connection = self.connect()
        try:
            current = self.attempt(connection, self._read_kind, self._version)
            if current is None and (self._read_only or not create):
                raise NotFound(
                    f"there is no ledger at {self.address}",
                    "Create it with `agents-ledger --ledger ADDRESS up`, or name another one.",
                )
            # Without the lock of a migration: opening a current ledger must not wait for other
            # writers.
            if current == self._newest:
                return
            if self._read_only:
                raise ReadOnly(f"{self.address} needs a newer schema, and was opened for reading")
            while self.attempt(connection, "migrate", self._migrate):
                pass
        finally:
            connection.close()

    def _version(self, tx: PostgresTransaction) -> int | None:
        """The schema's number; None: there is no such PostgreSQL schema."""
        rows = tx.execute(
            "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = ?",
            (self.schema,),
        )
        if not rows:
            return None
        # A role without USAGE sees no tables: the schema would look empty, and would be filled.
        if not rows[0][0]:
            raise ReadOnly(f"{self.address} forbids this: permission denied", ASK_FOR_RIGHTS)
        return migrations.version(tx, self.engine, self.address)

    def _migrate(self, tx: PostgresTransaction) -> bool:
        """The next step to the newest schema; whether there is another."""
        # Not CREATE SCHEMA IF NOT EXISTS: that needs the right to create one even if it exists.
        if self._version(tx) is None:
            tx.execute(f'CREATE SCHEMA "{self.schema}"')
        return migrations.migrate_step(tx, self.engine, WORDS, self.address)

    def configure(self, connection: Connection, watch: Watch) -> None:
        """Name no prepared statement where a pooler is found: the next transaction may run on a
        session that does not have it.

        A pooler gives its clients process ids of its own, for cancelling.
        """
        [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        if pid != connection.info.backend_pid:
            connection.is_pooled = True
            connection.prepare_threshold = None
        watch.add(connection)

    def connect(self) -> Connection:
        connection = Connection.connect(self._conninfo, autocommit=True)
        try:
            self.configure(connection, self._watch)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            translated = translate(error, self.address)
            if translated is error:
                raise
            raise translated from error

    def _check_usable(self) -> None:
        if self._closed:
            raise Refused("this ledger is closed", "Open it again.")
        if os.getpid() != self._pid:
            raise Refused(
                "this ledger was opened before the process forked", "Open it again in the child."
            )

    # -- writing ------------------------------------------------------------------------------

    def _check_writable(self) -> None:
        self._check_usable()
        if self._read_only:
            raise ReadOnly(f"{self.address} was opened for reading only", OPEN_TO_WRITE)

    def write(self, work: Work[T]) -> T:
        self._check_writable()
        try:
            if hasattr(work, "call"):
                result: T = self._calls.run(work)
                return result
            return self.write_alone(work)
        finally:
            self._note_write()

    def _note_write(self) -> None:
        if self._standby is not None:
            self._standby.note_write()

    def write_alone(self, work: Work[T]) -> T:
        with self._errors():
            return self._transact("write", work)

    def call(self, works: Sequence[ServerWork], hold: Hold) -> list[Any]:
        """Works in one call of a function of the server, which is a transaction of its own."""
        with self._errors():
            call = works[0].call(works)
            if call is None:
                return [UNDONE] * len(works)
            values = (self.schema, self._newest, *call.values)
            marks = ", ".join(["%s"] * len(values))
            sql = f'SELECT * FROM "{self.schema}".{call.function}({marks})'
            connection = self._take_connection(hold)
            try:
                with connection.confirmed():
                    rows = hold.interruptible(connection.execute, sql, values).fetchall()
                return call.results(unescape_rows(rows))
            except psycopg.Error as error:
                if connection.closed:
                    raise OutcomeUnknown(f"the connection was lost: {error}") from error
                return [UNDONE] * len(works)
            except BaseException:
                connection.close()
                raise
            finally:
                self._pool.putconn(connection)

    def _transact(self, kind: Kind, work: Callable[[PostgresTransaction], T]) -> T:
        """Do `work`, again where the server undid it: a deadlock, or a connection that broke.

        Each broken connection leaves the pool, so as many tries as it can hold reach a good one,
        unless it takes too long to notice that they are broken.
        """
        tries, end = self._pool_max + 2, time.monotonic() + self.wait_seconds
        while True:
            tries -= 1
            with held() as hold:
                connection = self._take_connection(hold)
                try:
                    return self.attempt(connection, kind, work, hold)
                except (pg.SerializationFailure, pg.DeadlockDetected):
                    if not tries:
                        raise
                except psycopg.OperationalError:
                    if not connection.closed or not tries or time.monotonic() > end:
                        raise
                finally:
                    self._pool.putconn(connection)

    def _take_connection(self, hold: Hold) -> Connection:
        """A connection of the pool. The wait cannot be interrupted, as the pool would lose the
        connection that it hands out just then; so it is a short one, again and again."""
        end = time.monotonic() + self.wait_seconds
        while True:
            left = end - time.monotonic()
            try:
                return self._pool.getconn(hold.wait_seconds(left, INTERRUPT_SECONDS))
            except PoolTimeout:
                hold.check()
                if time.monotonic() >= end:
                    raise

    def attempt(
        self,
        connection: Connection,
        kind: Kind,
        work: Callable[[PostgresTransaction], T],
        hold: Hold = NOT_HELD,
    ) -> T:
        """Do `work` in one transaction."""
        only_reads = kind in ("read", "read anywhere")
        cache = self._cache if only_reads else None
        try:
            began = self._began(connection, kind)
            if kind == "write":
                self._refuse_newer(began)
            result = hold.interruptible(work, PostgresTransaction(connection, self.limits, cache))
        except Exception:
            if not connection.closed:
                connection.execute("ROLLBACK")
            raise
        except BaseException:
            # Interrupted in the middle of an answer, the driver could take the rest of it for the
            # next one.
            connection.close()
            raise
        try:
            if only_reads:
                # Nothing that was read needs a commit, and nothing that a query set shall stay.
                connection.execute("ROLLBACK", prepare=False)
            else:
                with connection.confirmed():
                    connection.execute(COMMIT, prepare=False)
        except psycopg.OperationalError as error:
            undone = isinstance(error, (pg.SerializationFailure, pg.DeadlockDetected))
            if undone or only_reads:
                raise
            # The connection broke after COMMIT was sent: the server may have committed. Doing the
            # work again, as for other broken connections, could record a turn twice.
            raise OutcomeUnknown(f"the commit failed: {error}") from error
        return result

    def _began(self, connection: Connection, kind: Kind) -> psycopg.Cursor[Row]:
        try:
            return connection.execute(self._begin[kind], prepare=False)
        except pg.FeatureNotSupported as error:  # READ WRITE on a server that is in recovery
            raise Unreachable(
                f"{self.address} is a standby: {error}",
                "During a failover, retry the call. Otherwise use an address that leads to the"
                " primary, or open the ledger with read_only=True.",
            ) from error

    def _refuse_newer(self, began: psycopg.Cursor[Row]) -> None:
        """A newer program may have migrated the ledger since this one opened it."""
        while began.nextset():
            pass
        [(number,)] = began.fetchall()
        if number != self._newest:
            raise migrations.newer(self.address, number)

    def submit(self, work: Work[T], answer: CommitCallback) -> Callable[[], bool]:
        with held(), self._guard:
            self._check_writable()
            if self._standby is not None:
                answer = NotingAnswer(answer, self._standby.note_write)
            if hasattr(work, "call"):
                lead = partial(self.start, self._calls.lead)
                return partial(self._calls.withdraw, self._calls.submit(work, answer, lead))
            return self.start(partial(answer_with, answer, partial(self.write, work))).cancel

    def start(self, function: Callable[[], object]) -> Future[object]:
        return self._executor.submit(function)

    def restore(self, work: Work[T]) -> T:
        def unguarded(tx: Transaction) -> T:
            tx.defer_references()
            migrations.drop_made(tx, self.engine)
            result = work(tx)
            tx.execute("SET CONSTRAINTS ALL IMMEDIATE")
            _continue_numbers(tx)
            migrations.make(tx, self.engine)
            return result

        return self.write(unguarded)

    def writer(self) -> Writer:
        self._check_writable()
        with held(), self._guard, self._errors():
            if self._writer is None:
                self._writer = PostgresWriter(self, self._lease_ms)
            return self._writer

    def known_writer(self) -> Writer | None:
        return self._writer

    def is_dead(self, writer_id: str, unseen_ms: int) -> bool:
        return unseen_ms > self._lease_ms

    def remove_dead_writers(self) -> None:
        """Nothing of a writer is kept outside the tables."""

    # -- reading ------------------------------------------------------------------------------

    def read(self, work: Work[T]) -> T:
        self._check_usable()
        with self._errors():
            return self._transact(self._read_kind, work)

    def read_anywhere(self, work: Work[T]) -> T:
        if self._standby is None:
            return self.read(work)
        self._check_usable()
        with self._errors():
            noted = self._standby.noting(work)
            try:
                return self._standby.read(partial(self._read_once, work=noted))
            except Behind:
                return self._transact("read", noted)

    def _read_once(self, connection: Connection, hold: Hold, work: Work[T]) -> T:
        return self.attempt(connection, "read anywhere", work, hold)

    def position(self) -> Position:
        return self._transact("read", position)

    def read_at_once(self, work: Work[T]) -> T:
        raise Locked("a database server is asked over the network, and its answer waited for")

    # It would keep a connection from others.
    snapshot = staticmethod(contextlib.nullcontext)

    def query(self, sql: str) -> tuple[list[str], list[Row]]:
        self._check_usable()
        with self._errors():
            connection = self.connect()
            try:
                return self.attempt(
                    connection, self._read_kind, lambda tx: run_query(tx.cursor, sql)
                )
            finally:
                connection.close()

    def save_to(self, file: Path) -> bool:
        return False

    def forget_read(self) -> None:
        self._cache.clear()

    def scrub(self) -> bool:
        # Only a table written anew has no room in which removed rows still stand.
        with self._errors():
            connection = self.connect()
            try:
                for table in (*TABLES, *DERIVED, *_SEARCHED):
                    connection.execute(f'VACUUM (FULL) "{self.schema}".{table}', prepare=False)
            finally:
                connection.close()
        return True

    def facts(self) -> dict[str, Any]:
        with self._errors():
            pooler = health.pooler(self.connect)
        return {"schema": self.schema, "pooler": pooler, **self.read(health.facts)}

    def close(self) -> None:
        with held():
            self._close()

    def _close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        with self._guard:
            self._closed = True
        self._calls.finish()
        self._executor.shutdown()
        if self._writer is not None:
            self._writer.close()
        self._pool.close()
        if self._standby is not None:
            self._standby.close()
        self._watch.stop()


_SEARCHED = ("search_docs", "search_waiting", "search_words", "search_vectors")


def _continue_numbers(tx: Transaction) -> None:
    """Let every numbered table count on from the rows it was filled with."""
    for table, key, step in tx.execute(
        "SELECT table_name, column_name, identity_increment FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND is_identity = 'YES'"
    ):
        # The log of evidence counts down below 0 until its leaves are sequenced.
        last = f"max({key})" if step == "1" else f"LEAST(min({key}), 0)"
        tx.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'),"
            f" COALESCE((SELECT {last} FROM {table}), 0) + {step}, false)"
        )


def _beginnings(schema: str, wait_seconds: float) -> dict[Kind, str]:
    """How each kind of transaction begins: several statements, sent in one round trip.

    Writers share a lock that a migration takes alone: whoever finds the schema it knows can rely
    on it until its transaction ends.
    """
    write = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    path = f'SET LOCAL search_path TO "{schema}"'
    lock = f"hashtext('agents_ledger:{schema}')"
    # One snapshot for all statements of a read, as on SQLite.
    read = "BEGIN ISOLATION LEVEL REPEATABLE READ"
    return {
        # A standby refuses READ WRITE. A handle that writes would miss there what it has written,
        # and during a failover a former primary shows what no other server has.
        "read": f"{read} READ WRITE; SET TRANSACTION READ ONLY; {path}",
        "read anywhere": f"{read} READ ONLY; {path}",
        "write": f"{write}; {path}; SET LOCAL lock_timeout TO {int(wait_seconds * 1000)};"
        f" SET LOCAL idle_in_transaction_session_timeout TO {IDLE_SECONDS * 1000};"
        f" {'; '.join(f'SET LOCAL {setting}' for setting in LOOK_UP)};"
        f" SELECT pg_advisory_xact_lock_shared({lock});"
        " SELECT max(number) FROM schema_migrations",
        "migrate": f"{write}; {path}; SELECT pg_advisory_xact_lock({lock})",
    }
