"""A server that is cut off: calls end with an error instead of waiting for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from agents_ledger import Ledger, Locked, StoreUnavailable
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Transaction
from agents_ledger.store.postgres.engine import PostgresDatabase
from tests.conftest import schemas
from tests.pgbouncer import pgbouncer
from tests.waiting import PATIENCE_S, until

BUFFER = 4096
WAIT_SECONDS = 1.0


class Line:
    """A way to a server over TCP that can be cut: then nothing is read or forwarded any more."""

    def __init__(self, server: int) -> None:
        self.server = server
        self._whole = threading.Event()
        self._whole.set()
        self._sockets: list[socket.socket] = []
        self._listening = socket.socket()
        self._listening.bind(("127.0.0.1", 0))
        self._listening.listen()
        self.port: int = self._listening.getsockname()[1]
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        threading.Thread(target=target, args=args, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self.server))
                self._sockets += (client, server)
                self._start(self._forward, client, server)
                self._start(self._forward, server, client)

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(BUFFER):
                self._whole.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        """From now on nothing arrives, and no end of a connection either."""
        self._whole.clear()

    def mend(self) -> None:
        """From now on all arrives, late as it is."""
        self._whole.set()

    def close(self) -> None:
        self._listening.close()
        self._whole.set()
        for end in self._sockets:
            end.close()


@pytest.fixture
def line(postgres_server: str) -> Iterator[Line]:
    """A way to a server."""
    with pgbouncer(postgres_server, "session") as address:
        line = Line(urlsplit(address).port or 0)
        yield line
        line.close()


@pytest.fixture
def address(line: Line) -> Iterator[str]:
    """A ledger at its end."""
    with schemas(f"postgresql://postgres@127.0.0.1:{line.server}/postgres") as new:
        yield new().replace(f":{line.server}/", f":{line.port}/")


def ends(call: Callable[[], object]) -> Exception | None:
    """What a call raises; it must end."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the call hangs"
    return errors[0] if errors else None


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.record("main", "q", "r"),
        lambda ledger: ledger.thread("main"),
    ],
    ids=["write", "read"],
)
def test_a_call_ends_when_the_server_stops_answering(
    line: Line, address: str, call: Callable[[Ledger], object]
) -> None:
    ledger = Ledger(Core(PostgresDatabase(address, wait_seconds=WAIT_SECONDS)))
    ledger.record("main", "q", "r")
    line.cut()

    error = ends(lambda: call(ledger))

    assert isinstance(error, StoreUnavailable)
    line.mend()
    assert ledger.record("main", "q", "r").depth >= 2
    ledger.close()


def test_a_long_statement_of_a_server_that_answers_is_waited_for(address: str) -> None:
    database = PostgresDatabase(address, wait_seconds=0.5)

    rows = database.read(lambda tx: tx.execute("SELECT pg_sleep(3), 1"))

    assert [row[1] for row in rows] == [1]
    database.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a setting of Linux")
def test_connections_notice_that_their_server_is_gone(line: Line, address: str) -> None:
    def options(tx: Transaction) -> list[int]:
        with socket.socket(fileno=socket.dup(tx.cursor.connection.fileno())) as own:  # type: ignore[attr-defined]
            return [
                own.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPCNT)
            ]

    default = PostgresDatabase(address)
    chosen = PostgresDatabase(f"{address}&tcp_user_timeout=1000")

    assert default.read(options) == [30_000, 10, 3]
    assert chosen.read(options) == [1_000, 10, 3]
    default.close()
    chosen.close()


def test_a_write_that_waits_for_a_lock_ends(address: str) -> None:
    database = PostgresDatabase(address, wait_seconds=0.5)
    locked, done = threading.Event(), threading.Event()

    def lock(tx: Transaction) -> None:
        tx.execute("LOCK TABLE sessions")
        locked.set()
        done.wait(PATIENCE_S)

    holder = threading.Thread(target=lambda: database.write(lock))
    holder.start()
    locked.wait(PATIENCE_S)

    with pytest.raises(Locked):
        database.write(lambda tx: tx.execute("LOCK TABLE sessions"))
    done.set()
    holder.join()
    database.close()


def test_the_server_ends_a_transaction_whose_client_does_nothing(address: str) -> None:
    database = PostgresDatabase(address)

    rows = database.write(
        lambda tx: tx.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
    )

    assert rows == [("1min",)]
    database.close()


def test_long_statements_that_take_every_connection_are_waited_for(postgres_server: str) -> None:
    errors: list[Exception] = []
    with pgbouncer(postgres_server, "transaction", size=2) as pooler, schemas(pooler) as new:
        database = PostgresDatabase(new(), wait_seconds=0.5)

        def read() -> None:
            try:
                database.read(lambda tx: tx.execute("SELECT pg_sleep(4)"))
            except Exception as error:
                errors.append(error)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        database.close()

    assert errors == []


def test_a_lease_is_renewed_after_it_had_to_wait_for_a_lock(address: str) -> None:
    database = PostgresDatabase(address, wait_seconds=0.3, lease_ms=400)
    other = PostgresDatabase(address)
    ledger = Ledger(Core(database))
    turn = ledger.turn("main", "q")

    def migrate(tx: Transaction) -> None:
        threading.Event().wait(1.5)  # longer than a renewal waits

    connection = other.connect()
    other.attempt(connection, "migrate", migrate)
    connection.close()

    until(lambda: other.read(lambda tx: tx.run("other_writers", id=""))[0][2] < 400)
    turn.respond("r")
    ledger.close()
    other.close()
