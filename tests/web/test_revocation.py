"""Streams are ended by one check for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.asgi.revocation import StreamLease, StreamWatch
from agents_ledger.ledger.access import Tokens
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
