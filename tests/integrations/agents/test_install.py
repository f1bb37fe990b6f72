"""`agents-ledger install` and `uninstall`: settings of agents, changed in place and given back."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from agents_ledger.integrations.agents.install import json_text
from tests.integrations.agents.agent_events import AGENTS
from tests.integrations.agents.agent_home import AgentHome

# Settings as people have them: comments, an order and an indentation of their own, other servers
# and hooks.
CLAUDE_JSON = """{
  "numStartups": 12,
  "mcpServers": {"github": {"type": "http", "url": "https://example.com/mcp"}},
  "projects": {}
}
"""
CLAUDE_SETTINGS = """{
\t"hooks": {
\t\t"SessionStart": [
\t\t\t{"matcher": "startup", "hooks": [{"type": "command", "command": "echo hi"}]}
\t\t],
\t\t"Stop": []
\t},
\t"model": "opus"
}"""
CODEX_TOML = """# My settings
model = "gpt-5"   # the best

[mcp_servers.docs] # documentation
command = "docs"
args = ["--fast"]

[[skills.config]]
path = "/x"
"""
CODEX_HOOKS = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]}}'
GEMINI = '{\r\n    "ui": {"theme": "Dracula"},\r\n    "mcpServers": {}\r\n}\r\n'
OPENCODE = """// opencode
{
  "$schema": "https://opencode.ai/config.json",
  "theme": "system", // as the terminal
  /* none yet */
  "mcp": {
    // the documentation
    "docs": {"type": "local", "command": ["docs"]}, // keep
  },
}
"""
CURSOR = '\ufeff{"mcpServers": {"a": {"command": "a"}}}'
SETTINGS = {
    ".claude.json": CLAUDE_JSON,
    ".claude/settings.json": CLAUDE_SETTINGS,
    ".codex/config.toml": CODEX_TOML,
    ".codex/hooks.json": CODEX_HOOKS,
    ".gemini/settings.json": GEMINI,
    ".config/opencode/opencode.jsonc": OPENCODE,
    ".cursor/mcp.json": CURSOR,
}


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome(tmp_path)


@pytest.fixture
def used(home: AgentHome) -> AgentHome:
    """A home with settings of every agent."""
    for name, text in SETTINGS.items():
        write(home.home / name, text)
    return home


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode())
    return file


def reports(home: AgentHome, *words: str) -> dict[str, dict[str, Any]]:
    """What a command says it did, by the file's name."""
    steps = json.loads(home.run(*words, "--json").stdout)["files"]
    # The first of those that share a file.
    return {str(Path(step["path"]).relative_to(home.home)): step for step in reversed(steps)}


def values(text: bytes) -> Any:
    return json_text.value_of(text.decode(), json_text.parse(text.decode()))


# -- what is registered -----------------------------------------------------------------------


def test_each_agent_gets_the_server_the_hooks_and_the_skill(home: AgentHome) -> None:
    home.run("install", *AGENTS)

    files = home.files()
    servers = [
        values(files[".claude.json"])["mcpServers"],
        values(files[".cursor/mcp.json"])["mcpServers"],
        values(files[".gemini/settings.json"])["mcpServers"],
        tomllib.loads(files[".codex/config.toml"].decode())["mcp_servers"],
    ]
    for server in servers:
        assert server["agents-ledger"]["args"][-1] == "mcp"
        assert Path(server["agents-ledger"]["command"]).is_absolute()
    opencode = values(files[".config/opencode/opencode.json"])["mcp"]["agents-ledger"]
    assert (opencode["type"], opencode["command"][-1]) == ("local", "mcp")

    hooks = {
        ".claude/settings.json": {"SessionStart", "UserPromptSubmit", "PreCompact", "SessionEnd"},
        ".codex/hooks.json": {"SessionStart", "UserPromptSubmit", "PreCompact", "SessionEnd"},
        ".gemini/settings.json": {"SessionStart", "BeforeAgent", "PreCompress", "SessionEnd"},
        ".cursor/hooks.json": {"sessionStart", "preCompact", "sessionEnd"},
    }
    for name, events in hooks.items():
        assert set(values(files[name])["hooks"]) == events
    assert b"experimental.session.compacting" in files[".config/opencode/plugins/agents-ledger.js"]
    for folder in (".claude", ".agents", ".cursor"):
        assert b"name: agents-ledger" in files[f"{folder}/skills/agents-ledger/SKILL.md"]


def test_registered_commands_run_as_they_are_registered(home: AgentHome) -> None:
    """By a shell, from another folder, with an empty PATH."""
    with home.ledger() as ledger:
        ledger.record("main", "Feed it?", "Fed it all.", workspace_path=str(home.project))
    home.run("install", "claude-code")
    hooks = values(home.files()[".claude/settings.json"])["hooks"]
    command = hooks["SessionStart"][0]["hooks"][0]["command"]
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        input=json.dumps({"session_id": "s", "cwd": str(home.project)}),
        env={**home.environment, "PATH": "/nowhere"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[session main]" in done.stdout


def test_a_path_with_spaces_is_quoted(home: AgentHome) -> None:
    folder = home.home / "my programs"
    folder.mkdir()
    program = folder / "agents-ledger"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m agents_ledger "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    script = (
        f"import sys; sys.argv = [{str(program)!r}, 'install', *{AGENTS!r}];"
        "from agents_ledger.__main__ import main; main()"
    )
    subprocess.run([sys.executable, "-c", script], env=home.environment, check=True)

    files = home.files()
    hook = values(files[".codex/hooks.json"])["hooks"]["SessionEnd"][0]["hooks"][0]
    assert shlex.split(hook["command"])[:3] == [str(program), "hook", "session-end"]
    assert values(files[".claude.json"])["mcpServers"]["agents-ledger"]["command"] == str(program)
    plugin = files[".config/opencode/plugins/agents-ledger.js"].decode()
    assert f"const COMMAND = [{json.dumps(str(program))}]" in plugin
    done = subprocess.run(
        ["/bin/sh", "-c", hook["command"]],
        input="{}",
        env=home.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == done.stderr == ""


def test_another_ledger_is_registered_with_its_address(home: AgentHome) -> None:
    home.run("--ledger", "other.db", "install", "codex")

    server = tomllib.loads(home.files()[".codex/config.toml"].decode())["mcp_servers"]
    words = server["agents-ledger"]["args"][-3:]
    assert words == ["--ledger", str(home.project / "other.db"), "mcp"]


def test_the_settings_of_a_project_name_the_program_and_hold_no_password(home: AgentHome) -> None:
    home.run("install", "--scope", "project", *AGENTS)

    names = {name.removeprefix("work/shop/") for name in home.files()}
    assert names == {
        ".mcp.json",
        ".claude/settings.json",
        ".claude/skills/agents-ledger/SKILL.md",
        ".codex/config.toml",
        ".codex/hooks.json",
        ".agents/skills/agents-ledger/SKILL.md",
        ".cursor/mcp.json",
        ".cursor/hooks.json",
        ".cursor/skills/agents-ledger/SKILL.md",
        ".gemini/settings.json",
        "opencode.json",
        ".opencode/plugins/agents-ledger.js",
    }
    secret = "postgresql://me:pass-word-1@db/ledger"
    refused = home.run("--ledger", secret, "install", "--scope", "project", check=False)
    assert refused.returncode == 5
    assert "has a password" in refused.stderr
    home.run("uninstall", "--scope", "project", *AGENTS)
    assert home.files() == {}


def test_without_names_the_agents_of_this_machine_are_chosen(home: AgentHome) -> None:
    bare = {"PATH": "/nowhere"}
    assert "no agent was found" in home.run("install", check=False, environment=bare).stderr
    (home.home / ".codex").mkdir()
    write(home.home / ".claude.json", CLAUDE_JSON)

    agents = {
        step["agent"]
        for step in json.loads(home.run("install", "--json", environment=bare).stdout)["files"]
    }

    assert agents == {"claude-code", "codex"}


# -- nothing else changes ---------------------------------------------------------------------


def test_uninstall_gives_back_every_byte(used: AgentHome) -> None:
    before = used.files()

    used.run("install", *AGENTS)
    for name, text in SETTINGS.items():
        assert used.files()[name] != text.encode(), name
    used.run("uninstall", *AGENTS)

    assert used.files() == before


def test_other_settings_stay_as_they_are(used: AgentHome) -> None:
    used.run("install", *AGENTS)

    files = used.files()
    for name, text in SETTINGS.items():
        lines = {line.strip().rstrip(",") for line in text.splitlines()} - {
            "{",
            "}",
            "",
            '"mcpServers": {}',
        }
        kept = files[name].decode()
        missing = [line for line in lines if line not in kept]
        # A value on one line may have become longer.
        assert all("mcpServers" in line or line.startswith('{"hooks') for line in missing), name
    claude = values(files[".claude/settings.json"])
    assert claude["hooks"]["SessionStart"][0]["matcher"] == "startup"
    assert list(claude) == ["hooks", "model"]
    toml = tomllib.loads(files[".codex/config.toml"].decode())
    assert {**toml, "mcp_servers": {"docs": toml["mcp_servers"]["docs"]}} == tomllib.loads(
        CODEX_TOML
    )
    assert files[".gemini/settings.json"].count(b"\n") == files[".gemini/settings.json"].count(
        b"\r\n"
    )


def test_what_others_changed_in_between_stays(used: AgentHome) -> None:
    used.run("install", *AGENTS)
    changed = {
        ".claude.json": (b'"numStartups": 12', b'"numStartups": 13'),
        ".claude/settings.json": (b'"model": "opus"', b'"model": "haiku"'),
        ".codex/config.toml": (b'model = "gpt-5"', b'model = "gpt-6"'),
        ".codex/hooks.json": (b"beep", b"boop"),
        ".gemini/settings.json": (b"Dracula", b"Default"),
        ".config/opencode/opencode.jsonc": (b"as the terminal", b"as it is"),
        ".cursor/mcp.json": (b'"a": {"command": "a"}', b'"a": {"command": "b"}'),
    }
    for name, (old, new) in changed.items():
        file = used.home / name
        file.write_bytes(file.read_bytes().replace(old, new))

    done = reports(used, "uninstall", *AGENTS)

    for name, (old, new) in changed.items():
        expected = SETTINGS[name].encode().replace(old, new)
        if name == ".gemini/settings.json":  # the empty object goes with what was in it
            expected = expected.replace(b',\r\n    "mcpServers": {}', b"")
        assert used.files()[name] == expected, name
        assert done[name]["result"] == "changed"


def test_a_second_install_changes_nothing(used: AgentHome) -> None:
    first = reports(used, "install", *AGENTS)
    files = used.files()

    second = reports(used, "install", *AGENTS)

    assert {"created", "changed"} <= {step["result"] for step in first.values()}
    assert {step["result"] for step in second.values()} == {"unchanged"}
    assert used.files() == files


def test_an_older_registration_is_replaced(used: AgentHome) -> None:
    used.run("--ledger", "/old.db", "install", *AGENTS)
    used.run("install", *AGENTS)

    assert not any(b"/old.db" in text for text in used.files().values())
    used.run("uninstall", *AGENTS)
    assert used.files() == {name: text.encode() for name, text in SETTINGS.items()}


def test_a_dry_run_reports_all_and_changes_nothing(used: AgentHome) -> None:
    before = used.files()
    planned = reports(used, "install", "--dry-run", *AGENTS)

    assert used.files() == before
    assert not (used.data / "installed").exists()
    done = reports(used, "install", *AGENTS)
    assert {n: s["result"] for n, s in planned.items()} == {n: s["result"] for n, s in done.items()}
    assert "would be removed" in used.run("uninstall", "--dry-run", *AGENTS).stdout
    assert {s["result"] for s in reports(used, "install", *AGENTS).values()} == {"unchanged"}


def test_it_says_what_it_did_and_keeps_a_backup(used: AgentHome) -> None:
    printed = used.run("install", "claude-code", "codex")

    for name in (".claude.json", ".claude/settings.json", ".codex/config.toml"):
        assert str(used.home / name) in printed.stdout
    assert "Trust the hooks" in printed.stderr
    assert "The ledger is empty" in printed.stderr
    backups = [
        line.split("backup: ")[1] for line in printed.stdout.splitlines() if "backup:" in line
    ]
    kept = {Path(backup).read_bytes() for backup in backups}
    assert kept == {t.encode() for t in (CLAUDE_JSON, CLAUDE_SETTINGS, CODEX_TOML, CODEX_HOOKS)}


# -- settings that cannot be changed ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (".claude/settings.json", '{"hooks": ', "cannot be changed"),
        (".claude/settings.json", "[1, 2]", "is not an object"),
        (".claude/settings.json", '{"hooks": []}', "is not an object"),
        (".claude/settings.json", '{"hooks": {"SessionStart": {}}}', "is not a list"),
        (".codex/config.toml", "model = ", "cannot be changed"),
        (".codex/config.toml", 'mcp_servers = {agents-ledger = {command = "x"}}', "not supported"),
    ],
)
def test_broken_settings_are_reported_and_left_alone(
    home: AgentHome, name: str, text: str, complaint: str
) -> None:
    file = write(home.home / name, text)

    done = home.run("install", "claude-code", "codex", check=False)

    assert done.returncode == 5
    assert file.read_text(encoding="utf-8") == text
    assert complaint in done.stderr
    assert str(file) in done.stderr
    # The other agent is connected all the same, and the list says so.
    assert "failed" in done.stdout
    assert b"hook session-start" in home.files()[".codex/hooks.json"]
    assert b"agents-ledger" in home.files()[".claude.json"]


def test_bytes_that_are_no_text_are_left_alone(home: AgentHome) -> None:
    file = home.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe{")

    assert "cannot be read" in home.run("install", "cursor", check=False).stderr
    assert file.read_bytes() == b"\xff\xfe{"


def test_read_only_settings_are_left_alone(home: AgentHome) -> None:
    file = write(home.home / ".cursor" / "mcp.json", CURSOR)
    file.chmod(0o444)

    done = home.run("install", "cursor", check=False)

    assert "is read-only" in done.stderr
    assert file.read_bytes() == CURSOR.encode()
    assert "failed" in done.stdout


def test_links_stay_links(home: AgentHome) -> None:
    """As those who keep their settings in a repository have them."""
    real = write(home.home / "dotfiles" / "claude.json", CLAUDE_SETTINGS)
    link = home.home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    dangling = home.home / ".cursor" / "hooks.json"
    dangling.parent.mkdir()
    dangling.symlink_to(home.home / "dotfiles" / "hooks.json")

    home.run("install", "claude-code", "cursor")
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert "hook session-start" in real.read_text(encoding="utf-8")

    home.run("uninstall", "claude-code", "cursor")
    assert link.is_symlink()
    assert real.read_bytes() == CLAUDE_SETTINGS.encode()
    assert dangling.is_symlink()
    assert not dangling.exists()


def test_modes_of_files_are_kept(home: AgentHome) -> None:
    file = write(home.home / ".cursor" / "mcp.json", CURSOR)
    file.chmod(0o640)

    home.run("install", "cursor")

    assert file.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("text", ["", "\n", "{}", "{ }\n", "{\n  // nothing yet\n}\n"])
def test_empty_settings_come_back_as_they_were(home: AgentHome, text: str) -> None:
    file = write(home.home / ".cursor" / "mcp.json", text)
    assert reports(home, "uninstall", "cursor")[".cursor/mcp.json"]["result"] == "unchanged"
    assert file.read_bytes() == text.encode()

    home.run("install", "cursor")
    home.run("uninstall", "cursor")

    assert file.read_bytes() == text.encode()


def test_a_shared_skill_stays_until_its_last_agent_is_gone(home: AgentHome) -> None:
    skill = home.home / ".agents" / "skills" / "agents-ledger" / "SKILL.md"
    home.run("install", "codex", "gemini-cli", "opencode")

    first = reports(home, "uninstall", "codex")
    assert first[".agents/skills/agents-ledger/SKILL.md"]["result"] == "kept"
    assert "gemini-cli, opencode" in first[".agents/skills/agents-ledger/SKILL.md"]["what"]
    home.run("uninstall", "opencode")
    assert skill.exists()
    home.run("uninstall", "gemini-cli")
    assert not skill.parent.exists()


def test_a_skill_that_somebody_changed_is_kept(home: AgentHome) -> None:
    home.run("install", "claude-code")
    skill = home.home / ".claude" / "skills" / "agents-ledger" / "SKILL.md"
    write(skill, skill.read_text(encoding="utf-8") + "\nAlways ask first.\n")

    home.run("uninstall", "claude-code")

    assert "Always ask first." in skill.read_text(encoding="utf-8")


def test_agents_may_have_moved_their_folders(home: AgentHome) -> None:
    moved = {
        "CLAUDE_CONFIG_DIR": str(home.home / "c"),
        "CODEX_HOME": str(home.home / "x"),
        "XDG_CONFIG_HOME": str(home.home / "o"),
    }

    home.run("install", "claude-code", "codex", "opencode", environment=moved)

    assert {"c/.claude.json", "c/settings.json", "x/config.toml", "x/hooks.json"} <= set(
        home.files()
    )
    assert "o/opencode/opencode.json" in home.files()
    home.run("uninstall", "claude-code", "codex", "opencode", environment=moved)
    assert home.files() == {}


def test_the_messages_have_no_terminal_codes_and_no_traceback(home: AgentHome) -> None:
    write(home.home / ".codex" / "config.toml", "broken = ")
    done = home.run("install", "codex", check=False)

    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert os.linesep + os.linesep not in done.stdout


def test_the_plugin_beside_the_registration_is_reported(home: AgentHome) -> None:
    text = '{"enabledPlugins": {"agents-ledger@agents-ledger": true}}'
    write(home.home / ".claude" / "settings.json", text)

    assert "hooks run twice" in home.run("install", "claude-code").stderr
    assert "hooks run twice" not in home.run("install", "codex").stderr
