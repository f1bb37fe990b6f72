"""What an agent waits for: a hook on a large ledger, beside a bare Python with two modules."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.measure import Goal, Line, Side, Took, interleaved, slower
from benchmarks.search import MESSAGES, made
from benchmarks.starting import PROGRAM, Starts

BARE = "import sqlite3, msgspec"
ROUNDS = 15
PROJECT = "/home/me/project7"
GOAL = Goal("<=", 2)


class _Hooks:
    """Calls of hooks, each in a session of its own: a passage is shown once in a session."""

    def __init__(self, ledger: Path, folder: Path) -> None:
        self.starts = Starts(folder, AGENTS_LEDGER=str(ledger), HOME=str(folder))
        self._numbers = count()

    def _event(self, prompt: str) -> str:
        session = f"{os.getpid()}-{next(self._numbers)}"
        return json.dumps({"session_id": session, "cwd": PROJECT, "prompt": prompt})

    def took(self, event: str, prompt: str = "") -> Took:
        return self.starts.process(_command(event), self._event(prompt))

    def answer(self, event: str, prompt: str = "") -> str:
        return self.starts.run(_command(event), self._event(prompt))


def _command(event: str) -> list[str]:
    return [*PROGRAM, "hook", event, "--agent", "claude-code"]


def hooks_of_agents(folder: Path) -> Iterator[Line]:
    """The brief of a session, and prompts with and without a passage."""
    ledger, size = made(folder) / "search.db", f"{MESSAGES:,} messages"
    hooks = _Hooks(ledger, folder)
    prompts = {
        "that recalls a passage": _known(ledger),
        "of rare words": "what did we decide about w4000 and w9000 in w15000?",
        "of common words": "what did we say about w3 and the w5 of w20, w7, w8, w9, w11 and w12?",
    }
    if not hooks.answer("session-start") or not hooks.answer(
        "prompt", next(iter(prompts.values()))
    ):
        raise AssertionError("a hook answered nothing")
    sides: dict[str, Side] = {"bare": partial(hooks.starts.process, [sys.executable, "-c", BARE])}
    sides["session-start"] = partial(hooks.took, "session-start")
    sides |= {f"prompt {kind}": partial(hooks.took, "prompt", p) for kind, p in prompts.items()}
    interleaved(sides, 2)  # compiles, and fills the caches
    found = interleaved(sides, ROUNDS)
    bare = found.pop("bare")
    for name, took in found.items():
        title = f"hook {name} among {size} / {BARE}"
        yield slower(title, took, bare, "wall", GOAL)
        yield slower(title, took, bare, "cpu", None)


def _known(ledger: Path) -> str:
    """A prompt with most of the rare words of a turn of the project."""
    connection = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    sql = (
        "SELECT m.content FROM turns t JOIN messages m ON m.turn_id = t.id"
        " WHERE t.workspace_path = ? AND m.role = 'user' ORDER BY t.id DESC LIMIT 1 OFFSET 50"
    )
    [(text,)] = connection.execute(sql, (PROJECT,)).fetchall()
    connection.close()
    words = sorted(set(re.findall(r"w\d+", text)), key=lambda word: -int(word[1:]))
    return " ".join(words[:8])
