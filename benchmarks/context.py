"""What a context costs: a thread of 100,000 turns against one of 100, both compacted near the
head."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from agents_ledger import Compaction, Ledger
from benchmarks import workload
from benchmarks.depth import deep
from benchmarks.measure import Goal, Line, alone, interleaved, slower, timed

DEPTHS = (100, 100_000)
KEPT = 10
READS = 50


def context(folder: Path) -> Iterator[Line]:
    """The context of a session, whole and within a budget, with and without a compaction."""
    ledgers = {depth: Ledger.open(str(deep(folder, depth))) for depth in DEPTHS}
    for ledger in ledgers.values():
        ledger.fork("main", label="compacted")
        for turn in workload.turns(KEPT):
            turn.record(ledger, "compacted")
        through, *_ = ledger.thread("compacted", last=KEPT + 1).turns
        first = ledger.thread("compacted", last=KEPT).turns[0]
        ledger.record("compacted", compaction=Compaction("They talked.", through.id, first.id))
        for turn in workload.turns(KEPT, seed=8):
            turn.record(ledger, "compacted")

    def reads(ledger: Ledger, session: str, budget: int | None) -> None:
        for _ in range(READS):
            made = ledger.context(session, "And now?", budget)
            assert budget is not None or made.turns["kept"] == KEPT

    for name, session, budget in (
        ("after a compaction", "compacted", None),
        ("of the last 1,000 tokens, no compaction", "main", 1000),
    ):
        found = interleaved(
            {
                str(depth): partial(timed, partial(reads, ledger, session, budget), READS)
                for depth, ledger in ledgers.items()
            },
            rounds=9,
        )
        said = f"context {name}, depth 100,000 / 100"
        yield slower(said, found["100000"], found["100"], "cpu", Goal("<=", 1.5))
    yield from _forms(ledgers[DEPTHS[-1]])
    for ledger in ledgers.values():
        ledger.close()


def _forms(ledger: Ledger) -> Iterator[Line]:
    """A context in the form of each provider."""
    made = ledger.context("compacted", "And now?")
    for form in ("anthropic", "openai", "openai-responses"):

        def render(form: str = form) -> None:
            for _ in range(READS):
                made.rendered(form)

        found = interleaved({form: partial(timed, render, READS)}, rounds=5)
        yield alone(f"{2 * KEPT} turns as {form}", found[form])
