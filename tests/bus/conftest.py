"""A bus over the test's own ledger, whose rules must hold at the end of every test."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.bus import AgentBus

Ask = Callable[..., Any]


@pytest.fixture
def ledger_bus(ledger: Ledger) -> Iterator[AgentBus]:
    """A bus with the ledger's abilities on it."""
    yield AgentBus(ledger)
    assert ledger.audit() == ()


@pytest.fixture
def ask(ledger_bus: AgentBus) -> Ask:
    """Invoke an ability with plain values; the answer as plain values."""

    def invoke(ability_id: str, **given: Any) -> Any:
        return json.loads(ledger_bus.invoke(ability_id)(json.dumps(given)))

    return invoke
