"""docs/reference/cli.md lists every command, option, exit code and JSON key, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest

from agents_ledger.cli import INTERRUPTED
from agents_ledger.cli.errors import EXIT_CODES
from agents_ledger.cli.main import COMMANDS, PIPE_CLOSED, main
from tests.docs.console import ROOT, blocks, commands, masked, printed
from tests.importers.claude_log import SESSION, Log

PAGE = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
SECTIONS = {
    title: body for title, body in re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}
SHARED = {"--ledger", "--json", "--help", "-h"}


def options(command: click.Command) -> set[str]:
    names = ((*option.opts, *option.secondary_opts) for option in command.params)
    return {name for each in names for name in each if name.startswith("-")}


def test_every_command_has_its_section_and_every_section_its_command() -> None:
    assert [title for title in SECTIONS if title in COMMANDS] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_told_and_no_other(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None

    told = set(re.findall(r"--[a-z][a-z-]+|(?<=\[)-[a-z](?=,)", SECTIONS[name]))

    assert told == options(command) - SHARED


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None

    assert command.name == name
    assert command.help


def test_every_exit_code_is_told() -> None:
    table = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}

    assert table == {0, 1, 2, *EXIT_CODES.values(), INTERRUPTED, PIPE_CLOSED}


def test_every_key_of_an_answer_is_told(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    answers = {
        "up": "up",
        "import": f"import {log.save()}",
        "export": f"export claude-code:{SESSION} --format source --output {tmp_path / 'given'}",
        "rederive": "rederive",
        "sessions": "sessions",
        "show": "show demo",
        "tree": "tree",
        "search": "search tests",
        "files": "files durations.py",
        "recall": "recall tests",
        "fix": "fix '2 of 14 tests failed'",
        "how": "how Bash",
        "install": "install claude-code --dry-run",
        "uninstall": "uninstall claude-code --dry-run",
        "replay": "replay demo",
        "compare": "compare demo demo-strict --diff",
        "usage": "usage",
        "tools": "tools",
        "context": "context demo --as openai",
        "compact": "compact demo --strategy sliding_window",
        "fork": "fork demo",
        "archive": "archive demo-search",
        "alias": "alias demo-strict strict",
        "rename": "rename demo-strict demo-exact",
        "merge": "merge demo demo-exact",
        "note": "note demo-strict --star",
        "history": "history demo-strict",
        "undo": "undo demo-strict",
        "chat": "chat demo --message Hello --model echo",
        "resume": "resume demo",
        "rerun": "rerun demo",
        "queue": "queue",
        "audit": "audit",
        "secrets": "secrets",
        "verify": "verify",
        "prove": "prove demo",
        "checkpoint": f"checkpoint --to {tmp_path / 'checkpoints'}",
        "redact": "redact --kind all --dry-run",
        "retention": "retention --dry-run",
        "recover": "recover",
        "doctor": "doctor",
        "token": "token list",
        "sql": "sql 'SELECT 1'",
        "copy": f"copy {ledger} {tmp_path / 'copy.db'}",
        "backup": f"backup {tmp_path / 'saved.db'}",
        "restore": f"restore {tmp_path / 'saved.db'} {tmp_path / 'back.db'}",
        "salvage": f"salvage {tmp_path / 'saved.db'} {tmp_path / 'salvaged.db'}",
    }
    assert set(answers) == set(COMMANDS) - {"watch", "serve", "mcp", "hook", "decrypt"}
    for name, words in answers.items():
        answer = json.loads(printed(f"agents-ledger {words} --json", ledger))
        told = re.search(r"^JSON: (.*?)(?=\n\n|\Z)", SECTIONS[name], re.M | re.S)
        assert told, name
        keys = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", told[1]))
        assert set(keys) == set(answer) - {"schema_version"}, name


def test_what_is_shown_is_what_is_printed(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.db")
    printed("agents-ledger up --no-serve", ledger)
    for block in blocks("docs/reference/cli.md", "console"):
        for command, output in commands(block):
            assert masked(output) == masked(printed(command, ledger)), command
