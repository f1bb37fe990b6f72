"""What all stores of other frameworks refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger import Ledger, Refused
from agents_ledger.integrations.claude import LedgerSessionStore
from agents_ledger.integrations.openai_agents import LedgerSession
from agents_ledger.integrations.pydantic_ai import LedgerConversationStore

STORES = (LedgerSessionStore, LedgerConversationStore, lambda ledger: LedgerSession("main", ledger))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("ledger", ["ledger.db", None])
def test_a_store_needs_an_open_ledger(store: Callable[[Any], object], ledger: str | None) -> None:
    with pytest.raises(Refused, match="a store needs an open ledger, not ") as refused:
        store(ledger)

    assert refused.value.hint == "Pass Ledger.open(address)."


def test_a_session_needs_an_id(ledger: Ledger) -> None:
    with pytest.raises(Refused, match="the id of a session is None"):
        LedgerSession(None, ledger)  # type: ignore[arg-type]
