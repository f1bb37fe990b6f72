"""The command as a user calls it, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from agents_ledger.cli.main import main


class Answer(NamedTuple):
    """What came back."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The answer to --json."""
        return json.loads(self.out)


Run = Callable[..., Answer]


def call(*words: str, input: str | None = None, **environment: str | None) -> Answer:
    """Call agents-ledger with these words."""
    result = CliRunner(env=environment).invoke(main, words, input=input, prog_name="agents-ledger")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a ledger, on a terminal of known width."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home" / "data"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PAGER", "cat")
    for name in ("AGENTS_LEDGER", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Where a ledger file is, or will be."""
    return str(tmp_path / "ledger.db")


@pytest.fixture
def run(file: str) -> Run:
    """Calls the command for the ledger file."""
    return lambda *words, **options: call("--ledger", file, *words, **options)


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Where Claude Code keeps its sessions for this user."""
    return tmp_path / "home" / ".claude" / "projects" / "-home-dev-shop"
