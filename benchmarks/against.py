"""The ledger against others' stores: the same exchanges, in turns, each in a process of its own.

Peers live in an environment of their own (.venv-peers, `make peers`). Each step of each has a
budget; what did not fit is printed as such. Ratios say how many times as fast the ledger is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks import workload
from benchmarks.measure import Clock, Goal, Line, Took, rate

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
BUDGET = 60.0  # seconds for one step of one peer
ENOUGH = 15.0  # after which a step is not measured once more
OURS = "agents-ledger"
LIVE = "agents-ledger, a live turn"
IN_FIVE = "agents-ledger, a live turn in 5 commits"
FOR_RUNNER = "agents-ledger, LedgerSession"
FORGETFUL = "agents-ledger, nothing remembered"
BY_HAND = "agents-ledger, by hand"  # its rows without it: no ids, checks, hash, locks, word index
SESSION = "main"
CLOCKS: tuple[Clock, ...] = ("cpu", "wall")
LENGTHS = (100, 1_000, 10_000)
ROUNDS = 5
APPENDS = 10
CROWD = 64
FLUSH_US = 2_000
OPENAI = "openai-agents SQLiteSession"
AT_ONCE = "openai-agents SQLiteSession, one add_items()"
LANGGRAPH = "langgraph SqliteSaver"
ALCHEMY = "openai-agents SQLAlchemySession"
ALCHEMY_AT_ONCE = "openai-agents SQLAlchemySession, one add_items()"
SAVER = "langgraph PostgresSaver"
PLAIN = (
    OPENAI,
    "openai-agents AdvancedSQLiteSession",
    LANGGRAPH,
    "langgraph SqliteSaver, DeltaChannel",
    "google-adk SqliteSessionService",
    "google-adk DatabaseSessionService",
    "llm log_to_db",
)
SEEDED = (OURS, "openai-agents", LANGGRAPH)  # a long history can be put in at once
# These keep a rollback journal unless told otherwise; all others use the ledger's own settings.
OTHERWISE = PLAIN[4:]
WAL = ", WAL"
GOALS: dict[tuple[str, str, int, Clock], float] = {
    ("append", OPENAI, 100, "cpu"): 2,
    ("append", OPENAI, 1_000, "cpu"): 2,
    ("append", OPENAI, 10_000, "cpu"): 2,
    ("append", LANGGRAPH, 1_000, "wall"): 100,
    ("last 20", OPENAI, 10_000, "wall"): 3,
    ("whole history", OPENAI, 10_000, "wall"): 2,
    ("crowd", OPENAI, CROWD, "wall"): 5,
    ("crowd", AT_ONCE, CROWD, "wall"): 5,
    ("append", ALCHEMY, 100, "wall"): 3,
    ("append", ALCHEMY, 1_000, "wall"): 3,
    ("append", SAVER, 100, "wall"): 15,
    ("append", SAVER, 1_000, "wall"): 15,
}


class Step(NamedTuple):
    """What is asked of every side in a round."""

    what: str
    do: str
    order: dict[str, Any]


CROWDING = Step("crowd", "crowd", {"sessions": CROWD, "each": 5})


class Side:
    """One store in its process."""

    def __init__(
        self,
        name: str,
        folder: Path,
        exchanges: Path,
        address: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self.length = 0
        self.over = ""  # why it takes no further part
        self.took: dict[str, list[Took]] = {}
        self._spent: dict[str, float] = {}
        own = name.startswith(OURS)
        folder.mkdir()
        paths = [str(ROOT), str(ROOT / "src")] if own else [str(ROOT)]
        self._log = (folder / "errors.log").open("w")
        self._process = subprocess.Popen(
            [
                sys.executable if own else str(PEERS),
                *("-m", "benchmarks.peers.worker", name.removesuffix(WAL)),
                *(str(folder), str(exchanges), address),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)},
        )
        if name.endswith(WAL):
            self.ask("use_wal")

    def ask(self, do: str, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} died; see its errors.log")
        said: dict[str, Any] = json.loads(line)
        return said

    def measure(self, step: Step) -> None:
        """Once more, unless this step has used up its time already."""
        if self.over or self._spent.get(step.what, 0.0) > ENOUGH:
            return
        said = self.ask(step.do, **step.order)
        self._spent[step.what] = self._spent.get(step.what, 0.0) + said.get("seconds", 0.0)
        if "failed" in said:
            self.over = said["failed"].splitlines()[0][:100]
        elif "wall" in said:
            self.took.setdefault(step.what, []).append(Took(said["wall"], said["cpu"]))

    def begin(self) -> None:
        """Forget what was measured before."""
        self.took.clear()
        self._spent.clear()

    def grow(self, length: int) -> None:
        """To that length, if it can be done in time."""
        appends = self.took.get("append", [])
        if appends and not self.name.startswith(SEEDED):
            expected = (length - self.length) * appends[-1].wall
            if expected > BUDGET:
                self.over = f"not in {BUDGET:.0f} s: about {expected:,.0f} s"
                return
        said = self.ask("grow", session=SESSION, to=length, budget=BUDGET)
        self.length = said["length"]
        if self.length < length:
            self.over = f"not in {BUDGET:.0f} s: reached {self.length:,}"
        elif said["seconds"] > BUDGET:
            self.over = f"not in {BUDGET:.0f} s: took {said['seconds']:,.0f} s"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def steps(length: int) -> list[Step]:
    """At one length."""
    budget = BUDGET / ROUNDS
    return [
        Step("append", "append", {"session": SESSION, "count": APPENDS, "budget": budget}),
        Step("last 20", "last", {"session": SESSION, "count": 20, "times": 3}),
        Step("whole history", "whole", {"session": SESSION, "times": 3 if length < 5_000 else 1}),
        Step("fork", "fork", {"session": SESSION, "times": 2}),
    ]


def exchanges(folder: Path) -> Path:
    """The same ones for all, as plain JSON."""
    path = folder / "exchanges.json"
    turns = workload.turns(100)
    plain = [
        (t.query, [(c.tool_name, c.params_json, c.result_json) for c in t.steps], t.response)
        for t in turns
    ]
    path.write_text(json.dumps(plain), encoding="utf-8")
    return path


@contextmanager
def opened(
    folder: Path,
    names: Sequence[str],
    addresses: Mapping[str, str] = MappingProxyType({}),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[dict[str, Side]]:
    """The ledger and its peers, each ready for orders."""
    given = exchanges(folder)
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for number, name in enumerate((OURS, *names)):
            home = folder / f"store-{len(list(folder.iterdir()))}-{number}"
            sides[name] = Side(name, home, given, addresses.get(name, ""), environment)
            stack.callback(sides[name].close)
        yield sides


def in_turns(sides: Sequence[Side], steps: Sequence[Step], rounds: int) -> None:
    """Every step, so many times, every side in each round."""
    for step in steps:
        for round_ in range(rounds):
            for side in sides if round_ % 2 == 0 else sides[::-1]:
                side.measure(step)


def compare(title: str, sides: Mapping[str, Side], length: int) -> Iterator[Line]:
    """All sides at one length, step by step."""
    for side in sides.values():
        if not side.over:
            side.grow(length)
            side.begin()
    taking_part = [side for side in sides.values() if not side.over]
    sizes = {side.name: side.ask("size")["bytes"] / length for side in taking_part}
    in_turns(taking_part, steps(length), ROUNDS)
    for step in steps(length):
        yield from told(f"{title}, {length:,}: {step.what}", sides, step.what, length)
    for name, size in sizes.items():
        if name != OURS and size:
            said = f"{title}, {length:,}: bytes per exchange, {name}"
            yield Line(said, f"{sizes[OURS]:,.0f}", f"{size:,.0f}", sizes[OURS] / size)


def told(title: str, sides: Mapping[str, Side], what: str, length: int) -> Iterator[Line]:
    """How many times as fast the ledger is, or why that is not known."""
    ours = sides[OURS].took.get(what, [])
    for name, side in sides.items():
        theirs = side.took.get(what, [])
        if name == OURS:
            continue
        if side.over:
            yield Line(f"{title}, {name}", "", side.over, rounds=0)
        elif not theirs:
            yield Line(f"{title}, {name}", "", "it has no such thing", rounds=0)
        else:
            rounds = min(len(ours), len(theirs))
            for clock in CLOCKS:
                least = GOALS.get((what, name, length, clock))
                goal = None if least is None else Goal(">=", least)
                yield rate(f"{title}, {name}", ours[:rounds], theirs[:rounds], clock, goal)


def _missing() -> Line | None:
    if PEERS.exists():
        return None
    return Line("peers", "not measured: no .venv-peers, see `make peers`", rounds=0)


def peers(folder: Path) -> Iterator[Line]:
    """Appending, reading and forking, at the peers' own durability."""
    if missing := _missing():
        yield missing
        return
    with opened(folder, PLAIN) as sides:
        for length in LENGTHS:
            yield from compare("peers", sides, length)


def durability(folder: Path) -> Iterator[Line]:
    """The same at the ledger's durability, for those that have another by default."""
    if missing := _missing():
        yield missing
        return
    with opened(folder, [name + WAL for name in OTHERWISE]) as sides:
        yield from compare("same durability", sides, LENGTHS[0])


class Pair(NamedTuple):
    """Two ways to do the same."""

    title: str
    what: str
    ours: str
    theirs: str
    goals: Mapping[Clock, float] = MappingProxyType({})


PAIRS = (
    Pair("append in one commit, record() / one add_items()", "append", OURS, AT_ONCE, {"cpu": 2}),
    Pair("append in 8 commits, a live turn / 5 by its Runner", "append", LIVE, OPENAI),
    Pair("append in 5 commits, a live turn / 5 by its Runner", "append", IN_FIVE, OPENAI),
    Pair("append in 5 by its Runner, LedgerSession / SQLiteSession", "append", FOR_RUNNER, OPENAI),
    Pair("append, record() / 5 commits by its Runner", "append", OURS, OPENAI, {"cpu": 2}),
    Pair("last 20, nothing remembered / SQLiteSession", "last 20", FORGETFUL, OPENAI, {"wall": 3}),
    Pair("last 20, after an append / SQLiteSession", "last 20", OURS, OPENAI, {"wall": 3}),
    Pair("whole history / SQLiteSession", "whole history", OURS, OPENAI),
    Pair("by hand, the ledger's rows in one commit / one add_items()", "append", BY_HAND, AT_ONCE),
    Pair("by hand, the ledger's rows as tuples / SQLiteSession", "whole history", BY_HAND, OPENAI),
)


def ways(folder: Path) -> Iterator[Line]:
    """An exchange in one commit and step by step; the last 20 at first and again."""
    if missing := _missing():
        yield missing
        return
    length = LENGTHS[-1]
    with opened(folder, (LIVE, IN_FIVE, FOR_RUNNER, FORGETFUL, BY_HAND, OPENAI, AT_ONCE)) as sides:
        for side in sides.values():
            side.grow(length)
        whats = {pair.what for pair in PAIRS}
        in_turns(list(sides.values()), [s for s in steps(length) if s.what in whats], ROUNDS)
        for pair in PAIRS:
            ours, theirs = sides[pair.ours], sides[pair.theirs]
            if over := ours.over or theirs.over:
                yield Line(pair.title, "", over, rounds=0)
                continue
            yield from _paired(pair.title, pair, ours, theirs)


def _paired(title: str, pair: Pair, ours: Side, theirs: Side) -> Iterator[Line]:
    took = list(zip(ours.took[pair.what], theirs.took[pair.what], strict=False))
    for clock in CLOCKS:
        least = pair.goals.get(clock)
        goal = None if least is None else Goal(">=", least)
        yield rate(title, [t[0] for t in took], [t[1] for t in took], clock, goal)


CONTEXTS = (
    Pair("first context", "context", FORGETFUL, OPENAI, {"cpu": 1}),
    Pair("context again", "context", OURS, OPENAI, {"cpu": 5}),
    Pair("thread()", "whole", FORGETFUL, OPENAI, {"cpu": 2}),
)


def contexts(folder: Path) -> Iterator[Line]:
    """What an agent reads at its start: the context as messages, at first and again."""
    if missing := _missing():
        yield missing
        return
    with opened(folder, (FORGETFUL, OPENAI)) as sides:
        for length in (20, 200, 2_000):
            times = max(1, 200 // length)
            for side in sides.values():
                side.grow(length)
                side.begin()
                side.ask("context", session=SESSION, times=1)
            whats = ("context", "whole")
            orders = [Step(what, what, {"session": SESSION, "times": times}) for what in whats]
            in_turns(list(sides.values()), orders, ROUNDS)
            for pair in CONTEXTS:
                ours, theirs = sides[pair.ours], sides[pair.theirs]
                yield from _paired(
                    f"{pair.title} / get_items(), {length:,} turns", pair, ours, theirs
                )


def crowds(folder: Path) -> Iterator[Line]:
    """64 sessions at once."""
    if missing := _missing():
        yield missing
        return
    title = f"{CROWD} sessions at once"
    names = [name for name in PLAIN if not name.startswith("llm")]  # it writes from one thread
    with opened(folder, [*names, AT_ONCE]) as sides:
        quick = [side for name, side in sides.items() if name.startswith((OURS, "openai"))]
        slow = [side for side in sides.values() if side not in quick]
        in_turns(quick, [CROWDING], ROUNDS)
        in_turns(slow, [CROWDING._replace(order={"sessions": CROWD, "each": 1})], 1)
        yield from told(title, sides, CROWDING.what, CROWD)
    yield from _on_a_slow_disk(title, folder)


def _on_a_slow_disk(title: str, folder: Path) -> Iterator[Line]:
    """The same where a flush takes longer: disks without a cache of their own take milliseconds."""
    title = f"{title}, a flush takes {FLUSH_US / 1000:g} ms more"
    shim = folder / "slow_disk.so"
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        yield Line(title, "not measured: it takes Linux and a C compiler", rounds=0)
        return
    source = Path(__file__).with_name("slow_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(shim), "SLOW_DISK_US": str(FLUSH_US)}
    flush = "import os, time; t = time.time(); os.fsync(1); print(time.time() - t)"
    with (folder / "flushed").open("w+") as file:
        command = [sys.executable, "-c", flush]
        subprocess.run(command, stdout=file, env={**os.environ, **environment}, check=True)
        file.seek(0)
        if float(file.read()) < FLUSH_US / 1e6:
            yield Line(title, "not measured: no library can be loaded before a program", rounds=0)
            return
    with opened(folder, [OPENAI, AT_ONCE], environment=environment) as sides:
        in_turns(list(sides.values()), [CROWDING], ROUNDS)
        yield from told(title, sides, CROWDING.what, 0)


def on_servers(server: str, folder: Path, database: Callable[[str], str]) -> Iterator[Line]:
    """The peers that write to PostgreSQL; the server's own CPU is not counted."""
    if missing := _missing():
        yield missing
        return
    joint = "&" if "?" in server else "?"
    alchemy = {ALCHEMY: database("bench_alchemy"), ALCHEMY_AT_ONCE: database("bench_alchemy_once")}
    addresses = {
        OURS: f"{server}{joint}schema=bench_peers_ours",
        LIVE: f"{server}{joint}schema=bench_peers_live",
        SAVER: database("bench_saver"),
        **{
            name: address.replace("postgresql://", "postgresql+psycopg://", 1)
            for name, address in alchemy.items()
        },
    }
    with opened(folder, [ALCHEMY, ALCHEMY_AT_ONCE, SAVER, LIVE], addresses) as sides:
        # A live turn is compared with what is committed step by step, too.
        live = sides.pop(LIVE)
        for length in LENGTHS[:2]:
            yield from compare("PostgreSQL", sides, length)
            alone = sides[ALCHEMY]
            live.grow(length)
            live.begin()
            alone.begin()
            in_turns([live, alone], steps(length)[:1], ROUNDS)
            pairs = list(zip(live.took["append"], alone.took["append"], strict=False))
            title = f"PostgreSQL, {length:,}: append in 8 commits, a live turn / 5 by its Runner"
            for clock in CLOCKS:
                yield rate(title, [p[0] for p in pairs], [p[1] for p in pairs], clock, None)
