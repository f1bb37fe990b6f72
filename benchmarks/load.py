"""200 readers and 20 writers on one server, each sending its next request when it has its answer.

The server and the clients are processes of their own. `python -m benchmarks.load TREE TREE ...`
measures source trees in turns and prints how they compare: `python -m benchmarks.load . ../before`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from agents_ledger import Ledger, now_ms
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from benchmarks import workload
from benchmarks.busy import Work, session
from benchmarks.figures import DAY_MS
from benchmarks.load_client import Outcome, Plan
from benchmarks.measure import Goal, Line, duration, middle

HERE = Path(__file__).parent.parent
SESSIONS = 1_000
TURNS = 10
LONG_EVERY, LONG_TURNS = 20, 100
DAYS = 60
PEOPLE, AGENTS = 10, 20  # tokens that the readers share
SECONDS = 60.0
WARM_UP_SECONDS = 3.0
ROUNDS = 2
P99_GOAL_SECONDS = 1.0
SLOWEST_GOAL_SECONDS = 5.0


class Filled(NamedTuple):
    """A closed ledger, and who may read and write it."""

    path: Path
    people: list[str]
    agents: list[str]
    admin: str
    labels: list[str]
    turns: list[str]


class Run(NamedTuple):
    """What one run measured."""

    per_second: float
    latencies: dict[str, list[float]]
    errors: list[str]
    client_cpu_share: float  # of a core
    server_cpu_share: float

    @property
    def server_ms(self) -> float:
        """CPU time of the server for one request: steadier than the throughput."""
        return 1000 * self.server_cpu_share / self.per_second

    @property
    def all(self) -> list[float]:
        return sorted(chain.from_iterable(self.latencies.values()))


def filled(folder: Path) -> Filled:
    """15,000 turns, 150,000 messages, in a thousand sessions of two months."""
    path = folder / "load.db"
    first = now_ms() - DAYS * DAY_MS
    with Ledger.open(str(path)) as ledger:
        for start in range(0, SESSIONS, 100):
            works: list[Work] = []
            for number in range(start, start + 100):
                turns = TURNS if number % LONG_EVERY else LONG_TURNS
                works += session(number, first + number * DAYS * DAY_MS // SESSIONS, turns)
            workload.fill(ledger, works)
        ledger._core.index(least=1)
        ledger.summarise()
        tokens = Tokens(ledger._core)
        people = [tokens.create(f"person {n}", ["read", "write"])[1] for n in range(PEOPLE)]
        agents = [tokens.create(f"agent {n}", ["read"])[1] for n in range(AGENTS)]
        _, admin = tokens.create("writers", ["read", "write", "admin"])
        rows = ledger.query("SELECT id FROM turns ORDER BY id")[1]
    labels = [f"session-{number}" for number in range(SESSIONS)]
    return Filled(path, people, agents, admin, labels, [row[0] for row in rows])


def filled_by(tree: Path, folder: Path) -> Filled:
    """The same by the code of a source tree: an older one cannot open what a newer one made."""
    code = (
        "import sys, msgspec, pathlib, benchmarks.load as load;"
        "print(msgspec.json.encode(load.filled(pathlib.Path(sys.argv[1])), enc_hook=str).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        stdout=subprocess.PIPE,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{HERE}"},
        check=True,
    )
    path, *others = msgspec.json.decode(done.stdout)
    return Filled(Path(path), *others)


@contextmanager
def served(path: Path, tree: Path) -> Iterator[tuple[int, int]]:
    """`agents-ledger serve` from a source tree: its port and its process."""
    with tempfile.TemporaryDirectory() as home:
        # An empty home: the server looks for other agents' histories there.
        environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "HOME": home}
        command = [sys.executable, "-m", "agents_ledger.cli.main", "--ledger", str(path), "serve"]
        process = subprocess.Popen(
            [*command, "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=home,
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            yield int(address.partition("/?token=")[0].rpartition(":")[2]), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def measured(ledger: Filled, tree: Path, seconds: float, *, steady: bool = False) -> Run:
    """One run on a fresh copy of the ledger."""
    path = workload.copy_of(ledger.path, "load-run.db")
    with served(path, tree) as (port, pid):
        plan = Plan(
            port=port,
            people=ledger.people,
            agents=ledger.agents,
            admin=ledger.admin,
            labels=ledger.labels,
            turns=ledger.turns,
            words=[f"word{number}" for number in range(0, SESSIONS * TURNS, 7)],
            seconds=WARM_UP_SECONDS,
            steady=steady,
        )
        run_clients(plan)
        before = _cpu_seconds(pid)
        outcome = run_clients(msgspec.structs.replace(plan, seconds=seconds, seed=8))
        server = _cpu_seconds(pid) - before
    with Ledger.open(str(path)) as opened:
        broken = opened.audit()
        outcome.errors.extend(f"audit: {finding}" for finding in broken[:3])
    count = sum(map(len, outcome.latencies.values()))
    return Run(
        count / outcome.seconds,
        outcome.latencies,
        outcome.errors,
        outcome.cpu_seconds / outcome.seconds,
        server / outcome.seconds,
    )


def run_clients(plan: Plan) -> Outcome:
    """The clients in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load_client"],
        input=msgspec.json.encode(plan),
        stdout=subprocess.PIPE,
        cwd=HERE,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Outcome)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def load(folder: Path) -> Iterator[Line]:
    """Throughput and latencies of two runs, and the latencies of each kind of request."""
    ledger = filled(folder)
    runs = [measured(ledger, HERE, SECONDS) for _ in range(ROUNDS)]
    rates = [run.per_second for run in runs]
    spread = f"{min(rates):.0f}-{max(rates):.0f}"
    yield Line(
        "under load: requests per second", f"{middle(rates):.0f}/s", rounds=ROUNDS, spread=spread
    )
    yield Line(
        "under load: p50", duration(middle([quantile(run.all, 0.5) for run in runs])), rounds=ROUNDS
    )
    p99 = [quantile(run.all, 0.99) for run in runs]
    slowest = [run.all[-1] for run in runs]
    for name, values, goal in (
        ("p99", p99, P99_GOAL_SECONDS),
        ("slowest", slowest, SLOWEST_GOAL_SECONDS),
    ):
        shares = [value / goal for value in values]
        ratio = max(shares) if name == "slowest" else middle(shares)
        shown = max(values) if name == "slowest" else middle(values)
        yield Line(
            f"under load: {name}", duration(shown), duration(goal), ratio, Goal("<=", 1), ROUNDS
        )
    errors = sum(len(run.errors) for run in runs)
    yield Line("under load: errors", f"{errors}", ratio=errors, goal=Goal("<=", 0), rounds=ROUNDS)
    for kind in sorted(runs[0].latencies):
        both = sorted(chain.from_iterable(run.latencies[kind] for run in runs))
        p50, p99_kind = duration(quantile(both, 0.5)), duration(quantile(both, 0.99))
        yield Line(kind, f"p50 {p50}, p99 {p99_kind}, {len(both)} requests", rounds=ROUNDS)


def compared(trees: Mapping[str, Path], rounds: int, seconds: float, *, steady: bool) -> None:
    """Measure source trees in turns, and print every run."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        ledger = filled_by(list(trees.values())[-1], Path(folder))
        rates: dict[str, list[float]] = {name: [] for name in trees}
        for _ in range(rounds):
            for name, tree in trees.items():
                run = measured(ledger, tree, seconds, steady=steady)
                rates[name].append(run.per_second)
                print(_told(name, run), flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    last = rates[list(trees)[-1]]
    for name, values in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(values, last, strict=True)]
        print(f"{name}: {middle(values):.0f}/s, {middle(ratios):.2f} times the last tree")


def _told(name: str, run: Run) -> str:
    ordered = run.all
    lines = [
        f"{name}: {run.per_second:.0f}/s, p50 {duration(quantile(ordered, 0.5))}, p99"
        f" {duration(quantile(ordered, 0.99))}, max {duration(ordered[-1])}, {len(run.errors)}"
        f" errors {run.errors[:2]}; clients {run.client_cpu_share:.0%} of a core, server"
        f" {run.server_cpu_share:.0%}, {run.server_ms:.2f} ms a request"
    ]
    for kind, values in sorted(run.latencies.items()):
        values.sort()
        figures = [duration(quantile(values, share)) for share in (0.5, 0.99, 1.0)]
        lines.append(f"    {kind:16} {len(values):6} p50 {figures[0]} p99 {figures[1]}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path, help="source trees, the reference last")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--steady", action="store_true", help="nobody writes")
    chosen = parser.parse_args()
    trees = {str(tree): tree.resolve() for tree in chosen.trees}
    compared(trees, chosen.rounds, chosen.seconds, steady=chosen.steady)


if __name__ == "__main__":
    main()
