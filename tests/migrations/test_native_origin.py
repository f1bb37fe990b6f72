"""Migration 22: sessions recorded here say so, and messages of tasks name their task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.maintenance.copying import copy
from tests.importers.claude_log import SESSION, Log, text, tool
from tests.importers.helping import import_paths
from tests.migrations.earlier import downgrade
from tests.raw import Raw
from tests.tasking import a_talk

IMPORTED = f"claude-code:{SESSION}"
SUBAGENT = "claude-code:agent-abc"  # its log was never seen


def fill(ledger: Ledger, folder: Path) -> None:
    """A native session, a task, and an imported session that was continued on both sides."""
    ledger.record("main", "q", "r", workspace_path="/home/dev/shop")
    a_talk(ledger)
    log = Log(folder)
    log.user("a1", "Question?")
    log.assistant("a2", tool("t1", "Task", prompt="Look."))
    log.result("a3", "t1", "Seen.", toolUseResult={"agentId": "abc"})
    log.assistant("a4", text("Answer."))
    import_paths(ledger, log.save())
    ledger.record(IMPORTED, "Go on.", "Done.")
    log.user("b1", "Another?")
    log.assistant("b2", text("Another answer."))
    import_paths(ledger, log.save())


@pytest.mark.finding("spec-J", "spec-Q")
def test_a_ledger_of_the_version_before_is_brought_up_to_date(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    address = new_address()
    with Ledger.open(address) as ledger:
        fill(ledger, tmp_path)
    with Raw(address) as raw:
        before = raw.dump()
    downgrade(address, to=21)

    with Ledger.open(address) as ledger:
        assert ledger.audit() == ()
    with Raw(address) as raw:
        after = raw.dump()
        origins = {row[0]: row[1] for row in raw.execute("SELECT label, origin FROM sessions")}
    for table in ("schema_migrations", "evidence", "ledger_settings"):
        del before[table], after[table]
    assert after == before
    assert origins == {
        "main": "native",
        "task:t1": "bus",
        IMPORTED: "claude-code",
        f"{IMPORTED}~source": "claude-code",
        SUBAGENT: "claude-code",
    }


@pytest.mark.finding("spec-J", "spec-6")
def test_a_file_that_nobody_has_upgraded_yet_can_be_read(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    with Ledger.open(address) as ledger:
        fill(ledger, tmp_path)
    downgrade(address, to=21)

    with Ledger.open(address, read_only=True) as ledger:
        native = {session.label for session in ledger.sessions(origin="native")}
        assert native == {"main", f"{IMPORTED}~source", SUBAGENT}
        assert ledger.session("main").origin == "native"
        assert ledger.thread("task:t1").depth == 1
        assert ledger.audit() == ()
    copy(address, str(tmp_path / "copy.db"))
    with Ledger.open(str(tmp_path / "copy.db")) as ledger:
        assert ledger.audit() == ()
