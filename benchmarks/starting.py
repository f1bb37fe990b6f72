"""What starting costs: the import and the command line."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.measure import Goal, Line, Took, interleaved, slower

IMPORT = """
from time import process_time, perf_counter
wall, cpu = perf_counter(), process_time()
{}
print(perf_counter() - wall, process_time() - cpu)
"""

BARE = "import msgspec, sqlite3"
LEDGER = "from agents_ledger import Ledger"
ENGINE = "and the SQLite engine"
IMPORTS = {
    BARE: BARE,
    "import agents_ledger": "import agents_ledger",  # which imports little before it is used
    LEDGER: LEDGER,
    ENGINE: f"{LEDGER}; import agents_ledger.store.sqlite.engine",
}

PROGRAM = (sys.executable, "-c", "from agents_ledger.__main__ import main; main()")
CLICK = '''
import click

@click.group()
def main():
    """A program with three commands."""

for name in ("one", "two", "three"):
    main.command(name)(lambda: None)

main()
'''


class Starts:
    """Processes that find their modules compiled, as installed ones do."""

    def __init__(self, folder: Path, **environment: str) -> None:
        compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        self._environment = {**os.environ, **compiled, **environment}
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(self, program: Sequence[str], stdin: str = "") -> str:
        """What a process prints."""
        done = subprocess.run(
            program, input=stdin, env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def imports(self, code: str) -> Took:
        """What the import itself takes, without the interpreter's own start."""
        wall, cpu = self.run([sys.executable, "-c", IMPORT.format(code)]).split()
        return Took(float(wall), float(cpu))

    def process(self, program: Sequence[str], stdin: str = "") -> Took:
        """What a whole process takes."""
        before, start = _cpu_of_children(), time.perf_counter()
        self.run(program, stdin)
        return Took(time.perf_counter() - start, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts in steps of 10 ms
    return used.ru_utime + used.ru_stime


def starting(folder: Path) -> Iterator[Line]:
    """The import, and agents-ledger --help."""
    starts = Starts(folder)
    sides = {name: partial(starts.imports, code) for name, code in IMPORTS.items()}
    interleaved(sides, 1)  # compiles
    found = interleaved(sides, 21)
    for name in list(IMPORTS)[1:]:
        goal = None if name == ENGINE else Goal("<=", 1.5)
        yield slower(f"{name} / {BARE}", found[name], found[BARE], "cpu", goal)
    bare = folder / "bare_click.py"
    bare.write_text(CLICK, encoding="utf-8")
    sides = {
        "ours": partial(starts.process, [*PROGRAM, "--help"]),
        "bare": partial(starts.process, [sys.executable, str(bare), "--help"]),
    }
    interleaved(sides, 1)
    found = interleaved(sides, 21)
    name = "agents-ledger --help / bare click"
    yield slower(name, found["ours"], found["bare"], "cpu", Goal("<=", 2.5))
    yield slower(name, found["ours"], found["bare"], "wall", None)
