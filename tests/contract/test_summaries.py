"""Summaries: sums of days that are over say what the turns say, and count only while they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger import AsyncLedger, Ledger, ToolUsage, Usage, UsageReport, now_ms
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import Database
from tests.builders import a_call
from tests.raw import Raw

DAY = 86_400_000
NOON = now_ms() // DAY * DAY - 10 * DAY + DAY // 2  # ten days ago
SUMMED = 11  # days, from the first turn to the day before yesterday
MODELS = ("claude-opus-5", "mystery", None)


def spend(ledger: Ledger, at: int = NOON, **fields: Any) -> str:
    call = a_call("Bash", started_at=at, completed_at=at + 70)
    told = {"model": "claude-opus-5", "usage": Usage(1000, 100, 900, 0, 7), **fields}
    return ledger.record(
        "main", "q", "a", steps=[call], started_at=at, completed_at=at + 99, **told
    ).id


@pytest.fixture
def spent(ledger: Ledger) -> Ledger:
    for day in range(4):
        for number, model in enumerate(MODELS):
            spend(ledger, NOON + (day - 2) * DAY + number, model=model, workspace_path=f"/{day}")
    return ledger


def told(ledger: Ledger) -> list[UsageReport | tuple[ToolUsage, ...]]:
    """Everything that is asked of sums."""
    inside: dict[str, Any] = {"since": NOON - DAY - 7, "until": NOON + 2 * DAY + 7}
    return [
        *(ledger.usage(by) for by in ("day", "month", "model", "project", "session")),
        ledger.usage("day", **inside),
        ledger.tools(),
        ledger.tools(**inside),
    ]


def days(raw: Raw) -> int:
    return int(raw.execute("SELECT count(*) FROM summary_days")[0][0])


def test_sums_say_what_the_turns_say(spent: Ledger, raw: Raw) -> None:
    before = told(spent)

    summed = spent.summarise()

    assert summed == days(raw) == SUMMED
    assert told(spent) == before
    assert spent.summarise() == 0


def test_sums_are_what_is_read(spent: Ledger, raw: Raw) -> None:
    spent.summarise()
    raw.execute("UPDATE usage_sums SET turns = turns + 1000")
    raw.execute("UPDATE tool_sums SET calls = calls + 1000")
    try:
        assert spent.usage().total.turns > 1000
        assert spent.tools()[0].calls > 1000
    finally:
        raw.execute("DELETE FROM summary_days")


def test_today_and_yesterday_are_not_summed_up(ledger: Ledger, raw: Raw) -> None:
    for ago in (0, 1, 2):
        spend(ledger, now_ms() - ago * DAY)

    assert ledger.summarise() == 1
    assert ledger.usage().total.turns == 3


def test_a_turn_recorded_later_takes_its_day_out(spent: Ledger, raw: Raw) -> None:
    spent.summarise()
    counted = days(raw)

    spend(spent, NOON)

    assert days(raw) == counted - 1
    assert spent.usage().total.turns == 13
    assert spent.summarise() == 1
    assert spent.usage().total.turns == 13


def test_a_turn_that_ends_later_takes_its_day_out(ledger: Ledger, raw: Raw) -> None:
    spend(ledger)
    with ledger.turn("main", "q", started_at=NOON) as turn:
        ledger.summarise()
        counted = days(raw)
        turn.respond("a", usage=Usage(5, 5))

    assert days(raw) == counted - 1
    assert ledger.usage().total.total_tokens == 1110


def test_a_projected_turn_that_is_written_again_or_goes_takes_its_day_out(
    ledger: Ledger, raw: Raw
) -> None:
    raw.execute(
        "INSERT INTO turns (id, status, started_at, projected, total_tokens)"
        f" VALUES ('p', 'completed', {NOON}, 1, 7)"
    )
    for change in (
        "UPDATE turns SET total_tokens = 5 WHERE id = 'p'",
        f"UPDATE turns SET started_at = {NOON - DAY} WHERE id = 'p'",
        "DELETE FROM turns WHERE id = 'p'",
    ):
        ledger.summarise()
        counted = days(raw)

        raw.execute(change)

        assert days(raw) < counted, change
    assert ledger.usage().total.turns == 0


def test_what_is_no_part_of_the_sums_leaves_them(spent: Ledger, raw: Raw) -> None:
    spent.summarise()
    counted = days(raw)

    spent.fork(spent.ancestry("main")[0], label="other")
    spent.record("other", "now", "yes")  # its parent learns that it has children

    assert days(raw) == counted


def test_an_empty_ledger_has_nothing_to_sum_up(ledger: Ledger) -> None:
    assert ledger.summarise() == 0


def test_a_turn_of_long_ago_is_counted(ledger: Ledger) -> None:
    spend(ledger, 5)
    spend(ledger)

    ledger.summarise()

    assert ledger.usage().total.turns == 2
    assert ledger.usage("day").lines[0].key == "1970-01-01"


def test_a_turn_that_says_no_time_makes_no_days_before_the_first(spent: Ledger, raw: Raw) -> None:
    raw.execute("INSERT INTO turns (id, started_at, projected) VALUES ('untold', 0, 1)")

    spent.summarise()

    assert days(raw) == SUMMED
    assert spent.usage().total.turns == 13
    raw.execute("DELETE FROM turns WHERE id = 'untold'")


def test_a_copy_goes_without_sums(
    spent: Ledger, address: str, new_address: Callable[[], str]
) -> None:
    from agents_ledger.ledger.maintenance import copying

    spent.summarise()
    target = new_address()

    copying.copy(address, target)

    with Ledger.open(target) as copied:
        assert copied.usage("day") == spent.usage("day")
        assert copied.summarise() == SUMMED
        assert copied.audit() == ()


async def _summed(address: str) -> tuple[int, int]:
    async with AsyncLedger.open(address) as ledger:
        return await ledger.summarise(), await ledger.summarise()


def test_asyncio_sums_up_too(spent: Ledger, address: str) -> None:
    import asyncio

    assert asyncio.run(_summed(address)) == (SUMMED, 0)


def test_days_with_few_turns_are_summed_up_together(spent: Ledger, db: Database) -> None:
    from agents_ledger.ledger.reports import daily_totals
    from tests.statements import Meddled

    before = told(spent)
    counted, database = Meddled.over(db)

    assert daily_totals.summarise(database) == SUMMED
    assert counted.ran.count("sum_usage") == counted.ran.count("sum_tools") == 1
    assert len(counted.ran) <= SUMMED + 10
    assert told(spent) == before


def test_no_more_is_summed_up_at_once_than_others_can_wait_for(
    spent: Ledger, limited: Callable[..., Ledger]
) -> None:
    from agents_ledger.ledger.reports import daily_totals

    limits = LedgerLimits(total_turns=7, total_days=3)
    before = told(spent)
    turns = [3, 4, 1, 0, 0, 0, 9, 0]
    days_of = [daily_totals.SummedDay(*each) for each in enumerate(turns)]
    batches = daily_totals._batches(days_of, limits)

    assert [[day.turns for day in days] for days in batches] == [[3, 4], [1, 0, 0], [0], [9], [0]]
    assert limited(total_turns=7, total_days=3).summarise() == SUMMED
    assert told(spent) == before


def test_sums_left_over_from_before_do_not_count(spent: Ledger, raw: Raw) -> None:
    """A day that lost its turns is empty; one that got some again has their sums alone."""
    spent.summarise()
    before = spent.usage().total.turns

    spend(spent, NOON)
    spent.summarise()

    assert spent.usage().total.turns == before + 1
    assert spent.audit() == ()


def test_two_may_sum_up_at_once(spent: Ledger, db: Database) -> None:
    from agents_ledger.ledger.reports import daily_totals

    days = [daily_totals.SummedDay(day, 0) for day in range(NOON // DAY - 3, NOON // DAY + 3)]
    before = told(spent)

    for _ in range(2):  # both found the same days missing
        db.write(lambda tx: daily_totals._sum_up(tx, days))

    assert told(spent) == before
