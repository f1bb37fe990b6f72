"""What evidence costs: recording and importing, bytes, verifying.

The reference is the same program with the functions that hash and write leaves replaced by ones
that do nothing.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from unittest.mock import patch

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.ledger.evidence import leaves
from agents_ledger.model.turns import ToolCall
from benchmarks.measure import Goal, Line, Took, duration, interleaved, slower, timed

ROUNDS = 5
TURNS = 500
LOG_LINES = 4000
TEXT = "What was asked and answered, in a few hundred characters, as people do. " * 8
STEPS = (ToolCall("Bash", '{"command":"pytest -q"}', json.dumps(TEXT * 2), id="c1"),)
_numbers = count()


@contextmanager
def left_out() -> Iterator[None]:
    """Without leaves."""
    nothing = leaves.TurnSeal(b"", "")
    no_block = leaves.BlockSeal(b"", [])
    with (
        patch.object(leaves, "seal", lambda turn: nothing),
        patch.object(leaves, "add", lambda tx, leaf: None),
        patch.object(leaves, "add_all", lambda tx, many: None),
        patch.object(leaves, "turn_leaf", lambda *_: None),
        patch.object(leaves, "block_leaf", lambda *_: None),
        patch.object(leaves, "cover_move", lambda *_, **__: None),
        patch.object(leaves, "seal_block", lambda data: no_block),
    ):
        yield


def _recorded(folder: Path) -> Path:
    """Record turns into a new ledger."""
    path = folder / f"evidence-{next(_numbers)}.db"
    with Ledger.open(str(path)) as ledger:
        for number in range(TURNS):
            ledger.record("main", f"{number} {TEXT}", TEXT, steps=STEPS, model="m", provider="p")
    return path


def _record(folder: Path) -> Took:
    ledger = Ledger.open(str(folder / f"evidence-{next(_numbers)}.db"))

    def record() -> None:
        for number in range(TURNS):
            ledger.record("main", f"{number} {TEXT}", TEXT, steps=STEPS, model="m", provider="p")

    with ledger:
        return timed(record, TURNS)


def _import(folder: Path, log: Path) -> Took:
    with Ledger.open(str(folder / f"evidence-{next(_numbers)}.db")) as ledger:
        return timed(lambda: import_paths(ledger, [log]), 1)


def _without(side: partial[Took]) -> Took:
    with left_out():
        return side()


def _bytes(folder: Path) -> int:
    """What evidence takes in a file, by turn."""
    sizes = []
    for recorded in (_recorded(folder), _recorded_without(folder)):
        with closing(sqlite3.connect(recorded)) as connection:
            connection.execute("VACUUM")
        sizes.append(os.stat(recorded).st_size)
    return round((sizes[0] - sizes[1]) / TURNS)


def _recorded_without(folder: Path) -> Path:
    with left_out():
        return _recorded(folder)


def _log(folder: Path) -> Path:
    """A made session of Claude Code."""
    lines = []
    for number in range(LOG_LINES):
        kind = "user" if number % 2 == 0 else "assistant"
        text = [{"type": "text", "text": f"{number} {TEXT}"}]
        clock = f"{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}"
        lines.append(
            {
                "type": kind, "uuid": f"u{number}", "sessionId": "s", "cwd": "/p",
                "parentUuid": f"u{number - 1}" if number else None,
                "timestamp": f"2026-01-01T{clock}Z",
                "message": {"role": kind, "content": text, "id": f"m{number}"},
            }
        )  # fmt: skip
    path = folder / "11111111-2222-3333-4444-555555555555.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


def evidence(folder: Path) -> Iterator[Line]:
    log = _log(folder)
    for name, side, goal in (
        ("a recorded turn with one call, CPU", partial(_record, folder), Goal("<=", 1.25)),
        (f"an import of {LOG_LINES} lines, CPU", partial(_import, folder, log), Goal("<=", 1.1)),
    ):
        sides = {"with": side, "without": partial(_without, side)}
        took = interleaved(sides, ROUNDS)
        yield slower(name, took["with"], took["without"], "cpu", goal)
    size = _bytes(folder)
    yield Line("bytes of a recorded turn", f"{size}", "", float(size), Goal("<=", 300))
    path = _recorded(folder)
    with Ledger.open(str(path), read_only=True) as ledger:
        verifying = timed(ledger.verify, TURNS)
        yield Line("verifying a turn, CPU", duration(verifying.cpu))
        proving = timed(lambda: ledger.prove("main"), 1)
        yield Line(f"proving one of {TURNS} turns, CPU", duration(proving.cpu))
