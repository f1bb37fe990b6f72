"""The stream of changes: one reader of the ledger, however many pages listen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agents_ledger import Ledger
from agents_ledger.web.api.change_hub import Change, ChangeHub
from tests.statements import Watched


@pytest.fixture
def watched(ledger: Ledger) -> Iterator[tuple[Ledger, list[str]]]:
    """A ledger, and the names of all statements that it read."""
    names: list[str] = []

    class Noting(Watched):
        def noted(self, read, work):  # type: ignore[no-untyped-def]
            value = super().noted(read, work)
            names.extend(name for name, _ in self.ran)
            return value

    original = ledger._core.db
    _, ledger._core.db = Noting.over(original)
    yield ledger, names
    ledger._core.db = original


async def _changes(hub: ChangeHub, ledger: Ledger, count: int) -> list[list[Change]]:
    listeners = [await hub.listen(None, None) for _ in range(count)]
    await asyncio.to_thread(ledger.record, "main", "Hello", "Good day")
    return [[await listener.next()] for listener in listeners]


def test_a_thousand_listeners_cost_the_statements_of_one(
    watched: tuple[Ledger, list[str]],
) -> None:
    ledger, names = watched
    hub = ChangeHub(ledger)

    received = asyncio.run(_changes(hub, ledger, 1000))

    assert {change.kind for changes in received for change in changes} == {"move"}
    assert names.count("last_move") == 1
    assert names.count("moves_since") < 20


def test_a_listener_that_is_gone_is_forgotten(ledger: Ledger) -> None:
    async def listen_and_leave() -> bool:
        hub = ChangeHub(ledger)
        listener = await hub.listen(None, None)
        del listener
        task = hub._task
        assert task is not None
        await task  # nobody listens: it ends
        return True

    assert asyncio.run(listen_and_leave())
