"""A person's home with a project, a ledger and settings of agents, and the program run in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents_ledger import Ledger

PROGRAM = (sys.executable, "-c", "from agents_ledger.__main__ import main; main()")


class AgentHome:
    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "work" / "shop"
        (self.project / ".git").mkdir(parents=True)
        self.data = self.home / ".local" / "share" / "agents-ledger"
        self.data.mkdir(parents=True)
        self.ledger_file = self.data / "ledger.db"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def ledger(self) -> Ledger:
        return Ledger.open(str(self.ledger_file), create=True)

    def index(self) -> None:
        """Index what waits, as the import of a session does."""
        with self.ledger() as ledger:
            ledger.index_in_background()

    def run(
        self,
        *words: str,
        stdin: str = "",
        check: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*PROGRAM, *words],
            input=stdin,
            env={**self.environment, **(environment or {})},
            cwd=self.project,
            capture_output=True,
            text=True,
            check=check,
        )

    def hook(self, agent: str, event: str, fields: Mapping[str, Any] | str, **more: str) -> str:
        """What a hook prints. It always exits with 0, and prints no error."""
        stdin = fields if isinstance(fields, str) else json.dumps(fields)
        done = self.run("hook", event, "--agent", agent, stdin=stdin, environment=more)
        assert done.stderr == ""
        return done.stdout

    def settings(self, text: str) -> None:
        folder = self.home / ".config" / "agents-ledger"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.toml").write_text(text, encoding="utf-8")

    def doctor(self) -> dict[str, Any]:
        """The facts that doctor reports, by name."""
        facts = json.loads(self.run("doctor", "--json", check=False).stdout)["facts"]
        return {fact["name"]: fact for fact in facts}

    def files(self) -> dict[str, bytes]:
        """Every file outside of our own folders."""
        files = {p.relative_to(self.home): p for p in self.home.rglob("*") if p.is_file()}
        return {str(n): p.read_bytes() for n, p in files.items() if n.parts[0] != ".local"}
