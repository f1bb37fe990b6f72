"""docs/tutorial.md works: from an empty folder, command by command, with the output it shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.docs.console import ROOT, commands, masked, type_checked

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
REAL_MODEL = "".join(re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DURATION = re.compile(r"\bin \d[\d.]* (ms|s)\b")
PROGRAMS = {
    "python": [sys.executable],
    "agents-ledger": [sys.executable, "-m", "agents_ledger.cli.main"],
}


def comparable(text: str) -> str:
    return DURATION.sub("in TIME", masked(text))


def output(folder: Path, command: str, **variables: str) -> str:
    program, *arguments = shlex.split(command)
    environment = {
        **os.environ,
        **variables,
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


class Provider(BaseHTTPRequestHandler):
    """Calls `recall` first, then answers with what the tool returned."""

    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append(request)
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if request["messages"][-1]["role"] == "tool":
            message["content"] = f"I found {request['messages'][-1]['content']}"
        else:
            function = {"name": "recall", "arguments": '{"words": "name"}'}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5",
            "choices": [choice],
        }
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


@pytest.fixture
def provider() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server that speaks as OpenAI does, and what it was asked."""
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (Provider,), {"asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_the_agent_works_with_a_real_model(
    tmp_path: Path, provider: tuple[str, list[dict[str, Any]]]
) -> None:
    pytest.importorskip("openai")
    url, asked = provider
    for language, body in BLOCK.findall(PAGE):
        if language == "python" and body.startswith("# agent.py"):
            (tmp_path / "agent.py").write_text(body, encoding="utf-8")
    (tmp_path / "model.py").write_text(REAL_MODEL, encoding="utf-8")
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        ledger.record("main", "My name is Ada.", "Noted.")

    answer = output(
        tmp_path,
        'python agent.py work "What is my name?"',
        OPENAI_BASE_URL=url,
        OPENAI_API_KEY="none",
    )

    assert "My name is Ada." in answer
    assert [request["tools"][0]["function"]["name"] for request in asked] == ["recall", "recall"]


def test_the_code_passes_a_strict_type_check(tmp_path: Path) -> None:
    bodies = [body for language, body in BLOCK.findall(PAGE) if language == "python"]
    for body in (*bodies, REAL_MODEL):  # later steps replace files of earlier ones
        (tmp_path / body.splitlines()[0].removeprefix("# ")).write_text(body, encoding="utf-8")
        files = [str(file) for file in tmp_path.glob("*.py")]
        checked = type_checked(*files)

        assert checked.returncode == 0, checked.stdout
