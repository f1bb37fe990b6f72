"""What each command of the command line takes on the demonstration ledger, as a whole process."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.cli.servers.demonstration import Demonstration
from benchmarks.measure import Goal, Line, Took, interleaved, slower
from benchmarks.starting import PROGRAM, Starts

ROUNDS = 15
BARE = "import click, rich, msgspec, sqlite3"
# NEW is a path that does not exist. Not measured are audit, doctor, import, up, watch, the servers.
COMMANDS = """
--version
show demo
tree
search parse
files durations.py
recall parse
how Edit
replay demo
compare demo demo-strict
usage
usage --by session
tools
context demo
sql 'SELECT 1'
sessions
fork demo
compact demo --strategy sliding_window --dry-run
resume demo
queue
archive demo --undo
alias demo
rename demo demo
note demo --star
history demo
undo demo
export demo
export demo --format json
export --list
recover
token list
rederive
backup NEW
export demo --format html
chat trial --engine echo --message Hello
rerun demo --engine echo
copy LEDGER NEW
restore LEDGER NEW
salvage LEDGER NEW
"""
COMPLETIONS = {"completion of a command": "ses", "completion of a label": "show dem"}


def commands(folder: Path) -> Iterator[Line]:
    """Every command and completion, against a process that imports its libraries."""
    address = str(folder / "ledger.db")
    recorded = folder / "recorded.db"
    with Ledger.open(str(recorded)) as ledger:
        Demonstration(ledger).record()
        ledger.summarise()
    shutil.copy(recorded, address)
    starts = Starts(folder, AGENTS_LEDGER=address, HOME=str(folder))
    new_paths = (str(folder / f"new-{number}.db") for number in count())

    def run(name: str) -> Took:
        # Commands that write would make it longer in every round.
        for file in folder.glob("ledger.db?*"):
            file.unlink()
        shutil.copy(recorded, address)
        words = {"LEDGER": address, "NEW": next(new_paths)}
        return starts.process([*PROGRAM, *(words.get(word, word) for word in shlex.split(name))])

    names = list(filter(None, COMMANDS.splitlines()))
    sides = {BARE: partial(starts.process, [sys.executable, "-c", BARE])}
    sides |= {name: partial(run, name) for name in names}
    for name, line in COMPLETIONS.items():
        completing = Starts(
            folder,
            AGENTS_LEDGER=address,
            _AGENTS_LEDGER_COMPLETE="bash_complete",
            COMP_WORDS=f"agents-ledger {line}",
            COMP_CWORD=str(len(line.split())),
        )
        program = (sys.executable, "-c", f"import sys; sys.argv[0] = 'agents-ledger'; {PROGRAM[2]}")
        sides[name] = partial(completing.process, program)
    interleaved(sides, 1)  # compiles
    taken = interleaved(sides, ROUNDS)
    for name in [*names, *COMPLETIONS]:
        goal = Goal("<=", 2 if name in COMPLETIONS else 2.5)
        yield slower(name, taken[name], taken[BARE], "cpu", goal)
