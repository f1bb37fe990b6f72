"""Rounds, medians, and the table they end in.

Two sides are measured in turns within one run, so that what else the machine does falls on both.
Only their ratio is worth comparing with another run.
"""

from __future__ import annotations

import gc
import os
import platform
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Literal, NamedTuple

Clock = Literal["wall", "cpu"]


class Took(NamedTuple):
    """Seconds for one operation."""

    wall: float
    cpu: float

    def by(self, clock: Clock) -> float:
        return self.wall if clock == "wall" else self.cpu


class Goal(NamedTuple):
    """What a ratio must be."""

    sign: Literal["<=", ">="]
    value: float

    def met(self, found: float) -> bool:
        return found <= self.value if self.sign == "<=" else found >= self.value

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


class Line(NamedTuple):
    """One line of the table."""

    name: str
    ours: str
    reference: str = ""
    ratio: float | None = None  # to the reference; without one, ours as a number
    goal: Goal | None = None
    rounds: int = 1
    spread: str = ""

    @property
    def met(self) -> str:
        if self.goal is None or self.ratio is None:
            return "-"
        return "yes" if self.goal.met(self.ratio) else "NO"


class Curve(NamedTuple):
    """Seconds of one operation by the number of turns."""

    name: str
    points: tuple[tuple[float, float], ...]


Side = Callable[[], Took]


class Watch:
    """Times a block of so many operations; all threads of the process count.

    What was prepared before is hidden from the garbage collector: it is neither side's.
    """

    def __init__(self, operations: int) -> None:
        self._operations = operations

    def __enter__(self) -> Watch:
        gc.collect()
        gc.freeze()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        gc.unfreeze()
        self.took = Took(wall / self._operations, cpu / self._operations)


def timed(work: Callable[[], object], operations: int) -> Took:
    """How long each of the operations took that `work` does."""
    with Watch(operations) as watch:
        work()
    return watch.took


def interleaved(sides: Mapping[str, Side], rounds: int) -> dict[str, list[Took]]:
    """Every side once per round, in alternating order."""
    found: dict[str, list[Took]] = {name: [] for name in sides}
    names = list(sides)
    for _ in range(rounds):
        for name in names:
            found[name].append(sides[name]())
        names.reverse()
    return found


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """The middle half."""
    if len(values) < 4:
        return f"{min(values):.2f}-{max(values):.2f}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:.2f}-{high:.2f}"


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def slower(
    name: str, ours: Sequence[Took], reference: Sequence[Took], clock: Clock, goal: Goal | None
) -> Line:
    """How many times the reference ours takes."""
    mine, theirs = [t.by(clock) for t in ours], [t.by(clock) for t in reference]
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    times = duration(middle(mine)), duration(middle(theirs))
    return Line(f"{name}, {clock}", *times, middle(ratios), goal, len(ratios), spread(ratios))


def _per_second(seconds: float) -> str:
    return f"{1 / seconds:,.0f}/s" if seconds < 0.1 else f"{1 / seconds:.2g}/s"


def rate(
    name: str, ours: Sequence[Took], reference: Sequence[Took], clock: Clock, goal: Goal | None
) -> Line:
    """What part of the reference's operations per second ours reaches, or how many times."""
    mine, theirs = [t.by(clock) for t in ours], [t.by(clock) for t in reference]
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    rates = _per_second(middle(mine)), _per_second(middle(theirs))
    return Line(f"{name}, {clock}", *rates, middle(ratios), goal, len(ratios), spread(ratios))


def alone(name: str, ours: Sequence[Took], clock: Clock = "cpu") -> Line:
    """Only reported; the spread is that of the rounds against their median."""
    times = [took.by(clock) for took in ours]
    relative = [value / middle(times) for value in times]
    return Line(
        f"{name}, {clock}", duration(middle(times)), rounds=len(times), spread=spread(relative)
    )


_TITLES = ("name", "ours", "reference", "ratio", "goal", "met", "rounds", "spread")


def table(lines: Sequence[Line]) -> str:
    """The lines, aligned."""
    cells: list[tuple[str, ...]] = [_TITLES, tuple("-" * len(title) for title in _TITLES)]
    for line in lines:
        ratio = f"{line.ratio:.2f}" if line.ratio is not None and line.reference else ""
        goal = "" if line.goal is None else str(line.goal)
        found = (ratio, goal, line.met, str(line.rounds), line.spread)
        cells.append((line.name, line.ours, line.reference, *found))
    widths = [max(len(row[column]) for row in cells) for column in range(len(_TITLES))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in cells
    )


def machine(folder: Path) -> str:
    """How busy the machine is, and how quick its disk."""
    load = f"load {os.getloadavg()[0]:.1f}, " if hasattr(os, "getloadavg") else ""
    return f"{load}making 4 kB durable takes {duration(_sync_time(folder))}"


_PEERS = ("openai-agents", "langgraph", "langgraph-checkpoint-sqlite",
          "langgraph-checkpoint-postgres", "google-adk", "llm", "agentsview",
          "claude-code-log")  # fmt: skip


def versions(peers: Path) -> str:
    """What the figures were found with."""
    own = (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores."
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version},"
        f" msgspec {version('msgspec')}, click {version('click')}."
    )
    if not peers.exists():
        return own
    code = "import sys; from importlib.metadata import version as v\n"
    code += "print(', '.join(f'{n} {v(n)}' for n in sys.argv[1:]))"
    said = subprocess.run([peers, "-c", code, *_PEERS], capture_output=True, text=True, check=True)
    return f"{own}\nPeers: {said.stdout.strip()}."


def _sync_time(folder: Path) -> float:
    """The median time to make 4 kB durable."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(25):
            file.write(bytes(4096))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return middle(times)
