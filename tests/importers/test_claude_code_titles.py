"""What Claude Code calls its sessions."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.importing import rederive
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.helping import import_paths, result


@pytest.mark.parametrize("name", [uid("a2"), "redacted"])
def test_a_summary_is_the_title_of_the_session_whose_record_it_names(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), uuid=name)
    log.add("summary", summary="A beginning", leafUuid=name)
    log.add("summary", summary="Of a file that is gone", leafUuid=uid("99"))
    report = import_paths(ledger, log.save())

    assert ledger.session(f"claude-code:{SESSION}").title == "A beginning"
    assert report.records["claude-code", "summary", "derived"] == 1
    assert report.records["claude-code", "summary", "unmapped"] == 1


def elsewhere(folder: Path, *leafs: str) -> Path:
    """A later session, whose file begins with what others are called."""
    log = Log(folder, "22222222-2222-4222-8222-222222222222")
    for number, leaf in enumerate(leafs):
        log.add("summary", summary=f"Title {number}", leafUuid=leaf)
    log.user("c1", "Another thing.")
    log.assistant("c2", text("Done."))
    return log.save()


@pytest.mark.parametrize("order", ["title first", "title last", "together"])
@pytest.mark.parametrize("leaf", ["a2", "a3"])  # a message, and a piece of one
def test_a_title_in_another_file_goes_to_the_session_it_names(
    ledger: Ledger, tmp_path: Path, leaf: str, order: str
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), api="m")
    log.assistant("a3", text("And done."), api="m")
    paths = [log.save(), elsewhere(tmp_path, uid(leaf), uid("99"))]
    if order == "together":
        import_paths(ledger, *paths)
    else:
        for path in paths if order == "title last" else reversed(paths):
            import_paths(ledger, path)

    assert ledger.session(f"claude-code:{SESSION}").title == "Title 0"
    assert ledger.session("claude-code:22222222-2222-4222-8222-222222222222").title is None
    before = result(ledger)
    again = import_paths(ledger, *paths)
    assert (again.derived_records, again.written_turns) == (0, 0)
    rederive(ledger)
    assert result(ledger) == before


def test_the_last_record_with_a_title_tells_it_wherever_that_stands(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.add("summary", summary="Of its own", leafUuid=uid("a2"))
    log.user("b1", "Go on.")
    log.assistant("b2", text("Gone on."))
    import_paths(ledger, log.save())
    assert ledger.session(f"claude-code:{SESSION}").title == "Of its own"

    import_paths(ledger, elsewhere(tmp_path, uid("b2")))
    assert ledger.session(f"claude-code:{SESSION}").title == "Title 0"

    log.add("custom-title", customTitle="Mine", sessionId=SESSION)
    import_paths(ledger, log.save())
    assert ledger.session(f"claude-code:{SESSION}").title == "Mine"


def test_a_title_for_what_comes_later_derives_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    import_paths(ledger, log.save())

    report = import_paths(ledger, elsewhere(tmp_path, uid("99")))

    assert report.derived_records == 3
