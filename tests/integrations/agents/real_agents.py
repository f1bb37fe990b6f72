"""Real agents from npm, each in a home of its own and with a model on loopback.

They are installed once, into `.venv/agents` or the folder that AGENTS_LEDGER_TEST_AGENTS names, in
the versions that were tried. Nothing but loopback is reached while they run: other addresses lead
to a proxy that does not exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integrations.agents.agent_home import AgentHome
from tests.integrations.agents.loopback_model import LoopbackModel

FOLDER = "AGENTS_LEDGER_TEST_AGENTS"
TIMEOUT_S = 300
NOBODY = "http://127.0.0.1:9"


class Package(NamedTuple):
    name: str
    version: str
    program: str  # in node_modules


PACKAGES = {
    "claude-code": Package("@anthropic-ai/claude-code", "2.1.197", ".bin/claude"),
    "codex": Package("@openai/codex", "0.169.0", ".bin/codex"),
    "gemini-cli": Package("@google/gemini-cli", "0.61.0", ".bin/gemini"),
    "opencode": Package("opencode-ai", "1.18.33", ".bin/opencode"),
}
# What each needs beside its registration to work without a person and without its provider.
CODEX_CONFIG = """# Codex
model = "gpt-5"
model_provider = "loopback"

[model_providers.loopback]
name = "loopback"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
GEMINI_SETTINGS = """{
  // Gemini CLI
  "security": {"auth": {"selectedType": "gemini-api-key"}}
}
"""
OPENCODE_SETTINGS = """{
  "$schema": "https://opencode.ai/config.json",
  // opencode
  "provider": {
    "anthropic": {"options": {"baseURL": "{env:LOOPBACK_MODEL}/v1", "apiKey": "sk-test"}},
  },
}
"""


def program_of(agent: str) -> Path:
    """The agent's program, installed if it is not there; if it cannot be, the test is skipped."""
    package = PACKAGES[agent]
    default = Path(sys.prefix) / "agents"
    folder = Path(os.environ.get(FOLDER, default)) / f"{agent}-{package.version}"
    program = folder / "node_modules" / package.program
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"{package.name}@{package.version}"
    words = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), wanted]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or not program.exists():
        pytest.skip(f"npm cannot install {wanted}: {done.stderr.strip()[-200:]}")
    return program


class RealAgent:
    """An agent with a home, where it is configured as a person would have it."""

    def __init__(self, name: str, home: AgentHome, model: LoopbackModel) -> None:
        self.name = name
        self.home = home
        self._program = program_of(name)
        self._environment = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home.home),
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "HTTP_PROXY": NOBODY,
            "HTTPS_PROXY": NOBODY,
            "NO_PROXY": "127.0.0.1,localhost",
            "npm_config_fetch_retries": "0",
            "LOOPBACK_MODEL": model.address,
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": "sk-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
            "OPENAI_API_KEY": "sk-test",
            "GOOGLE_GEMINI_BASE_URL": model.address,
            "GEMINI_API_KEY": "test",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }
        self._configure(model.address)

    def _configure(self, address: str) -> None:
        settings = {
            "codex": (".codex/config.toml", CODEX_CONFIG.replace("{address}", address)),
            "gemini-cli": (".gemini/settings.json", GEMINI_SETTINGS),
            "opencode": (".config/opencode/opencode.jsonc", OPENCODE_SETTINGS),
        }
        if self.name in settings:
            name, text = settings[self.name]
            file = self.home.home / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    def run(self, *words: str) -> str:
        """What it prints."""
        done = subprocess.run(
            [str(self._program), *words],
            cwd=self.home.project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def ask(self, prompt: str, *, resume: bool = False) -> str:
        """Let it answer a prompt, in a new session or in its last one."""
        return self.run(*self._asking(prompt, resume=resume))

    def _asking(self, prompt: str, *, resume: bool) -> Sequence[str]:
        if self.name == "claude-code":
            tools = "mcp__agents-ledger,mcp__plugin_agents-ledger_agents-ledger"
            return ["-p", prompt, "--allowedTools", tools, *(["--continue"] if resume else [])]
        if self.name == "codex":
            # A person trusts the hooks with /hooks.
            options = ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
            options.append("--dangerously-bypass-approvals-and-sandbox")
            return ["exec", *options, *(["resume", "--last"] if resume else []), prompt]
        if self.name == "gemini-cli":
            latest = ["--resume", "latest"] if resume else []
            return ["-m", "gemini-2.5-flash", "--yolo", *latest, "-p", prompt]
        latest = ["--continue"] if resume else []
        return ["run", "-m", "anthropic/claude-sonnet-4-5", *latest, prompt]
