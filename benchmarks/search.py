"""Search at a million generated messages, against a bare FTS5 table of the same text and ripgrep.

The bare table keeps its text, finds rowids newest first and makes the snippets of a page with
FTS5's own function: what a hand-written search would do. To make all this takes minutes:
AGENTS_LEDGER_BENCH_SEARCH names a folder to keep it in, AGENTS_LEDGER_BENCH_MESSAGES makes it less.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from agents_ledger import Ledger, Message
from agents_ledger.ledger.turns import recording
from agents_ledger.model.reports.search import Order
from agents_ledger.store.database import Transaction
from benchmarks.against import PEERS
from benchmarks.measure import Goal, Line, Side, interleaved, rate, slower, timed

MESSAGES = int(os.environ.get("AGENTS_LEDGER_BENCH_MESSAGES", "1000000"))
EACH = 4  # messages of a turn
AT_ONCE = 500
PROJECTS = 50
SESSIONS = 200
WORDS = 20_000
PAGE = 20
ROUNDS = 9
IN_A_ROW = 5  # searches beside one run of ripgrep, which pushes them out of the caches
RARE = "quixotic"
PHRASE = ("velvet", "hammer")
COMMON = "w0"
QUESTIONS = {
    "rare": "what did we decide about w4000 and w9000 in w15000?",
    "usual": "what did we decide about w500 and the w300 of w900?",
    "common": "what did we say about w0 and the w5 of w20?",
}
QUESTION_GOAL = Goal("<=", 8)


def texts(turns: int) -> Iterator[tuple[list[str], str, str]]:
    """The messages of each turn, its project and its session; few words are common, as in text."""
    chance = random.Random(3)
    vocabulary = [f"w{number}" for number in range(WORDS)]
    weights = [1 / (number + 2) for number in range(WORDS)]
    stock = chance.choices(vocabulary, weights, k=2_000_000)
    for number in range(turns):
        messages = []
        for _ in range(EACH):
            at = chance.randrange(len(stock) - 80)
            messages.append(" ".join(stock[at : at + chance.randint(20, 80)]))
        if number % (turns // 5 or 1) == 7:
            messages[1] += f" {RARE}"
        if number % (turns // 100 or 1) == 3:
            messages[2] += f" {PHRASE[0]} {PHRASE[1]}"
        yield messages, f"project{number % PROJECTS}", f"s{number % SESSIONS}"


def fill(ledger: Ledger, bare: sqlite3.Connection, plain: Path, turns: int) -> None:
    """The same text in a ledger, in a bare table, and in a file."""
    works: list[Callable[[Transaction], object]] = []
    bare.execute("CREATE VIRTUAL TABLE found USING fts5(text, tokenize='unicode61')")
    bare.execute("CREATE TABLE docs (id INTEGER PRIMARY KEY, project TEXT)")
    with plain.open("w") as file:
        for number, (messages, project, session) in enumerate(texts(turns)):
            works.append(_work(messages, project, session, 1_600_000_000_000 + number * 60_000))
            text = "\n".join(messages)
            bare.execute("INSERT INTO found (rowid, text) VALUES (?, ?)", (number, text))
            bare.execute("INSERT INTO docs VALUES (?, ?)", (number, project))
            file.write(f"{text}\n")
            if len(works) == AT_ONCE:
                ledger._core.db.write(partial(_all, works=works))
                ledger._core.index()
                works = []
    ledger._core.db.write(partial(_all, works=works))
    bare.commit()


def _work(
    messages: list[str], project: str, session: str, at: int
) -> Callable[[Transaction], object]:
    query, first, second, answer = messages
    steps = [Message("assistant", first), Message("tool", second)]
    fields: dict[str, Any] = {
        "steps": steps,
        "started_at": at,
        "completed_at": at,
        "workspace_path": f"/home/me/{project}",
    }
    return partial(recording.record, prepared=recording.recording(session, query, answer, fields))


def _all(tx: Transaction, works: list[Callable[[Transaction], object]]) -> None:
    for work in works:
        work(tx)


def made(folder: Path) -> Path:
    """The folder with all that is searched, made if it is not there."""
    folder = Path(os.environ.get("AGENTS_LEDGER_BENCH_SEARCH", folder))
    folder.mkdir(exist_ok=True)
    mark = folder / f"made-{MESSAGES}"
    if not mark.exists():
        bare = sqlite3.connect(folder / "bare.db")
        with Ledger.open(str(folder / "search.db")) as ledger:
            fill(ledger, bare, folder / "text.txt", MESSAGES // EACH)
        bare.close()
        mark.touch()
    return folder


def search(folder: Path) -> Iterator[Line]:
    """Rare word, phrase, project, common word; and ripgrep for the rare word."""
    folder = made(folder)
    plain = folder / "text.txt"
    bare = sqlite3.connect(folder / "bare.db")
    with Ledger.open(str(folder / "search.db"), read_only=True) as ledger:
        yield from _asked(ledger, bare)
        yield from _against_ripgrep(ledger, plain)
    bare.close()


BARE = """
SELECT rowid, snippet(found, 0, '[', ']', '...', 24) FROM found
WHERE found MATCH ? ORDER BY rowid DESC LIMIT ?
"""
BARE_RANKED = """
SELECT rowid, snippet(found, 0, '[', ']', '...', 24) FROM found
WHERE found MATCH ? ORDER BY rank LIMIT ?
"""
BARE_PROJECT = """
SELECT f.rowid, snippet(found, 0, '[', ']', '...', 24)
FROM found f CROSS JOIN docs d ON d.id = f.rowid
WHERE f.found MATCH ? AND d.project = ? ORDER BY f.rowid DESC LIMIT ?
"""


def _asked(ledger: Ledger, bare: sqlite3.Connection) -> Iterator[Line]:
    size = f"{MESSAGES:,} messages"
    mid = f"w{WORDS // 40}"
    goal = Goal("<=", 5)
    phrase = f'"{PHRASE[0]} {PHRASE[1]}"'
    for name, ours, theirs in (
        ("a rare word", RARE, (BARE, (RARE, PAGE))),
        ("a phrase", phrase, (BARE, (phrase, PAGE))),
        ("a word in a project", f"{mid} project:project7", (BARE_PROJECT, (mid, "project7", PAGE))),
    ):
        sides: dict[str, Side] = {
            "ours": partial(timed, partial(_ask, ledger, ours), 1),
            "bare": partial(timed, partial(_ask_bare, bare, *theirs), 1),
        }
        found = interleaved(sides, ROUNDS)
        yield slower(f"{name} among {size}", found["ours"], found["bare"], "cpu", goal)
    for name, question in QUESTIONS.items():
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        sides = {
            "ours": partial(timed, partial(_ask, ledger, question, "relevance"), 1),
            "bare": partial(timed, partial(_ask_bare, bare, BARE_RANKED, (words, PAGE)), 1),
        }
        found = interleaved(sides, ROUNDS)
        title = f"a question of {name} words among {size}"
        yield slower(title, found["ours"], found["bare"], "cpu", QUESTION_GOAL)
    ranked = [timed(partial(ledger.search, COMMON, order="relevance"), 1) for _ in range(3)]
    capped = ledger.search(COMMON, order="relevance").capped
    took = sorted(each.wall for each in ranked)[1]
    said = "capped" if capped else "not capped"
    yield Line(f"a common word by relevance among {size}, {said}", f"{took * 1000:.0f} ms")


def _ask(ledger: Ledger, text: str, order: Order = "newest") -> None:
    if not ledger.search(text, limit=PAGE, order=order).hits:
        raise AssertionError(f"nothing found for {text}")


def _ask_bare(bare: sqlite3.Connection, sql: str, values: tuple[object, ...]) -> None:
    if not bare.execute(sql, values).fetchall():
        raise AssertionError(f"nothing found for {values}")


def _against_ripgrep(ledger: Ledger, plain: Path) -> Iterator[Line]:
    program = shutil.which("rg", path=f"{PEERS.parent}{os.pathsep}{os.environ['PATH']}")
    program = program or shutil.which("grep")
    if program is None:
        return
    name = Path(program).name
    look = partial(
        subprocess.run, [program, "-w", RARE, str(plain)], capture_output=True, check=True
    )

    def ask() -> None:
        for _ in range(IN_A_ROW):
            _ask(ledger, RARE)

    sides: dict[str, Side] = {
        "ours": partial(timed, ask, IN_A_ROW),
        "theirs": partial(timed, look, 1),
    }
    found = interleaved(sides, ROUNDS)
    label = "ripgrep" if name == "rg" else "grep, as there is no ripgrep"
    goal = Goal(">=", 50)
    yield rate(f"a rare word, against {label}", found["ours"], found["theirs"], "wall", goal)
