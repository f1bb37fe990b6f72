"""What it costs to tell what a year used: turn by turn, and from the sums of its days."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from agents_ledger import Ledger, ToolCall, now_ms
from agents_ledger.ledger.turns import recording
from agents_ledger.store.database import Transaction
from benchmarks import workload
from benchmarks.measure import Goal, Line, duration, interleaved, middle, spread, timed

TURNS = 100_000  # with three calls each
DAYS = 365
DAY_MS = 86_400_000
MODELS = ("claude-opus-5", "claude-sonnet-5", "gpt-5.5", "a-model-without-a-price")
TOOLS = ("Read", "Bash", "Edit", "Grep", "Write", "Task", "Glob", "WebFetch")
PAGE = Goal("<=", 0.1)  # seconds: what a page may take


def _work(number: int, first: int) -> Callable[[Transaction], object]:
    at = first + number * DAYS * DAY_MS // TURNS
    steps = [
        ToolCall(
            TOOLS[(number + step) % len(TOOLS)],
            started_at=at,
            completed_at=at + 7 * (number % 900) + step,
        )
        for step in range(3)
    ]
    fields = {
        **workload.DETAILS,
        "steps": steps,
        "started_at": at,
        "model": MODELS[number // 200 % len(MODELS)],
        "workspace_path": f"/home/user/project-{number // 1000 % 40}",
    }
    prepared = recording.recording(f"s{number // 50}", f"question {number}", "answer", fields)
    return partial(recording.record, prepared=prepared)


def figures(folder: Path) -> Iterator[Line]:
    """Usage by day and model, and tools, of a year."""
    first = now_ms() // DAY_MS * DAY_MS - (DAYS + 1) * DAY_MS
    with Ledger.open(str(folder / "figures.db")) as ledger:
        for start in range(0, TURNS, 10_000):
            works = [_work(number, first) for number in range(start, start + 10_000)]
            workload.fill(ledger, works)
        asked: dict[str, Callable[[], object]] = {
            "usage by day": partial(ledger.usage, "day"),
            "usage by model": partial(ledger.usage, "model"),
            "tools": ledger.tools,
        }
        before = {name: ask() for name, ask in asked.items()}
        slow = interleaved({name: partial(timed, ask, 1) for name, ask in asked.items()}, 3)
        summing = timed(ledger.summarise, DAYS)
        quick = interleaved({name: partial(timed, ask, 1) for name, ask in asked.items()}, 7)
        assert before == {name: ask() for name, ask in asked.items()}
    for name in asked:
        took, without = [t.cpu for t in quick[name]], [t.cpu for t in slow[name]]
        yield Line(
            f"{name}, a year of {TURNS:,} turns, summed up, cpu",
            duration(middle(took)),
            ratio=middle(took),
            goal=PAGE,
            rounds=len(took),
            spread=spread([each / middle(took) for each in took]),
        )
        yield Line(f"{name}, turn by turn, cpu", duration(middle(without)), rounds=len(without))
    yield Line("summing up a day, cpu", duration(summing.cpu))
