"""Console examples in the documents: what is shown is what the command prints."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

from agents_ledger.cli.main import main

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"\b01[0-9A-HJKMNP-TV-Z]{8,24}\b")
_AGE = re.compile(r"\b(now|\d+ (s|min|h|d)( ago)?)\b")
_SPACE = re.compile(r" {2,}")


def blocks(document: str, language: str) -> list[str]:
    """The fenced blocks of a document that are in a language."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return [body for fence, body in _BLOCK.findall(text) if fence == language]


def run_python(text: str, folder: Path) -> None:
    """Run Python as a file in a folder."""
    script = folder / "example.py"
    script.write_text(text, encoding="utf-8")
    runpy.run_path(str(script))


def type_checked(*files: str) -> subprocess.CompletedProcess[str]:
    """Run mypy on examples, by itself: in this process it would undo gc.freeze() and leave hundreds
    of thousands of objects, and each garbage collection of all later tests would pay for them."""
    cache = ROOT / ".mypy_cache" / "examples" / os.environ.get("PYTEST_XDIST_WORKER", "main")
    options = ("--strict", "--config-file=", f"--cache-dir={cache}")
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files],
        capture_output=True,
        text=True,
        check=False,
    )


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what is shown under it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def printed(command: str, ledger: str) -> str:
    """What a command prints, on stdout."""
    program, *words = shlex.split(command)
    assert program == "agents-ledger"
    home = str(Path(ledger).parent / "home")
    runner = CliRunner(
        env={
            "AGENTS_LEDGER": ledger,
            "COLUMNS": "80",
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
            "CLAUDE_CONFIG_DIR": None,
            "CODEX_HOME": None,
        }
    )
    result = runner.invoke(main, words, prog_name="agents-ledger")
    assert result.exit_code == 0, result.output
    return result.stdout


def masked(text: str) -> str:
    """Output without what differs from run to run: ids, times and the width of columns."""
    text = _AGE.sub("AGE", _ID.sub("ID", text))
    return "\n".join(_SPACE.sub("  ", line).rstrip() for line in text.strip().splitlines())
