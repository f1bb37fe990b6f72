"""Every contract test ends with the audit of its ledger and the verification of its evidence; the
clock tells its turns apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agents_ledger import Ledger, NotFound
from agents_ledger.model.evidence.verification import EvidenceFinding
from agents_ledger.model.sessions import Finding
from agents_ledger.store.postgres.engine import PostgresDatabase
from tests.clean_databases import CleanDatabases


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """No rule may be broken, whatever the test did; `unsound` marks those that break one."""
    if "address" not in request.fixturenames:
        yield
        return
    address: str = request.getfixturevalue("address")
    yield
    if not request.node.get_closest_marker("unsound"):
        assert _findings(request, address) == ()


def _findings(
    request: pytest.FixtureRequest, address: str
) -> tuple[Finding | EvidenceFinding, ...]:
    if address.startswith("postgres"):
        if "db" in request.fixturenames:
            databases: CleanDatabases = request.getfixturevalue("clean_databases")
            return databases.audit(address)
    elif not Path(address).exists():
        return ()
    try:
        ledger = Ledger.open(address, create=False, read_only=True)
    except NotFound:
        return ()
    with ledger:
        return (*ledger.audit(), *ledger.verify().findings)


@pytest.fixture(autouse=True)
def on_a_ticking_clock(ticking: None) -> None:
    """What is equally old may come in any order."""


@pytest.fixture
def database(new_schema: Callable[[], str]) -> Iterator[Callable[[], PostgresDatabase]]:
    """Databases with an empty ledger each."""
    with ExitStack() as stack:

        def new() -> PostgresDatabase:
            database = PostgresDatabase(new_schema())
            stack.callback(database.close)
            return database

        yield new
