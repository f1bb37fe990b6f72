"""docs/tutorial.md works: from an empty folder, command by command, with the output it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.docs.console import ROOT, commands, masked

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DURATION = re.compile(r"\bin \d[\d.]* (ms|s)\b")
PROGRAMS = {
    "python": [sys.executable],
    "agents-ledger": [sys.executable, "-m", "agents_ledger.cli.main"],
}


def comparable(text: str) -> str:
    return DURATION.sub("in TIME", masked(text))


def output(folder: Path, command: str) -> str:
    program, *arguments = shlex.split(command)
    environment = {
        **os.environ,
        "AGENTS_LEDGER": "ledger.db",
        "COLUMNS": "80",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
    }
    run = subprocess.run(
        [*PROGRAMS[program], *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
    return run.stdout


@pytest.mark.finding("users-7")
def test_every_step_prints_what_the_page_shows(tmp_path: Path) -> None:
    for language, body in BLOCK.findall(PAGE):
        if language == "python":
            name = body.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(body, encoding="utf-8")
            continue
        for command, shown in commands(body):
            assert comparable(output(tmp_path, command)) == comparable(shown), command

    with Ledger.open(str(tmp_path / "ledger.db"), read_only=True) as ledger:
        assert ledger.thread("main", last=0).compaction_count == 1
        assert ledger.common_ancestor("main", "what-if") == ledger.ancestry("what-if")[-2]
        assert ledger.audit() == ()
