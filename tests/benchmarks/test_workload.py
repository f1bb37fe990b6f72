"""What the benchmarks compare the ledger with stores the same rows."""

from __future__ import annotations

from pathlib import Path

from agents_ledger import Ledger
from benchmarks import workload


def test_the_statements_that_a_recording_gave_to_the_driver_store_its_rows(tmp_path: Path) -> None:
    template = tmp_path / "template.db"
    pairs = [(f"agent-{number}", turn) for number, turn in enumerate(workload.turns(2))]
    with workload.unindexed():
        with Ledger.open(str(template)) as ledger:
            for session, turn in pairs:
                turn.record(ledger, session)
        recorded = workload.capture(workload.copy_of(template, "recorded.db"), pairs)

    by_hand = workload.copy_of(template, "by-hand.db")
    connection = workload.connect(by_hand)
    workload.commit_at_once(connection, workload.by_table(recorded))
    connection.close()

    assert all(len(turn.writes) > 5 for turn in recorded)
    assert workload.same_rows(tmp_path / "recorded.db", by_hand)
    assert not workload.same_rows(template, by_hand)
