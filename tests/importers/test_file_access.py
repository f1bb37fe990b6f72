"""Only calls that succeeded read or write files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger, ToolCall
from agents_ledger.importers.pipeline import rederive
from agents_ledger.model.turns import CallStatus
from tests.importers.claude_log import SESSION, Log, text, tool
from tests.importers.helping import import_paths
from tests.raw import Raw

LABEL = f"claude-code:{SESSION}"
FILES = "SELECT kind, file_path FROM message_files ORDER BY file_path"


def a_log(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", "Change them.")
    for name in ("done", "failed", "rejected", "open"):
        log.assistant(f"b{name}", tool(f"t{name}", "Edit", file_path=f"/home/dev/{name}.py"))
    log.result("c1", "tdone", "Changed.")
    log.result("c2", "tfailed", "String not found.", is_error=True)
    log.result(
        "c3",
        "trejected",
        "The user doesn't want to proceed with this tool use.",
        is_error=True,
        toolUseResult="User rejected tool use",
    )
    log.assistant("d1", text("One of them."))
    return log


@pytest.mark.finding("spec-2")
def test_an_imported_call_that_did_not_succeed_is_no_file_access(
    ledger: Ledger, tmp_path: Path, raw: Raw
) -> None:
    import_paths(ledger, a_log(tmp_path).save())

    [turn] = ledger.thread(LABEL).turns
    statuses = [call.status for call in turn.tool_calls]
    assert statuses == ["completed", "failed", "rejected", "cancelled"]
    assert raw.execute(FILES) == [("written", "/home/dev/done.py")]
    for name in ("failed", "rejected", "open"):
        assert ledger.files(f"{name}.py").touches == ()
    assert [touch.action for touch in ledger.files("done.py").touches] == ["written"]


@pytest.mark.finding("spec-2")
def test_deriving_again_takes_back_what_an_older_version_counted(
    ledger: Ledger, tmp_path: Path, raw: Raw
) -> None:
    import_paths(ledger, a_log(tmp_path).save())
    ids = raw.execute("SELECT id FROM messages ORDER BY id")
    failed = ledger.thread(LABEL).turns[0].tool_calls[1].message_id
    with raw.unguarded():
        raw.execute(
            "INSERT INTO message_files (message_id, kind, file_path)"
            " VALUES (?, 'written', '/home/dev/failed.py')",
            (failed,),
        )
        raw.execute("UPDATE messages SET has_details = 1 WHERE id = ?", (failed,))
        raw.execute("UPDATE turns SET request_hash = ?", (b"older",))
        raw.execute("UPDATE source_files SET derived_version = 1")

    rederive(ledger)

    assert raw.execute(FILES) == [("written", "/home/dev/done.py")]
    assert raw.execute("SELECT id FROM messages ORDER BY id") == ids
    assert ledger.audit() == ()


@pytest.mark.finding("spec-2")
@pytest.mark.parametrize("status", ["failed", "cancelled", "rejected"])
def test_a_recorded_call_that_did_not_succeed_is_no_file_access(
    ledger: Ledger, status: CallStatus
) -> None:
    def edit(path: str, **fields: Any) -> ToolCall:
        return ToolCall("Edit", json.dumps({"file_path": path}), **fields)

    ledger.record("main", "q", "r")
    ledger.fork("main", label="other")
    steps = [edit("/dev/r.py", status=status), edit("/dev/ok.py", status="completed")]
    ledger.record("main", "q", "r", steps=steps)

    assert ledger.files("r.py").touches == ()
    assert len(ledger.files("ok.py").touches) == 1
    files = ledger.compare("main", "other").a.files
    assert [file.file_path for file in files] == ["/dev/ok.py"]
