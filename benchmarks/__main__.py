"""python -m benchmarks [--only NAME]: measure, and print one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import context, depth, others, postgres, reading, starting, writers
from benchmarks.measure import Line, machine, table

PARTS: dict[str, Callable[[Path], Iterator[Line]]] = {
    "append": depth.append,
    "fork": depth.fork,
    "ancestry": depth.ancestry,
    "questions": reading.questions,
    "writers": writers.writers,
    "reading": reading.reading,
    "context": context.context,
    "postgres": postgres.postgres,
    "starting": starting.starting,
    "others": others.others,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone")
    parser.add_argument("--folder", help="where the ledgers are made; by default the system's own")
    chosen = parser.parse_args()
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="benchmarks-") as folder:
        about = machine(Path(folder))
        for name in chosen.only or PARTS:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            lines += PARTS[name](Path(folder))
    print(table(lines))
    print(f"\n{about}")
    print("Ratios are medians of interleaved rounds; the spread is their middle half.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
