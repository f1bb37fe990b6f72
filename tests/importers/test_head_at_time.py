"""Where the head of an imported session was at a time: it follows from the times of its turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger, Refused
from agents_ledger.bus import AgentBus
from agents_ledger.model.sessions import Move
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.helping import import_paths

LABEL = f"claude-code:{SESSION}"


def extend(log: Log, *names: str) -> Log:
    for name in names:
        log.user(f"{name}1", f"Question {name}?")
        log.assistant(f"{name}2", text(f"Answer {name}."))
    log.save()
    return log


def all_lines(ledger: Ledger, label: str, limit: int) -> list[Move]:
    """The history, read page by page."""
    lines: list[Move] = []
    while page := ledger.history(label, limit=limit, before=lines[-1].cursor if lines else None):
        lines += page
    return lines


def check_heads(ledger: Ledger, label: str) -> None:
    """At every time around a line, the head is that of the first line that is not later."""
    lines = ledger.history(label, limit=1000)
    for at in {line.changed_at + shift for line in lines for shift in (-1, 0, 1)}:
        earlier = (line.thread_id for line in lines if line.changed_at <= at)
        assert ledger.head(label, at=at) == next(earlier, None)


@pytest.mark.finding("spec-D")
def test_an_imported_session_was_at_each_turn_when_that_ended(
    ledger: Ledger, tmp_path: Path
) -> None:
    import_paths(ledger, extend(Log(tmp_path), "a", "b", "c").path)

    turns = ledger.thread(LABEL).turns
    for turn, following in zip(turns, (*turns[1:], None), strict=True):
        assert turn.completed_at is not None
        assert ledger.head(LABEL, at=turn.completed_at) == turn.id
        if following is not None and following.completed_at is not None:
            assert ledger.head(LABEL, at=following.completed_at - 1) == turn.id
    assert ledger.head(LABEL, at=(turns[0].completed_at or 0) - 1) is None
    lines = ledger.history(LABEL)
    assert [line.thread_id for line in lines] == [turn.id for turn in reversed(turns)]
    assert [line.computed for line in lines] == [False, True, True]
    assert [line.changed_at for line in lines] == [turn.completed_at for turn in reversed(turns)]
    check_heads(ledger, LABEL)


def test_a_head_that_ended_before_its_import_is_dated_has_both_lines(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = extend(Log(tmp_path), "a", "b")
    log.add("system", "s1", subtype="informational", content="A late notice.")
    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    lines = ledger.history(LABEL)
    assert [(line.thread_id, line.computed) for line in lines] == [
        (turns[1].id, False),
        (turns[1].id, True),
        (turns[0].id, True),
    ]
    assert lines[0].changed_at > lines[1].changed_at == turns[1].completed_at
    check_heads(ledger, LABEL)


@pytest.mark.finding("spec-D")
def test_each_import_of_a_growing_session_adds_the_turns_it_brought(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    for names in ("ab", "c", "def"):
        import_paths(ledger, extend(log, *names).path)
    ours = ledger.record(LABEL, "Go on.", "Done.")

    lines = ledger.history(LABEL, limit=1000)
    thread = [turn.id for turn in ledger.thread(LABEL).turns]
    assert thread[-1] == ours.id
    assert [line.thread_id for line in lines] == thread[::-1]
    recorded = [line.thread_id for line in lines if not line.computed]
    assert recorded == [ours.id, thread[5], thread[2], thread[1]]
    check_heads(ledger, LABEL)
    assert all_lines(ledger, LABEL, 1) == all_lines(ledger, LABEL, 2) == list(lines)


def test_a_branch_that_the_source_left_stays_in_the_history(ledger: Ledger, tmp_path: Path) -> None:
    log = extend(Log(tmp_path), "a")
    fork = log.last
    import_paths(ledger, extend(log, "b").path)
    log.last = fork
    import_paths(ledger, extend(log, "c", "d").path)

    lines = ledger.history(LABEL)
    a, c, d = (turn.id for turn in ledger.thread(LABEL).turns)
    b = next(line.thread_id for line in lines if line.thread_id not in (a, c, d))
    assert [line.thread_id for line in lines] == [d, c, b, a]
    check_heads(ledger, LABEL)


def test_pages_of_recorded_moves_go_on_by_id(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for names in ("ab", "cd"):
        import_paths(ledger, extend(log, *names).path)

    latest, earlier = (line for line in ledger.history(LABEL) if not line.computed)
    page = ledger.history(LABEL, before=latest.id)
    assert page[0] == earlier
    for before in ("first", "9" * 5000, str(1 << 63)):
        with pytest.raises(Refused, match=f"'{before[:9]}.* is not a valid page cursor"):
            ledger.history(LABEL, before=before)


@pytest.mark.finding("spec-D")
def test_the_bus_tells_head_and_history_at_a_time(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, extend(Log(tmp_path), "a", "b", "c").path)
    first, second, third = ledger.thread(LABEL).turns
    bus = AgentBus(ledger)

    def call(ability: str, **params: object) -> Any:
        return json.loads(bus.invoke(ability)(json.dumps({"key": LABEL, **params})))

    assert call("ldg:session:head", at=second.completed_at)["turn_id"] == second.id
    page = call("ldg:session:history", limit=2)
    rest = call("ldg:session:history", before=page["before"])
    lines = [(line["thread_id"], line["computed"]) for line in page["moves"] + rest["moves"]]
    assert lines == [(third.id, False), (second.id, True), (first.id, True)]
