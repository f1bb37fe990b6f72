"""Compare the costs of Claude Code and Codex sessions with agentsview's and ccusage's.

    unshare -n sh -c 'ip link set lo up; python scripts/compare_costs.py CORPUS \
        --agentsview BIN/agentsview --ccusage BIN/ccusage --ccusage-codex BIN/ccusage-codex'

CORPUS has the folders claude_code and codex. The programs run in a temporary home. agentsview
starts a server and looks for prices and a telemetry service on the internet: `unshare -n` leaves it
only the loopback interface, so it computes with the prices it is built with.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agents_ledger import Ledger

ORIGINS = {"claude_code": "claude-code", "codex": "codex"}
EQUAL = 0.005  # dollars


def copy_logs(corpus: Path, home: Path) -> None:
    """Each Claude Code file in a project of its own, because ccusage 18 sums up projects."""
    for file in (corpus / "claude_code").rglob("*.jsonl"):
        project = home / ".claude/projects" / f"{file.parent.name}--{file.stem}"
        project.mkdir(parents=True)
        shutil.copyfile(file, project / file.name)
    codex = home / ".codex/sessions/2026/01/01"
    codex.mkdir(parents=True)
    for file in (corpus / "codex").rglob("*.jsonl"):
        shutil.copyfile(file, codex / f"rollout-{file.parent.name}-{file.name}")


def output(home: Path, *command: str) -> Any:
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return json.loads(done.stdout or "{}")


def agentsview(program: str, home: Path) -> dict[str, float]:
    environment = {**os.environ, "HOME": str(home)}
    listing = ("--include-children", "--include-one-shot", "--include-automated", "--limit", "500")
    subprocess.run([program, "daemon", "start"], env=environment, capture_output=True, check=False)
    try:
        sessions = output(home, program, "session", "list", "--json", *listing).get("sessions", [])
        costs = {}
        for session in sessions:
            usage = ("session", "usage", session["id"], "--json", "--no-sync", "--own-only")
            costs[session["id"]] = output(home, program, *usage).get("cost_usd") or 0.0
    finally:
        subprocess.run(
            [program, "daemon", "stop"], env=environment, capture_output=True, check=False
        )
    return {key if ":" in key else f"claude-code:{key}": cost for key, cost in costs.items()}


def ccusage(program: str, home: Path) -> dict[str, float]:
    report = output(home, program, "session", "--json", "--offline")
    return {
        f"claude-code:{session['sessionId'].rpartition('--')[2]}": session["totalCost"]
        for session in report.get("sessions", [])
    }


def ccusage_codex(program: str, home: Path) -> dict[str, float]:
    report = output(home, program, "session", "--json", "--offline")
    return {f"codex:{s['sessionFile'][-36:]}": s["costUSD"] for s in report.get("sessions", [])}


def ledger_costs(corpus: Path, home: Path) -> dict[str, float]:
    address = str(home / "ledger.db")
    with Ledger.open(address):
        pass
    for folder in ORIGINS:
        program = [sys.executable, "-m", "agents_ledger", "--ledger", address, "import"]
        subprocess.run([*program, str(corpus / folder)], capture_output=True, check=False)
    with Ledger.open(address) as ledger:
        lines = ledger.usage("session").lines
    return {line.key or "": (line.spent.cost_microdollars or 0) / 1e6 for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    for name in ("agentsview", "ccusage", "ccusage-codex"):
        parser.add_argument(f"--{name}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        copy_logs(options.corpus, home)
        ours = ledger_costs(options.corpus, home)
        theirs = agentsview(options.agentsview, home) if options.agentsview else {}
        others = ccusage(options.ccusage, home) if options.ccusage else {}
        if options.ccusage_codex:
            others |= ccusage_codex(options.ccusage_codex, home)
    print("| session | ledger | agentsview | difference | ccusage |")
    print("|---|--:|--:|--:|--:|")
    for label in sorted(ours.keys() | theirs.keys(), key=lambda key: -ours.get(key, 0)):
        own, peer, other = ours.get(label), theirs.get(label), others.get(label)
        if max(own or 0, peer or 0, other or 0) < EQUAL:
            continue
        difference = None if peer is None else peer - (own or 0)
        cells = (own, peer, difference, other)
        print(f"| {label} | {' | '.join('' if c is None else f'{c:.2f}' for c in cells)} |")


if __name__ == "__main__":
    main()
