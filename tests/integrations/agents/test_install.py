"""`agents-ledger install` and `uninstall`: settings of agents, changed in place and given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

AGENTS = ("claude-code", "codex", "cursor", "gemini-cli", "opencode")
PROGRAM = (sys.executable, "-c", "from agents_ledger.__main__ import main; main()")


def run(home: Path, *words: str) -> str:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        [*PROGRAM, *words], env=environment, cwd=home, capture_output=True, text=True, check=True
    )
    return done.stdout


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_uninstall_removes_what_install_created(tmp_path: Path) -> None:
    run(tmp_path, "install", *AGENTS)
    assert len([name for name in files(tmp_path) if name.endswith("SKILL.md")]) == 5

    run(tmp_path, "uninstall", *AGENTS)

    assert [name for name in files(tmp_path) if not name.startswith(".local")] == []
