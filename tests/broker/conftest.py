"""A broker on the test's own ledger, on both engines; every test ends with the audit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import pytest

from agents_ledger import AsyncLedger, Ledger
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.broker.events import RunEvent
from agents_ledger.broker.policy import Policy
from tests.contract.conftest import audited  # noqa: F401
from tests.waiting import PATIENCE_S

T = TypeVar("T")
WithBroker = Callable[..., Any]


@pytest.fixture
def with_broker(address: str) -> WithBroker:
    """Runs what is passed with a broker on the test's ledger, and closes it."""

    def run(
        act: Callable[[Broker], Awaitable[T]],
        policy: Policy | None = None,
        engine: Any = None,
        tools: Iterable[Any] = (),
    ) -> T:
        async def within() -> T:
            async with (
                AsyncLedger.open(address) as ledger,
                Broker(ledger, policy, engine or EchoEngine(), tools=tools) as broker,
            ):
                return await asyncio.wait_for(act(broker), PATIENCE_S)

        return asyncio.run(within())

    return run


@pytest.fixture
def said(ledger: Ledger) -> Callable[..., list[tuple[str, str | None]]]:
    """The messages of a session's thread: role and content."""

    def messages(key: str) -> list[tuple[str, str | None]]:
        return [(m.role, m.content) for turn in ledger.thread(key).turns for m in turn.messages]

    return messages


async def events_of(
    broker: Broker, target: str | None, text: Any, **options: Any
) -> list[RunEvent]:
    """All that is told of one message."""
    return [event async for event in broker.send(target, text, **options)]


async def answer_of(broker: Broker, target: str | None, text: Any, **options: Any) -> Any:
    """The last that is told."""
    return (await events_of(broker, target, text, **options))[-1]
