"""Importing Claude Code's transcripts: against a bare parse, and others that read the same files.

The transcripts are those under claude_code in AGENTS_LEDGER_CORPUS; without it, made ones. The
peers do another job: agentsview fills a database for its pages, claude-code-log renders HTML;
neither keeps the files' own bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import workload
from benchmarks.against import BUDGET, PEERS, ROOT
from benchmarks.measure import Line, middle, spread

ROUNDS = 3
MADE = 4_000  # lines, where there is no corpus
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


def _run(command: Sequence[str], home: Path) -> Ran:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
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


def transcripts(home: Path) -> list[Path]:
    """Claude Code's files in a home of their own."""
    projects = home / ".claude" / "projects"
    corpus = os.environ.get("AGENTS_LEDGER_CORPUS")
    if corpus:
        for path in sorted(Path(corpus, "claude_code").rglob("*.jsonl")):
            folder = projects / path.parent.relative_to(corpus).as_posix().replace("/", "-")
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / path.name)
    else:
        _make(projects / "-made")
    return sorted(projects.rglob("*.jsonl"))


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
    files = transcripts(home)
    given = sum(path.stat().st_size for path in files)
    ledger = folder / "imported.db"
    ours = [sys.executable, "-m", "agents_ledger.cli.main", "import", "claude-code"]
    commands = {
        "agents-ledger": [*ours, "--ledger", str(ledger)],
        "a bare msgspec parse": [sys.executable, "-c", PARSE, *map(str, files)],
    }
    if PEERS.exists():
        log = [str(PEERS.with_name("claude-code-log")), str(home / ".claude" / "projects")]
        commands["agentsview sync"] = [str(PEERS.with_name("agentsview")), "sync"]
        commands["claude-code-log"] = [*log, "--all-projects", "-o", str(folder / "html")]
    found: dict[str, list[Ran]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            if sum(ran.wall for ran in found[name]) < BUDGET:
                _forget(folder, home)
                found[name].append(_run(command, home))
    _forget(folder, home)
    _run(commands["agents-ledger"], home)
    again = [_run(commands["agents-ledger"], home) for _ in range(ROUNDS)]
    mine = found.pop("agents-ledger")
    for name, theirs in found.items():
        yield from _against(name, mine, theirs, given)
    first = middle([ran.wall for ran in mine])
    twice = middle([ran.wall for ran in again])
    yield Line(
        "import again, nothing new / the first time, wall",
        f"{twice:.2f} s",
        f"{first:.2f} s",
        twice / first,
    )
    size = ledger.stat().st_size
    yield Line("bytes kept / bytes of the files", f"{size:,}", f"{given:,}", size / given)


def _forget(folder: Path, home: Path) -> None:
    """Everything but the transcripts."""
    for path in folder.glob("imported.db*"):
        path.unlink()
    shutil.rmtree(folder / "html", ignore_errors=True)
    for path in home.iterdir():
        if path.name != ".claude":
            shutil.rmtree(path, ignore_errors=True)
    for path in (home / ".claude").rglob("*"):
        if path.is_file() and path.suffix != ".jsonl":
            path.unlink()


def _against(name: str, mine: list[Ran], theirs: list[Ran], given: int) -> Iterator[Line]:
    rounds = min(len(mine), len(theirs))
    for clock in ("wall", "cpu"):
        own = [given / 1e6 / getattr(ran, clock) for ran in mine]
        other = [given / 1e6 / getattr(ran, clock) for ran in theirs]
        ratios = [a / b for a, b in zip(own[:rounds], other[:rounds], strict=True)]
        yield Line(
            f"import / {name}, {clock}",
            f"{middle(own):.1f} MB/s",
            f"{middle(other):.1f} MB/s",
            middle(ratios),
            rounds=rounds,
            spread=spread(ratios),
        )
    peaks = [middle([ran.peak / 1e6 for ran in each]) for each in (mine, theirs)]
    yield Line(
        f"peak memory / {name}", f"{peaks[0]:.0f} MB", f"{peaks[1]:.0f} MB", peaks[0] / peaks[1]
    )
