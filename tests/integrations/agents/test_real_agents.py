"""The real agents, after `agents-ledger install`: what reaches the model, and what is imported.

`make soak` runs these; the first run installs the agents from npm. docs/how-to/connect-agents.md
names the versions with which they pass.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.model.text.quotation import NOTICE
from tests.integrations.agents.agent_home import AgentHome
from tests.integrations.agents.loopback_model import ModelRequest, Reply, loopback_model
from tests.integrations.agents.real_agents import PACKAGES, RealAgent
from tests.waiting import until

pytestmark = pytest.mark.exhaustive
ROOT = Path(__file__).parents[3]
KEY = "ghp_" + "a1B2" * 9
QUESTION = "Why does the walrus importer drop the timestamps of the zebra table?"
ANSWER = "We decided to keep the walrus importer's timestamps in UTC, for the zebra table."
RECALL = "Which token was used for the walrus deploy?"
TOOLS = {"context", "files", "fix", "how", "recall", "search", "sessions", "show", "tree", "usage"}
WAITS_MAX = 60
LISTS = {
    "claude-code": "Connected",
    "codex": "enabled",
    "gemini-cli": "Connected",
    "opencode": "connected",
}


def asks_the_ledger(request: ModelRequest) -> Reply:
    """A model that calls `recall` once, when the server is connected."""
    if NOTICE in request.text:
        return Reply()
    recall = request.tool("agents-ledger", "recall")
    if recall is not None:
        return Reply(tool=recall, arguments={"question": RECALL})
    # Agents start before their MCP servers are ready: it takes its time, with their own tools.
    for name, arguments in (("WaitForMcpServers", {}), ("exec_command", {"cmd": "sleep 2"})):
        wait = next((tool for tool in request.tools if tool.name == name), None)
        if wait is not None and request.text.count("sleep 2") < WAITS_MAX:
            return Reply(tool=wait, arguments=arguments)
    return Reply()


@contextmanager
def started(agent: str, folder: Path) -> Iterator[tuple[RealAgent, list[ModelRequest]]]:
    """An agent in a project with a history."""
    home = AgentHome(folder)
    with home.ledger() as ledger:
        fill(ledger, str(home.project))
    home.index()
    with loopback_model(asks_the_ledger) as model:
        yield RealAgent(agent, home, model), model.requests


def fill(ledger: Ledger, project: str) -> None:
    ledger.record("walrus", QUESTION, ANSWER, workspace_path=project)
    answer = f"I used {KEY} for the walrus deploy. Shall I delete the branch?"
    ledger.record("deploy", "Deploy the walrus", answer, workspace_path=project)


def texts_of(home: AgentHome, origin: str) -> list[tuple[str, str]]:
    """Role and text of the messages that were imported from an agent."""
    with home.ledger() as ledger:
        labels = [session.label for session in ledger.sessions() if session.origin == origin]
        turns = [turn for label in labels for turn in ledger.thread(label).turns]
    return [(message.role, message.content or "") for turn in turns for message in turn.messages]


@pytest.mark.parametrize("name", PACKAGES)
def test_the_agent_recalls_and_is_recorded(name: str, tmp_path: Path) -> None:
    with started(name, tmp_path) as (agent, requests):
        agent.home.run("install", name)

        agent.ask(QUESTION)

        asked = [request for request in requests if QUESTION in request.text]
        first, last = asked[0].text, asked[-1].text
        # The brief and the passage, within their marks.
        assert "Earlier work in this project" in first
        assert "[session deploy]" in first
        assert first.count("Possibly related earlier work") == 1
        assert "timestamps in UTC" in first.split("Possibly related earlier work")[1]
        assert "recorded-" in first
        # The tools, and the answer of one.
        offered = {tool.name.rpartition("_")[2] for tool in asked[-1].tools}
        assert offered >= TOOLS
        assert NOTICE in last
        assert "walrus deploy" in last.split(NOTICE)[1]
        assert not any(KEY in request.text for request in requests)

        # The session is imported when it ends, without what the hooks added.
        until(lambda: any(QUESTION in text for _, text in texts_of(agent.home, name)))
        until(lambda: agent.home.doctor()["unindexed"]["value"] == 0)
        typed = [text for role, text in texts_of(agent.home, name) if role == "user"]
        assert not any("Earlier work in this project" in text for text in typed)
        assert "hook_failures" not in agent.home.doctor()

        # The same question in the same session: the passage is not repeated.
        del requests[:]
        agent.ask(f"{QUESTION} Tell me again.", resume=True)
        again = [request.text for request in requests if "Tell me again" in request.text]
        assert again
        for text in again:
            after = text.rpartition("Tell me again")[2]
            assert text.count("Possibly related earlier work") <= 1
            assert "timestamps in UTC" not in after.split("Possibly related earlier work")[-1] or (
                "Possibly related earlier work" not in after
            )


@pytest.mark.parametrize("name", PACKAGES)
def test_the_agent_accepts_its_registration_and_gets_its_settings_back(
    name: str, tmp_path: Path
) -> None:
    with started(name, tmp_path) as (agent, _):
        agent.run("mcp", "list")  # it writes settings of its own
        before = settings_of(agent.home)

        agent.home.run("install", name)
        listed = agent.run("mcp", "list")
        assert "agents-ledger" in listed
        assert LISTS[name] in listed
        agent.home.run("uninstall", name)

        assert "agents-ledger" not in agent.run("mcp", "list").replace(str(tmp_path), "")
        after = settings_of(agent.home)
        # Claude Code counts its starts in this file.
        for volatile in (".claude.json",):
            assert "agents-ledger" not in str(after.pop(volatile, b""))
            before.pop(volatile, None)
        assert after == before


def settings_of(home: AgentHome) -> dict[str, bytes]:
    """The files that install changes or makes."""
    names = ("settings.json", ".claude.json", "config.toml", "hooks.json", "opencode.jsonc")
    ours = ("SKILL.md", "agents-ledger.js", "opencode.json")
    files = home.files().items()
    return {
        name: text
        for name, text in files
        if Path(name).name in names or (Path(name).name in ours and ".system" not in name)
    }


def test_a_compacted_session_is_imported(tmp_path: Path) -> None:
    with started("claude-code", tmp_path) as (agent, _):
        agent.home.run("install", "claude-code")
        settings = agent.home.home / ".claude" / "settings.json"
        hooks = json.loads(settings.read_text(encoding="utf-8"))
        del hooks["hooks"]["SessionEnd"]
        settings.write_text(json.dumps(hooks), encoding="utf-8")
        agent.ask(QUESTION)
        assert texts_of(agent.home, "claude-code") == []

        agent.ask("/compact", resume=True)

        until(lambda: any(QUESTION in text for _, text in texts_of(agent.home, "claude-code")))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """The repository as others get it: a clone of what is committed."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a git repository")
    clone = tmp_path / "repository"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    return clone


def test_the_repository_is_a_marketplace_for_claude_code(repository: Path, tmp_path: Path) -> None:
    with started("claude-code", tmp_path) as (agent, requests):
        assert "Validation passed" in agent.run("plugin", "validate", str(repository))
        agent.run("plugin", "marketplace", "add", str(repository))
        agent.run("plugin", "install", "agents-ledger@agents-ledger")

        assert "plugin:agents-ledger:agents-ledger: agents-ledger mcp" in agent.run("mcp", "list")
        agent.ask(QUESTION)

        text = requests[-1].text
        assert "Earlier work in this project" in text
        assert "Possibly related earlier work" in text
        assert NOTICE in text
        assert "agents-ledger:agents-ledger" in text or "- agents-ledger" in text  # the skill
        until(lambda: any(QUESTION in words for _, words in texts_of(agent.home, "claude-code")))


def test_the_repository_is_a_marketplace_for_codex(repository: Path, tmp_path: Path) -> None:
    with started("codex", tmp_path) as (agent, requests):
        agent.run("plugin", "marketplace", "add", str(repository))
        agent.run("plugin", "add", "agents-ledger@agents-ledger")

        assert "agents-ledger" in agent.run("mcp", "list")
        agent.ask(QUESTION)

        # Codex 0.169 does not run the hooks of a plugin.
        assert NOTICE in requests[-1].text
        assert "agents-ledger:agents-ledger" in requests[-1].text  # the skill
