"""The repository as a plugin: an Agent Plugin 1.0, and a marketplace for Claude Code."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from agents_ledger.integrations.agents.install.targets import Place, claude_code
from agents_ledger.mcp.tools import TOOLS

ROOT = Path(__file__).parents[3]
SCHEMAS = "https://agent-plugins.org/schemas/1.0.0/"
# What the specification allows at the top of plugin.json; clients reject an author with more.
FIELDS = {
    "$schema", "name", "version", "description", "author", "homepage", "repository", "license",
    "keywords", "extensions",
}  # fmt: skip


def manifest(name: str) -> dict[str, Any]:
    value = json.loads((ROOT / name).read_text(encoding="utf-8"))
    assert isinstance(value, dict)
    return value


def test_the_root_is_an_agent_plugin() -> None:
    plugin, servers = manifest("plugin.json"), manifest("mcp.json")

    assert plugin["$schema"] == f"{SCHEMAS}plugin.schema.json"
    assert set(plugin) <= FIELDS
    assert set(plugin["author"]) <= {"name", "email", "url"}
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*[a-z0-9]", plugin["name"])
    assert servers == {
        "$schema": f"{SCHEMAS}mcp.schema.json",
        "mcpServers": {
            "agents-ledger": {"type": "stdio", "command": "agents-ledger", "args": ["mcp"]}
        },
    }


def test_the_marketplace_has_the_plugin_with_its_hooks() -> None:
    market, plugin = (
        manifest(".claude-plugin/marketplace.json"),
        manifest(".claude-plugin/plugin.json"),
    )

    [offered] = market["plugins"]
    assert (offered["name"], offered["source"]) == (plugin["name"], "./")
    for name in ("hooks", "mcpServers"):
        assert (ROOT / plugin[name]).is_file()


def test_the_hooks_are_those_that_install_registers() -> None:
    place = Place(Path("/home"), Path("/project"), "project", ("agents-ledger",), {})
    _, hooks, _ = claude_code(place)

    assert manifest(".claude-plugin/hooks.json")["hooks"] == json.loads(hooks.install(""))["hooks"]


def test_all_manifests_have_the_version_of_the_package() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    for name in ("plugin.json", ".claude-plugin/plugin.json"):
        assert manifest(name)["version"] == package["version"]
        assert manifest(name)["license"] == package["license"]


def test_the_skill_is_that_of_the_package_and_names_tools_that_exist() -> None:
    skill = (ROOT / "skills/agents-ledger/SKILL.md").read_text(encoding="utf-8")
    packaged = ROOT / "src/agents_ledger/mcp/skills/agents-ledger/SKILL.md"

    assert skill == packaged.read_text(encoding="utf-8")
    front = skill.split("---")[1]
    assert "name: agents-ledger" in front
    assert len(front.partition("description: ")[2]) <= 1024
    named = {
        word
        for row in skill.splitlines()
        if row.startswith("| ")
        for word in re.findall(r"\| `(\w+)`", row)
    }
    assert named >= {"recall", "fix", "how", "files", "search", "show"}
    assert named <= {tool.ability_name for tool in TOOLS}
