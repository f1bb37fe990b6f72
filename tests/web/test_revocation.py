"""Streams are ended by one check for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.asgi.revocation import StreamLease, StreamWatch
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from tests.waiting import PATIENCE_S

LEASES = 1000


def test_a_thousand_streams_cost_one_query_for_each_check(tmp_path: Path) -> None:
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        tokens = Tokens(ledger._core)
        stays, goes = tokens.create("stays")[0], tokens.create("goes")[0]
        asked: list[Collection[str]] = []

        def valid_ids(ids: Collection[str]) -> set[str]:
            asked.append(ids)
            return tokens.valid_ids(ids)

        async def follow() -> list[StreamLease]:
            watch = StreamWatch(valid_ids, check_s=0.05)
            leases = [
                StreamLease(token.id, lambda: True)
                for token in (stays, goes)
                for _ in range(LEASES // 2)
            ]
            for lease in leases:
                watch.add(lease)
            tokens.revoke(goes.id)
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(*(lease.ended.wait() for lease in leases[LEASES // 2 :]))
            checks = len(asked)
            for lease in leases:
                watch.remove(lease)
            await asyncio.sleep(0.2)
            assert len(asked) <= checks + 1  # nobody listens: nobody asks
            return leases

        leases = asyncio.run(follow())

    assert len(asked) < 10
    assert asked[0] == {stays.id, goes.id}
    assert not any(lease.ended.is_set() for lease in leases[: LEASES // 2])


def test_a_login_that_ends_ends_its_stream_while_tokens_cannot_be_checked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = 0
    broken = True

    def valid_ids(ids: Collection[str]) -> Collection[str]:
        nonlocal asked
        asked += 1
        if broken:
            raise OSError("the database does not answer")
        return ids

    async def follow() -> None:
        nonlocal broken
        watch = StreamWatch(valid_ids, check_s=0.01)
        ended, goes_on = StreamLease("a", lambda: asked < 5), StreamLease("b", lambda: True)
        watch.add(ended)
        watch.add(goes_on)
        async with asyncio.timeout(10):
            await ended.ended.wait()
        assert not goes_on.ended.is_set()
        for outage in (1, 2):
            assert len(caplog.records) == outage
            broken = False
            seen = asked
            while asked < seen + 3:
                await asyncio.sleep(0.01)
            broken = True
            while asked < seen + 6:
                await asyncio.sleep(0.01)
        watch.remove(ended)
        watch.remove(goes_on)

    with caplog.at_level(logging.WARNING, "agents_ledger.web"):
        asyncio.run(follow())
    assert len(caplog.records) == 3
