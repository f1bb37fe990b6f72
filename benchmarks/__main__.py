"""python -m benchmarks [--only NAME]: measure, print a table, and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import (
    against,
    broker,
    commands,
    context,
    depth,
    evidence,
    figures,
    fix,
    growth,
    hooks,
    importing,
    large_import,
    limit,
    load,
    others,
    postgres,
    reading,
    recall,
    report,
    search,
    searching,
    starting,
    web,
    writers,
)
from benchmarks.measure import Curve, Line, machine, table, versions
from benchmarks.secrets import recall as secret_recall


class Part(NamedTuple):
    """What can be measured by itself."""

    title: str
    measure: Callable[[Path], Iterator[Line | Curve]]


PARTS = {
    "writers": Part("One writer and 64, against hand-written SQL", writers.writers),
    "append": Part("Appending at any depth", depth.append),
    "fork": Part("Forking at any depth", depth.fork),
    "evidence": Part("Evidence: what covering and verifying cost", evidence.evidence),
    "ancestry": Part("What ancestry takes on disk", depth.ancestry),
    "questions": Part("Questions about ancestry", reading.questions),
    "reading": Part("Reading, against hand-written SQL", reading.reading),
    "context": Part("What a model is shown, at any depth", context.context),
    "search": Part("Search at a million messages", search.search),
    "recall": Part("Recall: questions, and prompts of real sessions", recall.recall),
    "fix": Part("Fix: what ended an error, before it ends again", fix.fix),
    "secrets": Part("Secrets: formats found, and false alarms", secret_recall.secrets),
    "searching": Part("Searching", searching.searching),
    "starting": Part("Starting", starting.starting),
    "hooks": Part("Hooks of agents at a million messages", hooks.hooks_of_agents),
    "cli": Part("The command line", commands.commands),
    "others": Part("Other figures", others.others),
    "limit": Part("The limit: where the time goes", limit.limit),
    "postgres": Part("PostgreSQL, beside an earlier commit", postgres.before),
    "postgres_by_hand": Part("PostgreSQL, against hand-written SQL", postgres.postgres),
    "growth": Part("Growth", growth.growth),
    "figures": Part("Usage and tools of a year", figures.figures),
    "broker": Part("The broker under load", broker.broker),
    "web": Part("Pages of a ledger of a million messages", web.web),
    "load": Part("200 readers and 20 writers on one server", load.load),
    "importing": Part("Importing", importing.importing),
    "large_import": Part("Importing a gigabyte", large_import.large_import),
    "ways": Part("Peers: at once and step by step, at first and again", against.ways),
    "contexts": Part("Peers: the context of a thread, at first and again", against.contexts),
    "crowds": Part("Peers: 64 sessions at once", against.crowds),
    "servers": Part("Peers on PostgreSQL", postgres.servers),
    "durability": Part("Peers at the same durability", against.durability),
    "peers": Part("Peers", against.peers),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part alone")
    parser.add_argument("--folder", help="where the ledgers are made; by default the system's own")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder, prefix="benchmarks-") as folder:
        for name in chosen.only or PARTS:
            print(f"measuring {name} ...", file=sys.stderr, flush=True)
            about, start = machine(Path(folder)), time.perf_counter()
            found = list(PARTS[name].measure(Path(folder)))
            report.keep(name, PARTS[name].title, about, time.perf_counter() - start, found)
            print(table([line for line in found if isinstance(line, Line)]), f"\n{about}\n")
    report.write(list(PARTS), versions(against.PEERS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
