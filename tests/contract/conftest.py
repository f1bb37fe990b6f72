"""Every contract test ends with the audit of its ledger; the clock tells its turns apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from agents_ledger import Ledger, NotFound, Refused
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Database


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """No rule may be broken, whatever the test did; `unsound` marks those that break one."""
    if "address" not in request.fixturenames:
        yield
        return
    address: str = request.getfixturevalue("address")
    served = address.startswith("postgres") and "db" in request.fixturenames
    db: Database | None = request.getfixturevalue("db") if served else None
    yield
    if request.node.get_closest_marker("unsound"):
        return
    if db is not None:  # its connections know the tables already
        with suppress(Refused):  # it was closed
            assert Ledger(Core(db)).audit() == ()
            return
    if not address.startswith("postgres") and not Path(address).exists():
        return
    try:
        ledger = Ledger.open(address, create=False, read_only=True)
    except NotFound:
        return
    with ledger:
        assert ledger.audit() == ()


@pytest.fixture(autouse=True)
def on_a_ticking_clock(ticking: None) -> None:
    """What is equally old may come in any order."""
