"""docs/how-to/record-over-http.md is true: its examples run, in processes without our package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import blocks
from tests.waiting import PATIENCE_S
from tests.web.conftest import Running

PAGE = "docs/how-to/record-over-http.md"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Running]:
    running = Running(str(tmp_path / "ledger.db"))
    yield running
    running.stop()


def run(served: Running, secret: str, *command: str) -> None:
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = {
        "LEDGER": f"{served.server.address}api/v1",
        "SECRET": secret,
        "PATH": "/usr/bin:/bin",
    }
    result = subprocess.run(
        [program, *command[1:]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.finding("spec-B")
@pytest.mark.finding("users-12")
def test_the_examples_record_a_whole_turn_and_live_turns(served: Running, tmp_path: Path) -> None:
    _, secret = served.ledger.tokens.create("my-agent", ["write"])
    start, curl = blocks(PAGE, "sh")
    (python,) = blocks(PAGE, "python")
    (javascript,) = blocks(PAGE, "js")
    assert "token create my-agent --scope write" in start
    script = tmp_path / "client.mjs"
    script.write_text(javascript, encoding="utf-8")

    run(served, secret, "bash", "-c", curl)
    # Isolated, without site-packages: none of our code can be imported.
    run(served, secret, sys.executable, "-I", "-S", "-c", python)
    if shutil.which("node"):
        run(served, secret, "node", str(script))

    whole, live, *more = served.ledger.thread("weather").turns
    assert (whole.id, whole.total_tokens, whole.model) == ("weather-1", 129, "claude-opus-5")
    assert [type(step).__name__ for step in whole.steps] == [
        "Message", "Message", "ToolCall", "Message",
    ]  # fmt: skip
    assert live.tool_calls[0].result_json == '{"sky":"cloudy"}'
    assert live.response is not None
    assert live.response.content == "Clouds, but no rain."
    assert [len(turn.messages) for turn in more] == ([3] if shutil.which("node") else [])
    assert served.ledger.audit() == ()
