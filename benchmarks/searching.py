"""What the word index costs the writer, and what a search takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from agents_ledger import Ledger
from benchmarks import reading, workload
from benchmarks.measure import Goal, Line, Took, alone, interleaved, slower, timed
from benchmarks.writers import EACH, Work

ROUNDS = 7
# The words of the workload are few, so each is in nearly every turn: the worst case.
QUESTIONS = {
    "one common word": "release",
    "two words": "release naive",
    "a phrase": '"release notes"',
    "a word nobody said": "xylophone",
}


def searching(folder: Path) -> Iterator[Line]:
    """Appending with every turn indexed in time, against turns that wait."""
    with workload.unindexed():
        work = Work(folder)

    def side(indexed: bool) -> Took:
        with (
            nullcontext() if indexed else workload.unindexed(),
            Ledger.open(str(work.fresh("indexed"))) as ledger,
        ):
            ledger.recover()

            def write() -> None:
                for session, turn in work.pairs * EACH:
                    turn.record(ledger, session)
                ledger._core.index(least=1)

            return timed(write, work.count)

    found = interleaved({"on": partial(side, True), "off": partial(side, False)}, ROUNDS)
    name = "append with the word index / without"
    yield slower(name, found["on"], found["off"], "cpu", Goal("<=", 1.5))
    yield slower(name, found["on"], found["off"], "wall", None)
    yield from _questions(str(reading.long_thread(folder)))


def _questions(path: str) -> Iterator[Line]:
    with Ledger.open(path) as ledger:
        ledger._core.index(least=1)

        def ask(text: str) -> Callable[[], Took]:
            return lambda: timed(lambda: [ledger.search(text) for _ in range(5)], 5)

        found = interleaved({name: ask(text) for name, text in QUESTIONS.items()}, ROUNDS)
        for name, took in found.items():
            yield alone(f"search of 10,000 turns: {name}", took)
