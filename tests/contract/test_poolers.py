"""Ledgers behind a pooler: a transaction runs on any session, and meets nothing of another's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import psycopg
import pytest

from agents_ledger import Ledger, OutcomeUnknown, Refused, Unreachable
from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import new_id
from agents_ledger.store.postgres.engine import PostgresDatabase
from tests.conftest import schemas
from tests.pgbouncer import Mode, pgbouncer
from tests.waiting import until

WRITERS = 64
HANDLES = 4  # of each ledger
TURNS = 6  # of each writer
LEASE_MS = 400


@pytest.fixture(scope="module", params=["transaction", "session"])
def pooler(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[str]:
    """The address of a database of its own behind PgBouncer."""
    mode: Mode = request.param
    # In session mode a client keeps its connection: each handle has its pool and its lease.
    size = 8 if mode == "transaction" else 150
    name = f"pooled_{new_id().lower()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        server = urlsplit(postgres_server)._replace(path=f"/{name}").geturl()
        with pgbouncer(server, mode, size=size) as address:
            yield address
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def new_ledger(pooler: str) -> Iterator[Callable[[], str]]:
    """Addresses of ledgers of one database that do not exist yet."""
    with schemas(pooler) as new:
        yield new


class Writer(threading.Thread):
    """Records turns, and makes a call again when it was not told that it succeeded."""

    def __init__(self, ledger: Ledger, session: str) -> None:
        super().__init__(daemon=True)
        self.ledger = ledger
        self.session = session
        self.acknowledged: list[str] = []
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for _ in range(TURNS):
                self.acknowledged.append(self._record(new_id()))
        except Exception as error:
            self.error = error

    def _record(self, turn_id: str) -> str:
        while True:
            try:
                return self.ledger.record(self.session, "q", "r", id=turn_id).id
            except (OutcomeUnknown, Unreachable):
                continue


def write_all(handles: dict[str, list[Ledger]], meanwhile: Callable[[], None]) -> list[Writer]:
    """Let all writers write at once, each into a session named after its ledger."""
    writers = [
        Writer(ledgers[number % HANDLES], f"{name}-{number}")
        for name, ledgers in handles.items()
        for number in range(WRITERS // len(handles))
    ]
    for writer in writers:
        writer.start()
    meanwhile()
    for writer in writers:
        writer.join()
    assert [writer.error for writer in writers if writer.error] == []
    return writers


def opened(stack: ExitStack, address: str) -> list[Ledger]:
    return [
        stack.enter_context(Ledger(Core(PostgresDatabase(address, pool_max=8))))
        for _ in range(HANDLES)
    ]


def check(handles: dict[str, list[Ledger]], writers: list[Writer]) -> None:
    """Every turn is in the ledger it was written to, in one chain, and nothing else is."""
    for name, (ledger, *_) in handles.items():
        own = [writer for writer in writers if writer.session.startswith(f"{name}-")]
        assert {session.label for session in ledger.sessions()} == {w.session for w in own}
        for writer in own:
            turns = [turn.id for turn in ledger.thread(writer.session).turns]
            assert turns == writer.acknowledged
        assert ledger.audit() == ()


def test_64_writers_write_each_into_its_own_of_two_ledgers(new_ledger: Callable[[], str]) -> None:
    with ExitStack() as stack:
        handles = {name: opened(stack, new_ledger()) for name in ("one", "two")}

        writers = write_all(handles, lambda: None)

        check(handles, writers)
        assert sum(len(writer.acknowledged) for writer in writers) == WRITERS * TURNS


def test_backends_that_end_lose_nothing_that_was_acknowledged(
    new_ledger: Callable[[], str], postgres_server: str
) -> None:
    addresses = {name: new_ledger() for name in ("one", "two")}
    database = urlsplit(addresses["one"]).path.strip("/")
    ended: list[object] = []

    def end_backends() -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            for _ in range(5):
                connection.execute("SELECT pg_sleep(0.1)")
                ended.extend(
                    connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                        (database,),
                    ).fetchall()
                )

    with ExitStack() as stack:
        handles = {name: opened(stack, address) for name, address in addresses.items()}

        writers = write_all(handles, end_backends)

        assert ended
        check(handles, writers)


def test_no_statement_is_prepared_by_name(new_ledger: Callable[[], str]) -> None:
    address = new_ledger()
    with Ledger.open(address) as ledger:
        for _ in range(10):  # the driver prepares what it has seen five times
            ledger.record("main", "q", "r")
        _, rows = ledger.query("SELECT count(*) FROM pg_prepared_statements")

    assert rows == [(0,)]


def test_what_a_query_sets_is_not_met_by_another_ledger(new_ledger: Callable[[], str]) -> None:
    with Ledger.open(new_ledger()) as one, Ledger.open(new_ledger()) as two:
        two.record("main", "q", "r")
        for setting in ("search_path", "default_transaction_read_only"):
            value = "pg_catalog" if setting == "search_path" else "on"
            with suppress(Refused):
                one.query(f"SELECT set_config('{setting}', '{value}', false)")
        for _ in range(20):
            two.record("main", "q", "r")

        assert two.thread("main").depth == 21


def test_a_writer_lives_while_it_renews_its_lease(new_ledger: Callable[[], str]) -> None:
    address = new_ledger()
    with Ledger(Core(PostgresDatabase(address, lease_ms=LEASE_MS))) as writing:
        turn = writing.turn("main", "q")
        with Ledger(Core(PostgresDatabase(address, lease_ms=LEASE_MS))) as other:
            for _ in range(10):
                other.record("other", "q", "r")
                threading.Event().wait(LEASE_MS / 5000)
            assert other.recover() == ()
        turn.respond("r")

        assert writing.head("main") == turn.id


def test_a_writer_that_stopped_renewing_its_lease_is_dead(new_ledger: Callable[[], str]) -> None:
    address = new_ledger()
    left = Ledger(Core(PostgresDatabase(address, lease_ms=LEASE_MS)))
    turn = left.turn("main", "q")
    left.close()
    with Ledger(Core(PostgresDatabase(address, lease_ms=LEASE_MS))) as ledger:
        until(lambda: turn.id in ledger.recover())

        assert ledger.get_turn(turn.id).status == "failed"
