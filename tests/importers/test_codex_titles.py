"""Codex: thread titles in the index."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.discovery import find
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.codex.source import Codex
from tests.importers.codex_log import THREAD, Rollout, index_line, thread_id
from tests.importers.helping import import_paths, result

LABEL, GONE = f"codex:{THREAD}", thread_id(99)


def home(folder: Path) -> tuple[Path, Path]:
    """A thread, and an index with its title."""
    log = Rollout(folder / "sessions" / "2026" / "03" / "01")
    log.exchange(1, "Hello.", "Hi.")
    index = folder / "session_index.jsonl"
    path = log.save()
    index.write_text(index_line(THREAD, "First") + index_line(GONE, "Gone"))
    return path, index


@pytest.mark.parametrize("order", [*permutations((0, 1)), None])
def test_index_titles_apply_whichever_file_comes_first(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...] | None
) -> None:
    paths = home(tmp_path)
    steps = [paths] if order is None else [(paths[each],) for each in order]
    reports = [import_paths(ledger, *step) for step in steps]

    assert ledger.session(LABEL).title == "First"
    assert [session.label for session in ledger.sessions()] == [LABEL]
    assert sum(each.records["codex", "(name)", "derived"] for each in reports) == 2
    assert not any(each.faults or each.unrecognised for each in reports)
    before = result(ledger)
    again = import_paths(ledger, *paths)
    assert (again.read_bytes, again.derived_records, again.written_turns) == (0, 0, 0)
    rederive(ledger)
    assert result(ledger) == before


def test_the_last_index_title_prevails_over_that_of_the_rollout(
    ledger: Ledger, tmp_path: Path
) -> None:
    path, index = home(tmp_path)
    log = Rollout(path.parent)
    log.exchange(1, "Hello.", "Hi.")
    log.event("thread_name_updated", thread_id=THREAD, thread_name="Of the rollout")
    log.save()
    import_paths(ledger, path)
    assert ledger.session(LABEL).title == "Of the rollout"
    import_paths(ledger, index)
    assert ledger.session(LABEL).title == "First"

    with index.open("a") as file:
        file.write(index_line(THREAD, "Renamed") + index_line(THREAD, " "))
    report = import_paths(ledger, index)

    assert ledger.session(LABEL).title == "Renamed"
    assert report.records["codex", "(name)", "unmapped"] == 1
    assert report.written_turns == 0


def test_a_thread_known_only_from_a_fork_has_its_title(ledger: Ledger, tmp_path: Path) -> None:
    parent = Rollout(tmp_path, thread_id(0))
    parent.exchange(1, "Hello.", "Hi.")
    child = parent.fork(tmp_path, thread_id(5), len(parent.lines))
    child.exchange(6, "Go on.", "Gone on.")
    index = tmp_path / "session_index.jsonl"
    index.write_text(index_line(thread_id(0), "Above"))
    import_paths(ledger, child.save())
    import_paths(ledger, index)

    assert ledger.session(f"codex:{thread_id(0)}").title == "Above"
    assert ledger.session(f"codex:{thread_id(5)}").title is None


def test_a_label_as_long_as_a_hash_is_not_a_project(ledger: Ledger, tmp_path: Path) -> None:
    path, index = home(tmp_path)
    import_paths(ledger, path)
    index.write_text(index_line("x" * (64 - len("codex:")), "Of another thread"))

    assert import_paths(ledger, index).derived_records == 1


def test_the_index_is_found_next_to_the_sessions(tmp_path: Path) -> None:
    home(tmp_path / ".codex")
    found = find(Home(tmp_path, {}, "linux"), [Codex.name])

    assert [each.path.name for each in found][-1] == "session_index.jsonl"
    assert len(found) == 2
