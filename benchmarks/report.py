"""What was measured, kept part by part, and the page made of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.charts import chart
from benchmarks.measure import Curve, Goal, Line, table

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "benchmarks" / "measured"  # one file per part: each can be measured again by itself
PAGE = ROOT / "docs" / "benchmarks.md"
CHART = "benchmarks-growth.svg"


class Measured(NamedTuple):
    """One part."""

    title: str
    date: str
    seconds: float
    about: str
    lines: list[Line]
    curves: list[Curve]


def keep(name: str, title: str, about: str, seconds: float, found: Iterable[Line | Curve]) -> None:
    """Keep a part's figures until it is measured again."""
    told = list(found)
    KEPT.mkdir(exist_ok=True)
    plain = {
        "title": title,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seconds": seconds,
        "about": about,
        "lines": [line for line in told if isinstance(line, Line)],
        "curves": [curve for curve in told if isinstance(curve, Curve)],
    }
    (KEPT / f"{name}.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def kept(name: str) -> Measured | None:
    """A part as it was measured last."""
    path = KEPT / f"{name}.json"
    if not path.exists():
        return None
    plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    plain["lines"] = [_line(*values) for values in plain["lines"]]
    plain["curves"] = [
        Curve(name, tuple((x, y) for x, y in points)) for name, points in plain["curves"]
    ]
    return Measured(**plain)


def _line(*values: Any) -> Line:
    line = Line(*values)
    return line if line.goal is None else line._replace(goal=Goal(*line.goal))


def write(names: Sequence[str], versions: str) -> None:
    """The page, of all that is kept."""
    parts = {name: part for name in names if (part := kept(name)) is not None}
    curves = [curve for part in parts.values() for curve in part.curves]
    if curves:
        drawn = chart("CPU time of one operation as the ledger grows", curves)
        (PAGE.parent / CHART).write_text(drawn, encoding="utf-8")
    PAGE.write_text("\n".join(_page(parts, versions)) + "\n", encoding="utf-8")


def _page(parts: dict[str, Measured], versions: str) -> Iterator[str]:
    yield _HEAD
    yield versions
    goals = [line for part in parts.values() for line in part.lines if line.goal is not None]
    missed = [line for line in goals if line.met != "yes"]
    yield f"\n{len(goals) - len(missed)} of {len(goals)} goals are met.\n"
    if missed:
        yield "Not met:\n"
        yield from (f"- {line.name}: {line.ratio:.2f}, goal {line.goal}" for line in missed)
    beaten = [line for line in _peers(parts) if line.ratio is not None and line.ratio < 1]
    yield "\n## Where a peer is faster or smaller\n"
    yield from (f"- {line.name}: {line.ours}, the peer {line.reference}" for line in beaten)
    yield _WHY if beaten else "Nowhere in this run.\n"
    for name, part in parts.items():
        yield f"## {part.title}\n"
        yield f"`make bench ONLY={name}`, {part.date}, took {part.seconds:.0f} s; {part.about}\n"
        if part.curves:
            yield f"![CPU time of one operation as the ledger grows]({CHART})\n"
        yield table(part.lines)
        yield ""


def _peers(parts: dict[str, Measured]) -> Iterator[Line]:
    """Lines whose ratio is how many times better the ledger is than a peer."""
    for name in ("peers", "ways", "durability", "crowds", "servers"):
        part = parts.get(name)
        for line in part.lines if part else ():
            if "bytes" in line.name and line.ratio:
                yield line._replace(ratio=1 / line.ratio)
            else:
                yield line


_HEAD = """# Benchmarks

Written by `make bench`; do not edit. `make bench ONLY=name` measures one part again and keeps the
others as they stand in `benchmarks/measured`; the peers are installed by `make peers` from
`requirements/peers.txt`.

Both sides of a line are measured in turns in one run, so what else the machine does falls on both;
`ratio` is the median of the rounds' ratios, `spread` their middle half. Against peers and against
hand-written SQL it says how many times as fast the ledger is, or which part of the other's speed it
reaches; for sizes, memory and growth it is ours divided by the reference. `cpu` is the steadier
clock: `wall` depends on how busy the disk is. A peer has 60 seconds to grow to a length; a step
that took 15 is not repeated; what did not fit is said. Of 64 sessions at once, the slow peers are
measured once, after the others.

A store is used as its framework uses it. The Runner of openai-agents hands over the question, each
call with its output, and the answer: five commits for an exchange whose three calls the model makes
one after the other, three if it makes them at once. The ledger's record() keeps the exchange in one
commit, when it is over; a live turn makes eight, as things happen. The part `ways` has these beside
each other, and LedgerSession under the same Runner. SQLiteSession works in a thread of asyncio's,
where the ledger's lone writer is called directly. langgraph, google-adk and llm bring the framework
around their store: a run of a graph, an event's validation, a scripted model. The last 20 are read
after one more was appended, as agents do; the ledger then reads what that one consists of and
remembers the others, which never change; `ways` has the first read of a process, too. Where a store
can, a long history is put in at once before it is measured; langgraph's size per exchange is
understated by that. On PostgreSQL the server's CPU is not counted.
"""

_WHY = """
Why: SQLiteSession keeps each item as one row of JSON and little else. A turn of the ledger is rows
of turns, messages and calls, its place with the sums of its thread, the head, the log of its move,
the word index, and the indexes of all these. A lone writer puts each page of them into the log at
every commit ("pages written per turn" below); reading builds typed values from four tables. An
empty ledger has 0.6 MB of tables and guards, which counts at a length of 100. A DeltaChannel keeps
the messages alone. What is left to gain has a limit: `ways` ends with the same rows written and
read by hand, as plain tuples, without ids, checks, hash, locks and word index.
"""
