"""The queue after a crash: nothing is lost, and nothing that had begun is asked again."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

from agents_ledger import Ledger, Queue
from agents_ledger.ledger.core import Core
from tests.contract.test_recovery import database, kill

CLAIMER = """
import asyncio, sys
from agents_ledger import Ask, AsyncLedger, AsyncQueue, Message

async def main():
    async with AsyncLedger.open(sys.argv[1]) as ledger:
        queue = AsyncQueue(ledger)
        for name in ("begun", "claimed"):
            for number in (1, 2):
                ask = Ask((Message("user", f"{name} {number}"),))
                await queue.enqueue(name, ask, id=f"{name}-{number}")
        begun = await queue.claim("begun")
        turn = await queue.begin(begun, "begun 1")
        await turn.stream("half")
        await queue.claim("claimed")
        print("writing", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_after_kill_nothing_queued_is_lost_or_asked_twice(address: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMER, address], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        kill(process, address)

    with closing(Ledger(Core(database(address)))) as ledger:
        (failed,) = ledger.recover()
        queue = Queue(ledger)

        assert {entry.id: entry.status for entry in queue.entries(everything=True)} == {
            "begun-1": "failed",
            "begun-2": "waiting",
            "claimed-1": "waiting",
            "claimed-2": "waiting",
        }
        assert queue.get("begun-1").turn_id == failed
        assert queue.get("begun-1").error == "the process that wrote this turn died"
        assert queue.get("claimed-1").turn_id is None
        assert queue.get("begun-1").ask is not None
        assert ledger.get_turn(failed).messages[-1].content == "half"
