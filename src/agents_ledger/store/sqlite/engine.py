"""The embedded engine: the standard library's sqlite3 on one file.

Nothing but SQLite may ever open the ledger file, its -wal or -shm in this process: closing any
other descriptor of it would drop SQLite's locks. Sizes are asked with stat.
"""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from agents_ledger.model.errors import (
    OPEN_TO_WRITE,
    Damaged,
    DiskFull,
    Locked,
    NotALedger,
    NotFound,
    OutcomeUnknown,
    ReadOnly,
    Refused,
    StoreUnavailable,
)
from agents_ledger.model.installation import settings
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.store import migrations
from agents_ledger.store.checks.row_types import undecoded_column, wrong_values
from agents_ledger.store.concurrency.group_commit import GroupCommit
from agents_ledger.store.concurrency.interrupts import Hold, held
from agents_ledger.store.concurrency.locks import WriteQueue, note_closed, note_open
from agents_ledger.store.database import CommitCallback, Engine, Row, Transaction, Work, Writer
from agents_ledger.store.sealed_cache import SealedCache
from agents_ledger.store.sqlite.errors import DRIVER_ERRORS, name_of, translate
from agents_ledger.store.sqlite.file import OpenFile, check_leftovers
from agents_ledger.store.sqlite.log import LogKeeper, LogLimits
from agents_ledger.store.sqlite.query_rights import only_reading
from agents_ledger.store.sqlite.readers import ReaderPool
from agents_ledger.store.sqlite.scrubbing import scrub
from agents_ledger.store.sqlite.statements import PLAIN, WORDS, ReadStatements, Statements
from agents_ledger.store.sqlite.writers import SqliteWriter, remove_dead_writers, writer_lock
from agents_ledger.store.text import unescape_rows

T = TypeVar("T")
Connect = Callable[..., Any]

APPLICATION_ID = 0x4147_4C47  # "AGLG", in the file's header
WAIT_SECONDS = 30.0
# Somebody may delete the lock file of a writer that lives. Without the file only time can tell: a
# writer unseen for a day is dead.
UNSEEN_MS = 24 * 3600 * 1000
LOG_LIMITS = LogLimits()
# Filled as needed. SQLite's default of 2 MB holds less than one search reads.
CACHE_KB = 8 * 1024


class _WriteSession:
    def __init__(self, connection: Any, queue: WriteQueue, database: SqliteDatabase) -> None:
        statements = Statements(connection, database.limits)
        self.transaction: Transaction = statements
        self._connection = connection
        self._execute = statements.execute
        self._queue = queue
        self._database = database
        self.schema_changes = 0  # SQLite counts rows only
        self._schema_seen: int | None = None

    def begin(self, hold: Hold) -> None:
        # Whatever interrupted the last transaction may have kept it from its own rollback.
        self.roll_back()
        try:
            hold.interruptible(self._queue.__enter__)
            # IMMEDIATE: a reader that later writes would otherwise fail half way.
            self._execute("BEGIN IMMEDIATE")
            # Under the write lock: a file replaced before this point would take writes nobody finds
            # again.
            self._database.file.check()
            self._check_schema()
        except BaseException:
            try:
                self.roll_back()
            finally:
                self._queue.__exit__()
            raise

    def _check_schema(self) -> None:
        """SQLite counts changes of the schema; views and guards made anew count, too."""
        # Reading the cookie takes microseconds; the table of migrations is read only when it
        # changed.
        changed = self._execute("PRAGMA schema_version")[0][0]
        if changed != self._schema_seen:
            migrations.refuse_upgraded(self.transaction, self._database.address)
            self._schema_seen = changed

    def restart(self) -> None:
        self._execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        try:
            self._execute("COMMIT")
        except sqlite3.Error as error:
            translated = translate(error, self._database.address)
            # For these SQLite guarantees that nothing was committed. After any other error, such as
            # a failed fsync, the transaction may or may not survive a crash.
            if isinstance(translated, (DiskFull, Refused, Locked)):
                raise
            raise OutcomeUnknown(f"the commit failed: {error}") from error
        self._database.file.check_committed()

    def roll_back(self) -> None:
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    def end(self) -> None:
        try:
            self.roll_back()
            # What is committed stays so if this fails: it is tried again after the next commit.
            with suppress(sqlite3.Error, StoreUnavailable):
                log = self._database.log
                if log.is_due() and self._database.file.is_current():
                    log.checkpoint(self._connection)
        finally:
            self._queue.__exit__()

    def is_open(self) -> bool:
        return bool(self._connection.in_transaction)

    def changes(self) -> int:
        return int(self._connection.total_changes) + self.schema_changes

    def savepoint(self) -> None:
        self._execute("SAVEPOINT member")

    def release(self) -> None:
        self._execute("RELEASE member")

    def roll_back_to(self) -> None:
        self._execute("ROLLBACK TO member")

    def error(self, error: Exception) -> Exception:
        return translate(error, self._database.address)


class SqliteDatabase:
    engine: Engine = "sqlite"

    def __init__(
        self,
        address: str,
        *,
        create: bool = True,
        read_only: bool = False,
        connect: Connect = sqlite3.connect,
        wait_seconds: float = WAIT_SECONDS,
        log_limits: LogLimits | None = None,
        limits: LedgerLimits = LIMITS,
    ) -> None:
        self.address = address
        self.limits = limits
        self.path = Path(os.path.realpath(address.removeprefix("sqlite:///")))
        if self.path.is_dir():
            raise NotALedger(f"{self.path} is a folder")
        self._connect = connect
        self._read_only = read_only
        self._wait_seconds = wait_seconds
        self._pid = os.getpid()
        self._queue = WriteQueue(self.path, wait_seconds)
        self.file = OpenFile(self.path)
        self._log_limits = log_limits or LOG_LIMITS
        self.log = LogKeeper(self.path, self._log_limits, self._new_connection)
        self._cache = SealedCache()
        self._readers = ReaderPool(self._new_reader, self._cache, limits)
        self._hasty_readers = ReaderPool(self._new_reader, self._cache, limits, wait=False)
        self._snapshots = threading.local()
        self._writer: SqliteWriter | None = None
        self._guard = threading.Lock()
        self._thread: _LeaderThread | None = None
        self._closed = False
        self._immutable = False
        try:
            self._open_file(create=create)
        except BaseException:
            self._close_readers()
            raise
        note_open(self.path)

    def _check_path(self, *, create: bool) -> None:
        if not self.path.exists():
            if self._read_only or not create:
                raise self._no_ledger()
            if not self.path.parent.is_dir():
                raise NotFound(
                    f"there is no folder {self.path.parent} to keep a ledger in",
                    "Make the folder first, or give another address.",
                )

    def _open_file(self, *, create: bool) -> None:
        self._check_path(create=create)
        check_leftovers(self.path, self._queue.signed_inodes())
        try:
            if self._read_only:
                if not self._schema():
                    raise self._no_ledger()
                return
            if not self.path.exists() or not self._is_made():
                self._make()
            connection = self._new_connection()
            self.file.note_log()
            self._queue.inodes = self.file.inodes()
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error
        self._connection = connection
        self._session = _WriteSession(connection, self._queue, self)
        self._group = GroupCommit(self._session)

    def _no_ledger(self) -> NotFound:
        is_default = self.path == settings.default_file()
        option = "" if is_default else f" --ledger {shlex.quote(str(self.path))}"
        return NotFound(
            f"there is no ledger at {self.path}",
            f"Create it with `agents-ledger{option} up`, or name another one with --ledger.",
        )

    def _make(self) -> None:
        """Create the file, or bring it to the newest schema, while everyone else waits."""
        with self._queue:
            if not self.path.exists():
                self._create_file()
            connection = self._new_connection()
            try:
                # Only in a file without tables: user_version 0 in an existing ledger means that its
                # texts may be escaped.
                if not self._refuse_foreign(connection):
                    connection.execute(f"PRAGMA user_version={PLAIN}")
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                # A migration may rebuild a table. Dropping the old one deletes its rows, which
                # references to them would forbid; they are checked at the end instead.
                connection.execute("PRAGMA foreign_keys=OFF")
                self._migrate(connection)
                broken = connection.execute("PRAGMA foreign_key_check").fetchall()
                if broken:
                    raise Damaged(f"{self.address} has dangling references: {broken[:3]}")
            finally:
                connection.close()

    def _migrate(self, connection: Any) -> None:
        statements = Statements(connection)
        missing = True
        while missing:
            statements.execute("BEGIN")
            try:
                missing = migrations.migrate_step(statements, self.engine, WORDS, self.address)
                statements.execute("COMMIT")
            except BaseException:
                statements.execute("ROLLBACK")
                raise

    def _create_file(self) -> None:
        try:
            # Created here rather than by SQLite, which would follow the umask: conversations are
            # private.
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            kind = DiskFull if error.errno == errno.ENOSPC else ReadOnly
            raise kind(f"cannot create {self.path}: {error.strerror}") from error

    def _is_made(self) -> bool:
        try:
            return self._schema() == migrations.newest()
        except sqlite3.OperationalError as error:
            # Cut short while it was being made: only a writer may undo what is half written.
            if name_of(error) != "SQLITE_READONLY_ROLLBACK":
                raise
            return False

    def _schema(self) -> int:
        """The schema's number, read without our turn to write."""
        with self._readers.reading() as transaction:
            self._refuse_foreign(transaction.connection)
            return migrations.version(transaction, self.engine, self.address)

    def _refuse_foreign(self, connection: Any) -> int:
        """How many tables it has, if it is a ledger's or nobody's."""
        marked = connection.execute("PRAGMA application_id").fetchone()[0]
        tables: int = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and marked != APPLICATION_ID:
            raise NotALedger(f"{self.path} is a database of something else")
        return tables

    def _new_connection(self, *, read_only: bool = False) -> Any:
        options = ""
        if read_only:
            options = "?immutable=1" if self._immutable else "?mode=ro"
        elif not self._read_only:
            options = "?mode=rw"
        connection = self.file.connect(
            lambda: self._connect(
                f"{self.path.as_uri()}{options}",
                uri=True,
                isolation_level=None,
                timeout=self._wait_seconds,
                check_same_thread=False,
                cached_statements=512,
            )
        )
        try:
            self._set_up(connection, read_only=read_only)
        except BaseException:
            connection.close()  # an error that is kept would keep its locks
            raise
        return connection

    def _set_up(self, connection: Any, *, read_only: bool) -> None:
        execute = connection.execute
        if not read_only:
            if execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
                raise StoreUnavailable(
                    "this file system cannot hold a ledger: it shares no memory between processes",
                    "Keep the ledger on a local disk.",
                )
            # With synchronous=NORMAL, simulated power cuts lost acknowledged turns. Automatic
            # checkpoints are off because older SQLite can damage its log when one races a write:
            # LogKeeper runs them.
            for setting in ("synchronous=FULL", "fullfsync=ON", "wal_autocheckpoint=0"):
                execute(f"PRAGMA {setting}")
            execute(f"PRAGMA journal_size_limit={self._log_limits.due_bytes}")
            execute(f"PRAGMA cache_size=-{CACHE_KB}")
            execute("PRAGMA temp_store=MEMORY")  # what it takes to undo a statement
            execute("PRAGMA foreign_keys=ON")
            execute("PRAGMA recursive_triggers=ON")  # else REPLACE slips past the guards
        else:
            execute("PRAGMA query_only=ON")

    # -- writing ------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closed:
            raise Refused("this ledger is closed", "Open it again.")
        if os.getpid() != self._pid:
            raise Refused(
                "this ledger was opened before the process forked", "Open it again in the child."
            )

    def _check_writable(self) -> None:
        self._check_usable()
        if self._read_only:
            raise ReadOnly(f"{self.path} was opened for reading only", OPEN_TO_WRITE)

    def write(self, work: Work[T]) -> T:
        self._check_writable()
        result: T = self._group.run(work)
        return result

    def submit(self, work: Work[T], answer: CommitCallback) -> Callable[[], bool]:
        with held(), self._guard:
            self._check_writable()
            if self._thread is None:
                self._thread = _LeaderThread(self._group)
            member = self._group.submit(work, answer, self._thread.start_leading)
        return lambda: self._group.withdraw(member)

    def restore(self, work: Work[T]) -> T:
        self._check_writable()

        def unguarded(tx: Transaction) -> T:
            tx.defer_references()
            # Dropping guards changes no row. Uncounted, a work that fails after this would look as
            # if it had written nothing, and the rest of its batch would be committed without
            # guards.
            self._session.schema_changes += 1
            migrations.drop_made(tx, self.engine)
            result = work(tx)
            migrations.make(tx, self.engine)
            return result

        return self.write(unguarded)

    def writer(self) -> Writer:
        self._check_writable()
        with held(), self._guard:
            if self._writer is None:
                self._writer = SqliteWriter(self.path)
            return self._writer

    def known_writer(self) -> Writer | None:
        return self._writer

    def is_dead(self, writer_id: str, unseen_ms: int) -> bool:
        lock = writer_lock(self.path, writer_id)
        if not lock.path.exists():  # somebody cleaned up; the writer may live on
            return unseen_ms > UNSEEN_MS
        return not lock.is_held()

    def remove_dead_writers(self) -> None:
        def writers() -> set[str]:
            return {row[0] for row in self.read(lambda tx: tx.run("other_writers", id=""))}

        remove_dead_writers(self.path, writers)

    # -- reading ------------------------------------------------------------------------------

    def _new_reader(self) -> Any:
        connection = self._new_connection(read_only=True)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            connection.close()
            # On a read-only folder SQLite cannot make its -shm file. Without an unmerged log the
            # file alone is the whole truth.
            is_whole = isinstance(error, sqlite3.OperationalError) and self.log.size() == 0
            if not self._read_only or not is_whole or name_of(error) == "SQLITE_BUSY":
                raise
            self._immutable = True
            connection = self._new_connection(read_only=True)
        if self._read_only:
            connection.execute("PRAGMA query_only=OFF")
            migrations.stand_in(connection.execute)
            connection.execute("PRAGMA query_only=ON")
        connection.execute(f"PRAGMA cache_size=-{CACHE_KB}")
        return connection

    def _close_readers(self) -> None:
        self._readers.close()
        self._hasty_readers.close()

    def read(self, work: Work[T]) -> T:
        self._check_usable()
        self.file.check_readable()
        opened: ReadStatements | None = getattr(self._snapshots, "opened", None)
        try:
            # A snapshot that this thread has open: all reads of a page fit together and begin once.
            if opened is not None:
                return work(opened)
            with self._readers.snapshot() as transaction:
                return work(transaction)
        except DRIVER_ERRORS as error:
            raise self._named(error) or translate(error, self.address) from error

    def _named(self, error: Exception) -> Damaged | None:
        """An error that names the row whose text is none; the driver names its column only."""
        column = undecoded_column(error)
        if column is None:
            return None
        with suppress(sqlite3.Error), self._readers.reading() as transaction:
            for key, text in wrong_values(transaction, column):
                return Damaged(f"the row {key} of {self.address} cannot be read: {text}")
        return Damaged(f"{self.address} is damaged: {column} is not UTF-8")

    read_anywhere = read

    def read_at_once(self, work: Work[T]) -> T:
        self._check_usable()
        try:
            with self._hasty_readers.snapshot() as transaction:
                return work(transaction)
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._check_usable()
        if getattr(self._snapshots, "opened", None) is not None:
            yield
            return
        try:
            with self._readers.snapshot() as transaction:
                self._snapshots.opened = transaction
                try:
                    yield
                finally:
                    self._snapshots.opened = None
        except sqlite3.Error as error:
            raise translate(error, self.address) from error

    def query(self, sql: str) -> tuple[list[str], list[Row]]:
        self._check_usable()
        try:
            with closing(self._new_reader()) as connection:  # whatever is left set dies with it
                connection.set_authorizer(only_reading)
                # Functions on JSON make text of lone surrogates, which is none.
                connection.text_factory = lambda raw: raw.decode(errors="replace")
                cursor = connection.execute(sql)
                columns = [column[0] for column in cursor.description or ()]
                return columns, unescape_rows(cursor.fetchall())
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise Refused(f"the query failed: {error}", "One statement that only reads.") from error

    # -- the file -----------------------------------------------------------------------------

    def save_to(self, file: Path) -> bool:
        connection = self._new_connection(read_only=True)
        try:
            # VACUUM INTO counts as a write, though it writes only the new file.
            connection.execute("PRAGMA query_only=OFF")
            connection.execute("VACUUM INTO ?", (str(file),))
        except sqlite3.Error as error:
            raise translate(error, str(file)) from error
        finally:
            connection.close()
        return True

    def forget_read(self) -> None:
        self._cache.clear()

    def scrub(self) -> bool:
        self._check_writable()
        try:
            return scrub(self._new_connection, WriteQueue(self.path, self._wait_seconds))
        except DRIVER_ERRORS as error:
            raise translate(error, self.address) from error

    def facts(self) -> dict[str, Any]:
        about = os.stat(self.path)
        return {
            "sqlite_version": sqlite3.sqlite_version,
            "journal_mode": self.read(lambda tx: tx.execute("PRAGMA journal_mode"))[0][0],
            "file": str(self.path),
            "file_mode": about.st_mode & 0o777,
            "file_bytes": about.st_size,
            "wal_bytes": self.log.size(),
            "lock_holder": self._queue.holder(),
        }

    def close(self) -> None:
        with held():
            self._close()

    def _close(self) -> None:
        if self._closed or os.getpid() != self._pid:
            return
        with self._guard:
            # Set under the guard, so that no work is submitted after the empty one below.
            self._closed = True
        note_closed(self.path)
        if self._thread is not None:
            with suppress(StoreUnavailable):
                # Queued after everything else, so that nobody is left waiting.
                self._group.run(lambda _: None)
            self._thread.stop()
        self._close_readers()
        self.log.close()
        if not self._read_only:
            # Last: it moves the log into the file, unless that was moved or replaced, which SQLite
            # checks itself (SQLITE_FCNTL_HAS_MOVED).
            self._connection.close()
        if self._writer is not None:
            self._writer.close()
        self._queue.close()


class _LeaderThread:
    """Leads for callers that must not block: asyncio's loop."""

    def __init__(self, group: GroupCommit) -> None:
        self._group = group
        self._wanted = threading.Semaphore(0)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="agents-ledger", daemon=True)
        self._thread.start()

    def start_leading(self) -> None:
        self._wanted.release()

    def _run(self) -> None:
        while True:
            self._wanted.acquire()
            if self._stopped:
                return
            self._group.lead()

    def stop(self) -> None:
        self._stopped = True
        self._wanted.release()
        self._thread.join()
