"""Imported sessions that were renamed, or merged and unmerged, still follow their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger, NameTaken, Refused
from agents_ledger.importers import pipeline
from agents_ledger.importers.port.limits import LIMITS
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths

LABEL = f"claude-code:{SESSION}"
pytestmark = pytest.mark.finding("users-32")


def a_session_with_a_subagent(folder: Path) -> tuple[Log, Log]:
    log = Log(folder)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Agent", prompt="Look."))
    child = Log(folder / SESSION / "subagents", "agent-ab12")
    child.user("51", "Look.", isSidechain=True, agentId="ab12", sessionId=SESSION)
    child.assistant("52", text("Seen."), isSidechain=True, agentId="ab12", sessionId=SESSION)
    return log, child


def test_a_renamed_session_grows_with_its_file(ledger: Ledger, tmp_path: Path) -> None:
    log, child = a_session_with_a_subagent(tmp_path)
    import_paths(ledger, log.save())
    ledger.rename(LABEL, "shop")

    log.result("a3", "t1", "Seen.", toolUseResult={"agentId": "ab12"})
    log.assistant("a4", text("Done."))
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone."))
    report = import_paths(ledger, log.save(), child.save())

    assert (report.counts.upserted, report.counts.imported) == (1, 1)
    assert ledger.head("shop") == ledger.head(LABEL) == uid("b1")
    assert {session.label for session in ledger.sessions(status=None)} == {
        "shop",
        "claude-code:agent-ab12",
    }
    assert ledger.session("claude-code:agent-ab12").parent_session_label == "shop"
    assert ledger.get_turn(uid("a1")).tool_calls[0].spawned_session_label is not None
    assert ledger.audit() == ()


def test_a_renamed_session_is_derived_again(ledger: Ledger, tmp_path: Path) -> None:
    log, child = a_session_with_a_subagent(tmp_path)
    log.result("a3", "t1", "Seen.", toolUseResult={"agentId": "ab12"})
    log.assistant("a4", text("Done."))
    import_paths(ledger, log.save(), child.save())
    ledger.rename(LABEL, "shop")
    before = ledger.sessions(status=None)

    pipeline.rederive(ledger, LIMITS)

    assert ledger.sessions(status=None) == before
    assert ledger.audit() == ()


def test_a_name_that_the_files_give_cannot_be_removed(ledger: Ledger, tmp_path: Path) -> None:
    log, _ = a_session_with_a_subagent(tmp_path)
    import_paths(ledger, log.save())
    ledger.rename(LABEL, "shop")

    with pytest.raises(Refused, match="in the files it is imported from"):
        ledger.remove_alias(LABEL)


def test_a_renamed_session_that_was_merged_grows_and_can_be_unmerged(
    ledger: Ledger, tmp_path: Path
) -> None:
    log, _ = a_session_with_a_subagent(tmp_path)
    import_paths(ledger, log.save())
    for text_ in ("one", "two"):
        ledger.record("mine", text_, "answer")
    head = ledger.head("mine")
    ledger.rename(LABEL, "shop")
    ledger.merge("mine", "shop")

    log.assistant("a4", text("Done."))
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone."))
    import_paths(ledger, log.save())

    assert ledger.head("mine") == head
    ledger.unmerge("shop")
    assert ledger.head(LABEL) == ledger.head("shop") == uid("b1")
    assert [s.label for s in ledger.sessions(status=None)].count(LABEL) == 0
    assert ledger.audit() == ()


def a_session_whose_head_was_moved(ledger: Ledger, folder: Path) -> Log:
    """Its file grew after the move, which another session follows."""
    log = Log(folder)
    for name in ("a", "b"):
        log.user(f"{name}1", "Go on.")
        log.assistant(f"{name}2", text("Gone."))
    import_paths(ledger, log.save())
    ledger.move(LABEL, uid("a1"))
    log.user("c1", "Go on.")
    log.assistant("c2", text("Gone."))
    import_paths(ledger, log.save())
    assert ledger.head(f"{LABEL}~source") == uid("c1")
    return log


def test_the_session_that_follows_a_source_is_renamed_with_the_other(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = a_session_whose_head_was_moved(ledger, tmp_path)
    ledger.record("mine~source", "q", "a")

    with pytest.raises(NameTaken, match="'mine~source' leads to session 'mine~source' already"):
        ledger.rename(LABEL, "mine")
    ledger.rename(LABEL, "shop")
    log.user("d1", "Go on.")
    log.assistant("d2", text("Gone."))
    report = import_paths(ledger, log.save())

    assert report.faults == []
    assert {session.label for session in ledger.sessions(status=None)} == {
        "shop",
        "shop~source",
        "mine~source",
    }
    assert ledger.head("shop") == uid("a1")
    assert ledger.head("shop~source") == ledger.head(f"{LABEL}~source") == uid("d1")
    assert ledger.audit() == ()


def test_the_session_that_follows_a_source_has_no_label_of_its_own(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = a_session_whose_head_was_moved(ledger, tmp_path)

    with pytest.raises(Refused, match=f"'{LABEL}~source' follows the source of '{LABEL}'"):
        ledger.rename(f"{LABEL}~source", "shop")
    log.user("d1", "Go on.")
    log.assistant("d2", text("Gone."))
    report = import_paths(ledger, log.save())

    assert report.faults == []
    assert ledger.head(f"{LABEL}~source") == uid("d1")
    # A session that merely has such a label is a person's own.
    ledger.record("mine", "q", "a")
    ledger.record("mine~source", "q", "a")
    assert ledger.rename("mine", "yours").label == "yours"
    assert ledger.rename("mine~source", "theirs").label == "theirs"
