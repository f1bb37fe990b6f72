"""Importing Claude Code's and Codex's files: against a bare parse, and others that read them.

The files are those in AGENTS_LEDGER_CORPUS; without it, made ones of Claude Code. The peers do
another job: agentsview fills a database for its pages, claude-code-log renders Claude Code's files
as HTML; neither keeps the files' own bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from benchmarks import workload
from benchmarks.against import PEERS, ROOT
from benchmarks.measure import Goal, Line, middle, spread

ROUNDS = 5
RENDERINGS = 3
AGENTS = (".claude", ".codex")
OURS = [sys.executable, "-m", "agents_ledger.cli.main", "import"]
GOALS = ("agentsview sync",)  # to be faster than these
THREAD = re.compile(rb'"id":\s*"([0-9a-f-]{36})"')
HEAD = 4000  # bytes of a rollout that name its thread
MADE = 4_000  # lines, where there is no corpus
PAGES = """
SELECT
    CASE
        WHEN s.name = 'source_blocks' THEN 'source records'
        WHEN s.name LIKE 'search_%' THEN 'word index'
        WHEN s.name IN ('tool_calls', 'messages') THEN 'rows of ' || s.name
        WHEN m.type = 'index' THEN 'indexes'
        ELSE 'all other rows'
    END AS part,
    sum(s.pgsize) AS size
FROM dbstat s LEFT JOIN sqlite_master m ON m.name = s.name
GROUP BY part
UNION ALL
SELECT 'empty pages', f.freelist_count * p.page_size
FROM pragma_freelist_count f, pragma_page_size p
ORDER BY size DESC
"""
PARSE = """
import sys, msgspec
decoder = msgspec.json.Decoder()
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        for line in file:
            try:
                decoder.decode(line)
            except msgspec.DecodeError:
                pass
"""


class Ran(NamedTuple):
    """What one process took."""

    wall: float
    cpu: float
    peak: int  # bytes of memory


def ran(command: Sequence[str], home: Path, source: Path = ROOT / "src") -> Ran:
    """What a command takes, with the sources of this tree or another."""
    paths = os.pathsep.join([str(source), str(ROOT)])
    own = {"HOME": str(home), "AGENTSVIEW_NO_DAEMON": "1", "PYTHONPATH": paths}
    own["PYTHONDONTWRITEBYTECODE"] = ""  # an installed program is compiled once
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**os.environ, **own},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command[0]} ended with {process.returncode}")
    return Ran(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def histories(home: Path) -> list[Path]:
    """Claude Code's files and Codex's, in a home of their own."""
    corpus = os.environ.get("AGENTS_LEDGER_CORPUS")
    if corpus:
        for path in sorted(Path(corpus, "claude_code").rglob("*.jsonl")):
            folder = path.parent.relative_to(corpus).as_posix().replace("/", "-")
            _copy(path, home / ".claude" / "projects" / folder / path.name)
        for number, path in enumerate(sorted(Path(corpus, "codex").rglob("*.jsonl"))):
            found = THREAD.search(path.read_bytes()[:HEAD])
            thread = found[1].decode() if found else f"{number:08}-0000-4000-8000-000000000000"
            name = f"rollout-2026-01-01T00-00-{number:02}-{thread}.jsonl"
            _copy(path, home / ".codex" / "sessions" / "2026" / "01" / "01" / name)
    else:
        _make(home / ".claude" / "projects" / "-made")
    return sorted(path for name in AGENTS for path in (home / name).rglob("*.jsonl"))


def _copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True)
    turns = workload.turns(100)
    for name in range(4):
        session, before = f"{name:08}-0000-4000-8000-000000000000", None
        lines: list[str] = []
        for number in range(MADE // 8):
            turn = turns[number % len(turns)]
            for role, text in (("user", turn.query), ("assistant", turn.response)):
                uuid = f"{name:04}{number:04}-0000-4000-8000-{len(lines):012}"
                content = text if role == "user" else [{"type": "text", "text": text}]
                line = {
                    "type": role,
                    "uuid": uuid,
                    "parentUuid": before,
                    "sessionId": session,
                    "timestamp": "2026-01-01T00:00:00.000Z",
                    "message": {"role": role, "content": content},
                }
                lines.append(json.dumps(line))
                before = uuid
        (folder / f"{session}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def importing(folder: Path) -> Iterator[Line]:
    """MB per second, memory, importing again, and the size kept."""
    home = folder / "home"
    files = histories(home)
    given = _bytes(files)
    yield from _both(folder, home, files, given)
    yield from _rendering(folder, home)


def _bytes(files: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _both(folder: Path, home: Path, files: Sequence[Path], given: int) -> Iterator[Line]:
    """All files, against a bare parse, and a program that reads both agents' files."""
    ledger = folder / "imported.db"
    commands = {
        "agents-ledger": [*OURS, "claude-code", "codex", "--ledger", str(ledger)],
        "a bare msgspec parse": [sys.executable, "-c", PARSE, *map(str, files)],
    }
    if PEERS.exists():
        commands["agentsview sync"] = [str(PEERS.with_name("agentsview")), "sync"]
    first: dict[str, list[Ran]] = {name: [] for name in commands}
    again: dict[str, list[Ran]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        _forget(folder, home)
        for name, command in commands.items():
            first[name].append(ran(command, home))
            again[name].append(ran(command, home))
    mine, mine_again = first.pop("agents-ledger"), again.pop("agents-ledger")
    for name, theirs in first.items():
        goal = Goal(">=", 1) if name in GOALS else None
        yield from _against(f"import / {name}", mine, theirs, given, goal)
        if name in GOALS:
            yield from _against(f"import again / {name}", mine_again, again[name], given, goal)
    peak = max(ran.peak for ran in mine) / 1e6
    yield Line("peak memory, MB", f"{peak:.0f} MB", "", peak, Goal("<=", 250))
    size = ledger.stat().st_size
    ratio = size / given
    yield Line("bytes kept / bytes of the files", f"{size:,}", f"{given:,}", ratio, Goal("<=", 0.7))
    yield from _parts(ledger, given)


def _parts(ledger: Path, given: int) -> Iterator[Line]:
    """What of the ledger's file holds what, the largest first."""
    with closing(sqlite3.connect(ledger)) as connection:
        try:
            rows = connection.execute(PAGES).fetchall()
        except sqlite3.OperationalError:  # this build of SQLite does not tell
            return
    for part, size in rows:
        yield Line(f"{part} / bytes of the files", f"{size:,}", f"{given:,}", size / given)


def _rendering(folder: Path, home: Path) -> Iterator[Line]:
    """Claude Code's files alone, against a program that renders them."""
    if not PEERS.exists():
        return
    projects = home / ".claude" / "projects"
    given = _bytes(projects.rglob("*.jsonl"))
    ours = [*OURS, "claude-code", "--ledger", str(folder / "imported.db")]
    log = [str(PEERS.with_name("claude-code-log")), str(projects), "--all-projects"]
    mine: list[Ran] = []
    theirs: list[Ran] = []
    for _ in range(RENDERINGS):
        _forget(folder, home)
        mine.append(ran(ours, home))
        theirs.append(ran([*log, "-o", str(folder / "html")], home))
    yield from _against("import / claude-code-log", mine, theirs, given, Goal(">=", 10))


def _forget(folder: Path, home: Path) -> None:
    """Everything but the histories."""
    for path in folder.glob("imported.db*"):
        path.unlink()
    shutil.rmtree(folder / "html", ignore_errors=True)
    for path in home.iterdir():
        if path.name not in AGENTS:
            shutil.rmtree(path, ignore_errors=True)
    for path in (home / ".claude").rglob("*"):
        if path.is_file() and path.suffix != ".jsonl":
            path.unlink()


def _against(
    what: str, mine: list[Ran], theirs: list[Ran], given: int, goal: Goal | None
) -> Iterator[Line]:
    for clock in ("wall", "cpu"):
        own = [given / 1e6 / getattr(ran, clock) for ran in mine]
        other = [given / 1e6 / getattr(ran, clock) for ran in theirs]
        ratios = [a / b for a, b in zip(own, other, strict=True)]
        yield Line(
            f"{what}, {clock}",
            f"{middle(own):.1f} MB/s",
            f"{middle(other):.1f} MB/s",
            middle(ratios),
            goal,
            rounds=len(ratios),
            spread=spread(ratios),
        )
    peaks = [middle([ran.peak / 1e6 for ran in each]) for each in (mine, theirs)]
    yield Line(
        f"{what}, peak memory", f"{peaks[0]:.0f} MB", f"{peaks[1]:.0f} MB", peaks[0] / peaks[1]
    )
