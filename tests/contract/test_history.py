"""History: where every head was, at any time, and who ever stood on a turn."""

from __future__ import annotations

import time

import pytest

from agents_ledger import Ledger, NotFound, Refused
from tests.builders import chain, grow


class Clock:
    """A clock that says what the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 1_700_000_000_000
        monkeypatch.setattr(time, "time_ns", lambda: self.ms * 1_000_000)


@pytest.fixture
def clock(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set once the ledger is open."""
    return Clock(monkeypatch)


def test_the_head_at_any_time_is_where_it_pointed_then(ledger: Ledger, clock: Clock) -> None:
    start = clock.ms
    heads = []
    for _ in range(3):
        heads += chain(ledger, "main", 1)
        clock.ms += 1000
    ledger.clear("main")

    assert ledger.head("main", at=start - 1) is None
    assert [ledger.head("main", at=start + late) for late in (0, 999, 1000, 2999)] == [
        heads[0],
        heads[0],
        heads[1],
        heads[2],
    ]
    assert ledger.head("main", at=start + 3000) is None
    assert ledger.head("main", at=start + 10**9) is None


def test_moves_keep_their_order_while_the_clock_runs_backwards(
    ledger: Ledger, clock: Clock
) -> None:
    start = clock.ms
    [first] = chain(ledger, "main", 1)
    clock.ms = start - 5000
    [second] = chain(ledger, "main", 1)
    clock.ms = start + 1000
    [third] = chain(ledger, "main", 1)

    assert [m.changed_at for m in ledger.history("main")] == [start + 1000, start - 5000, start]
    assert ledger.head("main", at=start - 5001) is None
    assert ledger.head("main", at=start - 1) == second
    assert ledger.head("main", at=start) == second
    assert ledger.head("main", at=start + 1000) == third
    assert ledger.undo("main").thread_id == second
    assert ledger.undo("main", ledger.history("main")[2].id).thread_id == first


def test_after_a_clock_was_far_ahead_once_the_head_at_a_time_is_right_again(
    ledger: Ledger, clock: Clock
) -> None:
    start, five_years = clock.ms, 5 * 365 * 24 * 3600 * 1000
    [before] = chain(ledger, "main", 1)
    clock.ms = start + five_years
    [wrong] = chain(ledger, "main", 1)
    clock.ms = start + 1000
    [after] = chain(ledger, "main", 1)
    clock.ms = start + 2000
    [last] = chain(ledger, "main", 1)

    heads = {at: ledger.head("main", at=start + at) for at in (0, 999, 1000, 1999, 2000)}
    assert heads == {0: before, 999: before, 1000: after, 1999: after, 2000: last}
    assert ledger.head("main", at=start + five_years) == last
    assert [move.thread_id for move in ledger.history("main")] == [last, after, wrong, before]
    assert ledger.session("main").updated_at == start + 2000
    assert ledger.undo("main").thread_id == after


def test_moves_within_one_millisecond_keep_their_order(ledger: Ledger, clock: Clock) -> None:
    turns = chain(ledger, "main", 5)

    assert [m.thread_id for m in ledger.history("main")] == turns[::-1]
    assert ledger.head("main", at=clock.ms) == turns[-1]


def test_the_timeline_comes_in_pages_latest_first(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 7)
    chain(ledger, "other", 2)

    seen: list[str | None] = []
    before = None
    while page := ledger.history("main", limit=3, before=before):
        seen += [move.thread_id for move in page]
        before = page[-1].id

    assert seen == turns[::-1]


def test_a_timeline_says_how_each_move_came_about(ledger: Ledger) -> None:
    first, _ = chain(ledger, "main", 2)
    ledger.fork(first, label="other")
    ledger.roll_back("main", first)
    ledger.undo("main")
    ledger.clear("main")
    ledger.move("main", first)

    reasons = [move.reason for move in ledger.history("main")]
    assert reasons == ["move", "clear", "undo", "rollback", "record", "record"]
    assert [move.reason for move in ledger.history("other")] == ["fork"]


def test_the_sessions_that_ever_included_a_turn_are_found(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3, 2-4-5, 1-6")
    ledger.move("6", ids["5"])
    ledger.move("6", ids["6"])
    ledger.clear("3")
    ledger.create_session("empty")

    assert ledger.sessions_including(ids["1"]) == ("3", "5", "6")
    assert ledger.sessions_including(ids["2"]) == ("3", "5", "6")
    assert ledger.sessions_including(ids["3"]) == ("3",)
    assert ledger.sessions_including(ids["5"]) == ("5", "6")
    assert ledger.sessions_including(ids["6"]) == ("6",)


def test_a_failed_turn_was_never_included_in_a_session(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    failed = ledger.record("main", "q", status="failed", error="no")

    assert ledger.sessions_including(failed.id) == ()


def test_a_turn_that_is_not_there_was_included_nowhere(ledger: Ledger) -> None:
    with pytest.raises(NotFound, match="no session or turn 'nothing'"):
        ledger.sessions_including("nothing")


def test_a_time_in_seconds_is_refused(ledger: Ledger) -> None:
    ledger.record("main", "q", "r")

    with pytest.raises(Refused, match="at is 1700000000, which is in early 1970"):
        ledger.head("main", at=1_700_000_000)
