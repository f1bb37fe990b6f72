"""Every contract test ends with the audit of its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger, NotFound


@pytest.fixture(autouse=True)
def audited(request: pytest.FixtureRequest) -> Iterator[None]:
    """No rule may be broken, whatever the test did; `unsound` marks those that break one."""
    if "address" not in request.fixturenames:
        yield
        return
    address: str = request.getfixturevalue("address")
    yield
    if request.node.get_closest_marker("unsound"):
        return
    if not address.startswith("postgres") and not Path(address).exists():
        return
    try:
        ledger = Ledger.open(address, create=False, read_only=True)
    except NotFound:
        return
    with ledger:
        assert ledger.audit() == ()
